#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/arithmetic/arithmetic_rank.hpp"
#include "kernels/execute/mutation/mutation.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/validate/arithmetic/draws.hpp"
#include "scenarios/validate/arithmetic/findings.hpp"
#include "scenarios/validate/arithmetic/rank_parameters.hpp"

namespace tidemark::scenarios {

/// The training of one rank: what its program starts from, and what it comes to.
class RankTraining {
 public:
  /// `asked`: whose ranks decide which tokens go to which experts. Parameters begin so far `aside` from what is drawn
  /// of them, along a direction of their own.
  RankTraining(const Job& job, Rank rank, const Job& requested, double aside = 0);

  /// Makes something wrong, on all ranks alike, and says what. Throws InputError where there is nothing to spoil.
  std::string spoil(Mutation mutation);
  /// Runs the rank's program where the calculator has its memory, from and to which the world carries numbers, and says
  /// what it left, in the order in which it was looked at.
  [[nodiscard]] std::string run(World& world, math::Calculator& calculator, math::Storage storage);
  /// Runs it once more, says nothing of what it left, and how long each op of the program took.
  [[nodiscard]] std::vector<Duration> op_times(World& world, math::Calculator& calculator, math::Storage storage) const;
  [[nodiscard]] const Program& program() const { return program_; }
  /// What the run read that nobody wrote, or that was freed; empty where there was none.
  [[nodiscard]] const std::string& wrong() const { return wrong_; }

 private:
  [[nodiscard]] double initial(const Mark& at, std::string_view tensor, std::int64_t element) const;
  [[nodiscard]] std::int64_t expert_of(std::int32_t layer, std::int64_t token, std::int64_t choice) const;
  [[nodiscard]] double counted(std::int64_t token) const;
  [[nodiscard]] double of_batch(const Mark& at, std::string_view tensor, std::int64_t element) const;
  void describe_draws(const ArithmeticRank& run, const Launch& launch, math::Setting& setting) const;
  void look(const ArithmeticRank& run);
  void note_loss(const ArithmeticRank& run, const Launch& launch);
  void note(const ArithmeticRank& run, const StateMoment& moment);

  const Job& job_;
  Rank rank_;
  double aside_;
  Coordinates place_;
  Draws draws_;
  RankParameters parameters_;
  Program program_;
  std::vector<Group> groups_;
  TrainingState state_;
  std::int64_t context_;                           // context-parallel ranks of the asked job
  std::int64_t tokens_;                            // that one rank of the asked job routes
  std::vector<std::vector<std::int64_t>> chosen_;  // experts of a layer, by these
  std::size_t marks_ = 0;                          // met so far
  std::size_t next_ = 0;                           // moment of the state
  std::string found_, wrong_;
};

/// Along which an element of a parameter begins aside.
[[nodiscard]] double direction(const std::string& parameter, std::int64_t element);

}  // namespace tidemark::scenarios
