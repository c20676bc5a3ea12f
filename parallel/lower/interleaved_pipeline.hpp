#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "parallel/lower/chunk_passes.hpp"
#include "parallel/schedule/schedule.hpp"

namespace tidemark::parallel {

/// Runs the interleaved schedule of one rank as Megatron does (core 0.14, schedules.py): during warm-up and cool-down
/// it waits for each hand-over, in between forward and backward ones run beside the passes. The variables of that
/// function hold tensors longer than the arithmetic needs them; they are all here.
class InterleavedPipeline {
 public:
  InterleavedPipeline(Emitter& emit, std::int32_t pipeline);

  /// All micro-batches of one step.
  void run(std::int32_t step, std::int32_t micro_batches);

 private:
  // What a rank does with the tensor that comes next from a neighbour: take it, and for which chunk.
  struct Arrival {
    bool comes = false;
    std::int32_t chunk = 0;
  };
  [[nodiscard]] Arrival next_input(std::int32_t k) const;
  [[nodiscard]] Arrival next_output_gradient(std::int32_t k) const;
  [[nodiscard]] Arrival arrival(std::int32_t k, ActionKind kind, bool leads) const;
  [[nodiscard]] std::int32_t chunk_of(std::int32_t k, ActionKind kind) const;

  void warm_up();
  void steady();
  void cool_down();

  void forward(std::int32_t k);
  void backward(std::int32_t k);
  void deallocate_output();
  /// A hand-over that the compute stream waits for, or one beside it.
  void exchange(std::string_view label, const std::vector<Transfer>& transfers);
  [[nodiscard]] std::optional<EventId> exchange_aside(std::string_view label, StreamId stream,
                                                      const std::vector<Transfer>& transfers);
  /// Makes room for what comes and puts it where its pass will look.
  BufferId expect_input(const Arrival& arrival);
  BufferId expect_output_gradient(const Arrival& arrival);
  [[nodiscard]] ChunkPasses& chunk(std::int32_t c) { return chunks_[static_cast<std::size_t>(c)]; }
  [[nodiscard]] const Action& table(std::int32_t k) const { return table_[static_cast<std::size_t>(k)]; }

  // Lists of receive buffers; the rank that leads a direction has more, when groups are larger than the pipeline.
  [[nodiscard]] std::int32_t input_slots() const { return first_rank() ? slots() : 1; }
  [[nodiscard]] std::int32_t gradient_slots() const { return last_rank() ? slots() : 1; }
  [[nodiscard]] std::int32_t slots() const { return emit_.layout.group() - emit_.layout.pipeline + 1; }
  [[nodiscard]] bool first_rank() const { return pipeline_ == 0; }
  [[nodiscard]] bool last_rank() const { return pipeline_ == emit_.layout.pipeline - 1; }

  Emitter& emit_;
  Variables variables_;
  std::vector<ChunkPasses> chunks_;
  std::int32_t pipeline_;
  std::int32_t step_ = 0;
  std::int32_t warmup_ = 0, total_ = 0;
  Schedule table_;                                ///< forward passes in order
  std::vector<std::int32_t> inputs_, gradients_;  ///< by chunk: how many have come
  BufferId output_, input_gradient_;              ///< what the last passes made, if it is to be sent
  std::optional<Action> output_of_;               ///< the pass whose output is still whole
  BufferId warmup_input_;                         ///< the variable `input_tensor`
  std::deque<EventId> awaited_inputs_, awaited_gradients_;
  std::optional<EventId> sent_output_, sent_gradient_;
};

}  // namespace tidemark::parallel
