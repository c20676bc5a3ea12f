#include "scenarios/io/recorded_segments.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace tidemark {

std::string address_text(Address address) { return fmt::format("{:#x}", address.value); }
std::string block_text(Address address, Bytes size) {
  return fmt::format("{} B at {}", size.count(), address_text(address));
}

void RecordedSegments::expect(std::span<const RecordedEvent> script, std::size_t first, std::size_t request,
                              bool served) {
  script_ = script;
  next_ = 0;
  first_ = first;
  request_ = request;
  served_ = served;
  quiet_ = false;
}

void RecordedSegments::give_anything() {
  script_ = {};
  next_ = 0;
  served_ = quiet_ = true;
}

void RecordedSegments::finish() {
  for (const RecordedEvent* left = front(); left != nullptr; left = front()) {
    const bool given = left->action == Action::SegmentFree || left->action == Action::SegmentUnmap;
    note(here(), given ? "the allocator has no more unused segments" : "the allocator did not ask for it");
    ++next_;
  }
}

// Completed frees among them are not the device's.
const RecordedEvent* RecordedSegments::front() {
  while (next_ < script_.size() && script_[next_].action == Action::FreeCompleted) ++next_;
  return next_ < script_.size() ? &script_[next_] : nullptr;
}

std::optional<Address> RecordedSegments::allocate(Bytes size, StreamId stream) {
  const RecordedEvent* const event = front();
  const bool asked = event != nullptr && (event->action == Action::SegmentAlloc || event->action == Action::SegmentMap);
  if (event != nullptr ? !asked : !served_) return std::nullopt;  // it had nothing left
  if (asked && event->action == Action::SegmentAlloc && event->size == size && is_unused(event->address, size)) {
    ++next_;
    add(event->address, size);
    return event->address;
  }
  if (!quiet_)
    note(asked ? here() : request_, fmt::format("the allocator asks for a segment of {} B{}", size.count(),
                                                asked ? "" : ", the recording has none"));
  if (asked) ++next_;
  return elsewhere_.allocate(size, stream);
}

bool RecordedSegments::map(Address address, Bytes size) {
  const RecordedEvent* const event = front();
  const bool asked = event != nullptr && (event->action == Action::SegmentAlloc || event->action == Action::SegmentMap);
  if (event != nullptr ? !asked : !served_) return false;
  const bool same = asked && event->action == Action::SegmentMap && event->address == address && event->size == size;
  if (!same && !quiet_)
    note(asked ? here() : request_,
         fmt::format("the allocator maps {}{}", block_text(address, size), asked ? "" : ", the recording nothing"));
  if (asked) ++next_;
  if (!is_unused(address, size)) return false;
  add(address, size);
  return true;
}

// The pages that follow show where.
std::optional<Address> RecordedSegments::reserve(Bytes size, Bytes page, StreamId stream) {
  const RecordedEvent* const event = front();
  if (event != nullptr && event->action == Action::SegmentMap && is_unused(event->address, page)) return event->address;
  return elsewhere_.reserve(size, page, stream);
}

void RecordedSegments::release(Address address, Bytes size) { give_back(Action::SegmentFree, address, size); }
void RecordedSegments::unmap(Address address, Bytes size) { give_back(Action::SegmentUnmap, address, size); }

void RecordedSegments::give_back(Action action, Address address, Bytes size) {
  const RecordedEvent* const event = front();
  if (event != nullptr && event->action == action) {
    if ((event->address != address || event->size != size) && !quiet_)
      note(here(), "the next one that the allocator gives back has " + block_text(address, size));
    ++next_;
  } else if (!quiet_) {
    const std::size_t last = next_ > 0 ? here() - 1 : std::min(here(), request_);
    note(last,
         (next_ > 0 ? "after it the allocator gives back another one, of " : "before it the allocator gives back ") +
             block_text(address, size));
  }
  remove(address, size);
}

bool RecordedSegments::is_unused(Address address, Bytes size) const {
  const auto next = in_use_.lower_bound(address);
  if (next != in_use_.end() && next->first < address + size) return false;
  return next == in_use_.begin() || std::prev(next)->first + std::prev(next)->second <= address;
}

// Pages go in other pieces than they came in.
void RecordedSegments::remove(Address address, Bytes size) {
  const Address end = address + size;
  auto piece = in_use_.upper_bound(address);
  if (piece != in_use_.begin()) --piece;
  while (piece != in_use_.end() && piece->first < end) {
    const auto [begin, length] = *piece;
    if (begin + length <= address) {
      ++piece;
      continue;
    }
    piece = in_use_.erase(piece);
    if (begin < address) in_use_[begin] = address - begin;
    if (end < begin + length) in_use_[end] = begin + length - end;
  }
}

}  // namespace tidemark
