#pragma once

#include <map>
#include <string>
#include <utility>

#include "scenarios/predict/prediction.hpp"
#include "tests/namespace.hpp"

// Scenarios of scenarios/examples/seeds, and what becomes of them with a few keys changed.

namespace tidemark::tests::seeds {

/// What a changed scenario was predicted to be; each is predicted once.
class Lab {
 public:
  /// `changes` are lines of TOML with whole keys, such as train.micro_batch = 1.
  [[nodiscard]] const Prediction& operator()(const std::string& scenario, const std::string& changes = "");

 private:
  std::map<std::pair<std::string, std::string>, Prediction> known_;
};

[[nodiscard]] inline const MemoryRecord& memory(const Prediction& p) { return p.highest().memory; }
/// What the fullest rank's tensors are made of when there are most of them in that phase.
[[nodiscard]] inline const Composition& in(const Prediction& p, Phase phase) {
  return memory(p).allocated_by_phase[static_cast<std::size_t>(phase)].composition;
}

}  // namespace tidemark::tests::seeds
