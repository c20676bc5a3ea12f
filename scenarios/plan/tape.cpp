#include "scenarios/plan/tape.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_map>
#include <utility>
#include <variant>

#include "sim/base/ensure.hpp"
#include "sim/base/overloaded.hpp"
#include "sim/memory/caching_allocator.hpp"
#include "sim/memory/device_memory.hpp"
#include "sim/memory/stream_clocks.hpp"

namespace tidemark::scenarios {
namespace {

// A program cut where passes begin and end.
struct CutProgram {
  struct Step {
    Tape before;
    PassesTape passes;
    Tape after;
  };
  Tape construction;
  std::vector<Step> steps;
  bool separable = true;  ///< passes refer only to what passes made, the state to what the state made
  bool borrows = false;   ///< other streams borrow blocks
};

class Cutter {
 public:
  using Kind = TapeEvent::Kind;

  explicit Cutter(const RepeatingProgram& program)
      : program_(program),
        made_(static_cast<std::size_t>(program.few.buffers)),
        recorded_(static_cast<std::size_t>(program.few.events)),
        repeat_(program.repeats.begin()),
        part_(&cut_.construction) {
    for (const Op& op : program.few.ops) {
      if (const auto* o = std::get_if<Free>(&op)) made_[o->buffer.index()].freed = true;
      cut_.borrows |= std::holds_alternative<Borrow>(op);
    }
  }

  CutProgram cut() && {
    const std::vector<Op>& ops = program_.few.ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (repeat_ != program_.repeats.end() && i == repeat_->first) enter_body();
      if (repeat_ != program_.repeats.end() && i == repeat_->last) leave_body();
      add(ops[i]);
    }
    return std::move(cut_);
  }

 private:
  struct Made {
    std::int32_t since = -1;  // the latest micro-batch then, counted over all steps; -1: of the state
    std::int32_t place = 0;
    bool freed = false;
  };

  void add(const Op& op) {
    std::visit(Overloaded{
                   [&](const Alloc& o) { allocate(o); },
                   [&](const Free& o) { refer(made_[o.buffer.index()], {}, Kind::Free, Kind::FreeState); },
                   [&](const Borrow& o) { refer(made_[o.buffer.index()], o.stream, Kind::Borrow, std::nullopt); },
                   [](const Launch&) {},
                   [](const Collective&) {},
                   [](const Exchange&) {},
                   [&](const Record& o) { record(o); },
                   [&](const Wait& o) { refer(o.event, o.stream, Kind::Wait, Kind::WaitState); },
                   [&](const Sync& o) { refer(o.event, {}, Kind::Sync, Kind::SyncState); },
                   [&](const CreateDriver& o) { add(Kind::Driver, static_cast<std::int32_t>(o.resource)); },
                   [&](const CreateCommunicator& o) { add(Kind::Communicator, o.comm.value); },
                   [](const Bind&) {},
                   [](const Unbind&) {},
                   [&](const Mark& o) { enter(o); },
               },
               op);
  }
  void add(Kind kind, std::int32_t ref) { part_->push_back({0, ref, 0, {}, kind}); }

  void allocate(const Alloc& o) {
    Made& made = made_[o.buffer.index()];
    if (micro_batch_ < 0) {
      made.place = state_allocs_++;
      part_->push_back({o.size.count(), 0, 0, o.stream, Kind::AllocState});
    } else if (!made.freed && step_ == 1) {
      // A cache; what the last step leaves behind, the next would free.
      part_->push_back({o.size.count(), 0, 0, o.stream, Kind::Keep});
    } else {
      made.since = latest();
      made.place = allocs_.back()++;
      part_->push_back({o.size.count(), 0, 0, o.stream, Kind::Alloc});
    }
  }
  void refer(const Made& made, StreamId stream, Kind kind, std::optional<Kind> kind_of_state) {
    const bool of_state = made.since < 0;
    cut_.separable &= of_state == (micro_batch_ < 0) && (!of_state || kind_of_state);
    if (of_state) {
      if (kind_of_state) part_->push_back({0, made.place, 0, stream, *kind_of_state});
      return;
    }
    const bool early = made.since >= before_step_ && made.since < repeats_since_;
    part_->push_back({0, made.place, early ? made.since - before_step_ : latest() - made.since, stream, kind, early});
  }
  // Where passes lend no blocks, nobody cares what they wait for.
  void refer(EventId event, StreamId stream, Kind kind, Kind kind_of_state) {
    if (cut_.borrows || micro_batch_ < 0) refer(recorded_[event.index()], stream, kind, kind_of_state);
  }
  void record(const Record& o) {
    if (micro_batch_ < 0) {
      recorded_[o.event.index()] = {-1, state_events_++};
      part_->push_back({0, 0, 0, o.stream, Kind::RecordState});
    } else if (cut_.borrows) {
      recorded_[o.event.index()] = {latest(), events_.back()++};
      part_->push_back({0, 0, 0, o.stream, Kind::Record});
    }
  }

  void enter_body() { passes_ = &cut_.steps.back().passes.body; }
  // What the end of a step frees and no body would so late was made at its beginning, however many bodies lie between.
  void leave_body() {
    PassesTape& its = cut_.steps.back().passes;
    its.repeats = 1 + repeat_->more;
    passes_ = &its.after;
    repeats_since_ = latest() + 1 - repeat_->back;
    ++repeat_;
  }

  // A step begins with the state, then come its passes, then the state again: before its second mark, where there is
  // no pass.
  void enter(const Mark& mark) {
    if (mark.step != step_) {
      step_ = mark.step;
      cut_.steps.emplace_back();
      part_ = &cut_.steps.back().before;
      passes_ = &cut_.steps.back().passes.before;
      before_step_ = latest() + 1;
      repeats_since_ = before_step_;
      micro_batch_ = -1;
      return;
    }
    if (step_ == 0) return;
    micro_batch_ = mark.micro_batch < 0 ? -1 : before_step_ + mark.micro_batch;
    part_ = micro_batch_ < 0 ? &cut_.steps.back().after : passes_;
    while (micro_batch_ > latest()) {
      allocs_.push_back(0);
      events_.push_back(0);
      add(Kind::Begin, 0);
    }
  }
  [[nodiscard]] std::int32_t latest() const { return static_cast<std::int32_t>(allocs_.size()) - 1; }

  const RepeatingProgram& program_;
  CutProgram cut_;
  std::vector<Made> made_;      // by buffer
  std::vector<Made> recorded_;  // by event
  std::vector<Repeat>::const_iterator repeat_;
  std::vector<std::int32_t> allocs_, events_;  // while each was the latest micro-batch, over all steps
  std::int32_t state_allocs_ = 0, state_events_ = 0;
  Tape *part_, *passes_ = nullptr;
  std::int32_t step_ = 0, before_step_ = 0;
  std::int32_t micro_batch_ = -1;    // -1 outside passes
  std::int32_t repeats_since_ = -1;  // after a body: the first micro-batch that is another one after more of them
};

CutProgram cut_of(const RepeatingProgram& program) {
  CutProgram cut = Cutter(program).cut();
  ensure(cut.separable, "passes keep nothing of the state, nor the state of passes");
  return cut;
}

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

class TapeRunner {
 public:
  TapeRunner(const AllocatorOptions& options, Bytes capacity, const DriverPrices* prices, EnoughSeen enough,
             BorrowedFrees borrowed)
      : allocator_(DeviceMemory(capacity), options, {}, Counted::Memory),
        defers_(borrowed == BorrowedFrees::AtNextSync),
        repeats_(!defers_ && !options.collects_garbage()),
        prices_(prices),
        enough_(std::move(enough)) {
    record_.epochs.emplace_back();
  }

  TapeRecord run(const StateTape& state, const StageTape& stage) && {
    play(state.construction);
    for (std::size_t s = 0; s < state.steps.size() && !over_; ++s) {
      play(state.steps[s].before);
      const PassesTape& passes = stage.steps[s];
      before_step_ = passes_.size();
      play(passes.before);
      play_bodies(passes);
      play(passes.after);
      play(state.steps[s].after);
    }
    record_.allocated = allocator_.stats().all.allocated.peak;
    record_.complete = !over_;
    return std::move(record_);
  }

 private:
  struct Held {
    BlockId block{};
    std::uint64_t term = 0;
  };

  void play(const Tape& tape) {
    for (const TapeEvent& e : tape) {
      if (over_) return;
      play(e);
    }
  }

  void play(const TapeEvent& e) {
    switch (e.kind) {
      case TapeEvent::Kind::Begin:
        passes_.emplace_back();
        events_.emplace_back();
        live_.begin_micro_batch();
        break;
      case TapeEvent::Kind::Alloc:
        if (const BlockId block = allocate(e); block.valid()) hold(block, passes_.back());
        break;
      case TapeEvent::Kind::Keep:
        (void)allocate(e);
        break;
      case TapeEvent::Kind::Free:
        release(among(passes_, e));
        break;
      case TapeEvent::Kind::Borrow:
        if (defers_) allocator_.record_stream(among(passes_, e).block, e.stream);
        break;
      case TapeEvent::Kind::Record:
        if (defers_) events_.back().push_back(streams_.record(e.stream, allocator_.events()));
        break;
      case TapeEvent::Kind::Wait:
        if (defers_) streams_.wait(e.stream, among(events_, e));
        break;
      case TapeEvent::Kind::Sync:
        if (defers_) StreamClocks::finish(among(events_, e), allocator_.events());
        break;
      case TapeEvent::Kind::AllocState:
        state_.push_back(allocate(e));
        break;
      case TapeEvent::Kind::FreeState:
        allocator_.free(state_[static_cast<std::size_t>(e.ref)]);
        break;
      case TapeEvent::Kind::RecordState:
        if (defers_) state_events_.push_back(streams_.record(e.stream, allocator_.events()));
        break;
      case TapeEvent::Kind::WaitState:
        if (defers_) streams_.wait(e.stream, state_events_[static_cast<std::size_t>(e.ref)]);
        break;
      case TapeEvent::Kind::SyncState:
        if (defers_) StreamClocks::finish(state_events_[static_cast<std::size_t>(e.ref)], allocator_.events());
        break;
      case TapeEvent::Kind::Driver:
      case TapeEvent::Kind::Communicator:
        create(e);
        break;
    }
  }

  template <class Entry>
  const Entry& among(const std::vector<std::vector<Entry>>& by_micro_batch, const TapeEvent& e) const {
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
    allocator_.free(held.block);
  }

  // The state's blocks stay during passes, free neighbours are always merged, and so live blocks and segments say all;
  // but for garbage collection, which counts how old free blocks are, and blocks whose frees wait, which are neither.
  void play_bodies(const PassesTape& passes) {
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
  BlockId allocate(const TapeEvent& e) {
    const std::variant<BlockId, OutOfMemory> got = allocator_.malloc(Bytes{e.bytes}, e.stream);
    const BlockId* const block = std::get_if<BlockId>(&got);
    if (block == nullptr) {
      run_out();
      return {};
    }
    if (allocator_.reserved() > record_.epochs.back().reserved) {
      record_.epochs.back().reserved = allocator_.reserved();
      look();
    }
    return *block;
  }

  void create(const TapeEvent& e) {
    if (e.kind == TapeEvent::Kind::Driver) {
      const auto resource = static_cast<DriverResource>(e.ref);
      begin_epoch({resource, {}, {}}, prices_ == nullptr ? Bytes{} : prices_->of(resource).bytes);
      return;
    }
    const CommSlot comm{e.ref};
    if (comm.index() >= created_.size()) created_.resize(comm.index() + 1, false);
    if (created_[comm.index()]) return;  // by a part that was lowered by itself
    created_[comm.index()] = true;
    begin_epoch({std::nullopt, comm, {}}, prices_ == nullptr ? Bytes{} : prices_->of(comm).bytes);
  }
  void begin_epoch(TapeRecord::Epoch epoch, Bytes taken) {
    if (!allocator_.source().take_for_driver(taken)) return run_out();
    epoch.reserved = allocator_.reserved();
    record_.epochs.push_back(epoch);
    look();
  }
  void run_out() { over_ = record_.out_of_memory = true; }
  void look() {
    if (!enough_) return;
    record_.allocated = allocator_.stats().all.allocated.peak;
    over_ = over_ || enough_(record_);
  }

  CachingAllocator<DeviceMemory> allocator_;
  bool defers_;  // frees of borrowed blocks, until the host has waited
  bool repeats_;
  const DriverPrices* prices_;
  EnoughSeen enough_;
  bool over_ = false;                      // memory ran out, or enough was seen
  std::vector<BlockId> state_;             // by number
  std::size_t before_step_ = 0;            // micro-batches
  std::vector<std::vector<Held>> passes_;  // by micro-batch and place
  StreamClocks streams_;
  std::vector<std::vector<StreamClocks::Clock>> events_;  // likewise
  std::vector<StreamClocks::Clock> state_events_;         // by number
  LiveHash live_;
  std::vector<bool> created_;  // by CommSlot
  TapeRecord record_;
};

template <class Price>
Bytes highest(const TapeRecord& record, const DriverPrices& prices, Price price) {
  Bytes driver, highest;
  for (const TapeRecord::Epoch& epoch : record.epochs) {
    if (epoch.resource)
      driver += price(prices.of(*epoch.resource));
    else if (epoch.comm.valid())
      driver += price(prices.of(epoch.comm));
    highest = std::max(highest, driver + epoch.reserved);
  }
  return highest;
}

}  // namespace

StageTape stage_tape(const RepeatingProgram& program) {
  CutProgram cut = cut_of(program);
  StageTape stage;
  stage.borrows = cut.borrows;
  for (CutProgram::Step& step : cut.steps) stage.steps.push_back(std::move(step.passes));
  return stage;
}

StateTape state_tape(const LoweringInput& input, const Role& role) {
  CutProgram cut = cut_of({lower_state(input, role), {}});
  StateTape tape{std::move(cut.construction), {}};
  for (CutProgram::Step& step : cut.steps) tape.steps.push_back({std::move(step.before), std::move(step.after)});
  return tape;
}

Bytes TapeRecord::device(const DriverPrices& prices) const {
  return highest(*this, prices, [](const Estimate& e) { return e.bytes; });
}
Bytes TapeRecord::device_upper(const DriverPrices& prices) const {
  return highest(*this, prices, [](const Estimate& e) { return e.high; });
}

TapeRecord run_tape(const StateTape& state, const StageTape& stage, const AllocatorOptions& options,
                    const EnoughSeen& enough, BorrowedFrees borrowed) {
  constexpr Bytes unlimited{std::numeric_limits<std::int64_t>::max() / 2};
  return TapeRunner(options, unlimited, nullptr, enough, borrowed).run(state, stage);
}

TapeRecord run_tape(const StateTape& state, const StageTape& stage, const AllocatorOptions& options,
                    const DriverPrices& prices, Bytes capacity, BorrowedFrees borrowed) {
  return TapeRunner(options, capacity, &prices, {}, borrowed).run(state, stage);
}

}  // namespace tidemark::scenarios
