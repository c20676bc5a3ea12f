#include "parallel/lower.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "parallel/frameworks/megatron/training.hpp"
#include "parallel/frameworks/pytorch/training.hpp"
#include "parallel/mesh.hpp"
#include "parallel/schedule/schedule.hpp"
#include "parallel/sizes.hpp"
#include "parallel/stages.hpp"
#include "sim/program/repeats.hpp"

namespace tidemark::parallel {

namespace {

// A chunk's parameters of one group, in their buffer.
struct Buffer {
  ParameterGroup group;
  BufferLayout layout;
};

// The buffers of a pipeline rank, chunk after chunk.
std::vector<Buffer> buffers_of(const LoweringInput& input, const Sizes& sizes, std::int32_t pipeline) {
  const auto layers = static_cast<std::int32_t>(input.built.model.layers);
  std::vector<Buffer> buffers;
  for (const Stage& chunk : chunks_of_rank(layers, input.layout, pipeline))
    for (const ParameterGroup group : {ParameterGroup::Dense, ParameterGroup::Experts}) {
      const auto parameters = of_group(input.built, stage_parameters(input.built, chunk, input.layout), group);
      if (parameters.empty()) continue;
      buffers.push_back({group, buffer_layout(input.built, parameters, sizes, input.runtime, chunk,
                                              input.layout.sharding, replicas_of(input.layout, {}, group).count)});
    }
  return buffers;
}

// What ranks of a stage have alike that run one program.
struct Held {
  std::vector<ShardPiece> pieces;  // that they keep optimizer state for; where nothing is sharded, all keep the same
  std::int32_t expert = 0;         // whose place among the experts' ranks decides how many tokens come
  auto operator<=>(const Held&) const = default;
};

// Whether ranks of an expert group get different numbers of tokens.
bool uneven(const LoweringInput& input) {
  const Model& model = input.built.model;
  if (!model.experts || input.layout.expert == 1) return false;
  const Sizes sizes = sizes_of(model, input.layout, input.train, input.runtime);
  const std::int64_t tokens = sizes.sequence_parallel ? sizes.tokens / sizes.tensor : sizes.tokens;
  const std::vector<std::int64_t> rows =
      rows_of_experts(*model.experts, input.train.routing, tokens, input.layout.expert);
  return std::ranges::any_of(rows, [&](std::int64_t count) { return count != rows.front(); });
}

}  // namespace

std::vector<Role> roles(const LoweringInput& input) {
  const Layout& layout = input.layout;
  const Mesh mesh = dense_mesh(layout), experts = expert_mesh(layout);
  const Sizes sizes = sizes_of(input.built.model, layout, input.train, input.runtime);
  const bool by_expert = uneven(input);
  std::vector<Role> found;
  for (std::int32_t p = 0; p < layout.pipeline; ++p) {
    const std::vector<Buffer> buffers = buffers_of(input, sizes, p);
    // Pieces by place among the replicas of either group.
    std::map<std::pair<std::int32_t, std::int32_t>, std::vector<ShardPiece>> pieces;
    const auto pieces_of = [&](const Coordinates& rank) -> const std::vector<ShardPiece>& {
      const auto place = [&](ParameterGroup group) { return replicas_of(layout, rank, group).place; };
      const auto [entry, added] = pieces.try_emplace(
          {place(ParameterGroup::Dense), input.built.model.experts ? place(ParameterGroup::Experts) : 0});
      if (!added || layout.sharding == Sharding::None) return entry->second;
      for (const Buffer& buffer : buffers) {
        const Replicas among = replicas_of(layout, rank, buffer.group);
        for (const ShardPiece& piece : buffer.layout.pieces(among.place, among.count)) entry->second.push_back(piece);
      }
      return entry->second;
    };
    std::map<Held, std::size_t> known;  // role
    for (std::int32_t d = 0; d < layout.data; ++d)
      for (std::int32_t t = 0; t < layout.tensor; ++t) {
        const Coordinates place{.tensor = t, .data = d, .pipeline = p};
        const Rank rank = mesh.rank_at({{axis::tp, t}, {axis::dp, d}, {axis::pp, p}});
        const Held held{pieces_of(place), by_expert ? experts.coordinate(rank, axis::ep) : 0};
        const auto [entry, added] = known.try_emplace(held, found.size());
        if (added) found.push_back({place, {}});
        found[entry->second].ranks.push_back(rank);
      }
  }
  for (Role& role : found) std::sort(role.ranks.begin(), role.ranks.end());
  return found;
}

namespace {

Program lowered(const LoweringInput& input, const Role& role, const StepSizes& micro_batches,
                TrainingState* state = nullptr) {
  if (input.runtime.eager) return pytorch::lower_training(input, micro_batches, state);
  return megatron::lower_training(input, role.first, micro_batches, state);
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

// With the shortest steps there can be before the last.
StepSizes whole_last_step(const LoweringInput& input) {
  StepSizes sizes = each_step(input, shortest(input.layout, micro_batches_of(input.train, input.layout)));
  sizes.back() = micro_batches_of(input.train, input.layout);
  return sizes;
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
  if (input.runtime.eager) return pytorch::lower_training(input, whole_steps(input));
  return lowered(input, role, each_step(input, shortest(input.layout, micro_batches_of(input.train, input.layout))));
}
std::optional<Program> lower_state(const LoweringInput& input, const Role& role) {
  if (input.runtime.eager) return std::nullopt;  // what operations make of it, they make within passes
  return lowered(input, role, each_step(input, 0));
}

namespace {

enum class OneFor : std::uint8_t { Role, Stage };

// `lower_one` makes the program of a role.
template <class Workload, class Lower>
Workload workload_of(const LoweringInput& input, OneFor each, Lower lower_one) {
  Workload workload;
  workload.communicators = communicators_of(input).table;
  workload.program_of_rank.resize(static_cast<std::size_t>(input.layout.world_size()));
  std::int32_t stage = -1;
  for (const Role& role : roles(input)) {
    if (each == OneFor::Role || role.first.pipeline != stage) workload.programs.push_back(lower_one(input, role));
    stage = role.first.pipeline;
    for (const Rank rank : role.ranks)
      workload.program_of_rank[rank.index()] = static_cast<std::int32_t>(workload.programs.size()) - 1;
  }
  return workload;
}

}  // namespace

Workload lower(const LoweringInput& input) { return workload_of<Workload>(input, OneFor::Role, lower_role); }
Workload lower_stages(const LoweringInput& input) { return unrolled(lower_stages_repeating(input)); }
RepeatingWorkload lower_stages_repeating(const LoweringInput& input) {
  return workload_of<RepeatingWorkload>(input, OneFor::Stage, lower_repeating);
}
RepeatingProgram lower_last_step(const LoweringInput& input, const Role& role) {
  return repeating(input, role, input.runtime.eager ? whole_steps(input) : whole_last_step(input));
}
RepeatingWorkload lower_last_step(const LoweringInput& input) {
  return workload_of<RepeatingWorkload>(
      input, OneFor::Stage, [](const LoweringInput& its, const Role& role) { return lower_last_step(its, role); });
}

AttentionKernel settled_attention(AttentionKernel asked, const Model& model, const Target& target,
                                  Determinism determinism) {
  if (asked != AttentionKernel::Auto) return asked;
  if (model.attention_softcap > 0) return AttentionKernel::Unfused;
  if (model.latent) {  // FlashAttention 2 wants values as wide as keys (TransformerEngine
                       // dot_product_attention/utils.py)
    const bool possible = target.compute_capability < 100 || determinism == Determinism::NotRequired;
    return target.compute_capability >= 90 && possible ? AttentionKernel::Fused : AttentionKernel::Unfused;
  }
  if (target.compute_capability < 90) return AttentionKernel::Flash;
  const bool blackwell = target.compute_capability >= 100;
  const bool fused = !blackwell || (determinism == Determinism::NotRequired && model.head_dim <= 128);
  return fused ? AttentionKernel::Fused : AttentionKernel::Flash;
}

}  // namespace tidemark::parallel
