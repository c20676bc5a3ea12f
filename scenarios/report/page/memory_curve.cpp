#include "scenarios/report/page/memory_curve.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <variant>

#include "scenarios/formats/format.hpp"
#include "scenarios/predict/reported_replay.hpp"
#include "scenarios/predict/role_program.hpp"
#include "sim/base/overloaded.hpp"
#include "sim/program/program_builder.hpp"

namespace tidemark::scenarios {
namespace {

// When the device comes to each op: its compute stream has done what it was given before. The host thread, which asks
// for memory, is there earlier, and never later.
class DeviceTimes {
 public:
  explicit DeviceTimes(ProgramTimes times) : times_(std::move(times)) {}
  [[nodiscard]] Instant operator[](std::size_t op) const {
    return std::max(times_.host[op], times_.done(ProgramBuilder::compute, op));
  }
  [[nodiscard]] const ProgramTimes& of_host() const { return times_; }

 private:
  ProgramTimes times_;
};

// The memory of ranks as `predict` reports it.
template <class Observer>
void observe(const Job& job, const Trace& trace, const RoleProgram& role, const DeviceTimes& times,
             const RankGroup& group, const Observer& observer) {
  ReplayOptions limit = reported_replay(job, trace, times.of_host());
  if (group.failure) limit = without_device(std::move(limit));
  (void)replay(role.program(), job.costs.of(group.ranks.front()), limit, MemoryObserver(observer));
}

template <class Key>
class Numbers {
 public:
  std::int32_t of(const Key& key) {
    const auto [found, is_new] = numbers_.try_emplace(key, static_cast<std::int32_t>(keys_.size()));
    if (is_new) keys_.push_back(key);
    return found->second;
  }
  [[nodiscard]] const std::vector<Key>& keys() const { return keys_; }

 private:
  std::map<Key, std::int32_t> numbers_;
  std::vector<Key> keys_;
};

struct Event {
  MemoryCurve::Point after;    // but for its changes
  MemoryCurve::Change change;  // of no tensors and no bytes where nothing came or went
};

std::string driver_name(const Job& job, const DriverEvent& event) {
  return std::visit(Overloaded{
                        [](DriverResource resource) { return std::string(name(resource)); },
                        [&](CommSlot slot) { return "communicator " + job.communicators()[slot.index()].name; },
                    },
                    event.what);
}

// Which events to tell of: of each stretch where the most is allocated, the least, and the most is reserved.
std::vector<std::size_t> chosen(const std::vector<Event>& events, std::size_t stretches) {
  std::vector<std::size_t> found;
  const std::size_t length = (events.size() + stretches - 1) / stretches;
  const auto allocated = [](const Event& e) { return e.after.allocated; };
  const auto device = [](const Event& e) { return e.after.reserved + e.after.driver; };
  for (std::size_t first = 0; first < events.size(); first += length) {
    const auto begin = events.begin() + static_cast<std::ptrdiff_t>(first);
    const auto end = events.begin() + static_cast<std::ptrdiff_t>(std::min(first + length, events.size()));
    for (const auto at :
         {std::ranges::max_element(begin, end, {}, allocated), std::ranges::min_element(begin, end, {}, allocated),
          std::ranges::max_element(begin, end, {}, device)})
      found.push_back(static_cast<std::size_t>(at - events.begin()));
  }
  if (!events.empty()) found.push_back(events.size() - 1);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

// Changes add up until somebody asks.
class Pending {
 public:
  void add(const MemoryCurve::Change& change) {
    if (change.bytes == Bytes{} && change.tensors == 0) return;
    MemoryCurve::Change& sum = sums_[change.kind];
    sum.bytes += change.bytes;
    sum.tensors += change.tensors;
  }
  [[nodiscard]] std::vector<MemoryCurve::Change> take() {
    std::vector<MemoryCurve::Change> found;
    for (const auto& [kind, sum] : std::exchange(sums_, {}))
      if (sum.bytes != Bytes{} || sum.tensors != 0) found.push_back({kind, sum.bytes, sum.tensors});
    return found;
  }

 private:
  std::map<std::int32_t, MemoryCurve::Change> sums_;
};

// The changes of one step, each with the rank's memory after it; and the memory as the step begins.
class StepRecorder {
 public:
  StepRecorder(const Job& job, const Program& program, const DeviceTimes& times, std::int32_t step)
      : job_(job), program_(program), times_(times), step_(step) {}

  void add(const MemoryEvent& event) {
    if (event.at.mark.step > step_) return;
    const MemoryCurve::Change change = change_of(event);
    now_.time = times_[event.at.op];
    now_.phase = event.at.mark.phase;
    now_.micro_batch = event.at.mark.micro_batch;
    now_.place = place_of(event.at.mark.label);
    now_.allocated = event.allocated;
    now_.reserved = event.reserved;
    now_.driver = event.driver;
    now_.pinned = event.pinned;
    now_.pageable = event.pageable;
    if (event.at.mark.step < step_) {
      before_.add(change);
      at_begin_ = now_;
    } else {
      events_.push_back({now_, change});
    }
  }

  [[nodiscard]] MemoryCurve::Point at_begin() {
    at_begin_.changes = before_.take();
    return std::move(at_begin_);
  }
  [[nodiscard]] const std::vector<Event>& events() const { return events_; }
  void name(MemoryCurve& curve) const {
    for (const auto& [name, category] : kinds_.keys()) curve.kinds.push_back({name, category});
    curve.places = places_.keys();
  }

 private:
  [[nodiscard]] std::int32_t place_of(LabelId label) {
    const auto [found, is_new] = place_of_label_.try_emplace(label, 0);
    if (is_new) found->second = places_.of(label.valid() ? std::string(program_[label]) : std::string());
    return found->second;
  }

  [[nodiscard]] MemoryCurve::Change change_of(const MemoryEvent& event) {
    MemoryCurve::Change change;
    std::visit(Overloaded{
                   [&](const TensorEvent& what) {
                     if (what.kind == TensorEvent::Kind::ComeBack) return;  // it was no tensor's any more
                     const auto [found, is_new] = kind_of_label_.try_emplace({what.label, what.category}, 0);
                     if (is_new)
                       found->second = kinds_.of({without_layer(program_.labels[what.label.index()]), what.category});
                     const bool comes = what.kind == TensorEvent::Kind::Alloc;
                     change = {found->second, comes ? what.block : -what.block, comes ? 1 : -1};
                   },
                   [&](const DriverEvent& what) {
                     change = {kinds_.of({driver_name(job_, what), what.category}), what.bytes, 1};
                   },
                   Ignored<HostEvent>{},
               },
               event.what);
    return change;
  }

  const Job& job_;
  const Program& program_;
  const DeviceTimes& times_;
  std::int32_t step_;
  Numbers<std::pair<std::string, Category>> kinds_;
  Numbers<std::string> places_;
  std::map<std::pair<LabelId, Category>, std::int32_t> kind_of_label_;
  std::map<LabelId, std::int32_t> place_of_label_;
  MemoryCurve::Point at_begin_, now_;
  Pending before_;
  std::vector<Event> events_;
};

// From the step's first op to the next step's, or to the program's end.
struct OpsOfStep {
  std::size_t first, last;
};
OpsOfStep ops_of_step(const Program& program, std::int32_t step) {
  OpsOfStep found{program.ops.size(), program.ops.size()};
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const auto* mark = std::get_if<Mark>(&program.ops[i]);
    if (mark == nullptr) continue;
    if (mark->step >= step) found.first = std::min(found.first, i);
    if (mark->step > step) found.last = std::min(found.last, i);
  }
  return found;
}

}  // namespace

MemoryCurve memory_curve(const Job& job, const Trace& trace, const RankGroup& group, std::int32_t step,
                         std::size_t stretches) {
  const Rank rank = group.ranks.front();
  const RoleProgram role(job, job.role_of(rank));
  const Program& program = role.program();
  const DeviceTimes times(role.times(trace, rank));
  StepRecorder recorder(job, program, times, step);
  observe(job, trace, role, times, group, [&](const MemoryEvent& event) { recorder.add(event); });

  MemoryCurve curve{.rank = rank, .kinds = {}, .places = {}, .points = {}};
  const auto [first, last] = ops_of_step(program, step);
  if (first == program.ops.size()) return curve;
  curve.points.push_back(recorder.at_begin());
  curve.points.back().time = times[first];
  Pending since;
  std::size_t next = 0;
  const std::vector<Event>& events = recorder.events();
  for (const std::size_t index : chosen(events, std::max<std::size_t>(stretches, 1))) {
    for (; next <= index; ++next) since.add(events[next].change);
    MemoryCurve::Point point = events[index].after;
    point.changes = since.take();
    curve.points.push_back(std::move(point));
  }
  MemoryCurve::Point end = curve.points.back();
  end.time = times[std::min(last, program.ops.size() - 1)];
  end.changes.clear();
  curve.points.push_back(std::move(end));
  recorder.name(curve);
  return curve;
}

std::vector<Bytes> highest_by_time(const Job& job, const Trace& trace, const RankGroup& group, Instant begin,
                                   Instant end, std::size_t parts) {
  const Rank rank = group.ranks.front();
  const RoleProgram role(job, job.role_of(rank));
  const DeviceTimes times(role.times(trace, rank));
  std::vector<Bytes> found(parts);
  const Duration span = end - begin;
  Bytes now;
  std::size_t part = 0;
  const auto part_of = [&](Instant time) {
    __extension__ using Wide = __int128;
    const Wide at = static_cast<Wide>((time - begin).count()) * static_cast<Wide>(parts) / span.count();
    return static_cast<std::size_t>(std::clamp<Wide>(at, 0, static_cast<Wide>(parts) - 1));
  };
  observe(job, trace, role, times, group, [&](const MemoryEvent& event) {
    const Instant time = times[event.at.op];
    if (time >= begin && time <= end) {
      // Until this moment there was what there was.
      for (const std::size_t to = part_of(time); part <= to; ++part) {
        found[part] = std::max(found[part], now);
        if (part == to) break;
      }
      found[part] = std::max(found[part], event.reserved + event.driver);
    }
    if (time <= end) now = event.reserved + event.driver;
  });
  for (; part < parts; ++part) found[part] = std::max(found[part], now);
  return found;
}

}  // namespace tidemark::scenarios
