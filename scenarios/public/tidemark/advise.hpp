#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tidemark/scenario.hpp>

namespace tidemark {

/// It does not fit, or barely: the smallest sets of changes that make it fit, each one simulated.
struct Advice {
  struct Remedy {
    std::vector<std::string> changes;     ///< "train.micro_batch: 4 -> 1"
    bool changes_training = false;        ///< what is trained becomes another: shorter sequences, fewer bits
    std::string scenario;                 ///< with them, as a scenario file has it
    std::int64_t device_upper_bytes = 0;  ///< of the fullest rank, at the upper ends of estimates
    double step_s = 0;
  };
  bool fits = false;             ///< as it is, and nothing more was asked for
  std::int64_t lacks_bytes = 0;  ///< of the fullest device, as it is; negative: to spare
  std::vector<Remedy> remedies;  ///< those that train the same first; the fewest changes, then the fastest
  std::string text;
  std::string json;  ///< "tidemark.advice/1"
};
struct AdviseOptions : Options {
  std::optional<std::size_t> most_changes;  ///< at once; nothing: until some are enough, and three
  std::optional<std::int64_t> free_bytes;   ///< how much less is to be held than now; nothing: it is to fit
};
[[nodiscard]] std::optional<Advice> advise(const Scenario& scenario, const AdviseOptions& options);

}  // namespace tidemark
