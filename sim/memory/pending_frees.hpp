#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sim/base/address.hpp"
#include "sim/base/ensure.hpp"
#include "sim/base/units.hpp"
#include "sim/memory/free_blocks.hpp"
#include "sim/memory/state_words.hpp"
#include "sim/memory/stream_events.hpp"

namespace tidemark::sim {

/// Blocks that streams other than their own use, and those among them that were freed and wait for these streams:
/// recordStream, insert_events, process_events and synchronize_and_free_events of c10/cuda/CUDACachingAllocator.cpp.
template <StreamEvents Events>
class PendingFrees {
 public:
  explicit PendingFrees(Events events) : events_(std::move(events)) {}

  /// `stream`, not the block's own, uses it. Uses that a capture recorded are over when it ends.
  void use(BlockId block, StreamId stream, bool capturing) {
    Uses& uses = uses_[block.value];
    add(uses.streams, stream);
    if (capturing) add(uses.captured, stream);
  }
  /// Whether freeing the block has to wait.
  [[nodiscard]] bool uses(BlockId block) const { return !uses_.empty() && uses_.contains(block.value); }
  /// The block was freed: an event on each stream that uses it. While a capture is underway, events come later.
  void free(BlockId block, bool capturing) {
    if (capturing) {
      deferred_.push_back(block);
    } else {
      record_events(block);
    }
  }
  [[nodiscard]] bool any() const { return !waiting_.empty() || !deferred_.empty(); }

  /// Calls finish(BlockId) for each freed block that no stream uses any more. Of each stream only what is done before
  /// its first open event counts.
  template <class Finish>
  void process(Finish finish) {
    record_deferred(finish);
    for (auto stream = waiting_.begin(); stream != waiting_.end();) {
      std::deque<Waiting>& queue = stream->second;
      while (!queue.empty() && events_.done(queue.front().event)) {
        pass(queue.front().block, finish);
        queue.pop_front();
      }
      stream = queue.empty() ? waiting_.erase(stream) : std::next(stream);
    }
  }
  /// The same for all, after waiting for them.
  template <class Finish>
  void synchronize(Finish finish) {
    record_deferred(finish);
    for (auto& [stream, queue] : waiting_) {
      for (const Waiting& waiting : queue) {
        events_.wait(waiting.event);
        pass(waiting.block, finish);
      }
    }
    waiting_.clear();
  }

  [[nodiscard]] Events& events() { return events_; }

  /// Of no capture; blocks by where they are.
  template <class AddressOf>
  void write(AddressOf address_of, StateWords& state) const {
    std::map<Address, const Uses*> uses;
    for (const auto& [block, its] : uses_) uses.emplace(address_of(BlockId{block}), &its);
    for (const auto& [address, its] : uses) {
      state.add(address, its->streams.size());
      for (const StreamId stream : its->streams) state.add(stream);
    }
    for (const auto& [stream, queue] : waiting_) {
      state.add(stream, queue.size());
      for (const Waiting& its : queue) state.add(events_.from_last(stream, its.event.number), address_of(its.block));
    }
  }

 private:
  struct Uses {
    std::vector<StreamId> streams;
    std::vector<StreamId> captured;  // of which during a capture
  };
  struct Waiting {
    typename Events::Event event;
    BlockId block;
  };

  static void add(std::vector<StreamId>& streams, StreamId stream) {
    if (std::find(streams.begin(), streams.end(), stream) == streams.end()) streams.push_back(stream);
  }

  void record_events(BlockId block) {
    const auto uses = uses_.find(block.value);
    ensure(uses != uses_.end(), "a block that is freed without uses waits for nothing");
    for (const StreamId stream : uses->second.streams) {
      waiting_[stream].push_back({events_.record(stream), block});
      ++open_[block.value];
    }
    uses_.erase(uses);
  }

  template <class Finish>
  void record_deferred(Finish finish) {
    for (const BlockId block : std::exchange(deferred_, {})) {
      Uses& uses = uses_.at(block.value);
      std::erase_if(uses.streams, [&](StreamId s) {
        return std::find(uses.captured.begin(), uses.captured.end(), s) != uses.captured.end();
      });
      record_events(block);
      if (!open_.contains(block.value)) finish(block);
    }
  }

  template <class Finish>
  void pass(BlockId block, Finish finish) {
    const auto open = open_.find(block.value);
    if (--open->second > 0) return;
    open_.erase(open);
    finish(block);
  }

  Events events_;
  std::unordered_map<std::int32_t, Uses> uses_;          // by block
  std::unordered_map<std::int32_t, std::int64_t> open_;  // events of a block that are not done
  std::map<StreamId, std::deque<Waiting>> waiting_;      // in the order of the frees
  std::vector<BlockId> deferred_;                        // until no capture is underway
};

}  // namespace tidemark::sim
