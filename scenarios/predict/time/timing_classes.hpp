#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/lowering/lower.hpp"
#include "scenarios/namespace.hpp"
#include "sim/program/structure/other_sizes.hpp"
#include "sim/program/structure/repeats.hpp"
#include "sim/program/workload.hpp"

namespace tidemark::scenarios {

/// How a role's program is made.
struct LowerRole {
  std::function<RepeatingProgram(const Role&)> whole;
  std::function<Program(const Role&)> shortest;              ///< with as few micro-batches as there can be
  std::function<std::optional<Program>(const Role&)> state;  ///< without passes; nothing where these are not apart
  /// Hears how many programs there will be, the first of them, and what others of its stage are made of, if so, before
  /// they are. It may throw.
  std::function<void(std::size_t programs, const RepeatingProgram& first, const OtherSizes* sizes)> before_all = {};
  /// Hears how many programs of all are there; one call at a time.
  std::function<void(std::size_t done, std::size_t all)> made = {};
};

/// Roles that take equally long, whatever their memory: time is simulated with one program for all of a class.
struct TimingClasses {
  RepeatingWorkload workload;                ///< the program of a class is that of its first role
  std::vector<std::size_t> role_of_program;  ///< which that is
  /// By program: what it was made of, or what others were made of it, where they differ in numbers of tokens.
  std::vector<std::shared_ptr<const OtherSizes>> sizes;
};

/// Compares the shortest programs of roles of one pipeline rank (`timed_like`); roles of different ones are told apart
/// unseen. So roles that are alike are lowered once, and those that are not have classes of their own. Of roles that
/// run the same passes, by their framework's word, which is seen in the first and the last of them, those at the first
/// one's place in tensor and context parallelism are compared by what they do besides. Roles that get other numbers of
/// tokens for their experts take other times unseen, and what is seen of one such number's roles is taken for others'.
/// Their programs are that of the first of them with other sizes, as far as their shortest ones show that they are, and
/// made each time that somebody asks for one.
[[nodiscard]] TimingClasses timing_classes(const LoweringInput& input, const std::vector<Role>& roles,
                                           const LowerRole& lower);

}  // namespace tidemark::scenarios
