#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/lower/emitter.hpp"
#include "parallel/lower/operators.hpp"

namespace tidemark::parallel {

/// Variables of the framework's frames and modules that come and go; giving up one that holds nothing does nothing.
class Variables {
 public:
  explicit Variables(Emitter& emit) : emit_(emit) {}
  void bind(std::string_view name, BufferId buffer);
  void unbind(std::string_view name);
  /// As when a function returns: all whose names begin so.
  void unbind_all(std::string_view prefix);

 private:
  Emitter& emit_;
  std::set<std::string, std::less<>> bound_;  ///< now: long schedules have very many names over time
};

/// One micro-batch that a chunk has begun and not finished.
struct InFlight {
  explicit InFlight(const ModelGraph& graph) : tensors(graph) {}
  MicroBatch tensors;
  BufferId input;            ///< received from the stage before
  BufferId input_gradient;   ///< to be sent back to it
  BufferId output;           ///< to be sent to the stage after
  BufferId output_gradient;  ///< received from it
};

/// The forward and backward passes of one stage of the model: a rank's only one, or one of its chunks.
class ChunkPasses {
 public:
  ChunkPasses(Emitter& emit, Variables& variables, std::int32_t chunk);

  /// Needs the input, if the stage receives one; leaves the output, if it sends one.
  void forward_pass(std::int32_t step, std::int32_t micro_batch);
  /// Needs the output's gradient, if the stage sends an output; leaves the input's, if it receives one.
  void backward_pass(std::int32_t step, std::int32_t micro_batch);

  [[nodiscard]] bool first() const { return stage_.embedding; }
  [[nodiscard]] bool last() const { return stage_.head; }
  [[nodiscard]] InFlight& in_flight(std::int32_t micro_batch);
  void retire(std::int32_t micro_batch);

  /// A tensor for what comes from the stage before, or for a gradient from the stage after.
  [[nodiscard]] BufferId receive_input();
  [[nodiscard]] BufferId receive_output_gradient();

 private:
  void load_batch(InFlight& batch);
  /// All operators of the stage; where segments run again later, names hold what comes into them.
  void run_forward(std::int32_t micro_batch, InFlight& batch);
  void run_backward(std::int32_t micro_batch, InFlight& batch);
  void run_again(const Segment& segment, InFlight& batch);
  [[nodiscard]] std::string checkpoint(std::int32_t micro_batch, std::int32_t segment, std::size_t input) const;

  Emitter& emit_;
  Variables& variables_;
  Stage stage_;
  std::int32_t chunk_;
  std::string decoder_;                   ///< the module's name
  std::vector<OperatorId> operators_;     ///< of this stage, in order
  std::vector<std::int32_t> segment_of_;  ///< by place in `operators_`: index of what it runs again with, or -1
  ValueId tokens_, labels_;
  ValueId boundary_in_, boundary_out_;  ///< values that cross to and from the neighbouring stages
  BufferId decoder_input_;              ///< what the decoder was last given
  std::map<std::int32_t, InFlight> in_flight_;
  std::vector<InFlight> spare_;  ///< finished ones, to be used again
};

}  // namespace tidemark::parallel
