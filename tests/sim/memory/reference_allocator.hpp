#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/namespace.hpp"

// The rules of c10/cuda/CUDACachingAllocator.cpp once more, as plainly as they can be written: one map of blocks, which
// every question walks from end to end. Shares nothing with the allocator it is compared with; numbers are bytes.

namespace tidemark::tests::reference {

using Address = std::uint64_t;
using Size = std::int64_t;

inline constexpr Size mebibyte = 1 << 20;
inline constexpr Size unlimited = INT64_MAX;

struct Options {
  Size large_segment = 20 * mebibyte;
  Size max_split = unlimited;
  Size max_rounding = 20 * mebibyte;
  std::vector<std::uint64_t> divisions = std::vector<std::uint64_t>(16, 0);
  double collect = 0;
  bool expandable = false;
  Size limit = unlimited;  // what the fraction of the device leaves
  Size device = 0;
};

enum class State { Free, Live, Waiting, Unmapped };

struct Block {
  Size size = 0;
  int segment = 0;
  int stream = 0;
  int pool = 0;
  bool large = false;
  State state = State::Free;
  std::int64_t free_since = 0;
};

struct Segment {
  Address address = 0;
  Size size = 0;
  bool expandable = false;
};

/// Where memory comes from: both allocators get their own one that behaves the same.
struct Device {
  std::function<std::optional<Address>(Size)> allocate;
  std::function<void(Size)> release;
  std::function<Address(Size)> reserve;
  std::function<bool(Size)> map;
};

class Allocator {
 public:
  Allocator(Options options, Device device) : options_(std::move(options)), device_(std::move(device)) {}

  std::optional<Address> malloc(Size requested, int stream) {
    if (active.empty()) process_events();
    const Size size = rounded(requested);
    const bool large = size > mebibyte;
    const int pool = pool_for(stream);
    std::optional<Address> found = search(size, stream, pool, large, options_.expandable);
    if (!found) found = ask(size, stream, pool, large);
    if (!found) {
      ++ooms;
      return std::nullopt;
    }
    Block& block = blocks.at(*found);
    const Size rest = block.size - size;
    const bool expandable = options_.expandable && !lent_;
    lent_ = false;
    const bool cut = !large || expandable ? rest >= 512 : size < options_.max_split && rest > mebibyte;
    if (cut) {
      blocks[*found + static_cast<Address>(size)] = block;
      blocks[*found + static_cast<Address>(size)].size = rest;
      set_free(*found + static_cast<Address>(size));
      blocks.at(*found).size = size;
    }
    blocks.at(*found).state = State::Live;
    return found;
  }

  void free(Address address) {
    if (uses[address].empty()) return make_free(address);
    blocks.at(address).state = State::Waiting;
    if (active.empty()) {
      record_events(address);
    } else {
      deferred.push_back(address);
    }
  }

  void record_stream(Address address, int stream) {
    if (stream == blocks.at(address).stream) return;
    uses[address].insert(stream);
    if (!active.empty()) captured[address].insert(stream);
  }

  void empty_cache() {
    if (active.empty()) {
      record_deferred();
      for (auto& [stream, queue] : waiting) {
        for (const Address address : queue) pass(address);
        done[stream] = recorded[stream];
        queue.clear();
      }
      release_unused(0, true);
      release_unused(0, false);
    }
    for (int pool = 1; pool < 4; ++pool) {
      if (users[pool] > 0) continue;
      release_unused(pool, false);
      release_unused(pool, true);
    }
  }

  /// The first `events` that were recorded on the stream are done.
  void finish(int stream, std::int64_t events) { done[stream] = std::max(done[stream], events); }

  std::map<Address, Block> blocks;
  std::vector<std::pair<int, int>> active;  // private pool, and the stream it takes; -1 for all
  std::map<int, int> users;                 // of private pools
  std::map<int, std::int64_t> recorded;     // events, by stream
  Size reserved = 0;
  std::int64_t retries = 0;
  std::int64_t ooms = 0;

 private:
  using Places = std::vector<Address>;

  [[nodiscard]] Size rounded(Size n) const {
    if (n < 512) return 512;
    const int log = 63 - std::countl_zero(static_cast<std::uint64_t>(n));
    const auto d = static_cast<Size>(options_.divisions[static_cast<std::size_t>(std::clamp(log - 20, 0, 15))]);
    if (d <= 1 || n <= 512 * d) return (n + 511) / 512 * 512;
    Size below = 1;
    while (2 * below <= n) below *= 2;
    if (below == n) return n;
    Size size = below;
    while (size < n) size += below / d;
    return size;
  }

  [[nodiscard]] int pool_for(int stream) const {
    for (auto one = active.rbegin(); one != active.rend(); ++one)
      if (one->second == -1 || one->second == stream) return one->first;
    return 0;
  }

  [[nodiscard]] bool expandable(Address address) const { return segments_.at(blocks.at(address).segment).expandable; }

  // Free blocks of a pool in the order of its set; of all streams, or of one.
  [[nodiscard]] Places free_blocks(int pool, bool large, std::optional<int> stream = std::nullopt) const {
    Places found;
    for (const auto& [address, block] : blocks)
      if (block.state == State::Free && block.pool == pool && block.large == large &&
          (!stream || block.stream == *stream))
        found.push_back(address);
    std::sort(found.begin(), found.end(), [&](Address a, Address b) {
      return std::tuple(blocks.at(a).stream, blocks.at(a).size, a) <
             std::tuple(blocks.at(b).stream, blocks.at(b).size, b);
    });
    return found;
  }

  // get_free_block
  std::optional<Address> search(Size size, int stream, int pool, bool large, bool may_grow) {
    ++searches_[{pool, large}];
    Places fits = free_blocks(pool, large, stream);
    std::erase_if(fits, [&](Address a) { return blocks.at(a).size < size; });
    if (!may_grow) std::erase_if(fits, [&](Address a) { return expandable(a); });
    if (fits.empty()) return std::nullopt;
    std::size_t best = 0;
    const auto can_become = [&](Address a) {
      const auto next = neighbour(a, 1);
      return blocks.at(a).size + (next && blocks.at(*next).state == State::Unmapped ? blocks.at(*next).size : 0);
    };
    while (expandable(fits[best]) && best + 1 < fits.size() && can_become(fits[best + 1]) < can_become(fits[best]))
      ++best;
    const Size found = blocks.at(fits[best]).size;
    if (size < options_.max_split ? found >= options_.max_split : found >= size + options_.max_rounding)
      return std::nullopt;
    return fits[best];
  }

  // What malloc does when nothing cached fits.
  std::optional<Address> ask(Size size, int stream, int pool, bool large) {
    if (options_.collect > 0 && options_.limit != unlimited) collect_garbage();
    if (const auto got = from_device(size, stream, pool, large)) return got;
    if (pool == 0 && lends) {
      if (const auto got = search(size, stream, *lends, large, false)) {
        lent_ = true;
        return got;
      }
    }
    if (release_oversize(size, stream, pool, large))
      if (const auto got = from_device(size, stream, pool, large)) return got;
    if (!active.empty()) return std::nullopt;
    empty_cache();
    ++retries;
    return from_device(size, stream, pool, large);
  }

  std::optional<Address> from_device(Size size, int stream, int pool, bool large) {
    Size segment = (size + 2 * mebibyte - 1) / (2 * mebibyte) * (2 * mebibyte);
    if (size < 10 * mebibyte) segment = options_.large_segment;
    if (!large) segment = 2 * mebibyte;
    if (options_.limit != unlimited && reserved + segment > options_.limit) return std::nullopt;
    if (options_.expandable) return from_pages(size, stream, pool, large);
    const std::optional<Address> address = device_.allocate(segment);
    if (!address) return std::nullopt;
    segments_[++last_segment_] = {*address, segment, false};
    blocks[*address] = {segment, last_segment_, stream, pool, large, State::Free, 0};
    reserved += segment;
    return address;
  }

  // try_allocate_expandable_block, find_expandable_block
  std::optional<Address> from_pages(Size size, int stream, int pool, bool large) {
    const Size page = large ? options_.large_segment : 2 * mebibyte;
    std::optional<Address> start;
    for (const auto& [address, block] : blocks) {
      if (start || block.state != State::Unmapped || block.pool != pool || block.large != large ||
          block.stream != stream)
        continue;
      const auto before = neighbour(address, -1);
      const Address first = before && idle(*before) ? *before : address;
      Size room = 0;
      for (std::optional<Address> b = first; b && idle(*b); b = neighbour(*b, 1)) room += blocks.at(*b).size;
      if (room >= size) start = first;
    }
    if (!start) {
      const Size space = (options_.device + options_.device / 8 + page - 1) / page * page;
      start = device_.reserve(space);
      segments_[++last_segment_] = {*start, space, true};
      blocks[*start] = {space, last_segment_, stream, pool, large, State::Unmapped, 0};
    }
    while (blocks.at(*start).state == State::Unmapped || blocks.at(*start).size < size) {
      const bool none = blocks.at(*start).state == State::Unmapped;
      const Address gap = none ? *start : *neighbour(*start, 1);
      const Size missing = none ? size : size - blocks.at(*start).size;
      const Size mapped = (std::min(missing, blocks.at(gap).size) + page - 1) / page * page;
      if (!device_.map(mapped)) return std::nullopt;
      cut(gap, mapped);
      set_free(gap);
      merge_around(gap);
      reserved += mapped;
    }
    return start;
  }

  // release_available_cached_blocks
  bool release_oversize(Size size, int stream, int pool, bool large) {
    if (options_.max_split == unlimited) return false;
    const Size target = std::max(size, options_.max_split);
    const Places all = free_blocks(pool, large, stream);
    std::size_t fit = 0;
    while (fit < all.size() && blocks.at(all[fit]).size < target) ++fit;
    if (fit < all.size() && !expandable(all[fit])) {
      drop(all[fit]);
      return true;
    }
    Size sum = 0;
    while (fit > 0 && sum < target) {
      const Address one = all[--fit];
      if (blocks.at(one).size < options_.max_split) break;
      if (expandable(one)) continue;
      sum += blocks.at(one).size;
      drop(one);
    }
    return sum >= target;
  }

  // garbage_collect_cached_blocks
  void collect_garbage() {
    const auto threshold = static_cast<Size>(options_.collect * static_cast<double>(options_.limit));
    if (reserved <= threshold) return;
    const Size target = reserved - threshold;
    Size reclaimed = 0;
    while (reclaimed < target) {
      Places candidates = free_blocks(0, true);
      std::erase_if(candidates, [&](Address a) { return neighbour(a, 1) || neighbour(a, -1); });
      if (candidates.empty()) return;
      const auto age = [&](Address a) { return searches_[{0, true}] - blocks.at(a).free_since; };
      std::int64_t sum = 0;
      for (const Address a : candidates) sum += age(a);
      const double mean = static_cast<double>(sum) / static_cast<double>(candidates.size());
      for (const Address a : candidates) {
        if (static_cast<double>(age(a)) < mean) continue;
        reclaimed += blocks.at(a).size;
        drop(a);
      }
    }
  }

  // release_blocks, unmap_block
  void release_unused(int pool, bool large) {
    const Places all = free_blocks(pool, large);
    for (const Address a : all)
      if (!expandable(a) && !neighbour(a, 1) && !neighbour(a, -1)) drop(a);
    const auto page = static_cast<Address>(large ? options_.large_segment : 2 * mebibyte);
    for (const Address a : all) {
      if (!blocks.contains(a) || !expandable(a)) continue;
      const Segment segment = segments_.at(blocks.at(a).segment);
      const Address begin = (a - segment.address + page - 1) / page * page + segment.address;
      const Address end =
          (a + static_cast<Address>(blocks.at(a).size) - segment.address) / page * page + segment.address;
      if (begin >= end) continue;
      if (begin > a) cut(a, static_cast<Size>(begin - a));
      cut(begin, static_cast<Size>(end - begin));
      for (const Address part : {a, end})
        if (part != begin && blocks.contains(part) && blocks.at(part).state == State::Free) set_free(part);
      blocks.at(begin).state = State::Unmapped;
      device_.release(static_cast<Size>(end - begin));
      reserved -= static_cast<Size>(end - begin);
      merge_around(begin);
      if (blocks.contains(segment.address) && blocks.at(segment.address).size == segment.size &&
          blocks.at(segment.address).state == State::Unmapped)
        blocks.erase(segment.address);
    }
  }

  void drop(Address segment) {
    reserved -= blocks.at(segment).size;
    device_.release(blocks.at(segment).size);
    blocks.erase(segment);
  }

  // -- frees ----------------------------------------------------------------------------------------------------------

  void process_events() {
    record_deferred();
    for (auto& [stream, queue] : waiting) {
      std::int64_t passed = recorded[stream] - static_cast<std::int64_t>(queue.size());
      while (!queue.empty() && passed < done[stream]) {
        pass(queue.front());
        queue.erase(queue.begin());
        ++passed;
      }
    }
  }
  void record_deferred() {
    for (const Address address : std::exchange(deferred, {})) {
      for (const int stream : captured[address]) uses[address].erase(stream);
      record_events(address);
      if (open[address] == 0) make_free(address);
    }
  }
  void record_events(Address address) {
    for (const int stream : uses[address]) {
      ++recorded[stream];
      ++open[address];
      waiting[stream].push_back(address);
    }
    uses.erase(address);
    captured.erase(address);
  }
  void pass(Address address) {
    if (--open[address] == 0) make_free(address);
  }

  void make_free(Address address) {
    set_free(address);
    merge_around(address);
  }
  void set_free(Address address) {
    Block& block = blocks.at(address);
    block.state = State::Free;
    block.free_since = searches_[{block.pool, block.large}];
  }

  // -- neighbours -----------------------------------------------------------------------------------------------------

  [[nodiscard]] std::optional<Address> neighbour(Address address, int direction) const {
    const auto here = blocks.find(address);
    if (direction < 0 && here == blocks.begin()) return std::nullopt;
    const auto there = direction < 0 ? std::prev(here) : std::next(here);
    if (there == blocks.end() || there->second.segment != here->second.segment) return std::nullopt;
    return there->first;
  }
  [[nodiscard]] bool idle(Address address) const {
    const State state = blocks.at(address).state;
    return state == State::Free || state == State::Unmapped;
  }
  void cut(Address address, Size size) {
    if (blocks.at(address).size == size) return;
    Block rest = blocks.at(address);
    rest.size -= size;
    blocks.at(address).size = size;
    blocks[address + static_cast<Address>(size)] = rest;
  }
  // Merged blocks are as young as the youngest: the one at `address`.
  void merge_around(Address address) {
    const Block middle = blocks.at(address);
    for (const int direction : {-1, 1}) {
      const auto other = neighbour(address, direction);
      if (!other || blocks.at(*other).state != middle.state) continue;
      const Address low = std::min(address, *other);
      const Address high = std::max(address, *other);
      blocks.at(low).size += blocks.at(high).size;
      blocks.at(low).free_since = middle.free_since;
      blocks.erase(high);
      address = low;
    }
  }

 public:
  std::optional<int> lends;  // the private pool that has use_on_oom
  std::map<Address, std::set<int>> uses, captured;
  std::map<int, std::vector<Address>> waiting;
  std::map<Address, int> open;
  std::vector<Address> deferred;
  std::map<int, std::int64_t> done;

 private:
  Options options_;
  Device device_;
  std::map<int, Segment> segments_;
  int last_segment_ = 0;
  std::map<std::pair<int, bool>, std::int64_t> searches_;
  bool lent_ = false;
};

}  // namespace tidemark::tests::reference
