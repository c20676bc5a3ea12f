#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parallel/frameworks/deepspeed/swap_files.hpp"

// AsyncPartitionedParameterSwapper (deepspeed/runtime/swap_tensor/partitioned_param_swapper.py).

namespace tidemark::parallel::deepspeed {

/// A rank's part of a parameter that lies in a file: where it is read to, if it is in memory or on its way there.
struct SwappedPart {
  Tensor file;
  std::int64_t elements = 0;
  std::optional<std::size_t> buffer;
  bool arrives = false;  ///< nobody has waited for it yet
};

class ParameterSwapper {
 public:
  ParameterSwapper(Session& session, const NvmeBehavior& behavior, DType dtype);

  [[nodiscard]] bool swaps(std::int64_t elements) const { return format_.swaps(elements); }
  [[nodiscard]] std::size_t available_buffers() const { return buffers_.available(); }
  /// A buffer for so many elements, which stays free.
  [[nodiscard]] Tensor buffer_for(std::int64_t elements);

  /// A part that is made on the device, and goes to its file by way of a buffer.
  [[nodiscard]] SwappedPart kept(const std::string& name, const Tensor& part);
  /// swap_in. What is read is there once `wait` has returned.
  void read(std::span<SwappedPart* const> parts);
  void wait();
  /// What `part` has in memory.
  [[nodiscard]] Tensor in_memory(const SwappedPart& part) const;
  /// remove_partition_and_release_buffers.
  void release(SwappedPart& part);
  /// swap_into_buffer: to pinned memory straight away where that is aligned.
  void read_to(SwappedPart& part, const Tensor& pinned);
  /// The same without looking at that.
  void read_straight(const SwappedPart& part, const Tensor& into);

  /// reserve_partitioned_swap_space, of so many elements each: what is updated is cast there, and written.
  void reserve(std::span<const std::int64_t> elements);
  void update(const std::vector<std::pair<SwappedPart*, Tensor>>& parts);

 private:
  static constexpr StreamId writes{6}, reads{7};

  Session& s_;
  SwapFormat format_;
  std::int64_t requested_, elements_;  ///< of a buffer: as it was asked for, and aligned
  SwapBuffers buffers_;
  DriveQueue read_, write_;
  std::vector<SwappedPart*> arriving_;
  Tensor updated_;  ///< partitioned_swap_buffer
};

}  // namespace tidemark::parallel::deepspeed
