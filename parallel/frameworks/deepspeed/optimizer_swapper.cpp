#include "parallel/frameworks/deepspeed/optimizer_swapper.hpp"

#include <algorithm>

#include "parallel/frameworks/deepspeed/host_copies.hpp"
#include "parallel/job/framework.hpp"

namespace tidemark::parallel::deepspeed {
namespace {

std::vector<Tensor> made(Session& s, std::int64_t count, std::int64_t elements) {
  std::vector<Tensor> buffers;
  for (std::int64_t b = 0; b < count; ++b) buffers.push_back(locked(s, elements, DType::FP32, "swap_buffer"));
  return buffers;
}

constexpr std::string_view count_key = "offload_optimizer.buffer_count";

}  // namespace

OptimizerSwapper::OptimizerSwapper(Session& session, const NvmeBehavior& behavior, std::int64_t largest)
    : s_(session),
      behavior_(behavior),
      format_(behavior, DType::FP32),
      largest_(format_.aligned(largest)),
      buffers_(made(session, behavior.optimizer_buffers, largest_), count_key),
      write_(session, writes),
      read_(session, reads) {}

Tensor OptimizerSwapper::file_for(std::int64_t elements) {
  return file(s_, format_.aligned(elements), format_.dtype(), "fp32_partition", Category::OptimizerMaster);
}

// _swap_out_unpinned_tensors: as many at once as there are buffers.
void OptimizerSwapper::initialize(const std::vector<SwappedState*>& groups, const std::vector<Tensor>& values) {
  const SwapBuffers::Numbers all = buffers_.take(std::max<std::size_t>(buffers_.available(), 1));
  for (std::size_t first = 0; first < groups.size(); first += all.size()) {
    const std::size_t count = std::min(all.size(), groups.size() - first);
    for (std::size_t i = 0; i < count; ++i)
      copy_over(s_, values[first + i], part_of(all[i], groups[first + i]->elements));
    for (std::size_t i = 0; i < count; ++i)
      write_.write(part_of(all[i], format_.aligned(groups[first + i]->elements)), groups[first + i]->files.front());
    write_.wait();
  }
  buffers_.give_back(all);
}

// Of moments that are in no file yet.
std::vector<Tensor*> OptimizerSwapper::fresh_moments(SwappedState& group) const {
  std::vector<Tensor*> all = group.optimizer->kept();
  all.erase(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(group.files.size() - 1));
  return all;
}

void OptimizerSwapper::swap_in(SwappedState& group, SwappedState* next) {
  flush_gradients();
  if (ahead_ == &group)
    ahead_ = nullptr;
  else
    begin_reading(group);
  reading().wait();
  if (!pipelines()) read_gradient(group);
  if (!behavior_.pipeline_read || next == nullptr) return;
  begin_reading(*next);
  ahead_ = next;
}

void OptimizerSwapper::begin_reading(SwappedState& group) {
  const bool has_gradient = !group.gradient.empty() || !group.unswapped.empty();
  group.held = buffers_.take(group.files.size() + (has_gradient ? 1 : 0));
  for (std::size_t i = 0; i < group.files.size(); ++i)
    reading().read(group.files[i], part_of(group.held[i], format_.aligned(group.elements)));
  const auto kept = group.optimizer->kept();
  for (std::size_t i = 0; i < group.files.size(); ++i)
    (i == 0 ? group.master->value : *kept[i - 1]) = part_of(group.held[i], group.elements);
  if (has_gradient) group.master->gradient = part_of(group.held.back(), group.elements);
  if (pipelines()) read_gradient(group);
}

void OptimizerSwapper::read_gradient(SwappedState& group) {
  const auto place = [&](std::int64_t first, const Tensor& part) {
    return narrowed(group.master->gradient, 0, first, part.elements());
  };
  for (const auto& [first, part] : group.gradient) reading().read(part, place(first, part));
  if (!pipelines()) reading().wait();
  for (const auto& [first, part] : group.unswapped) copy_over(s_, part, place(first, part));
}

void OptimizerSwapper::swap_out(SwappedState& group, bool others_follow) {
  complete_writing();
  const std::vector<Tensor*> fresh = fresh_moments(group);
  const std::size_t known = group.files.size();
  const auto write = [&](std::size_t number, std::size_t which) {
    write_.write(part_of(number, format_.aligned(group.elements)), group.files[which]);
  };
  for (std::size_t m = 0; m < fresh.size(); ++m)
    group.files.push_back(
        file(s_, format_.aligned(group.elements), format_.dtype(), "moment", Category::OptimizerMoments));
  if (pipelines()) {
    group.unswapped.clear();
    const SwapBuffers::Numbers others = buffers_.take(fresh.size());
    for (std::size_t m = 0; m < fresh.size(); ++m) copy_over(s_, *fresh[m], part_of(others[m], group.elements));
    for (std::size_t i = 0; i < group.files.size(); ++i) write(i < known ? group.held[i] : others[i - known], i);
    writing_ = std::exchange(group.held, {});
    writing_->insert(writing_->end(), others.begin(), others.end());
    if (!behavior_.pipeline_write || !others_follow) complete_writing();
  } else {
    for (std::size_t i = 0; i < known; ++i) write(group.held[i], i);
    write_.wait();
    if (!fresh.empty()) {
      const SwapBuffers::Numbers all = buffers_.take(std::max<std::size_t>(buffers_.available(), 1));
      for (std::size_t first = 0; first < fresh.size(); first += all.size()) {
        const std::size_t count = std::min(all.size(), fresh.size() - first);
        for (std::size_t i = 0; i < count; ++i) copy_over(s_, *fresh[first + i], part_of(all[i], group.elements));
        for (std::size_t i = 0; i < count; ++i) write(all[i], known + first + i);
        write_.wait();
      }
      group.held.insert(group.held.end(), all.begin(), all.end());
    }
    release(group);
    group.unswapped.clear();
  }
  group.master->gradient = {};
}

// What is there stays in the files alone.
void OptimizerSwapper::release(SwappedState& group) {
  const auto kept = group.optimizer->kept();
  for (std::size_t i = 0; i < group.files.size(); ++i)
    (i == 0 ? group.master->value : *kept[i - 1]) = narrowed(group.files[i], 0, 0, group.elements);
  buffers_.give_back(std::exchange(group.held, {}));
}

void OptimizerSwapper::complete_writing() {
  if (!writing_) return;
  write_.wait();
  buffers_.give_back(*writing_);
  writing_.reset();
}

// ---- gradients -----------------------------------------------------------------------------------------------------

void OptimizerSwapper::swap_out_gradients(SwappedState& group,
                                          const std::vector<std::pair<std::int64_t, Tensor>>& parts) {
  std::vector<std::pair<std::int64_t, Tensor>> going;
  const auto sort = [&](std::int64_t first, Tensor part) {
    if (format_.swaps(part.elements()))
      going.emplace_back(first, std::move(part));
    else
      group.unswapped.insert_or_assign(first, std::move(part));
  };
  // What does not fill a whole KiB goes by itself: a view, which keeps all of its memory
  // (_adjust_for_misaligned_lengths).
  for (const auto& [first, part] : parts) {
    const std::int64_t rest = format_.swaps(part.elements()) ? part.elements() % format_.alignment() : 0;
    if (rest == 0) {
      sort(first, part);
    } else {
      const std::int64_t whole = part.elements() - rest;
      sort(first, narrowed(part, 0, 0, whole));
      sort(first + whole, narrowed(part, 0, whole, rest));
    }
  }
  if (going.empty()) return;
  if (gradient_buffers_.empty())
    free_ = gradient_buffers_ = buffers_.take(std::max<std::size_t>(buffers_.available(), 1));
  for (const auto& [first, part] : going) {
    Tensor& its = group.gradient[first];
    if (!its.defined()) its = file(s_, part.elements(), format_.dtype(), "gradient", Category::Gradients);
    insert(part, its);
  }
}

void OptimizerSwapper::insert(const Tensor& gradient, const Tensor& file) {
  const std::int64_t elements = gradient.elements();
  if (current_ && filled_ + elements > largest_) {
    write_inserted();
    if (free_.empty()) {
      write_.wait();
      free_ = gradient_buffers_;
    }
  }
  if (!current_) {
    current_ = free_.back();
    free_.pop_back();
    filled_ = 0;
  }
  const Tensor place = narrowed(buffers_[*current_], 0, filled_, elements);
  copy_over(s_, gradient, place);
  inserted_.emplace_back(place, file);
  filled_ += elements;
}

void OptimizerSwapper::write_inserted() {
  for (const auto& [place, file] : std::exchange(inserted_, {})) write_.write(place, file);
  current_.reset();
}

void OptimizerSwapper::flush_gradients() {
  if (gradient_buffers_.empty()) return;
  write_inserted();
  write_.wait();
  free_.clear();
  buffers_.give_back(std::exchange(gradient_buffers_, {}));
}

}  // namespace tidemark::parallel::deepspeed
