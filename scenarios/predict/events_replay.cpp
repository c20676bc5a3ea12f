#include "scenarios/predict/events_replay.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>
#include <variant>

#include "scenarios/predict/job.hpp"
#include "sim/memory/caching_allocator.hpp"
#include "sim/memory/device_memory.hpp"
#include "sim/memory/queued_launches.hpp"
#include "sim/memory/stream_clocks.hpp"

namespace tidemark::scenarios {
namespace {

// What is live where, as one number that does not change when all micro-batches are later by as many: the sum over live
// buffers of a hash of their block and place, times `base` to the power of their micro-batch; divided by that power of
// the latest one.
class LiveHash {
 public:
  void begin_micro_batch() { power_ *= base; }
  std::uint64_t add(Address address, Bytes size, std::size_t place) {
    const std::uint64_t what =
        mix(address.value * of_address + static_cast<std::uint64_t>(size.count()) * of_size + place * of_place);
    sum_ += what * power_;
    return what * power_;
  }
  void remove(std::uint64_t term) { sum_ -= term; }
  [[nodiscard]] std::uint64_t value() const { return sum_ * inverse(power_); }

 private:
  // Odd, so that it has an inverse modulo 2^64 (Knuth's MMIX multiplier).
  static constexpr std::uint64_t base = 6364136223846793005ULL;
  // Odd, and otherwise as good as random: pi and e without their integer parts, and the golden ratio, times 2^64.
  static constexpr std::uint64_t of_address = 0x243f6a8885a308d3ULL, of_size = 0xb7e151628aed2a6bULL,
                                 of_place = 0x9e3779b97f4a7c15ULL;

  // splitmix64's finalizer.
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31U);
  }
  // Of an odd number modulo 2^64, by Newton's iteration: each round doubles the bits that are right.
  static std::uint64_t inverse(std::uint64_t odd) {
    std::uint64_t x = odd;
    for (int i = 0; i < 5; ++i) x *= 2 - odd * x;
    return x;
  }

  std::uint64_t sum_ = 0, power_ = 1;
};

class EventsReplayer {
 public:
  EventsReplayer(const AllocatorOptions& options, Bytes capacity, const DriverCosts* costs, MayStop may_stop,
                 const EventFrees& frees)
      : allocator_(DeviceMemory(capacity, options.address_order), options, {}, Counted::Memory),
        defers_(frees.cross_stream == CrossStreamFrees::AtNextSync),
        queue_(frees.queue),
        repeats_(!defers_ && !options.collects_garbage()),
        costs_(costs),
        may_stop_(std::move(may_stop)) {
    record_.epochs.emplace_back();
  }

  EventsRecord run(const StateEvents& state, const StageEvents& stage) && {
    play(state.construction);
    for (std::size_t s = 0; s < state.steps.size() && !over_; ++s) {
      play(state.steps[s].before);
      const PassEvents& passes = stage.steps[s];
      before_step_ = passes_.size();
      play(passes.before);
      play_bodies(passes);
      play(passes.after);
      play(state.steps[s].after);
    }
    record_.allocated = allocator_.stats().all.allocated.peak;
    record_.complete = !over_;
    record_.same_on = allocator_.source().alike();
    return std::move(record_);
  }

 private:
  struct Held {
    BlockId block{};
    std::uint64_t term = 0;
  };

  void play(const EventSequence& events) {
    for (const AllocatorEvent& e : events) {
      if (over_) return;
      play(e);
    }
  }

  void play(const AllocatorEvent& e) {
    switch (e.kind) {
      case AllocatorEvent::Kind::Begin:
        passes_.emplace_back();
        events_.emplace_back();
        live_.begin_micro_batch();
        break;
      case AllocatorEvent::Kind::Alloc:
        if (const BlockId block = allocate(e); block.valid()) hold(block, passes_.back());
        break;
      case AllocatorEvent::Kind::Keep:
        (void)allocate(e);
        break;
      case AllocatorEvent::Kind::Free:
        release(among(passes_, e));
        break;
      case AllocatorEvent::Kind::CrossStreamUse:
        if (defers_) allocator_.record_stream(among(passes_, e).block, e.stream);
        break;
      case AllocatorEvent::Kind::Record:
        if (defers_) events_.back().push_back(streams_.record(e.stream, allocator_.events()));
        break;
      case AllocatorEvent::Kind::Wait:
        if (defers_) streams_.wait(e.stream, among(events_, e));
        break;
      case AllocatorEvent::Kind::Sync:
        if (defers_) streams_.finish(among(events_, e), allocator_.events());
        break;
      case AllocatorEvent::Kind::Launches:
        if (defers_) queue_.launch(e.stream, e.bytes, streams_, allocator_.events());
        break;
      case AllocatorEvent::Kind::AllocState:
        state_.push_back(allocate(e));
        break;
      case AllocatorEvent::Kind::FreeState:
        give_back(state_[static_cast<std::size_t>(e.ref)]);
        break;
      case AllocatorEvent::Kind::RecordState:
        if (defers_) state_events_.push_back(streams_.record(e.stream, allocator_.events()));
        break;
      case AllocatorEvent::Kind::WaitState:
        if (defers_) streams_.wait(e.stream, state_events_[static_cast<std::size_t>(e.ref)]);
        break;
      case AllocatorEvent::Kind::SyncState:
        if (defers_) streams_.finish(state_events_[static_cast<std::size_t>(e.ref)], allocator_.events());
        break;
      case AllocatorEvent::Kind::Driver:
      case AllocatorEvent::Kind::Communicator:
        create(e);
        break;
      case AllocatorEvent::Kind::Registered: {
        const Bytes taken = round_up(Bytes{e.bytes}, registered_unit);
        begin_epoch({std::nullopt, {}, taken, {}, in_use_}, taken);
        break;
      }
      case AllocatorEvent::Kind::EmptyCache:
        (void)allocator_.empty_cache();
        break;
    }
  }

  template <class Entry>
  const Entry& among(const std::vector<std::vector<Entry>>& by_micro_batch, const AllocatorEvent& e) const {
    const auto behind = static_cast<std::size_t>(e.behind);
    const std::vector<Entry>& its =
        e.early ? by_micro_batch[before_step_ + behind] : by_micro_batch[by_micro_batch.size() - 1 - behind];
    return its[static_cast<std::size_t>(e.ref)];
  }

  void hold(BlockId block, std::vector<Held>& micro_batch) {
    micro_batch.push_back({block, live_.add(allocator_.address(block), allocator_.size(block), micro_batch.size())});
  }
  void release(const Held& held) {
    live_.remove(held.term);
    give_back(held.block);
  }
  void give_back(BlockId block) {
    in_use_ -= block_size(allocator_.requested(block));
    allocator_.free(block);
  }

  // The state's blocks stay during passes, free neighbours are always merged, and so live blocks and segments say all;
  // but for garbage collection, which counts how old free blocks are, and blocks whose frees wait, which are neither.
  void play_bodies(const PassEvents& passes) {
    std::unordered_map<std::uint64_t, std::int64_t> seen;  // -> after how many bodies
    std::int64_t changes = -1;
    std::int64_t left = passes.repeats;
    while (left > 0 && !over_) {
      play(passes.body);
      --left;
      ++record_.bodies;
      if (allocator_.source().changes() != changes) {
        changes = allocator_.source().changes();
        seen.clear();
      }
      if (!repeats_) continue;
      const std::int64_t done = passes.repeats - left;
      const auto [entry, added] = seen.try_emplace(live_.value(), done);
      if (added) continue;
      const std::int64_t period = done - entry->second;
      record_.skipped += left - left % period;
      left %= period;
      seen.clear();
    }
  }

  // Invalid where memory ran out.
  BlockId allocate(const AllocatorEvent& e) {
    const std::variant<BlockId, OutOfMemory> got = allocator_.malloc(Bytes{e.bytes}, e.stream);
    const BlockId* const block = std::get_if<BlockId>(&got);
    if (block == nullptr) {
      run_out();
      return {};
    }
    in_use_ += block_size(Bytes{e.bytes});
    record_.epochs.back().live = std::max(record_.epochs.back().live, in_use_);
    if (allocator_.reserved() > record_.epochs.back().reserved) {
      record_.epochs.back().reserved = allocator_.reserved();
      look();
    }
    return *block;
  }

  void create(const AllocatorEvent& e) {
    if (e.kind == AllocatorEvent::Kind::Driver) {
      const auto resource = static_cast<DriverResource>(e.ref);
      begin_epoch({resource, {}, {}, {}, in_use_}, costs_ == nullptr ? Bytes{} : costs_->of(resource).bytes);
      return;
    }
    const CommSlot comm{e.ref};
    if (comm.index() >= created_.size()) created_.resize(comm.index() + 1, false);
    if (created_[comm.index()]) return;  // by a part that was lowered by itself
    created_[comm.index()] = true;
    begin_epoch({std::nullopt, comm, {}, {}, in_use_}, costs_ == nullptr ? Bytes{} : costs_->of(comm).bytes);
  }
  void begin_epoch(EventsRecord::Epoch epoch, Bytes taken) {
    if (!allocator_.source().take_for_driver(taken)) return run_out();
    // What is registered is known, whatever drivers take.
    record_.drivers_come_first &= epoch.registered > Bytes{} || allocator_.stats().alloc_retries == 0;
    epoch.reserved = allocator_.reserved();
    record_.epochs.push_back(epoch);
    look();
  }
  void run_out() { over_ = record_.out_of_memory = true; }
  void look() {
    if (!may_stop_) return;
    record_.allocated = allocator_.stats().all.allocated.peak;
    over_ = over_ || may_stop_(record_);
  }

  CachingAllocator<DeviceMemory> allocator_;
  bool defers_;  // frees of borrowed blocks, until the host has waited
  QueuedLaunches queue_;
  bool repeats_;
  const DriverCosts* costs_;
  MayStop may_stop_;
  bool over_ = false;                      // memory ran out, or the run may stop
  std::vector<BlockId> state_;             // by number
  std::size_t before_step_ = 0;            // micro-batches
  std::vector<std::vector<Held>> passes_;  // by micro-batch and place
  StreamClocks streams_;
  std::vector<std::vector<StreamClocks::Clock>> events_;  // likewise
  std::vector<StreamClocks::Clock> state_events_;         // by number
  LiveHash live_;
  Bytes in_use_;
  std::vector<bool> created_;  // by CommSlot
  EventsRecord record_;
};

template <class Cost>
Bytes highest(const EventsRecord& record, const DriverCosts& costs, Bytes EventsRecord::Epoch::*what, Cost cost) {
  Bytes driver, highest;
  for (const EventsRecord::Epoch& epoch : record.epochs) {
    if (epoch.resource)
      driver += cost(costs.of(*epoch.resource));
    else if (epoch.comm.valid())
      driver += cost(costs.of(epoch.comm));
    driver += epoch.registered;
    highest = std::max(highest, what == nullptr ? driver : driver + epoch.*what);
  }
  return highest;
}

constexpr auto central = [](const Estimate& e) { return e.bytes; };
constexpr auto at_the_upper_end = [](const Estimate& e) { return e.high; };

}  // namespace

Bytes EventsRecord::device(const DriverCosts& costs) const { return highest(*this, costs, &Epoch::reserved, central); }
Bytes EventsRecord::device_upper(const DriverCosts& costs) const {
  return highest(*this, costs, &Epoch::reserved, at_the_upper_end);
}
UnlimitedMemory EventsRecord::unlimited(const DriverCosts& costs, std::optional<Bytes> late) const {
  return {highest(*this, costs, &Epoch::live, central),
          highest(*this, costs, &Epoch::live, at_the_upper_end),
          device(costs),
          device_upper(costs),
          highest(*this, costs, nullptr, central),
          highest(*this, costs, nullptr, at_the_upper_end),
          late};
}

EventsRecord replay_events(const StateEvents& state, const StageEvents& stage, const AllocatorOptions& options,
                           const MayStop& may_stop, const EventFrees& frees) {
  constexpr Bytes unlimited{std::numeric_limits<std::int64_t>::max() / 2};
  return EventsReplayer(options, unlimited, nullptr, may_stop, frees).run(state, stage);
}

EventsRecord replay_events(const StateEvents& state, const StageEvents& stage, const AllocatorOptions& options,
                           const DriverCosts& costs, Bytes capacity, const EventFrees& frees) {
  return EventsReplayer(options, capacity, &costs, {}, frees).run(state, stage);
}

RunOn run_of(std::shared_ptr<const StateEvents> state, std::shared_ptr<const StageEvents> stage, JudgedDevice device) {
  device.allocator = without_limit(device.allocator);
  return [=](Bytes capacity, const DriverCosts& costs, CrossStreamFrees cross_stream) -> LimitedRun {
    const EventsRecord record =
        replay_events(*state, *stage, device.allocator, costs, capacity, {cross_stream, device.queue});
    return {!record.out_of_memory, record.drivers_come_first, record.same_on};
  };
}

}  // namespace tidemark::scenarios
