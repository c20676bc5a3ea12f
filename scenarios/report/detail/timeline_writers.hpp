#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/report/timeline.hpp"

// The forms that a timeline's records come in. Writers have the same members; docs/timeline.md says what they write.

namespace tidemark::scenarios {

// As a JSON string. Nearly every text here is a plain name, and there are very many.
inline std::string in_json(std::string_view text) {
  const bool plain =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 127 && c != '"' && c != '\\'; });
  if (plain) return fmt::format("\"{}\"", text);
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

inline std::int64_t picoseconds(Instant at) { return at.since_start().count(); }

template <class Ids>
std::string numbers(const Ids& ids) {
  std::string out = "[";
  for (const auto& id : ids) fmt::format_to(std::back_inserter(out), "{}{}", out.size() > 1 ? "," : "", id);
  return out + "]";
}

// A place of a rank's program: an op, and the mark before it.
struct TimelinePlace {
  const Program& program;
  Rank rank;
  std::size_t op = 0;
  Mark mark;

  [[nodiscard]] std::string_view label() const {
    return mark.label.valid() ? std::string_view(program[mark.label]) : std::string_view();
  }
};

// What a span is of.
struct TimelineWork {
  std::string_view kind;
  std::string what;  // kernel, or kind of collective
  std::string_view communicator;
  struct Message {
    Direction direction = Direction::Send;
    Rank peer;
    Bytes bytes;
    CommSlot comm;
    std::int32_t step = 0;    // round its group
    std::int64_t number = 0;  // of those that go this way
  };
  std::vector<Message> messages;
  Bytes bytes;  // of a collective: the larger side on one rank; of an exchange: sent and received
  std::int32_t event = -1;
};

// Memory as a step begins.
struct MemoryState {
  Bytes allocated, reserved, driver;
  Composition composition;  ///< of the device
  Bytes pinned, pageable;   ///< of the host
};

constexpr std::string_view name(Direction direction) { return direction == Direction::Send ? "send" : "receive"; }
constexpr std::string_view name(TensorEvent::Kind kind) {
  switch (kind) {
    case TensorEvent::Kind::Alloc:
      return "alloc";
    case TensorEvent::Kind::Free:
    case TensorEvent::Kind::FreeLater:
      return "free";
    case TensorEvent::Kind::ComeBack:
      return "come_back";
  }
  return "?";
}

// Text that goes out in large pieces.
class Pages {
 public:
  explicit Pages(std::ostream& out) : out_(out) {}
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() = default;

  template <class... Args>
  void write(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(page_), format, std::forward<Args>(args)...);
    if (page_.size() > page_size) flush();
  }
  void flush() {
    out_.write(page_.data(), static_cast<std::streamsize>(page_.size()));
    page_.clear();
  }

 private:
  static constexpr std::size_t page_size = 1 << 20;
  std::ostream& out_;
  fmt::memory_buffer page_;
};

class TimelineJson {
 public:
  static constexpr bool shows_host = false;

  explicit TimelineJson(std::ostream& out) : out_(out) {}

  void begin(const Job& job, const Trace& trace, const TimelineQuery& query) {
    std::vector<std::int32_t> ranks;
    for (const Rank rank : query.ranks) ranks.push_back(rank.value);
    std::vector<std::string> categories;
    for (const Category category : query.categories) categories.push_back(in_json(sim::name(category)));
    out_.write(R"({{"schema":"tidemark.timeline/1","scenario":{},"world_size":{},"link_model":"{}","ranks":{},)"
               R"("steps":{},"categories":{},"capacity_bytes":{},"end_ps":{}}})"
               "\n",
               in_json(job.scenario.name), job.world_size(),
               query.links == LinkModel::MaxMin ? "max-min" : "alpha-beta", numbers(ranks), numbers(query.steps),
               categories.empty() ? "null" : numbers(categories), job.scenario.cluster.device.capacity.count(),
               picoseconds(trace.end));
  }
  void rank(Rank rank, const Program& program, const std::optional<OutOfDeviceMemory>& failure) {
    out_.write(R"({{"record":"rank","rank":{},"ops":{},"out_of_memory":)", rank.value, program.ops.size());
    if (failure)
      out_.write(R"({{"op":{},"requested_bytes":{},"free_bytes":{}}}}})"
                 "\n",
                 failure->at.op, failure->requested.count(), failure->free.count());
    else
      out_.write("null}}\n");
  }
  void state(Rank rank, std::int32_t step, Instant at, const MemoryState& s) {
    out_.write(R"({{"record":"state","rank":{},"step":{},"time_ps":{})", rank.value, step, picoseconds(at));
    holds(s.allocated, s.reserved, s.driver);
    out_.write(R"(,"by_category":{{)");
    const char* comma = "";
    for (std::size_t c = 0; c < category_count; ++c) {
      if (s.composition.bytes[c] == Bytes{}) continue;
      out_.write(R"({}"{}":{})", comma, category_names[c], s.composition.bytes[c].count());
      comma = ",";
    }
    out_.write("}}");
    if (s.pinned + s.pageable > Bytes{}) on_host(s.pinned, s.pageable);
    out_.write("}}\n");
  }
  void tensor(const TimelinePlace& at, Instant time, const MemoryEvent& event, const TensorEvent& what) {
    place("memory", at);
    out_.write(R"(,"time_ps":{},"event":"{}","tensor":{},"category":"{}","requested_bytes":{},"block_bytes":{})",
               picoseconds(time), name(what.kind), in_json(at.program[what.label]), sim::name(what.category),
               what.requested.count(), what.block.count());
    holds(event.allocated, event.reserved, event.driver);
    out_.write("}}\n");
  }
  void on_host(const TimelinePlace& at, Instant time, const MemoryEvent& event, const HostEvent& what) {
    place("host", at);
    out_.write(R"(,"time_ps":{},"event":"{}","tensor":{},"category":"{}","memory":"{}","requested_bytes":{})",
               picoseconds(time), name(what.kind), in_json(at.program[what.label]), sim::name(what.category),
               sim::name(what.space), what.requested.count());
    on_host(event.pinned, event.pageable);
    out_.write("}}\n");
  }
  void driver(const TimelinePlace& at, Instant time, const MemoryEvent& event, const DriverEvent& what,
              const std::string& row) {
    place("driver", at);
    out_.write(R"(,"time_ps":{},"name":{},"category":"{}","bytes":{})", picoseconds(time), in_json(row),
               sim::name(what.category), what.bytes.count());
    holds(event.allocated, event.reserved, event.driver);
    out_.write("}}\n");
  }
  void span(const TimelinePlace& at, const Span& span, const TimelineWork& work) {
    place("span", at);
    out_.write(R"(,"stream":{},"kind":"{}")", span.stream.value, work.kind);
    if (work.kind == "kernel") out_.write(R"(,"kernel":{})", in_json(work.what));
    if (work.kind == "collective") out_.write(R"(,"collective":"{}")", work.what);
    if (!work.communicator.empty())
      out_.write(R"(,"communicator":{},"bytes":{})", in_json(work.communicator), work.bytes.count());
    if (!work.messages.empty()) {
      out_.write(R"(,"messages":[)");
      const char* comma = "";
      for (const TimelineWork::Message& m : std::as_const(work.messages)) {
        out_.write(R"({}{{"direction":"{}","rank":{},"bytes":{}}})", comma, name(m.direction), m.peer.value,
                   m.bytes.count());
        comma = ",";
      }
      out_.write("]");
    }
    if (work.kind == "wait") out_.write(R"(,"event":{})", work.event);
    out_.write(R"(,"ready_ps":{},"begin_ps":{},"end_ps":{}}})"
               "\n",
               picoseconds(span.ready), picoseconds(span.begin), picoseconds(span.end));
  }
  void end(std::int64_t spans, std::int64_t memory_events) {
    out_.write(R"({{"record":"end","spans":{},"memory_events":{}}})"
               "\n",
               spans, memory_events);
    out_.flush();
  }

 private:
  void place(std::string_view record, const TimelinePlace& at) {
    out_.write(R"({{"record":"{}","rank":{},"op":{},"step":{},"phase":"{}","micro_batch":)", record, at.rank.value,
               at.op, at.mark.step, sim::name(at.mark.phase));
    if (at.mark.micro_batch < 0)
      out_.write("null");
    else
      out_.write("{}", at.mark.micro_batch);
    out_.write(R"(,"operator":{})", in_json(at.label()));
  }
  void on_host(Bytes pinned, Bytes pageable) {
    out_.write(R"(,"pinned_bytes":{},"pageable_bytes":{})", pinned.count(), pageable.count());
  }
  void holds(Bytes allocated, Bytes reserved, Bytes driver) {
    out_.write(R"(,"allocated_bytes":{},"reserved_bytes":{},"driver_bytes":{})", allocated.count(), reserved.count(),
               driver.count());
  }
  Pages out_;
};

// For reading, and for tools that take columns. Labels have no white space in them.
class TimelineTable {
 public:
  static constexpr bool shows_host = false;

  explicit TimelineTable(std::ostream& out) : out_(out) {}

  void begin(const Job&, const Trace&, const TimelineQuery&) {
    out_.write(
        "record\trank\tstream\top\tstep\tphase\tmicro_batch\toperator\twhat\tof\tready_ps\tbegin_ps\tend_ps\tbytes\t"
        "category\tblock_bytes\tallocated_bytes\treserved_bytes\tdriver_bytes\tpinned_bytes\tpageable_bytes\n");
  }
  void rank(Rank, const Program&, const std::optional<OutOfDeviceMemory>&) {}
  void state(Rank rank, std::int32_t step, Instant at, const MemoryState& s) {
    out_.write("state\t{}\t\t\t{}\t\t\t\tstep_begins\t\t\t{}\t\t\t\t\t{}\t{}\t{}\t{}\t{}\n", rank.value, step,
               picoseconds(at), s.allocated.count(), s.reserved.count(), s.driver.count(), s.pinned.count(),
               s.pageable.count());
  }
  void tensor(const TimelinePlace& at, Instant time, const MemoryEvent& event, const TensorEvent& what) {
    place("memory", at, "");
    out_.write("\t{}\t{}\t\t{}\t\t{}\t{}\t{}", name(what.kind), at.program[what.label], picoseconds(time),
               what.requested.count(), sim::name(what.category), what.block.count());
    holds(event);
  }
  void on_host(const TimelinePlace& at, Instant time, const MemoryEvent& event, const HostEvent& what) {
    place("host", at, "");
    out_.write("\t{} {}\t{}\t\t{}\t\t{}\t{}\t", name(what.kind), sim::name(what.space), at.program[what.label],
               picoseconds(time), what.requested.count(), sim::name(what.category));
    holds(event);
  }
  void driver(const TimelinePlace& at, Instant time, const MemoryEvent& event, const DriverEvent& what,
              const std::string& row) {
    place("driver", at, "");
    out_.write("\tcreate\t{}\t\t{}\t\t{}\t{}\t", row, picoseconds(time), what.bytes.count(), sim::name(what.category));
    holds(event);
  }
  void span(const TimelinePlace& at, const Span& span, const TimelineWork& work) {
    place("span", at, std::to_string(span.stream.value));
    out_.write("\t{}\t{}\t{}\t{}\t{}\t{}\t\t\t\t\t\t\t\n", work.kind,
               work.kind == "collective" ? fmt::format("{} {}", work.what, work.communicator)
               : work.kind == "exchange" ? std::string(work.communicator)
               : work.kind == "wait"     ? fmt::format("event {}", work.event)
                                         : work.what,
               picoseconds(span.ready), picoseconds(span.begin), picoseconds(span.end),
               work.communicator.empty() ? std::string() : std::to_string(work.bytes.count()));
  }
  void end(std::int64_t, std::int64_t) { out_.flush(); }

 private:
  void place(std::string_view record, const TimelinePlace& at, std::string_view stream) {
    out_.write("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}", record, at.rank.value, stream, at.op, at.mark.step,
               sim::name(at.mark.phase), at.mark.micro_batch < 0 ? "" : std::to_string(at.mark.micro_batch),
               at.label());
  }
  void holds(const MemoryEvent& event) {
    out_.write("\t{}\t{}\t{}\t{}\t{}\n", event.allocated.count(), event.reserved.count(), event.driver.count(),
               event.pinned.count(), event.pageable.count());
  }
  Pages out_;
};

}  // namespace tidemark::scenarios
