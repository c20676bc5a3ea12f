#include "sim/program/structure/timing.hpp"

#include <algorithm>
#include <utility>

#include "sim/base/overloaded.hpp"

namespace tidemark::sim {
namespace {

enum class OnTheClock : std::uint8_t {
  Nothing,  ///< matters to memory only
  Waits,    ///< orders streams or ranks; costs the host no time
  Takes,    ///< the host's time
};

OnTheClock on_the_clock(const Op& op) {
  return std::visit(Overloaded{
                        [](const Alloc&) { return OnTheClock::Nothing; },
                        [](const Free&) { return OnTheClock::Nothing; },
                        [](const CrossStreamUse&) { return OnTheClock::Nothing; },
                        [](const Launch&) { return OnTheClock::Takes; },
                        [](const Collective&) { return OnTheClock::Takes; },
                        [](const Exchange&) { return OnTheClock::Takes; },
                        [](const Memcpy&) { return OnTheClock::Takes; },
                        [](const Record&) { return OnTheClock::Waits; },
                        [](const Wait&) { return OnTheClock::Waits; },
                        [](const Sync&) { return OnTheClock::Takes; },
                        [](const CreateDriver&) { return OnTheClock::Nothing; },
                        [](const CreateCommunicator&) { return OnTheClock::Nothing; },
                        [](const Bind&) { return OnTheClock::Nothing; },
                        [](const Unbind&) { return OnTheClock::Nothing; },
                        [](const Mark&) { return OnTheClock::Waits; },
                    },
                    op);
}

// Walks a program from one op that must be alike to the next.
class Walk {
 public:
  explicit Walk(const Program& program) : program_(program), allocs_(static_cast<std::size_t>(program.buffers)) {}

  [[nodiscard]] std::size_t at() const { return at_; }
  [[nodiscard]] bool over() const { return at_ == program_.ops.size(); }
  [[nodiscard]] const Op& op() const { return program_.ops[at_]; }
  [[nodiscard]] const Program& program() const { return program_; }
  [[nodiscard]] Bytes size(BufferId buffer) const { return allocs_[buffer.index()].size; }
  [[nodiscard]] MemorySpace space(BufferId buffer) const { return allocs_[buffer.index()].space; }

  // From the op it stands at; calls kernel(op) for each that need not be alike on the way.
  template <class Kernel>
  void to_next(Kernel kernel) {
    for (; !over() && !must_be_alike(op()); ++at_) {
      if (const auto* alloc = std::get_if<Alloc>(&op())) allocs_[alloc->buffer.index()] = *alloc;
      kernel(at_);
    }
  }
  void pass() {
    if (const auto* mark = std::get_if<Mark>(&op())) in_micro_batch_ = mark->micro_batch >= 0;
    ++at_;
  }

 private:
  [[nodiscard]] bool must_be_alike(const Op& op) const {
    return on_the_clock(op) != OnTheClock::Nothing && (in_micro_batch_ || !std::holds_alternative<Launch>(op));
  }

  const Program& program_;
  std::vector<Alloc> allocs_;  // by buffer
  std::size_t at_ = 0;
  bool in_micro_batch_ = false;
};

class Comparison {
 public:
  Comparison(const Program& simulated, const Program& own, OwnRows rows)
      : simulated_(simulated),
        own_(own),
        rows_(rows),
        event_of_(static_cast<std::size_t>(own.events)),
        kernel_of_(own.kernels.size()) {}

  std::optional<std::vector<std::uint32_t>> places() && {
    std::vector<std::uint32_t> places(own_.program().ops.size());
    for (;;) {
      // What lies between two ops that are alike: the k-th kernel for the k-th, as far as there are as many.
      const std::size_t first = simulated_.at();
      simulated_.to_next([](std::size_t) {});
      std::size_t place = first;
      own_.to_next([&](std::size_t op) {
        while (place < simulated_.at() && on_the_clock(simulated_.program().ops[place]) != OnTheClock::Takes) ++place;
        places[op] = static_cast<std::uint32_t>(place);
        if (place < simulated_.at() && on_the_clock(own_.program().ops[op]) == OnTheClock::Takes) ++place;
      });
      if (simulated_.over() || own_.over()) break;
      if (!alike(simulated_.op(), own_.op())) return std::nullopt;
      places[own_.at()] = static_cast<std::uint32_t>(simulated_.at());
      simulated_.pass();
      own_.pass();
    }
    if (!simulated_.over() || !own_.over()) return std::nullopt;
    return places;
  }

 private:
  bool alike(const Op& simulated, const Op& own) {
    if (simulated.index() != own.index()) return false;
    const auto same = [&](const auto& o) { return alike(o, std::get<std::decay_t<decltype(o)>>(simulated)); };
    const auto matters_to_memory_only = [](const auto&) { return true; };
    return std::visit(Overloaded{
                          [&](const Alloc& o) { return matters_to_memory_only(o); },
                          [&](const Free& o) { return matters_to_memory_only(o); },
                          [&](const CrossStreamUse& o) { return matters_to_memory_only(o); },
                          [&](const Launch& o) { return same(o); },
                          [&](const Collective& o) { return same(o); },
                          [&](const Exchange& o) { return same(o); },
                          [&](const Memcpy& o) { return same(o); },
                          [&](const Record& o) { return same(o); },
                          [&](const Wait& o) { return same(o); },
                          [&](const Sync& o) { return same(o); },
                          [&](const CreateDriver& o) { return matters_to_memory_only(o); },
                          [&](const CreateCommunicator& o) { return matters_to_memory_only(o); },
                          [&](const Bind& o) { return matters_to_memory_only(o); },
                          [&](const Unbind& o) { return matters_to_memory_only(o); },
                          [&](const Mark& o) { return same(o); },
                      },
                      own);
  }

  bool alike(const Launch& own, const Launch& simulated) {
    if (own.stream != simulated.stream) return false;
    KernelId& known = kernel_of_[own.kernel.index()];
    if (known == simulated.kernel) return true;
    const bool same = rows_ == OwnRows::Any && own_.program()[own.kernel].operation == Operation::VocabularyMask
                          ? equal_but_for_attributes(own_.program(), own.kernel, simulated_.program(), simulated.kernel)
                          : equal(own_.program(), own.kernel, simulated_.program(), simulated.kernel);
    if (!same) return false;
    known = simulated.kernel;
    return true;
  }
  bool alike(const Collective& own, const Collective& simulated) {
    return own.stream == simulated.stream && own.comm == simulated.comm && own.kind == simulated.kind &&
           own.dtype == simulated.dtype && own.reduction == simulated.reduction && own.size == simulated.size &&
           own.row.valid() == simulated.row.valid() &&
           (!own.row.valid() || own_.program()[own.row] == simulated_.program()[simulated.row]);
  }
  bool alike(const Exchange& own, const Exchange& simulated) {
    const auto mine = own_.program()[own.transfers], others = simulated_.program()[simulated.transfers];
    return own.stream == simulated.stream && own.comm == simulated.comm &&
           std::equal(mine.begin(), mine.end(), others.begin(), others.end(),
                      [&](const Transfer& a, const Transfer& b) {
                        return a.direction == b.direction && a.step == b.step &&
                               a.size(own_.size(a.buffer)) == b.size(simulated_.size(b.buffer));
                      });
  }
  bool alike(const Memcpy& own, const Memcpy& simulated) {
    return own.stream == simulated.stream && own.size == simulated.size &&
           own_.space(own.from.buffer) == simulated_.space(simulated.from.buffer) &&
           own_.space(own.to.buffer) == simulated_.space(simulated.to.buffer);
  }
  bool alike(const Record& own, const Record& simulated) {
    event_of_[own.event.index()] = simulated.event;
    return own.stream == simulated.stream;
  }
  bool alike(const Wait& own, const Wait& simulated) {
    return own.stream == simulated.stream && event_of_[own.event.index()] == simulated.event;
  }
  bool alike(const Sync& own, const Sync& simulated) { return event_of_[own.event.index()] == simulated.event; }
  static bool alike(const Mark& own, const Mark& simulated) {
    return own.step == simulated.step && own.phase == simulated.phase && own.micro_batch == simulated.micro_batch;
  }

  Walk simulated_, own_;
  OwnRows rows_;
  std::vector<EventId> event_of_;    // by the own program's event: the simulated one's
  std::vector<KernelId> kernel_of_;  // by the own program's kernel: an equal one of the simulated program
};

}  // namespace

std::optional<std::vector<std::uint32_t>> timed_like(const Program& simulated, const Program& own, OwnRows rows) {
  return Comparison(simulated, own, rows).places();
}

}  // namespace tidemark::sim
