#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "parallel/lower.hpp"
#include "scenarios/namespace.hpp"
#include "sim/program/repeats.hpp"

namespace tidemark::scenarios {

/// How a role's program is made.
struct LowerRole {
  std::function<RepeatingProgram(const Role&)> whole;
  std::function<Program(const Role&)> shortest;  ///< with as few micro-batches as there can be
};
[[nodiscard]] LowerRole lower_role_of(const LoweringInput& input);

/// Roles that take equally long, whatever their memory: time is simulated with one program for all of a class.
struct TimingClasses {
  std::vector<RepeatingProgram> programs;  ///< by class, that of its first role
  std::vector<std::size_t> first_role;     ///< by class
  std::vector<std::size_t> of_role;        ///< class by role
};

/// Compares the shortest programs of roles of one pipeline rank (`timed_like`); roles of different ones are told apart
/// unseen. So roles that are alike are lowered once, and those that are not have classes of their own.
[[nodiscard]] TimingClasses timing_classes(const std::vector<Role>& roles, const LowerRole& lower);

}  // namespace tidemark::scenarios
