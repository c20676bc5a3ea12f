#include "scenarios/predict/time/step_causes.hpp"

#include <algorithm>
#include <utility>

#include "sim/base/ensure.hpp"

namespace tidemark::scenarios {
namespace {

__extension__ using Wide = __int128;  // picoseconds of all ranks

constexpr std::array<std::string_view, step_cause_count> names{"compute",     "tensor",   "context",    "expert",
                                                               "data",        "pipeline", "statistics", "bubble",
                                                               "other_ranks", "copies",   "host"};

// By the names that parallel/job/mesh.cpp gives; of what is not here, statistics are made.
constexpr auto purposes = std::to_array<std::pair<std::string_view, StepCause>>({
    {"tensor", StepCause::Tensor},
    {"expert_tensor", StepCause::Tensor},
    {"user_buffers", StepCause::Tensor},
    {"context", StepCause::Context},
    {"context_heads", StepCause::Context},
    {"context_neighbours", StepCause::Context},
    {"expert", StepCause::Expert},
    {"expert_model", StepCause::Expert},
    {"deep_ep", StepCause::Expert},
    {"data", StepCause::Data},
    {"shard", StepCause::Data},
    {"secondary", StepCause::Data},
    {"replicate", StepCause::Data},
    {"expert_data", StepCause::Data},
    {"expert_shard", StepCause::Data},
    {"pipeline", StepCause::Pipeline},
    {"embedding", StepCause::Pipeline},
});

}  // namespace

std::string_view name(StepCause cause) { return names[static_cast<std::size_t>(cause)]; }

StepCause cause_of(const Communicator& communicator) {
  const auto found = std::ranges::find(purposes, communicator.name, [](const auto& purpose) { return purpose.first; });
  return found == purposes.end() ? StepCause::Statistics : found->second;
}

CauseTimes cause_times(const std::vector<Communicator>& communicators, const std::vector<AlikeRanks>& classes) {
  std::array<Wide, step_cause_count> sums{};
  Wide ranks = 0;
  for (const auto& [size, times] : classes) {
    const Wide each = size;
    const auto add = [&](StepCause cause, Duration part) {
      sums[static_cast<std::size_t>(cause)] += each * part.count();
    };
    ranks += size;
    add(StepCause::Compute, times.kernels);
    add(StepCause::Copies, times.copies);
    add(StepCause::Host, times.idle);
    for (std::size_t slot = 0; slot < communicators.size(); ++slot) {
      const StepCause cause = cause_of(communicators[slot]);
      add(cause, times.transferring[slot]);
      add(cause == StepCause::Pipeline ? StepCause::Bubble : StepCause::OtherRanks, times.waiting[slot]);
    }
  }
  CauseTimes found{};
  if (ranks == 0) return found;
  Duration rest = classes.front().times.step;
  for (std::size_t cause = 0; cause < step_cause_count; ++cause) {
    found[cause] = Duration{static_cast<std::int64_t>(sums[cause] / ranks)};
    rest -= found[cause];
  }
  // What rounding down has left, less than a picosecond of each, goes to the largest.
  ensure(rest >= Duration{} && rest.count() < static_cast<std::int64_t>(step_cause_count), "a step is its parts");
  *std::ranges::max_element(found) += rest;
  return found;
}

CauseTimes cause_times(const std::vector<Communicator>& communicators, const Folding& folding,
                       const std::vector<StepTimes>& classes) {
  std::vector<AlikeRanks> all;
  for (std::size_t c = 0; c < classes.size(); ++c) all.push_back({folding.classes[c].size, classes[c]});
  return cause_times(communicators, all);
}

}  // namespace tidemark::scenarios
