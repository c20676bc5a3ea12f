#include "parallel/lowering/lower.hpp"

#include <algorithm>
#include <utility>

namespace tidemark::parallel {

std::vector<Role> roles(const LoweringInput& input) { return input.runtime.framework->roles(input); }

namespace {

Program lowered(const LoweringInput& input, const Role& role, const StepSizes& micro_batches,
                TrainingState* state = nullptr) {
  return input.runtime.framework->training(input, role.first, micro_batches, state);
}

StepSizes each_step(const LoweringInput& input, std::int64_t micro_batches) {
  return StepSizes(static_cast<std::size_t>(input.train.steps), micro_batches);
}

std::int64_t shortest(const Layout& layout, std::int64_t micro_batches) {
  return std::min(micro_batches, shortest_step(layout));
}

// As many micro-batches as show what many do on a pipeline rank: all that run ahead; as many again, made in the midst
// of others; and some alike, the last of which see the end. A later stage receives its input a pass before its
// micro-batch begins.
std::int64_t few_of(const Layout& layout, std::int64_t micro_batches, std::int32_t pipeline) {
  const Schedule schedule = schedule_of(layout, pipeline, static_cast<std::int32_t>(micro_batches));
  const std::int64_t ahead = most_in_flight(schedule) - 1, period = layout.period();
  const std::int64_t made_meanwhile = 2 * ahead / layout.chunks + (pipeline == 0 ? 0 : 1);
  const std::int64_t periods = (made_meanwhile + period - 1) / period + 5;
  return std::min(micro_batches, periods * period + micro_batches % period);
}

// Says once what repeats in the steps that have `all` micro-batches. Where few do not show it, more of them.
RepeatingProgram repeating(const LoweringInput& input, const Role& role, const StepSizes& sizes) {
  const std::int64_t all = sizes.back();
  const std::int32_t period = input.layout.period();
  std::int64_t few = few_of(input.layout, all, role.first.pipeline);
  for (; few < all; few = std::min(all, few * 2 - all % period)) {
    StepSizes shown = sizes;
    std::vector<MoreOf> more(sizes.size());
    for (std::size_t s = 0; s < sizes.size(); ++s) {
      shown[s] = std::min(sizes[s], few);
      more[s] = {sizes[s] - shown[s], period};
    }
    Program program = lowered(input, role, shown);
    if (auto repeats = find_repeats(program, more)) return {std::move(program), std::move(*repeats)};
  }
  return {lowered(input, role, sizes), {}};
}

StepSizes whole_steps(const LoweringInput& input) {
  return each_step(input, micro_batches_of(input.train, input.layout));
}

// Room on the host that passes make for what modules save is kept from step to step, and the first step shows what
// others do.
bool state_apart_from_passes(const LoweringInput& input) {
  return input.runtime.framework->state_apart_from_passes && !input.runtime.module_offload.any();
}

// The shortest there can be.
StepSizes shortest_steps(const LoweringInput& input) {
  if (!state_apart_from_passes(input)) return whole_steps(input);
  return each_step(input, shortest(input.layout, micro_batches_of(input.train, input.layout)));
}

}  // namespace

RepeatingProgram lower_repeating(const LoweringInput& input, const Role& role) {
  return repeating(input, role, whole_steps(input));
}
Program lower_role(const LoweringInput& input, const Role& role) { return unrolled(lower_repeating(input, role)); }
Program lower_every_pass(const LoweringInput& input, const Role& role) {
  return lowered(input, role, whole_steps(input));
}
TrainingState training_state(const LoweringInput& input, const Role& role) {
  TrainingState state;
  (void)lowered(input, role, whole_steps(input), &state);
  return state;
}
Program lower_shortest(const LoweringInput& input, const Role& role) {
  return lowered(input, role, shortest_steps(input));
}
RepeatingProgram lower_last_step(const LoweringInput& input, const Role& role) {
  StepSizes sizes = shortest_steps(input);
  sizes.back() = micro_batches_of(input.train, input.layout);
  return repeating(input, role, sizes);
}
std::optional<Program> lower_state(const LoweringInput& input, const Role& role) {
  if (!state_apart_from_passes(input)) return std::nullopt;
  return lowered(input, role, each_step(input, 0));
}

namespace {

enum class OneFor : std::uint8_t { Role, Passes };

Workload workload_of(const LoweringInput& input, OneFor each) {
  Workload workload;
  workload.communicators = communicators_of(input).table;
  workload.program_of_rank.resize(static_cast<std::size_t>(input.layout.world_size()));
  std::optional<std::int32_t> passes;  // of the last program
  for (const Role& role : roles(input)) {
    if (std::exchange(passes, role.passes) != role.passes || each == OneFor::Role)
      workload.programs.push_back(lower_role(input, role));
    for (const Rank rank : role.ranks)
      workload.program_of_rank[rank.index()] = static_cast<std::int32_t>(workload.programs.size()) - 1;
  }
  return workload;
}

}  // namespace

Workload lower(const LoweringInput& input) { return workload_of(input, OneFor::Role); }
Workload lower_passes(const LoweringInput& input) { return workload_of(input, OneFor::Passes); }

AttentionKernel resolved_attention(AttentionKernel requested, const Model& model, const Target& target,
                                   Determinism determinism) {
  if (requested != AttentionKernel::Auto) return requested;
  if (model.attention_softcap > 0) return AttentionKernel::Unfused;
  if (model.latent()) {  // FlashAttention 2 wants values as wide as keys (TransformerEngine
                         // dot_product_attention/utils.py)
    const bool possible = target.compute_capability < 100 || determinism == Determinism::NotRequired;
    return target.compute_capability >= 90 && possible ? AttentionKernel::Fused : AttentionKernel::Unfused;
  }
  if (model.attention_sinks) return AttentionKernel::Fused;  // FlashAttention 2 has none
  if (target.compute_capability < 90) return AttentionKernel::Flash;
  const bool blackwell = target.compute_capability >= 100;
  const bool fused = !blackwell || (determinism == Determinism::NotRequired && model.head_dim <= 128);
  return fused ? AttentionKernel::Fused : AttentionKernel::Flash;
}

}  // namespace tidemark::parallel
