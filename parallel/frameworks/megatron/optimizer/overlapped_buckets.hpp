#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "parallel/frameworks/megatron/optimizer/buffers.hpp"

namespace tidemark::parallel::megatron {

/// core/distributed/distributed_data_parallel.py and param_and_grad_buffer.py with overlap-grad-reduce: a bucket's
/// gradients are reduced beside the passes once it has them all; with overlap-param-gather its parameters are gathered
/// beside the next step's first forward pass. Schedules say when, where stages are to do so together.
class OverlappedBuckets {
 public:
  /// Of all of a rank's buffers, which outlive this and have been built.
  OverlappedBuckets(Worker& worker, std::vector<ParamAndGradBuffer>& buffers);
  OverlappedBuckets(const OverlappedBuckets&) = delete;
  OverlappedBuckets& operator=(const OverlappedBuckets&) = delete;
  ~OverlappedBuckets();

  /// Steps count from 1: in the first one parameters are as they were made (training.py train).
  void begin_step(std::int32_t step);
  /// Whether gradients that come are the step's last (no_sync): then a bucket goes once it has all of its own.
  void reduce_as_they_come(bool last) { last_ = last; }
  /// Parameters are gathered beside the passes, too.
  [[nodiscard]] bool gathers() const { return w_.runtime.overlap.parameters && shards_buffers(w_.layout, w_.runtime); }
  /// All stages begin together, and the schedule says when.
  [[nodiscard]] bool aligns_gradients() const { return w_.runtime.overlap.gradients_aligned; }
  [[nodiscard]] bool aligns_parameters() const { return w_.runtime.overlap.parameters_aligned && w_.chunks.size() > 1; }
  /// All buckets of that chunk of the rank, now (start_grad_sync).
  void reduce(std::size_t chunk);
  /// … (start_param_sync).
  void gather(std::size_t chunk);
  /// Gradients are whole after this: what has not gone goes now.
  void finish();

 private:
  struct Bucket {
    ParamAndGradBuffer* buffer;
    std::size_t place;  ///< in the buffer
    std::int64_t parameters = 0, missing = 0;
    bool reducing = false, gathering = false, awaited = false;
    EventId reduced{}, gathered{};
  };

  void arrived(std::size_t bucket);
  void start_reducing(Bucket& bucket);
  void start_gathering(Bucket& bucket);
  /// A module's forward pre-hook: its parameters have to be there.
  void before_reading(const Tensor& parameter);
  [[nodiscard]] bool of_chunk(const Bucket& bucket, std::size_t chunk) const;

  Worker& w_;
  std::vector<Bucket> buckets_;               ///< buffer by buffer; in each those of the model's end first
  std::map<BufferId, std::size_t> first_of_;  ///< by the buffer that parameters lie in: place of its first bucket
  std::size_t unread_ = 0;                    ///< buckets of parameters that nobody has waited for in this step
  bool last_ = false;
};

}  // namespace tidemark::parallel::megatron
