#include "scenarios/recordings/recorded_segments.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace tidemark::scenarios {

std::string address_text(Address address) { return fmt::format("{:#x}", address.value); }
std::string block_text(Address address, Bytes size) {
  return fmt::format("{} B at {}", size.count(), address_text(address));
}

void RecordedSegments::expect(std::size_t begin, std::size_t end, std::size_t request, bool served) {
  begin_ = next_ = begin;
  end_ = end;
  request_ = request;
  served_ = served;
  quiet_ = false;
}

void RecordedSegments::give_anything() {
  begin_ = next_ = end_;
  served_ = quiet_ = true;
}

void RecordedSegments::finish() {
  for (const RecordedEvent* left = front(); left != nullptr; left = front()) {
    const bool given = left->action == Action::SegmentFree || left->action == Action::SegmentUnmap;
    note(next_, given ? "the allocator has no more unused segments" : "the allocator did not ask for it");
    ++next_;
  }
}

// Completed frees among them are not the device's.
const RecordedEvent* RecordedSegments::front() {
  while (next_ < end_ && events_[next_].action == Action::FreeCompleted) ++next_;
  return next_ < end_ ? &events_[next_] : nullptr;
}

std::optional<Address> RecordedSegments::allocate(Bytes size, StreamId stream) {
  const RecordedEvent* const event = front();
  const bool requested =
      event != nullptr && (event->action == Action::SegmentAlloc || event->action == Action::SegmentMap);
  if (event != nullptr ? !requested : !served_) return std::nullopt;  // it had nothing left
  if (requested && event->action == Action::SegmentAlloc && event->size == size && is_unused(event->address, size)) {
    ++next_;
    add(event->address, size);
    return event->address;
  }
  if (!quiet_)
    note(requested ? next_ : request_, fmt::format("the allocator asks for a segment of {} B{}", size.count(),
                                                   requested ? "" : ", the recording has none"));
  if (requested) ++next_;
  return elsewhere_.allocate(size, stream);
}

bool RecordedSegments::map(Address address, Bytes size) {
  const RecordedEvent* const event = front();
  const bool requested =
      event != nullptr && (event->action == Action::SegmentAlloc || event->action == Action::SegmentMap);
  if (event != nullptr ? !requested : !served_) return false;
  const bool same =
      requested && event->action == Action::SegmentMap && event->address == address && event->size == size;
  if (!same && !quiet_)
    note(requested ? next_ : request_,
         fmt::format("the allocator maps {}{}", block_text(address, size), requested ? "" : ", the recording nothing"));
  if (requested) ++next_;
  if (!is_unused(address, size)) return false;
  add(address, size);
  return true;
}

// The first pages that are mapped in it show where it is: those of its stream, pool and size of page that lie in no
// other. That may be a later request's doing, where the device is full now.
std::optional<Address> RecordedSegments::reserve(Bytes size, Bytes page, StreamId stream) {
  const std::uint16_t mempool = request_ < events_.size() ? events_[request_].mempool : std::uint16_t{0};
  const bool small = page == AllocatorOptions::small_segment;
  Space space{{}, size, page, stream, mempool};
  for (std::size_t i = next_; i < events_.size(); ++i) {
    const RecordedEvent& pages = events_[i];
    if (pages.action != Action::SegmentMap || pages.stream != stream || pages.mempool != mempool ||
        (pages.size == AllocatorOptions::small_segment) != small ||
        std::any_of(spaces_.begin(), spaces_.end(), [&](const Space& s) { return is_in(s, pages); }))
      continue;
    space.address = pages.address;
    spaces_.push_back(space);
    return space.address;
  }
  const std::optional<Address> address = elsewhere_.reserve(size, page, stream);
  if (!address) return std::nullopt;
  space.address = *address;
  spaces_.push_back(space);
  return address;
}

bool RecordedSegments::is_in(const Space& space, const RecordedEvent& pages) const {
  return space.stream == pages.stream && space.mempool == pages.mempool && !(pages.address < space.address) &&
         pages.address < space.address + space.size &&
         (space.page == AllocatorOptions::small_segment) == (pages.size == AllocatorOptions::small_segment);
}

void RecordedSegments::unreserve(Address address, Bytes) {
  std::erase_if(spaces_, [&](const Space& space) { return space.address == address; });
}

void RecordedSegments::release(Address address, Bytes size) { give_back(Action::SegmentFree, address, size); }
void RecordedSegments::unmap(Address address, Bytes size) { give_back(Action::SegmentUnmap, address, size); }

void RecordedSegments::give_back(Action action, Address address, Bytes size) {
  const RecordedEvent* const event = front();
  if (event != nullptr && event->action == action) {
    if ((event->address != address || event->size != size) && !quiet_)
      note(next_, "the next one that the allocator gives back has " + block_text(address, size));
    ++next_;
  } else if (!quiet_) {
    const bool behind = next_ > begin_;
    note(behind ? next_ - 1 : std::min(next_, request_),
         (behind ? "after it the allocator gives back another one, of " : "before it the allocator gives back ") +
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

}  // namespace tidemark::scenarios
