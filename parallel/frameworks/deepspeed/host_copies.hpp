#pragma once

#include <optional>
#include <string_view>

#include "parallel/frameworks/deepspeed/zero_parameters.hpp"
#include "parallel/torch/operation.hpp"

// How PyTorch moves tensors between the device and its host, as DeepSpeed asks it to (ATen/native/cuda/Copy.cu).

namespace tidemark::parallel::deepspeed {

using OnPlace = std::optional<OnHost>;

/// Where a tensor lies.
[[nodiscard]] MemorySpace space_of(Session& session, const Tensor& tensor);
[[nodiscard]] inline bool is_on_host(Session& session, const Tensor& tensor) {
  return space_of(session, tensor) != MemorySpace::Device;
}

/// What follows is made in that space, and computed there.
inline void go_to(OnPlace& place, Session& session, MemorySpace space) {
  if (space != MemorySpace::Device) place.emplace(session, space);
}

/// torch.zeros, in that space.
[[nodiscard]] Tensor zeros(Session& session, MemorySpace space, std::int64_t elements, DType dtype,
                           std::string_view what, Category category);

/// Tensor.pin_memory where memory is to be pinned: a copy; others stay as they are.
[[nodiscard]] Tensor pinned(Session& session, const Tensor& pageable, MemorySpace space, std::string_view what,
                            Category category);

/// Tensor.copy_: the host thread waits for what crosses, and casts it on its side, in memory of its own.
void copy_over(Session& session, const Tensor& from, const Tensor& to);
/// The same with non_blocking, of one type: the host thread waits for pageable memory only.
void copy_ahead(Session& session, const Tensor& from, const Tensor& to);

/// Tensor.to, of another type or another place: a tensor of its own.
[[nodiscard]] Tensor moved(Session& session, const Tensor& from, MemorySpace space, DType dtype, std::string_view what,
                           Category category);

/// The host thread waits for that stream.
inline void wait_for(Session& session, StreamId stream) { session.process.synchronize(session.process.record(stream)); }

}  // namespace tidemark::parallel::deepspeed
