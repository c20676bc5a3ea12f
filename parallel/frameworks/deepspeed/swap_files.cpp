#include "parallel/frameworks/deepspeed/swap_files.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/deepspeed/host_copies.hpp"
#include "parallel/job/framework.hpp"

namespace tidemark::parallel::deepspeed {
namespace {

// swap_tensor/utils.py.
constexpr std::int64_t least_bytes = 1 << 20, bytes_of_a_thread = 1024;

}  // namespace

SwapFormat::SwapFormat(const NvmeBehavior& behavior, DType dtype)
    : dtype_(dtype),
      least_(std::max(least_bytes, behavior.block_size)),
      alignment_(bytes_of_a_thread * behavior.threads / size_of(dtype).count()) {}

Tensor file(Session& s, std::int64_t elements, DType dtype, std::string_view what, Category category) {
  const OnHost drives(s, MemorySpace::Nvme);
  return s.empty({elements}, dtype, what, category);
}

Tensor locked(Session& s, std::int64_t elements, DType dtype, std::string_view what) {
  return zeros(s, MemorySpace::Pageable, elements, dtype, what, Category::OffloadStaging);
}

void DriveQueue::read(const Tensor& file, const Tensor& into) {
  const OnStream queue(s_, stream_);
  s_.copy(narrowed(file, 0, 0, into.elements()), into);
  pending_ = true;
}

void DriveQueue::write(const Tensor& from, const Tensor& file) {
  const OnStream queue(s_, stream_);
  s_.copy(from, file);
  pending_ = true;
}

void DriveQueue::wait() {
  if (std::exchange(pending_, false)) wait_for(s_, stream_);
}

SwapBuffers::SwapBuffers(std::vector<Tensor> buffers, std::string_view key) : buffers_(std::move(buffers)), key_(key) {
  for (std::size_t b = 0; b < buffers_.size(); ++b) free_.push_back(b);
}

SwapBuffers::Numbers SwapBuffers::take(std::size_t count) {
  if (count > free_.size())
    throw FrameworkStops(fmt::format("DeepSpeed runs out of swap buffers: {} are asked for, and of {} {} are free",
                                     count, buffers_.size(), free_.size()),
                         fmt::format("a larger {}", key_));
  const auto begin = free_.end() - static_cast<std::ptrdiff_t>(count);
  Numbers taken(begin, free_.end());
  free_.erase(begin, free_.end());
  return taken;
}

}  // namespace tidemark::parallel::deepspeed
