#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "scenarios/namespace.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/predict/memory_program.hpp"
#include "scenarios/predict/role_program.hpp"
#include "scenarios/predict/time/on_clock.hpp"
#include "sim/program/structure/shared_passes.hpp"

namespace tidemark::scenarios {

/// Roles that have the same memory. One of them is replayed: that of a simulated program, where there is one.
struct SameMemory {
  const Role* replayed = nullptr;
  std::vector<Rank> ranks;  ///< of all of them, in order
};
[[nodiscard]] std::vector<SameMemory> roles_of_same_memory(const Job& job);

/// Roles that run the same passes at the same places: those of one are lowered, and the others' state put around them.
struct SamePasses {
  std::vector<std::size_t> roles;  ///< index into those of the same memory; the first is a simulated one, if any is
};
[[nodiscard]] std::vector<SamePasses> roles_of_same_passes(const Job& job, const std::vector<SameMemory>& all);

/// What is lowered once for roles that run the same passes.
class PassesOfRoles {
 public:
  /// Of so many `roles`, of which `first` is lowered. `clock` has the program that stands for them there.
  PassesOfRoles(const Job& job, const Role& first, std::size_t roles, const OnClock& clock);

  struct Programs {
    std::optional<RoleProgram> own;
    std::optional<Program> worst_case;
    std::vector<LeftOut> worst_case_left_out;
    RoleEvents events, worst_case_events;
    std::function<WholeMemory()> whole, worst_case_whole;

    [[nodiscard]] MemoryProgram memory() const;
    [[nodiscard]] std::optional<MemoryProgram> worst_case_memory() const;
  };
  /// Of another role, as far as its memory is concerned.
  [[nodiscard]] Programs of(const Role& role) const;

  [[nodiscard]] const RoleProgram& shown() const { return shown_; }
  [[nodiscard]] MemoryProgram memory() const;
  [[nodiscard]] std::optional<MemoryProgram> worst_case_memory() const;

 private:
  [[nodiscard]] const std::shared_ptr<const RepeatingProgram>& outline_of_shown() const;
  [[nodiscard]] WholeMemory whole_with(const Program& state, SharedPasses::Ops ops) const;
  [[nodiscard]] std::vector<LeftOut> left_out_like_on_clock(RepeatingProgram& program) const;
  [[nodiscard]] std::function<WholeMemory()> worst_case_whole_of(const Role& role) const;
  [[nodiscard]] Programs lowered(const Role& role) const;

  const Job& job_;
  const Role& first_;
  const OnClock& clock_;
  RoleProgram shown_;
  bool needs_memory_alone_ = false;  // frees come at once, or events say what comes at the latest
  std::vector<LeftOut> worst_case_left_out_;
  std::optional<Program> worst_case_, state_;
  std::optional<SharedPasses> shared_, shared_by_worst_case_;
  mutable std::once_flag whole_is_split_;
  mutable std::optional<SharedPasses> shared_by_whole_;
  RoleEvents events_, worst_case_events_;
  bool shares_events_ = false, shares_worst_case_events_ = false;
};

}  // namespace tidemark::scenarios
