#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/execute/arithmetic_rank.hpp"
#include "scenarios/arithmetic/findings.hpp"
#include "scenarios/arithmetic/rank_parameters.hpp"
#include "scenarios/job.hpp"

namespace tidemark::scenarios {

/// The training of one rank: what its program starts from, and what it comes to.
class RankTraining {
 public:
  /// `asked`: whose ranks decide which tokens go to which experts.
  RankTraining(const JobOutline& job, Rank rank, const JobOutline& asked);

  /// Runs the rank's program where the calculator has its memory, from and to which the world carries numbers, and says
  /// what it left, in the order in which it was looked at.
  [[nodiscard]] std::string run(World& world, math::Calculator& calculator, math::Storage storage);

 private:
  [[nodiscard]] double initial(const Mark& at, std::string_view tensor, std::int64_t element) const;
  [[nodiscard]] std::int64_t expert_of(std::int64_t token, std::int64_t choice) const;
  [[nodiscard]] double of_batch(const Mark& at, std::string_view tensor, std::int64_t element) const;
  void look(const ArithmeticRank& run);
  void note_loss(const ArithmeticRank& run, const Launch& launch);
  void note(const ArithmeticRank& run, const StateMoment& moment);

  const JobOutline& job_;
  Rank rank_;
  Coordinates place_;
  std::int64_t micro_batches_;
  RankParameters parameters_;
  TrainingState state_;
  std::int64_t tokens_;                // that one rank of the asked job routes
  std::vector<std::int64_t> choices_;  // of these, for each expert
  std::size_t marks_ = 0;              // met so far
  std::size_t next_ = 0;               // moment of the state
  std::string found_;
};

}  // namespace tidemark::scenarios
