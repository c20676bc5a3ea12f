#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "parallel/job/built_model.hpp"
#include "scenarios/plan/bounds/shared.hpp"
#include "scenarios/plan/plan.hpp"
#include "scenarios/plan/space/keys.hpp"
#include "scenarios/scenario/scenario.hpp"

namespace tidemark::scenarios {

/// Models that candidates share, made when first asked for; from any thread.
class SharedModels {
 public:
  [[nodiscard]] std::shared_ptr<const BuiltModel> model_of(const Model& model, const ModelOptions& options);

 private:
  std::mutex mutex_;
  std::vector<std::pair<ModelKey, std::shared_ptr<const BuiltModel>>> known_;
};

/// Whether a candidate whose fullest rank takes at least so much, at the upper ends of estimates, is no better than one
/// that is known.
using Dominated = std::function<bool(Bytes device_upper)>;

/// Memory of candidates by the emulated allocator, as `predict` says it, without their whole programs and without a
/// clock. Candidates that are the same job but for the order of ranks allocate the same, and share the runs. From any
/// thread.
class ExactMemory {
 public:
  struct Answer {
    Figures figures;              ///< without time; of the ranks looked at
    bool dominated = false;       ///< then figures are not those of the candidate
    bool asks_the_clock = false;  ///< then a device may hold more than `device_upper`, by the clock
  };

  explicit ExactMemory(SharedModels& models) : models_(models) {}

  /// The same with as many tokens on every rank as the scenario states. Nothing where states and passes are not apart,
  /// or the allocator has a limit of its own, or the host's memory counts: such a job has to be predicted in full.
  [[nodiscard]] std::optional<Answer> as_stated(const Scenario& scenario, const Dominated& dominated = {});

  /// Of all ranks; where `dominated` is given, up to the first that does not fit, or shows that nothing can be
  /// won. The answer does not depend on what was asked before.
  [[nodiscard]] Answer of(const Scenario& scenario, const Dominated& dominated = {});

 private:
  struct Runs;

  SharedModels& models_;
  Latest<Scenario, Runs> known_{64};
};

/// Of all ranks of one candidate.
[[nodiscard]] Figures exact_memory(const Scenario& scenario, SharedModels& models);

/// A candidate in full, with the figures that `predict` has: both whole steps on the clock, without a timeline, and
/// every allocation of every micro-batch through the allocator, except what comes again once its state does. What
/// `predict` also tells (when peaks are reached, where time goes) is left out, and ranks that run the passes of another
/// share its program. Where streams borrow blocks, `predict` itself: it has the timeline that memory asks. Throws
/// InternalError where programs are not sound.
[[nodiscard]] Figures whole_figures(const Scenario& scenario);

/// How long a step takes, as `predict` says it; nothing where the job deadlocks. Candidates that are the same job share
/// the clock. From any thread.
class ExactTime {
 public:
  [[nodiscard]] std::optional<Duration> step(const Scenario& scenario);

 private:
  struct Known {
    std::mutex mutex;
    bool requested = false;
    std::optional<Duration> step;
  };
  Latest<Scenario, Known> known_{64};
};

/// The same, and what that makes in tokens per second and device.
void add_exact_time(const Scenario& scenario, Figures& figures);

}  // namespace tidemark::scenarios
