#pragma once

#include <cstddef>
#include <deque>

#include "parallel/torch/process.hpp"

namespace tidemark::parallel::deepspeed {

/// Work on its way that the host thread lets run ahead of it: two of a kind. __ongoing_fetch_events of
/// deepspeed/runtime/zero/partitioned_param_coordinator.py and param_reduce_events of stage3.py, both with a most of 2:
/// where more are open, the host waits for the oldest. There events that are done leave the queue before; to wait for
/// one of those takes no time.
class OngoingEvents {
 public:
  /// Before more work goes on its way.
  void make_room(torch::Process& process) {
    if (open_.size() <= most) return;
    process.synchronize(open_.front());
    open_.pop_front();
  }
  /// It is on its way, on that stream.
  void add(torch::Process& process, sim::StreamId stream) { open_.push_back(process.record(stream)); }

 private:
  static constexpr std::size_t most = 2;
  std::deque<sim::EventId> open_;
};

}  // namespace tidemark::parallel::deepspeed
