#include "parallel/frameworks/deepspeed/parameter_swapper.hpp"

#include <fmt/format.h>

#include "parallel/frameworks/deepspeed/host_copies.hpp"
#include "parallel/job/framework.hpp"

namespace tidemark::parallel::deepspeed {
namespace {

// DeepSpeed locks one piece of memory for all, which is made in the size of one that is not. Some are read to while
// others are copied.
std::vector<Tensor> made(Session& s, std::int64_t count, std::int64_t elements, DType dtype) {
  Tensor before;
  {
    const OnHost host(s);
    before = s.empty({count * elements}, dtype, "zero.parameter_buffers", Category::OffloadStaging);
  }
  std::vector<Tensor> buffers;
  for (std::int64_t b = 0; b < count; ++b) buffers.push_back(locked(s, elements, dtype, "zero.parameter_buffer"));
  return buffers;
}

}  // namespace

ParameterSwapper::ParameterSwapper(Session& session, const NvmeBehavior& behavior, DType dtype)
    : s_(session),
      format_(behavior, dtype),
      requested_(behavior.parameter_buffer_size),
      elements_(format_.aligned(requested_)),
      buffers_(made(session, behavior.parameter_buffers, elements_, dtype), "offload_param.buffer_count"),
      read_(session, reads),
      write_(session, writes) {}

SwappedPart ParameterSwapper::kept(const std::string& name, const Tensor& part) {
  if (part.elements() > requested_)
    throw FrameworkStops(fmt::format("DeepSpeed stops at {}: of its elements a rank has {}, and a buffer holds {}",
                                     name, part.elements(), requested_),
                         fmt::format("offload_param.buffer_size = {} would do", part.elements()));
  SwappedPart made{{}, part.elements(), {}, false};
  const Session::Scope scope(s_, name);
  const SwapBuffers::Numbers taken = buffers_.take(1);
  made.file = file(s_, format_.aligned(part.elements()), part.dtype, "part", Category::Parameters);
  copy_over(s_, part, narrowed(buffers_[taken.front()], 0, 0, part.elements()));
  write_.write(narrowed(buffers_[taken.front()], 0, 0, made.file.elements()), made.file);
  write_.wait();
  buffers_.give_back(taken);
  return made;
}

void ParameterSwapper::read(std::span<SwappedPart* const> parts) {
  const SwapBuffers::Numbers taken = buffers_.take(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    SwappedPart& part = *parts[i];
    part.buffer = taken[taken.size() - 1 - i];
    part.arrives = true;
    read_.read(part.file, narrowed(buffers_[*part.buffer], 0, 0, part.file.elements()));
    arriving_.push_back(&part);
  }
}

void ParameterSwapper::wait() {
  read_.wait();
  for (SwappedPart* const part : std::exchange(arriving_, {})) part->arrives = false;
}

Tensor ParameterSwapper::in_memory(const SwappedPart& part) const {
  return narrowed(buffers_[*part.buffer], 0, 0, part.elements);
}

void ParameterSwapper::release(SwappedPart& part) {
  if (part.buffer) buffers_.give_back({*part.buffer});
  part.buffer.reset();
}

void ParameterSwapper::read_to(SwappedPart& part, const Tensor& pinned) {
  if (part.elements % format_.alignment() == 0) return read_straight(part, pinned);
  SwappedPart* const only = &part;
  read({&only, 1});
  wait();
  copy_over(s_, in_memory(part), pinned);
  release(part);
}

void ParameterSwapper::read_straight(const SwappedPart& part, const Tensor& into) {
  read_.read(part.file, into);
  read_.wait();
}

Tensor ParameterSwapper::buffer_for(std::int64_t elements) {
  if (elements > elements_)
    throw FrameworkStops(fmt::format("DeepSpeed stops at fast_init: {} elements are updated together, and a buffer for "
                                     "parameters holds {}",
                                     elements, elements_),
                         fmt::format("offload_param.buffer_size = {} would do, or no fast_init", elements));
  const SwapBuffers::Numbers taken = buffers_.take(1);
  buffers_.give_back(taken);
  return narrowed(buffers_[taken.front()], 0, 0, elements);
}

void ParameterSwapper::reserve(std::span<const std::int64_t> elements) {
  std::int64_t all = 0;
  for (const std::int64_t its : elements) all += format_.aligned(its);
  updated_ = locked(s_, all, format_.dtype(), "zero.partitioned_buffer");
}

void ParameterSwapper::update(const std::vector<std::pair<SwappedPart*, Tensor>>& parts) {
  if (parts.empty()) return;
  std::vector<Tensor> places;
  for (std::int64_t at = 0; const auto& [part, value] : parts) {
    copy_over(s_, value, narrowed(updated_, 0, at, value.elements()));
    places.push_back(narrowed(updated_, 0, at, part->file.elements()));
    at += part->file.elements();
  }
  for (std::size_t i = 0; i < parts.size(); ++i) write_.write(places[i], parts[i].first->file);
  write_.wait();
}

}  // namespace tidemark::parallel::deepspeed
