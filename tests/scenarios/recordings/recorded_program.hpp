#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "scenarios/recordings/recorded_trace.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {

/// Writes what a program asks for as a recording of it, with addresses that only tell the blocks apart.
class RecordedProgram {
 public:
  /// Asks for a block; its number is for free().
  std::uint64_t alloc(Bytes size, std::int32_t stack = -1, std::int32_t stream = 0) {
    blocks_[++last_] = {size, StreamId{stream}};
    write(TraceEvent::Action::Alloc, last_, size, stack);
    return last_;
  }
  void free(std::uint64_t block) {
    free_later(block);
    complete(block);
  }
  /// The block still waits for other streams, until complete().
  void free_later(std::uint64_t block) { write(TraceEvent::Action::FreeRequested, block, blocks_.at(block).size, -1); }
  void complete(std::uint64_t block) { write(TraceEvent::Action::FreeCompleted, block, blocks_.at(block).size, -1); }
  void run_out(Bytes size) { write(TraceEvent::Action::OutOfMemory, 0, size, -1); }

  /// Each event is a microsecond after the one before.
  [[nodiscard]] std::int64_t now() const { return static_cast<std::int64_t>(trace_.events.size()); }
  [[nodiscard]] std::size_t events() const { return trace_.events.size(); }
  [[nodiscard]] RecordedTrace& trace() { return trace_; }

 private:
  struct Block {
    Bytes size;
    StreamId stream;
  };

  void write(TraceEvent::Action action, std::uint64_t block, Bytes size, std::int32_t stack) {
    trace_.events.push_back({.action = action,
                             .stream = block == 0 ? StreamId{0} : blocks_.at(block).stream,
                             .address = {block << 32},
                             .size = size,
                             .time_us = now() + 1,
                             .stack = StackId{stack}});
  }

  RecordedTrace trace_;
  std::map<std::uint64_t, Block> blocks_;
  std::uint64_t last_ = 0;
};

}  // namespace tidemark::tests
