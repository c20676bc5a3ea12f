#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "scenarios/recordings/recorded_trace.hpp"
#include "sim/base/address.hpp"
#include "sim/base/units.hpp"
#include "sim/memory/segment_source.hpp"

namespace tidemark::scenarios {

/// Plays the device of a recording: gives and takes what the recorded one did, in the same order, at the same
/// addresses, and notes where the allocator asks for something else. What the recording does not have comes from far
/// above all recorded addresses, so that the allocator's own segments never overlap.
class RecordedSegments {
 public:
  struct Mismatch {
    std::size_t event = 0;
    std::string text;
  };

  /// `events`: the whole recording.
  explicit RecordedSegments(std::span<const RecordedEvent> events) : events_(events) {}

  /// What the recording says of the next request, which is event `request`: those of the device are in [begin, end).
  /// Behind them it had nothing left for it, unless it was served.
  void expect(std::size_t begin, std::size_t end, std::size_t request, bool served);
  /// Ends the request: the events that the allocator did nothing to match.
  void finish();
  /// From now on, and until the next expect(), gives whatever is asked for.
  void give_anything();
  [[nodiscard]] std::vector<Mismatch> take_mismatches() { return std::exchange(mismatches_, {}); }

  std::optional<Address> allocate(Bytes size, StreamId stream);
  void release(Address address, Bytes size);
  std::optional<Address> reserve(Bytes size, Bytes page, StreamId stream);
  void unreserve(Address address, Bytes size);
  bool map(Address address, Bytes size);
  void unmap(Address address, Bytes size);
  [[nodiscard]] Bytes available() const { return elsewhere_.available(); }

  /// Memory that is there from the start.
  void add(Address address, Bytes size) { in_use_[address] = size; }
  /// Address space of an expandable segment that is there from the start.
  void add_space(const AddressSpace& space, Bytes page, std::uint16_t mempool) {
    spaces_.push_back({space.address, space.size, page, space.stream, mempool});
  }

 private:
  using Action = TraceEvent::Action;

  struct Space {
    Address address;
    Bytes size;
    Bytes page;
    StreamId stream;
    std::uint16_t mempool = 0;
  };

  [[nodiscard]] const RecordedEvent* front();
  [[nodiscard]] bool is_in(const Space& space, const RecordedEvent& pages) const;
  [[nodiscard]] bool is_unused(Address address, Bytes size) const;
  void remove(Address address, Bytes size);
  void give_back(Action action, Address address, Bytes size);
  void note(std::size_t event, std::string text) { mismatches_.push_back({event, std::move(text)}); }

  std::span<const RecordedEvent> events_;
  std::size_t begin_ = 0;  // the script of the request: events
  std::size_t next_ = 0;
  std::size_t end_ = 0;
  std::size_t request_ = 0;
  bool served_ = true;  // with whatever is asked for once the script is at its end
  bool quiet_ = false;  // nothing is compared
  std::map<Address, Bytes> in_use_;
  std::vector<Space> spaces_;
  InventedAddresses elsewhere_{{.first = {1ULL << 62}}};  // recorded addresses are below 2^61
  std::vector<Mismatch> mismatches_;
};
static_assert(ExpandableSegmentSource<RecordedSegments>);

/// "4194304 B at 0x7f0000000000", as divergences name blocks.
std::string block_text(Address address, Bytes size);
std::string address_text(Address address);

}  // namespace tidemark::scenarios
