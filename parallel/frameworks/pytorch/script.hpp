#pragma once

#include <map>
#include <utility>
#include <vector>

#include "parallel/frameworks/namespace.hpp"
#include "parallel/job/framework.hpp"
#include "parallel/torch/autograd.hpp"
#include "parallel/torch/process.hpp"
#include "parallel/torch/session.hpp"
#include "sim/program/liveness.hpp"

// What training scripts in PyTorch have in common, whatever shards their models.

namespace tidemark::parallel::pytorch {

/// A process comes up: CUDA's context and modules, and NCCL's kernels where it talks to others.
void start_up(Session& session, const Communicators& groups);

/// transformers' trainer.py _inner_training_loop, logging_nan_inf_filter: the host asks whether a micro-batch's loss is
/// a number, and waits for the answer.
void filter_loss(Session& session);

/// What the script that `make(session, groups)` returns writes, run for steps of so many micro-batches. What it holds
/// in the end lives until the program is over.
template <class Make>
Program program_of(const LoweringInput& input, const StepSizes& micro_batches, const Make& make) {
  const Communicators groups = communicators_of(input);
  Process process(groups.table, input.runtime.blas_workspace);
  {
    Session session(process, input.runtime.eager->torch);
    auto script = make(session, groups);
    script.run(micro_batches);
    session.finish();
  }
  return with_frees(std::move(process).finish());
}

/// What is recorded while it constructs a model and runs its first forward pass.
template <class Make>
Recording recording_of(const LoweringInput& input, const Make& make) {
  const Communicators groups = communicators_of(input);
  Process process(groups.table, input.runtime.blas_workspace);
  Session session(process, input.runtime.eager->torch);
  Recorder recorder;
  session.recorder = &recorder;
  auto script = make(session, groups);
  script.record();
  session.recorder = nullptr;
  session.finish();
  return std::move(recorder).finish();
}

/// Sizes of the parameters that `make(session, make_parameter)` has modules register, in order.
template <class Make>
std::vector<Shape> parameter_shapes(const LoweringInput& input, const Make& make) {
  Process process({}, {});
  Session session(process, input.runtime.eager->torch);
  std::vector<Shape> shapes;
  make(session, [&](const std::string&, const Shape& sizes, DType dtype) {
    shapes.push_back(sizes);
    return parameter_elsewhere(session, sizes, dtype);
  });
  session.finish();
  return shapes;
}

/// One role for all ranks of which `held_at(place)` is the same, in the order of the first of each.
template <class HeldAt>
std::vector<Role> roles_by(const Layout& layout, const HeldAt& held_at) {
  std::map<decltype(held_at(Coordinates{})), std::size_t> known;
  std::vector<Role> roles;
  for (Rank rank{0}; rank.value < layout.world_size(); ++rank.value) {
    const Coordinates place = coordinates(layout, rank);
    const auto [role, is_new] = known.try_emplace(held_at(place), roles.size());
    if (is_new) roles.push_back({place, {}});
    roles[role->second].ranks.push_back(rank);
  }
  return roles;
}

}  // namespace tidemark::parallel::pytorch
