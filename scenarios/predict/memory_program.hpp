#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "scenarios/namespace.hpp"
#include "scenarios/predict/allocator_events.hpp"
#include "scenarios/predict/events_replay.hpp"
#include "scenarios/predict/required_memory.hpp"
#include "scenarios/predict/role_program.hpp"
#include "scenarios/predict/upper_ends/deferred_frees.hpp"
#include "sim/memory/replay.hpp"
#include "sim/program/left_out.hpp"
#include "sim/program/program.hpp"
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

/// What ranks run: op by op, and the same in short, which is quicker to try on devices of limited memory.
class MemoryProgram {
 public:
  /// `program` is the one that `whole` makes without what is left out. All of it outlives this.
  MemoryProgram(const Program& program, const RoleEvents& events, const std::vector<LeftOut>& left_out,
                std::function<std::shared_ptr<const RepeatingProgram>()> whole)
      : program(program), events_(events), left_out_(left_out), make_whole_(std::move(whole)) {}

  /// Once a few bodies of each loop have not shown what all of them do, all of them are played.
  [[nodiscard]] MemoryRecord replayed(const DriverCosts& costs, const ReplayOptions& options) const {
    if (left_out_.empty()) return replay(program, costs, options);
    const bool asks_the_clock = std::holds_alternative<ByClock>(options.cross_stream);
    if (!whole_ || asks_the_clock) {
      std::optional<MemoryRecord> record = replay(program, left_out_, costs, options);
      if (record) return std::move(*record);
      if (asks_the_clock) throw NotKnownFromFew{};
      whole_ = make_whole_();
    }
    return replay(*whole_, costs, options);
  }
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
  std::function<std::shared_ptr<const RepeatingProgram>()> make_whole_;
  mutable std::shared_ptr<const RepeatingProgram> whole_;
};

}  // namespace tidemark::scenarios
