#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "sim/program/launch_queue.hpp"
#include "sim/program/program.hpp"
#include "sim/program/structure/repeats.hpp"

namespace tidemark::sim {

/// Where a host thread sees whether its launch queue has room: before every eighth of a queue that it hands over, and
/// where another micro-batch begins, so that micro-batches that do the same see it at the same places. There it waits
/// until the device has done what was handed over a queue's depth, less that eighth, before. So the queue is between
/// seven eighths full and full, and nothing has to be known of launches one by one.
class QueuePoints {
 public:
  QueuePoints(const LaunchQueue& queue, bool fills)
      : queue_(queue),
        fills_(fills),
        launched_(static_cast<std::size_t>(queue.channels), 0),
        since_point_(launched_.size(), 0) {}

  /// Whether the host thread sees it before it hands over the next launch on the stream.
  [[nodiscard]] bool is_before_launch(StreamId stream) const {
    return fills_ && since_point_[queue_.channel_of(stream)] >= step();
  }
  void launch(StreamId stream) {
    if (!fills_) return;
    ++launched_[queue_.channel_of(stream)];
    ++since_point_[queue_.channel_of(stream)];
  }
  /// Whether it does so at the mark.
  [[nodiscard]] bool is_at(const Mark& mark) {
    const bool another = std::exchange(micro_batch_, mark.micro_batch) != mark.micro_batch;
    return fills_ && another && std::ranges::any_of(since_point_, [](std::int64_t n) { return n > 0; });
  }
  /// It does so now, or has waited for an event.
  void pass() { std::ranges::fill(since_point_, 0); }

  /// What came between here, `first` and `before` comes so many times more. False where it was not alike.
  [[nodiscard]] bool repeat(const QueuePoints& before, const QueuePoints& first, std::int64_t more) {
    if (!fills_) return true;
    if (since_point_ != first.since_point_ || since_point_ != before.since_point_) return false;
    for (std::size_t c = 0; c < launched_.size(); ++c) {
      const std::int64_t body = launched_[c] - first.launched_[c];
      if (first.launched_[c] - before.launched_[c] != body) return false;
      launched_[c] += more * body;
    }
    return true;
  }

  [[nodiscard]] bool fills() const { return fills_; }
  /// So far, by channel.
  [[nodiscard]] const std::vector<std::int64_t>& launched() const { return launched_; }
  /// Of so many launches on a channel, how many the device has to have done before more are handed over.
  [[nodiscard]] static std::int64_t rid_of(const LaunchQueue& queue, std::int64_t launched) {
    return launched + step(queue) - queue.depth;
  }

 private:
  [[nodiscard]] std::int64_t step() const { return step(queue_); }
  [[nodiscard]] static std::int64_t step(const LaunchQueue& queue) {
    return std::max<std::int64_t>(queue.depth / 8, 1);
  }

  LaunchQueue queue_;
  bool fills_;
  std::vector<std::int64_t> launched_, since_point_;  // by channel
  std::int32_t micro_batch_ = -1;
};

/// Whether a channel is handed more launches than it takes at a time, in the whole of a program: otherwise no host
/// thread ever waits for room.
[[nodiscard]] bool fills(const LaunchQueue& queue, const Program& program, std::span<const Repeat> repeats = {});

}  // namespace tidemark::sim
