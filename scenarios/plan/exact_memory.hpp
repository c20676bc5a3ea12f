#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "parallel/graph.hpp"
#include "scenarios/plan/plan.hpp"
#include "scenarios/scenario.hpp"

namespace tidemark {

/// Layer graphs that candidates share, made when first asked for; from any thread.
class SharedGraphs {
 public:
  [[nodiscard]] std::shared_ptr<const ModelGraph> graph_of(const Model& model, const GraphOptions& options);

 private:
  struct Known {
    Model model;
    GraphOptions options;
    std::shared_ptr<const ModelGraph> graph;
  };
  std::mutex mutex_;
  std::vector<Known> known_;
};

/// Memory of a candidate's fullest rank, as `predict` says it, without its whole programs. Time is left out. Ends as
/// soon as the ranks seen so far are `enough`: then figures are those of them.
[[nodiscard]] Figures exact_memory(const Scenario& scenario, SharedGraphs& graphs,
                                   const std::function<bool(const Figures&)>& enough = {});

/// How long a step takes, as `predict` says it, and what that makes in tokens per second and device.
void add_exact_time(const Scenario& scenario, SharedGraphs& graphs, Figures& figures);

}  // namespace tidemark
