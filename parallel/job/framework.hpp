#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "parallel/job/job.hpp"
#include "parallel/job/mesh.hpp"
#include "parallel/torch/record.hpp"
#include "parallel/torch/training_state.hpp"
#include "sim/program/program.hpp"

namespace tidemark::parallel {

/// Ranks that run one program. The positions of a rank's own rows in the vocabulary, the sequence and the shared
/// buffers are those of the first of them.
struct Role {
  Coordinates first;        ///< of the lowest of them
  std::vector<Rank> ranks;  ///< in order
  /// Roles of one number run the same passes in the same groups: they differ in the state that they hold between
  /// passes.
  std::int32_t passes = 0;
  /// Of those, roles of one number hold tensors of the same sizes between passes, in the same order, of any
  /// parameters: their programs are the same but for names and for where in shared buffers their parts lie. Nothing
  /// where the framework does not say.
  std::optional<std::int32_t> sizes{};
  /// Roles of a pipeline rank with other numbers get other numbers of tokens for their experts, so that their kernels
  /// take other times.
  std::int32_t tokens = 0;
};

/// An error that the framework itself would raise, however much memory there is.
struct FrameworkStops : std::runtime_error {
  FrameworkStops(const std::string& what, std::string its_hint) : std::runtime_error(what), hint(std::move(its_hint)) {}
  std::string hint;
};

/// What only the framework knows: which ranks run the same program, and that program.
struct Framework {
  /// Every rank has one role. They come pipeline rank by pipeline rank, and those with the same passes together.
  std::vector<Role> (*roles)(const LoweringInput& input);
  /// The program of the rank at that place, with the given micro-batches in each step. `state`, if given, is
  /// filled with the places of gradients and parameters.
  Program (*training)(const LoweringInput& input, const Coordinates& place, const StepSizes& micro_batches,
                      TrainingState* state);
  /// Construction and the first forward pass of a rank that holds the whole model.
  torch::Recording (*first_forward)(const LoweringInput& input);
  /// Parameters, gradients and optimizer state are made apart from passes: steps without any show them, and steps of a
  /// few all that is made once.
  bool state_apart_from_passes = true;
};

}  // namespace tidemark::parallel
