#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "parallel/frameworks/pytorch/pipeline/pipeline_actions.hpp"
#include "parallel/frameworks/pytorch/pipeline/pipeline_stage.hpp"
#include "parallel/job/job.hpp"
#include "parallel/schedule/messages.hpp"

namespace tidemark::parallel::pytorch {

/// torch.distributed.pipelining's schedules (schedules.py), as a rank runs them.
class PipelineSchedule {
 public:
  PipelineSchedule(Session& session, const LoweringInput& input, const PipelineBehavior& behavior, CommSlot pipeline,
                   std::int32_t rank, std::vector<std::unique_ptr<PipelineStage>> stages)
      : s_(session),
        layout_(input.layout),
        behavior_(behavior),
        pipeline_(pipeline),
        rank_(rank),
        stages_(std::move(stages)) {}

  /// _PipelineSchedule.step: all passes of a step. Its losses, where the last stage is here.
  PipelineStage::Losses step(std::int32_t step, std::int32_t micro_batches);

 private:
  using Key = std::pair<std::int32_t, std::int32_t>;  ///< chunk and micro-batch
  struct Variables;

  void prepare(std::int32_t micro_batches);
  [[nodiscard]] EventId exchange(std::span<const Transfer> transfers, StreamId stream);
  PipelineStage& stage(std::int32_t chunk) { return *stages_[static_cast<std::size_t>(chunk)]; }
  void at(std::int32_t micro_batch) { s_.process.at(step_, micro_batch); }

  // One stage on each rank.
  void run_single(std::int32_t micro_batches);
  void pass(const Action& action, Variables& v);
  void p2p(const P2pExchange& its, Variables& v);
  void wait(std::vector<PendingSend>& sends);

  // Several.
  void run_several(std::int32_t micro_batches);
  void perform(const PipelineAction& action);
  void begin_pass(std::map<Key, EventId>& receives, const PipelineAction& action);
  void send(const PipelineAction& action, Tensor tensor, bool forward);
  void receive(const PipelineAction& action, const Tensor& buffer, bool forward);
  void wait_for(std::map<Key, PendingSend>& sends, const PipelineAction& action);
  [[nodiscard]] StreamId stream_towards(std::int32_t step) const;
  [[nodiscard]] std::int32_t step_towards(std::int32_t chunk, bool next) const;
  /// Where the stage after that of a chunk is, or the one before.
  [[nodiscard]] std::optional<Place> neighbour(std::int32_t chunk, bool next) const;

  Session& s_;
  const Layout& layout_;
  const PipelineBehavior& behavior_;
  CommSlot pipeline_;
  std::int32_t rank_;
  std::vector<std::unique_ptr<PipelineStage>> stages_;
  std::int32_t step_ = 0;
  bool prepared_ = false;
  // Of several stages.
  std::vector<std::int32_t> unsharding_;  ///< stages whose parameters are on their way
  std::map<Key, EventId> forward_receives_, backward_receives_;
  std::map<Key, PendingSend> forward_sends_, backward_sends_;
};

}  // namespace tidemark::parallel::pytorch
