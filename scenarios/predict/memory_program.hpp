#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "scenarios/namespace.hpp"
#include "scenarios/predict/allocator_events.hpp"
#include "scenarios/predict/events_replay.hpp"
#include "scenarios/predict/required_memory.hpp"
#include "scenarios/predict/role_program.hpp"
#include "scenarios/predict/upper_ends/deferred_frees.hpp"
#include "sim/base/units.hpp"
#include "sim/memory/allocator_options.hpp"
#include "sim/memory/replay.hpp"
#include "sim/program/costs.hpp"
#include "sim/program/launch_queue.hpp"
#include "sim/program/left_out.hpp"
#include "sim/program/program.hpp"
#include "sim/program/structure/of_memory.hpp"
#include "sim/program/structure/repeats.hpp"

namespace tidemark::scenarios {

/// What a role does to memory where its state and its passes are apart, and null otherwise.
struct RoleEvents {
  std::shared_ptr<const StateEvents> state;
  std::shared_ptr<const StageEvents> passes;

  RoleEvents() = default;
  explicit RoleEvents(const std::shared_ptr<const RankEvents>& whole) {
    if (whole) state = {whole, &whole->state}, passes = {whole, &whole->passes};
  }
  explicit RoleEvents(std::optional<RankEvents> whole)
      : RoleEvents(whole ? std::make_shared<const RankEvents>(std::move(*whole)) : nullptr) {}
  RoleEvents(std::shared_ptr<const StateEvents> its_state, std::shared_ptr<const StageEvents> its_passes)
      : state(std::move(its_state)), passes(std::move(its_passes)) {}
  [[nodiscard]] bool apart() const { return state && passes; }
  /// Whether the state is the one that a program without passes shows.
  [[nodiscard]] bool with_state(const StateEvents& alone) const {
    return apart() && same_state(*state, *passes, alone);
  }
};

/// All that a rank does to memory, with the bodies of its loops once.
struct WholeMemory {
  /// All ops: a replay whose frees come at the latest (AtNextSync) needs launches and waits. Null where none is asked
  /// for.
  std::shared_ptr<const RepeatingProgram> program;
  MemoryOutline of_memory;
  /// By op number of `of_memory`'s replay: the op of the program that ran on the clock. Empty: the numbers are the
  /// same.
  std::vector<std::uint32_t> on_clock = {};
  bool has_times = true;  ///< false: no clock ran a program with these ops
};

/// What ranks run: op by op, and the same in short, which is quicker to try on devices of limited memory.
class MemoryProgram {
 public:
  /// `program` is the one that `whole` makes without what is left out. All of it outlives this.
  MemoryProgram(const Program& program, const RoleEvents& events, const std::vector<LeftOut>& left_out,
                std::function<WholeMemory()> whole)
      : program(program), events_(events), left_out_(left_out), make_whole_(std::move(whole)) {}

  /// Once a few bodies of each loop have not shown what all of them do, all of them are played.
  [[nodiscard]] MemoryRecord replayed(const DriverCosts& costs, const ReplayOptions& options) const;
  /// The highest upper end where lent blocks come back at the latest; nothing where memory runs out.
  [[nodiscard]] std::optional<Bytes> at_the_latest(const DriverCosts& costs, Bytes capacity,
                                                   const AllocatorOptions& allocator, const LaunchQueue& queue) const;
  [[nodiscard]] MemoryOf memory() const {
    return [this](const DriverCosts& costs, const ReplayOptions& options) { return replayed(costs, options); };
  }
  [[nodiscard]] RunOn run_on(const JudgedDevice& device) const {
    return events_.apart() ? run_of(events_.state, events_.passes, device) : run_of(memory(), device);
  }

  const Program& program;

 private:
  RoleEvents events_;
  const std::vector<LeftOut>& left_out_;
  std::function<WholeMemory()> make_whole_;
  mutable std::optional<WholeMemory> whole_;
};

}  // namespace tidemark::scenarios
