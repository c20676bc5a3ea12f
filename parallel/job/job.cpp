#include "parallel/job/job.hpp"

#include <algorithm>

namespace tidemark::parallel {

namespace {

// TransformerEngine 2.11, attention/dot_product_attention/context_parallel.py: a ring of two hands its messages over
// together, but not on Blackwell. PyTorch's are all-to-alls of the group.
MessageRoute ring_route(const LoweringInput& input) {
  if (input.runtime.eager) return MessageRoute::Group;
  const std::int32_t ranks = input.layout.context / input.layout.ulysses();
  return input.runtime.ring_of_two_in_batches && ranks == 2 ? MessageRoute::Group : MessageRoute::Pairs;
}

// Ranks next to each other that hold parameters once more, or for a while, between them.
std::int32_t secondary_ranks(const Runtime& runtime) {
  if (!runtime.eager) return 1;
  const EagerBehavior& eager = *runtime.eager;
  if (eager.zero) return static_cast<std::int32_t>(eager.zero->secondary_ranks);
  return eager.fully_shard ? static_cast<std::int32_t>(eager.fully_shard->ranks_after_forward) : 1;
}

}  // namespace

Communicators communicators_of(const LoweringInput& input) {
  const Model& model = input.built.model;
  const bool counts_together = model.experts() && (model.experts()->correction_bias ||
                                                   input.runtime.experts.balances_by(LoadBalancing::GlobalLoss));
  const bool several =
      input.layout.expert * input.layout.expert_tensor_parallel() > 1;  // ranks share a layer's experts
  return communicators(input.layout,
                       {.embedding_at_both_ends = model.embeds_at_both_ends(),
                        .experts = model.experts() != nullptr,
                        .secondary_ranks = secondary_ranks(input.runtime),
                        .counts_together = counts_together,
                        .token_buffers = input.train.routing.dispatcher == TokenDispatcher::Flex && several,
                        .user_buffers = input.runtime.tensor_overlap.has_value(),
                        .further_tokens = !model.further.empty()},
                       input.runtime.collectives_alone ? Alone::Calls : Alone::Skips, ring_route(input));
}

std::int64_t micro_batches_of(const Train& train, const Layout& layout) {
  return train.global_batch / (train.micro_batch * layout.data);
}

Schedule schedule_of(const Layout& layout, std::int32_t pipeline, std::int32_t micro_batches) {
  switch (layout.schedule) {
    case ScheduleKind::OneFOneB:
      return one_f_one_b(pipeline, layout.pipeline, micro_batches);
    case ScheduleKind::GPipe:
      return gpipe(micro_batches);
    case ScheduleKind::Interleaved:
      return interleaved(pipeline, layout.pipeline, micro_batches, layout.chunks, layout.group());
    case ScheduleKind::ZeroBubbleH1:
      return zb_h1(pipeline, layout.pipeline, micro_batches);
    case ScheduleKind::LoopedBreadthFirst:
      return looped_breadth_first(micro_batches, layout.chunks);
    case ScheduleKind::InterleavedZeroBubble:
      return interleaved_zero_bubble(pipeline, layout.pipeline, micro_batches, layout.chunks, layout.group());
    case ScheduleKind::ZeroBubbleV:
      return zero_bubble_v(pipeline, layout.pipeline, micro_batches);
    case ScheduleKind::DualPipeV:
      return dual_pipe_v(pipeline, layout.pipeline, micro_batches);
  }
  return {};
}

std::vector<Schedule> schedules_of(const Layout& layout, std::int32_t micro_batches) {
  std::vector<Schedule> all;
  for (std::int32_t p = 0; p < layout.pipeline; ++p) all.push_back(schedule_of(layout, p, micro_batches));
  return all;
}

std::int64_t shortest_step(const Layout& layout) {
  const std::int32_t filling = layout.schedule == ScheduleKind::DualPipeV ? layout.stages() : 2;
  return std::max(filling, layout.period());
}

}  // namespace tidemark::parallel
