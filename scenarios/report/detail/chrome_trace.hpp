#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "scenarios/report/detail/timeline_writers.hpp"

// The timeline in Chrome's trace event format, which ui.perfetto.dev opens: a process for each rank, a track for each
// of its streams and for its host thread, counters of its memory, arrows for messages. docs/timeline.md says what is
// where.

namespace tidemark::scenarios {

class ChromeTrace {
 public:
  static constexpr bool shows_host = true;

  explicit ChromeTrace(std::ostream& out) : out_(out) {}

  void begin(const Job& job, const Trace&, const TimelineQuery& query) {
    job_ = &job;
    for (const Rank rank : query.ranks) {
      shown_.insert(rank);
      stand_ins_.try_emplace(job.folding.class_of_rank[rank.index()], rank);  // ranks come in order: the lowest
    }
    out_.write(R"({{"displayTimeUnit":"ms","otherData":{{"scenario":{},"world_size":{}}},"traceEvents":[)",
               in_json(job.scenario.name), job.world_size());
  }

  void rank(Rank rank, const Program&, const std::optional<OutOfDeviceMemory>& failure) {
    rank_ = rank;
    streams_.clear();
    memory_ = {};
    const Coordinates c = coordinates(job_->scenario.layout, rank);
    const std::int32_t alike = job_->folding.of(rank).size;
    event(R"("ph":"M","pid":{},"tid":0,"name":"process_name","args":{{"name":"rank {} (pp {}, dp {}, tp {}){}"}})",
          rank.value, rank.value, c.pipeline, c.data, c.tensor,
          alike > 1 ? fmt::format(", one of {} alike in time", alike) : "");
    event(R"("ph":"M","pid":{},"tid":0,"name":"process_sort_index","args":{{"sort_index":{}}})", rank.value,
          rank.value);
    track(passes_track, "host: passes");
    track(host_track, "host: operators");
    if (failure)
      event(R"("ph":"i","pid":{},"tid":{},"s":"p","ts":0,"name":"out of memory at op {}: {} B asked, {} B free")",
            rank.value, host_track, failure->at.op, failure->requested.count(), failure->free.count());
  }

  // -- memory ---------------------------------------------------------------------------------------------------------

  void state(Rank, std::int32_t, Instant at, const MemoryState& s) {
    flush_memory();
    memory_.now = s;
    for (std::size_t c = 0; c < category_count; ++c) memory_.seen[c] |= s.composition.bytes[c] != Bytes{0};
    counters(at, s);
  }
  void tensor(const TimelinePlace&, Instant time, const MemoryEvent& event, const TensorEvent& what) {
    come_to(time);
    memory_.now.composition[what.category] += what.kind == TensorEvent::Kind::Alloc ? what.block : -what.block;
    memory_.seen[static_cast<std::size_t>(what.category)] = true;
    holds(event);
  }
  void on_host(const TimelinePlace&, Instant time, const MemoryEvent& event, const HostEvent&) {
    come_to(time);
    holds(event);
  }
  void driver(const TimelinePlace&, Instant time, const MemoryEvent& event, const DriverEvent& what,
              const std::string& row) {
    come_to(time);
    holds(event);
    this->event(R"("ph":"i","pid":{},"tid":{},"s":"t","ts":{},"name":{},"args":{{"bytes":{}}})", rank_.value,
                host_track, microseconds(time), in_json("create " + row), what.bytes.count());
  }

  // -- the host thread ------------------------------------------------------------------------------------------------

  void host_mark(const TimelinePlace& at, Instant time, bool is_shown) {
    end_of_host(time, at.mark);
    if (!is_shown) return;
    if (!pass_) pass_ = HostSlice{time, pass_of(at.mark), at.mark};
    operator_ = HostSlice{time, std::string(at.label()), at.mark};
  }
  void host_end(Instant time) {
    end_of_host(time, Mark{Phase::Construction, -1, -1, {}});
    flush_memory();
  }

  // -- streams --------------------------------------------------------------------------------------------------------

  void span(const TimelinePlace& at, const Span& span, const TimelineWork& work) {
    std::set<std::string>& users = streams_[span.stream];
    if (work.kind == "kernel") users.insert("compute");
    if (!work.communicator.empty()) users.insert(std::string(work.communicator));
    const std::int32_t track = first_stream + span.stream.value;
    event(R"("ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"cat":"{}","name":{},"args":{{)"
          R"("operator":{},"pass":"{}","step":{},"op":{}{}{}}})",
          at.rank.value, track, microseconds(span.begin), microseconds(span.end - span.begin), work.kind,
          in_json(name_of(at, work)), in_json(at.label()), pass_of(at.mark), at.mark.step, at.op,
          work.communicator.empty() ? "" : fmt::format(R"(,"bytes":{})", work.bytes.count()),
          span.ready < span.begin ? fmt::format(R"(,"waited_us":{})", microseconds(span.begin - span.ready)) : "");
    for (const TimelineWork::Message& message : work.messages) arrow(at, span, track, message);
  }

  void end_rank() {
    for (const auto& [stream, users] : streams_)
      track(first_stream + stream.value,
            fmt::format("stream {}: {}", stream.value,
                        users.empty() ? "waits" : fmt::format("{}", fmt::join(users, ", "))));
  }

  void end(std::int64_t, std::int64_t) {
    out_.write("\n]}}\n");
    out_.flush();
  }

 private:
  static constexpr std::int32_t passes_track = 0, host_track = 1, first_stream = 10;

  struct HostSlice {
    Instant begin;
    std::string name;
    Mark mark;
  };

  // Events between two moments of the host thread happen at one instant: the highest of them is shown, and the last.
  struct Memory {
    MemoryState now, highest, shown;
    std::array<bool, category_count> seen{};
    Instant time;
    bool is_pending = false;
  };

  template <class... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    out_.write("{}\n{{", std::exchange(comma_, ","));
    out_.write(format, std::forward<Args>(args)...);
    out_.write("}}");
  }

  void track(std::int32_t tid, const std::string& name) {
    event(R"("ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}})", rank_.value, tid, in_json(name));
    event(R"("ph":"M","pid":{},"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}})", rank_.value, tid, tid);
  }

  static std::string microseconds(Duration d) {
    return fmt::format("{}.{:06}", d.count() / 1'000'000, d.count() % 1'000'000);
  }
  static std::string microseconds(Instant at) { return microseconds(at.since_start()); }

  static std::string pass_of(const Mark& mark) {
    return mark.micro_batch < 0 ? std::string(sim::name(mark.phase))
                                : fmt::format("{} {}", sim::name(mark.phase), mark.micro_batch);
  }
  static std::string name_of(const TimelinePlace& at, const TimelineWork& work) {
    if (work.kind == "kernel") return fmt::format("{}: {}", at.label(), work.what);
    if (work.kind == "collective") return fmt::format("{} {}", work.what, work.communicator);
    if (work.kind == "wait") return fmt::format("wait for event {}", work.event);
    std::string name;
    for (const TimelineWork::Message& m : work.messages)
      name += fmt::format("{}{} rank {}", name.empty() ? "" : ", ",
                          m.direction == Direction::Send ? "send to" : "receive from", m.peer.value);
    return name;
  }

  void come_to(Instant time) {
    if (memory_.is_pending && memory_.time != time) flush_memory();
    memory_.time = time;
  }
  void holds(const MemoryEvent& event) {
    MemoryState& now = memory_.now;
    now.allocated = event.allocated;
    now.reserved = event.reserved;
    now.driver = event.driver;
    now.pinned = event.pinned;
    now.pageable = event.pageable;
    if (!memory_.is_pending || now.allocated > memory_.highest.allocated) memory_.highest = now;
    memory_.is_pending = true;
  }
  void flush_memory() {
    if (!std::exchange(memory_.is_pending, false)) return;
    if (memory_.highest.allocated > std::max(memory_.shown.allocated, memory_.now.allocated))
      counters(memory_.time, memory_.highest);
    counters(memory_.time, memory_.now);
  }

  void counters(Instant at, const MemoryState& s) {
    const MemoryState before = std::exchange(memory_.shown, s);
    const bool first = before.driver == Bytes{0} && before.reserved == Bytes{0};
    const auto counter = [&](std::string_view name, Bytes value, Bytes old) {
      if (value != old || first)
        event(R"("ph":"C","pid":{},"ts":{},"name":"{}","args":{{"bytes":{}}})", rank_.value, microseconds(at), name,
              value.count());
    };
    counter("allocated", s.allocated, before.allocated);
    counter("reserved", s.reserved, before.reserved);
    counter("device", s.reserved + s.driver, before.reserved + before.driver);
    if (s.pinned != before.pinned) counter("host, pinned", s.pinned, before.pinned);
    if (s.pageable != before.pageable) counter("host, pageable", s.pageable, before.pageable);
    if (s.composition == before.composition && !first) return;
    std::string parts;
    for (std::size_t c = 0; c < category_count; ++c)
      if (memory_.seen[c])
        fmt::format_to(std::back_inserter(parts), R"({}"{}":{})", parts.empty() ? "" : ",", category_names[c],
                       s.composition.bytes[c].count());
    event(R"("ph":"C","pid":{},"ts":{},"name":"by category","args":{{{}}})", rank_.value, microseconds(at), parts);
  }

  void end_of_host(Instant time, const Mark& next) {
    if (operator_) slice(host_track, *std::exchange(operator_, std::nullopt), time);
    const auto place = [](const Mark& m) { return std::tuple(m.step, m.phase, m.micro_batch); };
    if (pass_ && place(pass_->mark) != place(next)) slice(passes_track, *std::exchange(pass_, std::nullopt), time);
  }
  void slice(std::int32_t track, const HostSlice& s, Instant end) {
    if (s.begin == end) return;
    event(R"("ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"cat":"host","name":{},"args":{{"pass":"{}","step":{}}})",
          rank_.value, track, microseconds(s.begin), microseconds(end - s.begin), in_json(s.name), pass_of(s.mark),
          s.mark.step);
  }

  // The rank of the file that does what `rank` does.
  [[nodiscard]] std::optional<Rank> stand_in(Rank rank) const {
    if (shown_.contains(rank)) return rank;
    const auto found = stand_ins_.find(job_->folding.class_of_rank[rank.index()]);
    return found == stand_ins_.end() ? std::nullopt : std::optional(found->second);
  }

  // Between two ranks of the file that exchange with each other, or stand for such. Both ends have to see it alike, so
  // that no arrow lacks its other end.
  void arrow(const TimelinePlace& at, const Span& span, std::int32_t track, const TimelineWork::Message& message) {
    const std::optional<Rank> other = stand_in(message.peer);
    if (!other) return;
    const Communicator& communicator = job_->communicators()[message.comm.index()];
    if (stand_in(group_neighbour(communicator, *other, -message.step)) != at.rank) return;
    const bool sends = message.direction == Direction::Send;
    const auto way = std::tuple(sends ? at.rank : *other, sends ? *other : at.rank, message.comm,
                                sends ? message.step : -message.step);
    const auto [known, is_new] = ways_.try_emplace(way, static_cast<std::int64_t>(ways_.size()));
    const std::int64_t id = (known->second << 32) + message.number;
    // Inside of its span, so that it belongs to it.
    const Instant inside = sends ? span.begin : std::max(span.begin, span.end + Duration{-1});
    event(R"("ph":"{}","pid":{},"tid":{},"ts":{},"cat":"message","name":"message","id":{}{})", sends ? "s" : "f",
          at.rank.value, track, microseconds(inside), id, sends ? "" : R"(,"bp":"e")");
  }

  Pages out_;
  const char* comma_ = "";
  const Job* job_ = nullptr;
  std::set<Rank> shown_;
  std::map<std::int32_t, Rank> stand_ins_;  // by class
  std::map<std::tuple<Rank, Rank, CommSlot, std::int32_t>, std::int64_t> ways_;
  Rank rank_;
  std::map<StreamId, std::set<std::string>> streams_;
  Memory memory_;
  std::optional<HostSlice> pass_, operator_;
};

}  // namespace tidemark::scenarios
