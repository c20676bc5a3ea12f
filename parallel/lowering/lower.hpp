#pragma once

#include <optional>
#include <vector>

#include "parallel/job/framework.hpp"
#include "parallel/model/target.hpp"
#include "parallel/torch/training_state.hpp"
#include "sim/program/structure/repeats.hpp"
#include "sim/program/workload.hpp"

namespace tidemark::parallel {

/// Every role of the job, as its framework has them.
[[nodiscard]] std::vector<Role> roles(const LoweringInput& input);

/// The program that the ranks of a role run: construction, then `train.steps` optimizer steps. Frees are in place,
/// computed from uses and bindings.
[[nodiscard]] Program lower_role(const LoweringInput& input, const Role& role);
/// The same program, with what repeats in it said once: micro-batches in the middle of a step do the same again and
/// again. It is what a job of few micro-batches shows, and is checked to.
[[nodiscard]] RepeatingProgram lower_repeating(const LoweringInput& input, const Role& role);
/// The same program, with every pass lowered by itself: what repeats is not looked for.
[[nodiscard]] Program lower_every_pass(const LoweringInput& input, const Role& role);
/// Where that program holds gradients and parameters when they are whole.
[[nodiscard]] TrainingState training_state(const LoweringInput& input, const Role& role);
/// The same with as few micro-batches in each step as there can be: every call of the job is in it.
[[nodiscard]] Program lower_shortest(const LoweringInput& input, const Role& role);

/// The same with as few micro-batches as there can be in every step but the last. A step begins where all ranks and
/// their streams have waited for each other, so the last one takes as long as after whole steps.
[[nodiscard]] RepeatingProgram lower_last_step(const LoweringInput& input, const Role& role);

/// The same without its passes: what happens to parameters, gradients and optimizer state. Nothing where the framework
/// makes these as passes go. Whether passes change what it allocates is for the reader to find out.
[[nodiscard]] std::optional<Program> lower_state(const LoweringInput& input, const Role& role);

/// The whole job: one program per role.
[[nodiscard]] Workload lower(const LoweringInput& input);
/// The same job with one program for all roles that share passes, that of the first: where the others take as long,
/// which is for the caller to know or to find out (`timed_like` in sim/program/structure/timing.hpp).
[[nodiscard]] Workload lower_passes(const LoweringInput& input);

/// Whether kernels that may add in another order from run to run are allowed.
enum class Determinism : std::uint8_t { NotRequired, Required };
/// The attention kernel that runs on the target where the scenario leaves it open: cuDNN's fused one from Hopper on,
/// FlashAttention-2 before. From Blackwell on cuDNN's backward pass is not deterministic (inferred from the memory of
/// public runs), so that FlashAttention-2 takes its place where it has to be, and where it takes no heads of more than
/// 128 dimensions (Transformer Engine, common/fused_attn/fused_attn.cpp). Neither caps scores, which leaves the
/// unfused.
[[nodiscard]] AttentionKernel resolved_attention(AttentionKernel requested, const Model& model, const Target& target,
                                                 Determinism determinism = Determinism::NotRequired);

}  // namespace tidemark::parallel
