#include "parallel/frameworks/deepspeed/host_copies.hpp"

#include <utility>

namespace tidemark::parallel::deepspeed {
namespace {

Tensor made(Session& s, MemorySpace space, const Shape& sizes, DType dtype, std::string_view what, Category category) {
  OnPlace place;
  go_to(place, s, space);
  return s.empty(sizes, dtype, what, category);
}

void copy_on(Session& s, MemorySpace space, const Tensor& from, const Tensor& to) {
  OnPlace place;
  go_to(place, s, space);
  s.launch(Operation::Copy, {from}, {to});
}

constexpr std::string_view staging = "staging";

}  // namespace

MemorySpace space_of(Session& s, const Tensor& tensor) { return s.process.allocation(tensor.buffer()).space; }

Tensor zeros(Session& s, MemorySpace space, std::int64_t elements, DType dtype, std::string_view what,
             Category category) {
  OnPlace place;
  go_to(place, s, space);
  Tensor filled = s.empty({elements}, dtype, what, category);
  s.launch({Operation::Fill, {0}}, {}, {filled});
  return filled;
}

Tensor pinned(Session& s, const Tensor& pageable, MemorySpace space, std::string_view what, Category category) {
  if (space != MemorySpace::Pinned) return pageable;
  Tensor copy = made(s, space, pageable.sizes, pageable.dtype, what, category);
  copy_on(s, space, pageable, copy);
  return copy;
}

void copy_over(Session& s, const Tensor& from, const Tensor& to) {
  const bool leaves = is_on_host(s, from), arrives = is_on_host(s, to);
  if (leaves == arrives) return copy_on(s, arrives ? MemorySpace::Pageable : MemorySpace::Device, from, to);
  Tensor source = from, target = to;
  if (from.dtype != to.dtype) {
    Tensor& on_host = leaves ? source : target;
    on_host =
        made(s, MemorySpace::Pageable, from.sizes, leaves ? to.dtype : from.dtype, staging, Category::OffloadStaging);
    if (leaves) copy_on(s, MemorySpace::Pageable, from, source);
  }
  s.copy(source, target);
  wait_for(s, s.stream());
  if (arrives && from.dtype != to.dtype) copy_on(s, MemorySpace::Pageable, target, to);
}

void copy_ahead(Session& s, const Tensor& from, const Tensor& to) {
  const MemorySpace left = space_of(s, from), reached = space_of(s, to);
  if ((left == MemorySpace::Device) == (reached == MemorySpace::Device)) return copy_on(s, reached, from, to);
  s.copy(from, to);
  // cudaMemcpyAsync returns once pageable memory is read, or written.
  if (left == MemorySpace::Pageable || reached == MemorySpace::Pageable) wait_for(s, s.stream());
}

Tensor moved(Session& s, const Tensor& from, MemorySpace space, DType dtype, std::string_view what, Category category) {
  Tensor there = made(s, space, from.sizes, dtype, what, category);
  copy_over(s, from, there);
  return there;
}

}  // namespace tidemark::parallel::deepspeed
