#include "scenarios/report/timeline.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <ostream>
#include <sstream>
#include <tuple>
#include <utility>

#include "scenarios/predict/reported_replay.hpp"
#include "scenarios/predict/role_program.hpp"
#include "scenarios/report/detail/chrome_trace.hpp"
#include "scenarios/report/detail/timeline_writers.hpp"
#include "sim/base/overloaded.hpp"
#include "sim/program/text/program_text.hpp"

namespace tidemark::scenarios {
namespace {

std::string driver_name(const Job& job, const DriverEvent& event) {
  return std::visit(Overloaded{
                        [](DriverResource resource) { return std::string(name(resource)); },
                        [&](CommSlot slot) { return "communicator " + job.communicators()[slot.index()].name; },
                    },
                    event.what);
}

// By exchange: which of all messages that go one way each of its own is. Both ends count alike, as messages of a way
// do not overtake each other.
std::map<std::size_t, std::vector<std::int64_t>> message_numbers(const Program& program) {
  std::map<std::tuple<CommSlot, Direction, std::int32_t>, std::int64_t> ways;
  std::map<std::size_t, std::vector<std::int64_t>> numbers;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const auto* exchange = std::get_if<Exchange>(&program.ops[i]);
    if (exchange == nullptr) continue;
    for (const Transfer& t : program[exchange->transfers])
      numbers[i].push_back(ways[{exchange->comm, t.direction, t.step}]++);
  }
  return numbers;
}

template <class Writer>
class Timeline {
 public:
  Timeline(Writer& writer, const Job& job, const Trace& trace, const TimelineQuery& query)
      : writer_(writer), job_(job), trace_(trace), query_(query) {
    categories_.fill(query.categories.empty());
    for (const Category category : query.categories) categories_[static_cast<std::size_t>(category)] = true;
  }

  void write() {
    writer_.begin(job_, trace_, query_);
    for (const Rank rank : query_.ranks) {
      // Neighbours in the list often run one program.
      const Role& role = job_.role_of(rank);
      if (&role != role_) program_.emplace(job_, role);
      role_ = &role;
      memory(rank);
      spans(rank);
      if constexpr (Writer::shows_host) writer_.end_rank();
    }
    writer_.end(span_count_, event_count_);
  }

 private:
  [[nodiscard]] bool requested(std::int32_t step) const {
    return std::binary_search(query_.steps.begin(), query_.steps.end(), step);
  }

  void memory(Rank rank) {
    const DriverCosts& costs = job_.costs.of(rank);
    const Program& program = program_->program();
    const ProgramTimes times = program_->times(trace_, rank);
    ReplayOptions limit = reported_replay(job_, trace_, times);
    const std::optional<OutOfDeviceMemory> failure = replay(program, costs, limit).failure;
    if (failure) limit = without_device(std::move(limit));
    writer_.rank(rank, program, failure);

    MemoryState now;
    std::int32_t step = -1;
    std::size_t next = 0;
    Instant time;
    const auto walk_to = [&](std::size_t op) {  // and come to it
      for (; next <= op; ++next) {
        time = times.host[next];
        const Mark* mark = std::get_if<Mark>(&program.ops[next]);
        if (mark == nullptr) continue;
        if (mark->step != step) {
          step = mark->step;
          if (requested(step)) writer_.state(rank, step, time, now);
        }
        if constexpr (Writer::shows_host)
          writer_.host_mark(TimelinePlace{program, rank, next, *mark}, time, requested(step));
      }
    };
    (void)replay(program, costs, limit, [&](const MemoryEvent& event) {
      walk_to(event.at.op);
      now.allocated = event.allocated;
      now.reserved = event.reserved;
      now.driver = event.driver;
      now.pinned = event.pinned;
      now.pageable = event.pageable;
      const TimelinePlace at{program, rank, event.at.op, event.at.mark};
      std::visit(Overloaded{
                     [&](const TensorEvent& what) {
                       if (what.kind == TensorEvent::Kind::ComeBack) return;  // it was no tensor's any more
                       Bytes& of_category = now.composition[what.category];
                       of_category += what.kind == TensorEvent::Kind::Alloc ? what.block : -what.block;
                       if (shown(at, what.category)) writer_.tensor(at, time, event, what);
                     },
                     [&](const DriverEvent& what) {
                       now.composition[what.category] += what.bytes;
                       if (shown(at, what.category)) writer_.driver(at, time, event, what, driver_name(job_, what));
                     },
                     [&](const HostEvent& what) {
                       if (shown(at, what.category)) writer_.on_host(at, time, event, what);
                     },
                 },
                 event.what);
    });
    if constexpr (Writer::shows_host) {
      if (!program.ops.empty()) walk_to(program.ops.size() - 1);
      writer_.host_end(time);
    }
  }

  bool shown(const TimelinePlace& at, Category category) {
    const bool is = requested(at.mark.step) && categories_[static_cast<std::size_t>(category)];
    if (is) ++event_count_;
    return is;
  }

  void spans(Rank rank) {
    const Program program = job_.program(static_cast<std::size_t>(job_.folding.of(rank).program));
    std::vector<std::pair<std::size_t, Mark>> marks;  // by op
    std::vector<Bytes> sizes(static_cast<std::size_t>(program.buffers));
    const std::map<std::size_t, std::vector<std::int64_t>> numbers = message_numbers(program);
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      if (const auto* o = std::get_if<Mark>(&program.ops[i])) marks.emplace_back(i, *o);
      if (const auto* o = std::get_if<Alloc>(&program.ops[i])) sizes[o->buffer.index()] = o->size;
    }
    const auto mark_before = [&](std::size_t op) {
      const auto after = std::upper_bound(marks.begin(), marks.end(), op,
                                          [](std::size_t at, const auto& mark) { return at < mark.first; });
      return after == marks.begin() ? Mark{} : std::prev(after)->second;
    };
    std::vector<std::pair<Span, Mark>> found;
    for (const Span& span : timeline_of(job_, trace_, job_.class_of(rank), program).spans)
      if (const Mark mark = mark_before(span.op); requested(mark.step)) found.emplace_back(span, mark);
    std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      const auto key = [](const Span& s) { return std::tuple(s.begin, s.stream, s.op); };
      return key(a.first) < key(b.first);
    });
    for (const auto& [span, mark] : found) {
      TimelineWork done = work(program, sizes, rank, program.ops[span.op]);
      for (std::size_t m = 0; m < done.messages.size(); ++m) done.messages[m].number = numbers.at(span.op)[m];
      writer_.span(TimelinePlace{program, rank, span.op, mark}, span, done);
      ++span_count_;
    }
  }

  [[nodiscard]] TimelineWork work(const Program& program, const std::vector<Bytes>& sizes, Rank rank,
                                  const Op& op) const {
    TimelineWork found;
    std::visit(
        Overloaded{
            [&](const Launch& o) {
              found.kind = "kernel";
              found.what = text(program, program[o.kernel]);
            },
            [&](const Collective& o) {
              found.kind = "collective";
              found.what = name(o.kind);
              found.communicator = job_.communicators()[o.comm.index()].name;
              found.bytes = o.size;
            },
            [&](const Exchange& o) {
              const Communicator& communicator = job_.communicators()[o.comm.index()];
              found.kind = "exchange";
              found.communicator = communicator.name;
              for (const Transfer& t : program[o.transfers]) {
                const Bytes bytes = t.size(sizes[t.buffer.index()]);
                found.messages.push_back(
                    {t.direction, group_neighbour(communicator, rank, t.step), bytes, o.comm, t.step});
                found.bytes += bytes;
              }
            },
            [&](const Memcpy& o) {
              found.kind = "memcpy";
              found.bytes = o.size;
            },
            [&](const Wait& o) {
              found.kind = "wait";
              found.event = o.event.value;
            },
            Ignored<Alloc, Free, CrossStreamUse, Record, Sync, CreateDriver, CreateCommunicator, Bind, Unbind, Mark>{},
        },
        op);
    return found;
  }

  Writer& writer_;
  const Job& job_;
  const Trace& trace_;
  const TimelineQuery& query_;
  std::array<bool, category_count> categories_{};
  const Role* role_ = nullptr;
  std::optional<RoleProgram> program_;  // of role_
  std::int64_t span_count_ = 0, event_count_ = 0;
};

template <class T>
void sort_out(std::vector<T>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

template <class Writer>
void write_as(std::ostream& out, const Job& job, const Trace& trace, const TimelineQuery& query) {
  Writer writer(out);
  Timeline<Writer>(writer, job, trace, query).write();
}

}  // namespace

void write_timeline(std::ostream& out, const Job& job, const Trace& trace, const TimelineQuery& query,
                    TimelineFormat format) {
  TimelineQuery sorted = query;
  sort_out(sorted.ranks);
  sort_out(sorted.steps);
  sort_out(sorted.categories);
  switch (format) {
    case TimelineFormat::JsonLines:
      return write_as<TimelineJson>(out, job, trace, sorted);
    case TimelineFormat::Table:
      return write_as<TimelineTable>(out, job, trace, sorted);
    case TimelineFormat::ChromeTrace:
      return write_as<ChromeTrace>(out, job, trace, sorted);
  }
}

std::string timeline(const Job& job, const Trace& trace, const TimelineQuery& query, TimelineFormat format) {
  std::ostringstream out;
  write_timeline(out, job, trace, query, format);
  return std::move(out).str();
}

std::vector<Rank> first_ranks(const Prediction& prediction) {
  std::vector<Rank> found;
  for (const RankGroup& group : prediction.groups) found.push_back(group.ranks.front());
  return found;
}

}  // namespace tidemark::scenarios
