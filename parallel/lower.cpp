#include "parallel/lower.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "parallel/frameworks/pytorch/training.hpp"
#include "parallel/lower/emitter.hpp"
#include "parallel/lower/interleaved_pipeline.hpp"
#include "parallel/lower/model_state.hpp"
#include "parallel/lower/pipeline.hpp"
#include "parallel/mesh.hpp"
#include "parallel/schedule/schedule.hpp"
#include "parallel/sizes.hpp"
#include "parallel/stages.hpp"
#include "sim/base/ensure.hpp"
#include "sim/program/liveness.hpp"
#include "sim/program/repeats.hpp"

namespace tidemark::parallel {

namespace {

std::vector<Stage> chunks_of(const LoweringInput& input, std::int32_t pipeline) {
  return chunks_of_rank(static_cast<std::int32_t>(input.graph.model.layers), input.layout, pipeline);
}

// What a data-parallel rank keeps optimizer state for, chunk after chunk.
std::vector<ShardPiece> pieces_of(const std::vector<BufferLayout>& buffers, std::int32_t data, std::int32_t shards) {
  std::vector<ShardPiece> all;
  for (const BufferLayout& buffer : buffers)
    for (const ShardPiece& piece : buffer.pieces(data, shards)) all.push_back(piece);
  return all;
}

// What the training loop does between steps: the last stage averages its loss, and the iteration timer, which logs
// every step, waits for all ranks and for the device.
void end_step(Emitter& emit) {
  emit.mark(Phase::Communication, "end_step");
  if (emit.runtime.agrees_after_steps) {
    // training.py train_step: whether the update went well, and the gradient norm for the log.
    const Bytes size = size_of(DType::FP32);
    for (const std::string_view what : {"update_successful", "reported_norm"}) {
      const BufferId value = emit.alloc(size, Category::Temporaries, what);
      emit.unchecked_collective(emit.comms.model, CollectiveKind::AllReduce, value, value, size);
    }
  }
  if (emit.head()) {
    const Bytes size = 2 * size_of(DType::FP32);  // the sum, and the number of tokens it is over
    const BufferId loss = emit.alloc(size, Category::Temporaries, "reported_loss");
    emit.unchecked_collective(emit.comms.data, CollectiveKind::AllReduce, loss, loss, size);
  }
  const Bytes size = size_of(DType::FP32);
  const BufferId barrier = emit.alloc(size, Category::Temporaries, "barrier");
  emit.unchecked_collective(emit.comms.world, CollectiveKind::AllReduce, barrier, barrier, size);
  emit.synchronize();
}

// Runs micro-batches of one step, as the layout's schedule orders so many.
using RunPasses = std::function<void(std::int32_t step, std::int32_t micro_batches)>;

RunPasses passes_of(Emitter& emit, std::int32_t stage) {
  const Layout& layout = emit.layout;
  if (layout.schedule == ScheduleKind::Interleaved) {
    const auto pipeline = std::make_shared<InterleavedPipeline>(emit, stage);
    return [pipeline](std::int32_t step, std::int32_t micro_batches) { pipeline->run(step, micro_batches); };
  }
  const auto pipeline = std::make_shared<PipelineLowering>(emit);
  return [pipeline, &layout, stage](std::int32_t step, std::int32_t micro_batches) {
    pipeline->run(step, schedule_of(layout, stage, micro_batches));
  };
}

}  // namespace

std::vector<Role> roles(const LoweringInput& input) {
  const Layout& layout = input.layout;
  const Mesh mesh = dense_mesh(layout);
  const Sizes sizes = sizes_of(input.graph.model, layout, input.train, input.runtime);
  std::vector<Role> found;
  for (std::int32_t p = 0; p < layout.pipeline; ++p) {
    std::vector<BufferLayout> buffers;
    for (const Stage& chunk : chunks_of(input, p))
      buffers.push_back(buffer_layout(input.graph, stage_parameters(input.graph, chunk, input.runtime), sizes,
                                      input.runtime, chunk, layout.sharding, layout.data));
    std::map<std::vector<ShardPiece>, std::size_t> known;  // pieces -> role
    for (std::int32_t d = 0; d < layout.data; ++d) {
      const Coordinates first{.data = d, .pipeline = p};
      const bool sharded = layout.sharding != Sharding::None;
      const auto [entry, added] =
          known.try_emplace(sharded ? pieces_of(buffers, d, layout.data) : std::vector<ShardPiece>{}, found.size());
      if (added) found.push_back({first, {}});
      for (std::int32_t t = 0; t < layout.tensor; ++t)
        found[entry->second].ranks.push_back(mesh.rank_at({{axis::tp, t}, {axis::dp, d}, {axis::pp, p}}));
    }
  }
  for (Role& role : found) std::sort(role.ranks.begin(), role.ranks.end());
  return found;
}

namespace {

// Micro-batches of each step.
using StepSizes = std::vector<std::int64_t>;

Program lowered(const LoweringInput& input, const Role& role, const StepSizes& micro_batches) {
  const Communicators comms = communicators_of(input);
  const std::int32_t stage = role.first.pipeline;
  Emitter emit(input, comms, chunks_of(input, stage));
  ModelState state(emit, role.first.data);
  const RunPasses run = passes_of(emit, stage);

  emit.at(0, -1);
  state.construct();
  const auto ops = [&] { return emit.program.program().ops.size(); };
  const std::size_t constructed = ops();
  for (std::int32_t step = 1; step <= input.train.steps; ++step) {
    emit.at(step, -1);
    state.zero_gradients();
    if (const std::int64_t its = micro_batches[static_cast<std::size_t>(step) - 1]; its > 0)
      run(step, static_cast<std::int32_t>(its));
    state.reduce_gradients();
    state.update();
    end_step(emit);
    if (step > 1) continue;
    // The others are as long, and no buffer is freed twice.
    const auto steps = static_cast<std::size_t>(input.train.steps);
    const auto buffers = static_cast<std::size_t>(emit.program.program().buffers);
    emit.program.reserve(ops() + (steps - 1) * (ops() - constructed) + steps * buffers);
  }
  return with_frees(std::move(emit.program).finish());
}

StepSizes each_step(const LoweringInput& input, std::int64_t micro_batches) {
  return StepSizes(static_cast<std::size_t>(input.train.steps), micro_batches);
}

// A step as short as there can be in which ranks talk to all that they talk to, and every pass meets what it meets
// again and again: whatever is made once is made then.
std::int64_t shortest(const Layout& layout, std::int64_t micro_batches) {
  const bool interleaved = layout.schedule == ScheduleKind::Interleaved;
  return std::min<std::int64_t>(micro_batches, interleaved ? layout.group() : 2);
}

// As many micro-batches as show what many do on a pipeline rank, and after how many its schedule begins anew.
struct Few {
  std::int64_t micro_batches = 0;
  std::int32_t period = 1;
};
Few few_of(const Layout& layout, std::int64_t micro_batches, std::int32_t pipeline) {
  const std::int64_t behind = layout.pipeline - 1 - pipeline;  // stages
  switch (layout.schedule) {
    case ScheduleKind::OneFOneB:
      // All that run ahead; as many again, made in the midst of others; and some alike, the last of which sees the end.
      // A later stage receives its input a pass before its micro-batch begins.
      return {std::min<std::int64_t>(micro_batches, 2 * behind + (pipeline == 0 ? 5 : 6)), 1};
    case ScheduleKind::GPipe:
      return {micro_batches, 1};
    case ScheduleKind::Interleaved: {
      const std::int64_t group = layout.group();
      const std::int64_t ahead = (2 * behind + (layout.chunks - 1) * group) / layout.chunks / group + 1;
      return {std::min(micro_batches, (2 * ahead + 5) * group + micro_batches % group),
              static_cast<std::int32_t>(group)};
    }
  }
  return {micro_batches, 1};
}

// Says once what repeats in the steps that have `all` micro-batches. Where few do not show it, more of them.
RepeatingProgram repeating(const LoweringInput& input, const Role& role, const StepSizes& sizes) {
  const std::int64_t all = sizes.back();
  Few few = few_of(input.layout, all, role.first.pipeline);
  for (; few.micro_batches < all; few.micro_batches = std::min(all, few.micro_batches * 2 - all % few.period)) {
    StepSizes shown = sizes;
    std::vector<MoreOf> more(sizes.size());
    for (std::size_t s = 0; s < sizes.size(); ++s) {
      shown[s] = std::min(sizes[s], few.micro_batches);
      more[s] = {sizes[s] - shown[s], few.period};
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
  if (input.runtime.eager) return {pytorch::lower_training(input), {}};
  return repeating(input, role, whole_steps(input));
}
Program lower_role(const LoweringInput& input, const Role& role) { return unrolled(lower_repeating(input, role)); }
Program lower_every_pass(const LoweringInput& input, const Role& role) {
  return input.runtime.eager ? pytorch::lower_training(input) : lowered(input, role, whole_steps(input));
}
Program lower_shortest(const LoweringInput& input, const Role& role) {
  ensure(!input.runtime.eager, "passes of modules that run operation by operation are not apart from their state");
  return lowered(input, role, each_step(input, shortest(input.layout, micro_batches_of(input.train, input.layout))));
}
Program lower_state(const LoweringInput& input, const Role& role) {
  ensure(!input.runtime.eager, "modules that run operation by operation have no state apart from their passes");
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
RepeatingWorkload lower_last_step(const LoweringInput& input) {
  return workload_of<RepeatingWorkload>(input, OneFor::Stage, [](const LoweringInput& its, const Role& role) {
    return its.runtime.eager ? lower_repeating(its, role) : repeating(its, role, whole_last_step(its));
  });
}

AttentionKernel settled_attention(AttentionKernel asked, const Model& model, const Target& target,
                                  Determinism determinism) {
  if (asked != AttentionKernel::Auto) return asked;
  if (model.attention_softcap > 0) return AttentionKernel::Unfused;
  if (target.compute_capability < 90) return AttentionKernel::Flash;
  const bool blackwell = target.compute_capability >= 100;
  const bool fused = !blackwell || (determinism == Determinism::NotRequired && model.head_dim <= 128);
  return fused ? AttentionKernel::Fused : AttentionKernel::Flash;
}

}  // namespace tidemark::parallel
