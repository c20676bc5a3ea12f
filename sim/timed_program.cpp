#include "sim/timed_program.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "sim/overloaded.hpp"

namespace tidemark {
namespace {

// Equal calls get equal numbers. Programs repeat themselves: what followed a call the last time mostly follows it
// again.
template <class Call>
class Numbers {
 public:
  std::uint32_t of(const Call& call) {
    if (last_ != nullptr && last_->second.next != nullptr && last_->second.next->first == call) {
      last_ = last_->second.next;
      return last_->second.number;
    }
    Entry& found = *numbers_.try_emplace(call, Place{static_cast<std::uint32_t>(numbers_.size()), nullptr}).first;
    if (last_ != nullptr) last_->second.next = &found;
    last_ = &found;
    return found.second.number;
  }
  [[nodiscard]] std::vector<Call> calls() const {
    std::vector<Call> calls(numbers_.size());
    for (const auto& [call, place] : numbers_) calls[place.number] = call;
    return calls;
  }

 private:
  struct Place;
  using Entry = std::pair<const Call, Place>;
  struct Place {
    std::uint32_t number = 0;
    Entry* next = nullptr;
  };
  std::map<Call, Place> numbers_;
  Entry* last_ = nullptr;
};

// Ops to fetch ahead of time: most of the time of a visit is waiting for memory.
constexpr std::size_t ahead = 32;

class Timing {
 public:
  Timing(const Program& program, Duration launch, const std::vector<Duration>& kernels, Kernels how)
      : program_(program),
        launch_(launch),
        kernels_(kernels),
        how_(how),
        sizes_(static_cast<std::size_t>(program.buffers)),
        events_(static_cast<std::size_t>(program.events)) {
    for (std::size_t e = 0; e < events_.size(); ++e) events_[e].number = static_cast<std::uint32_t>(e);
    timed_.events = events_.size();
  }

  TimedProgram program() && {
    const std::vector<Op>& ops = program_.ops;
    for (std::size_t i = 0; i < ops.size(); ++i) {
      __builtin_prefetch(&ops[std::min(i + ahead, ops.size() - 1)]);
      const Op& op = ops[i];
      at_ = static_cast<std::uint32_t>(i);
      // Most ops only matter to memory, and most others are launches and marks: none of them needs the detour below.
      if (const auto* alloc = std::get_if<Alloc>(&op))
        sizes_[alloc->buffer.index()] = alloc->size;
      else if (const auto* kernel = std::get_if<Launch>(&op))
        launch(*kernel);
      else if (const auto* place = std::get_if<Mark>(&op))
        mark(*place);
      else if (!std::holds_alternative<Free>(op) && !std::holds_alternative<Bind>(op) &&
               !std::holds_alternative<Unbind>(op))
        add(op);
    }
    at_ = static_cast<std::uint32_t>(ops.size());
    end_stretch(-1);
    timed_.collectives = collectives_.calls();
    timed_.exchanges = exchanges_.calls();
    return std::move(timed_);
  }

 private:
  struct Event {
    std::uint32_t number = 0;  // of its last record; before one, of its first
    bool recorded = false;
  };

  void add(const Op& op) {
    std::visit(Overloaded{
                   [](const Alloc&) {},                                             // above
                   [](const Free&) {}, [](const Borrow&) {}, [](const Launch&) {},  // above
                   [&](const Collective& o) {
                     now_ += launch_;
                     push(o.stream, TimedOp::Kind::Collective, collectives_.of({o.comm, o.kind, o.size}));
                   },
                   [&](const Exchange& o) {
                     now_ += launch_;
                     push(o.stream, TimedOp::Kind::Exchange, exchanges_.of(exchange(o)));
                   },
                   [&](const Record& o) { push(o.stream, TimedOp::Kind::Record, record(o.event)); },
                   [&](const Wait& o) { push(o.stream, TimedOp::Kind::Wait, events_[o.event.index()].number); },
                   [&](const Sync& o) { end_stretch(static_cast<std::int32_t>(events_[o.event.index()].number)); },
                   [](const CreateDriver&) {}, [](const CreateCommunicator&) {}, [](const Bind&) {},
                   [](const Unbind&) {}, [](const Mark&) {},  // above
               },
               op);
  }

  void launch(const Launch& o) {
    now_ += launch_;
    const Duration duration = kernels_[o.kernel.index()];
    std::vector<TimedOp>& its = stream(o.stream);
    if (how_ == Kernels::Each || its.empty() || its.back().kind != TimedOp::Kind::Kernels ||
        its.back().stretch != stretch()) {
      its.push_back({now_ + duration, duration, at_, 1, stretch(), TimedOp::Kind::Kernels});
      return;
    }
    TimedOp& before = its.back();
    before.after = std::max(before.after, now_) + duration;
    before.duration += duration;
    ++before.what;
  }

  void mark(const Mark& o) {
    if (std::exchange(step_, o.step) != o.step) timed_.step_ends.push_back({stretch(), now_});
  }

  void push(StreamId to, TimedOp::Kind kind, std::uint32_t what) {
    stream(to).push_back({now_, {}, at_, what, stretch(), kind});
  }

  std::vector<TimedOp>& stream(StreamId id) {
    if (id.index() >= timed_.streams.size()) timed_.streams.resize(id.index() + 1);
    return timed_.streams[id.index()];
  }

  [[nodiscard]] std::uint32_t stretch() const { return static_cast<std::uint32_t>(timed_.host.size()); }

  void end_stretch(std::int32_t sync) {
    const std::uint32_t last = sync < 0 ? at_ : at_ + 1;
    timed_.host.push_back({now_, std::exchange(first_, last), last, sync});
    now_ = {};
  }

  std::uint32_t record(EventId id) {
    Event& event = events_[id.index()];
    if (std::exchange(event.recorded, true)) event.number = static_cast<std::uint32_t>(timed_.events++);
    return event.number;
  }

  [[nodiscard]] TimedExchange exchange(const Exchange& o) const {
    TimedExchange its{o.comm, {}};
    for (const Transfer& t : program_[o.transfers])
      its.messages.push_back({t.direction, t.step, sizes_[t.buffer.index()]});
    return its;
  }

  const Program& program_;
  Duration launch_;
  const std::vector<Duration>& kernels_;
  Kernels how_;

  std::uint32_t at_ = 0;     // op
  std::uint32_t first_ = 0;  // of the stretch
  Duration now_;             // since its start
  std::int32_t step_ = 0;
  std::vector<Bytes> sizes_;   // by buffer
  std::vector<Event> events_;  // by EventId
  Numbers<CollectiveKey> collectives_;
  Numbers<TimedExchange> exchanges_;
  TimedProgram timed_;
};

}  // namespace

TimedProgram timed(const Program& program, Duration launch, const std::vector<Duration>& kernels, Kernels how) {
  return Timing(program, launch, kernels, how).program();
}

}  // namespace tidemark
