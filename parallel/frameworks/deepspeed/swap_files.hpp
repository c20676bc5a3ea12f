#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "parallel/frameworks/deepspeed/zero_parameters.hpp"

// Tensors in files on NVMe drives, and the buffers that they go through (deepspeed/runtime/swap_tensor/utils.py,
// csrc/aio/py_lib of 0.19).

namespace tidemark::parallel::deepspeed {

/// How tensors of one type are cut for files.
class SwapFormat {
 public:
  SwapFormat(const NvmeBehavior& behavior, DType dtype);
  [[nodiscard]] DType dtype() const { return dtype_; }
  /// is_swappable_tensor: whether so many elements are worth a file.
  [[nodiscard]] bool swaps(std::int64_t elements) const { return elements * size_of(dtype_) >= least_; }
  /// _io_aligned_numel.
  [[nodiscard]] std::int64_t aligned(std::int64_t elements) const {
    return (elements + alignment_ - 1) / alignment_ * alignment_;
  }
  [[nodiscard]] std::int64_t alignment() const { return alignment_; }

 private:
  DType dtype_;
  Bytes least_;
  std::int64_t alignment_;
};

/// A file.
[[nodiscard]] Tensor file(Session& session, std::int64_t elements, DType dtype, std::string_view what,
                          Category category);
/// new_cpu_locked_tensor: memory that mlock holds and CUDA does not know of, so that its copies are those of pageable
/// memory.
[[nodiscard]] Tensor locked(Session& session, std::int64_t elements, DType dtype, std::string_view what);

/// aio_handle: reads and writes go on beside the host thread until it waits for them.
class DriveQueue {
 public:
  DriveQueue(Session& session, StreamId stream) : s_(session), stream_(stream) {}
  void read(const Tensor& file, const Tensor& into);
  void write(const Tensor& from, const Tensor& file);
  void wait();

 private:
  Session& s_;
  StreamId stream_;
  bool pending_ = false;
};

/// Buffers that take turns.
class SwapBuffers {
 public:
  using Numbers = std::vector<std::size_t>;
  /// `key` names how many there are.
  SwapBuffers(std::vector<Tensor> buffers, std::string_view key);
  [[nodiscard]] const Tensor& operator[](std::size_t number) const { return buffers_[number]; }
  [[nodiscard]] std::size_t available() const { return free_.size(); }
  /// Throws FrameworkStops where there are not as many: DeepSpeed asserts that there are.
  [[nodiscard]] Numbers take(std::size_t count);
  void give_back(const Numbers& numbers) { free_.insert(free_.end(), numbers.begin(), numbers.end()); }

 private:
  std::vector<Tensor> buffers_;
  std::string_view key_;
  Numbers free_;
};

}  // namespace tidemark::parallel::deepspeed
