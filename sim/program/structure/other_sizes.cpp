#include "sim/program/structure/other_sizes.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "sim/program/detail/sized_writer.hpp"

namespace tidemark::sim {
namespace {

template <class Table>
std::int32_t count_of(const Table& table) {
  return static_cast<std::int32_t>(table.size());
}

// What `few` calls what is in the tables of a program; -1: it has none like it.
class Numbering {
 public:
  Numbering(const Program& program, const Program& few) : program_(program) {
    std::map<std::string_view, std::int64_t> labels;
    for (const Label& label : few.labels) labels.try_emplace(label.text, std::ssize(labels));
    for (const Label& label : program.labels) {
      const auto known = labels.find(label.text);
      labels_.push_back(known == labels.end() ? -1 : known->second);
    }
    for (std::int32_t k = 0; k < count_of(program.kernels); ++k) {
      // The two are of one model: tables are alike for a while.
      kernels_.push_back(-1);
      for (std::int32_t tried = 0; tried < count_of(few.kernels) && kernels_.back() < 0; ++tried) {
        const std::int32_t other = (k + tried) % count_of(few.kernels);
        if (few.kernels[static_cast<std::size_t>(other)].operation == program[KernelId{k}].operation &&
            equal(program, {k}, few, {other}))
          kernels_.back() = other;
      }
    }
    for (const MatrixRow& row : program.rows) {
      const auto known = std::ranges::find(few.rows, row);
      rows_.push_back(known == few.rows.end() ? -1 : known - few.rows.begin());
    }
  }

  [[nodiscard]] std::int64_t of(LabelId id) const { return id.valid() ? labels_[id.index()] : none; }
  [[nodiscard]] std::int64_t of(KernelId id) const { return kernels_[id.index()]; }
  [[nodiscard]] std::int64_t of(RowId id) const { return id.valid() ? rows_[id.index()] : none; }
  [[nodiscard]] std::int64_t of(const Operand& operand) const { return program_[operand.offset].count(); }

 private:
  static constexpr std::int64_t none = -2;
  const Program& program_;
  std::vector<std::int64_t> labels_, kernels_, rows_;
};

// What a place does, whichever buffers, events and variables it does it with. Frees and variables go with buffers.
using Deed = std::vector<std::int64_t>;

void add(const Program& program, const Numbering& of, const Op& op, Deed& deed) {
  const auto say = [&](auto... numbers) { (deed.push_back(static_cast<std::int64_t>(numbers)), ...); };
  const auto say_all = [&](OperandList list) {
    say(list.count);
    for (const Operand& operand : program[list]) say(of.of(operand));
  };
  const auto index = op.index();
  std::visit(
      Overloaded{
          [&](const Alloc& o) { say(index, o.size.count(), o.category, o.stream.value, of.of(o.label), o.space); },
          [&](const Launch& o) {
            say(index, o.stream.value, of.of(o.kernel));
            for (const OperandList list : {o.inputs, o.outputs, o.scratch}) say_all(list);
          },
          [&](const Collective& o) {
            say(index, o.stream.value, o.comm.value, o.kind, o.dtype, o.reduction, of.of(o.in), of.of(o.out),
                of.of(o.row), o.size.count());
          },
          [&](const Exchange& o) {
            say(index, o.stream.value, o.comm.value, o.transfers.count);
            for (const Transfer& t : program[o.transfers]) say(t.direction, t.step, t.part, t.parts);
          },
          [&](const Memcpy& o) { say(index, o.stream.value, of.of(o.from), of.of(o.to), o.size.count()); },
          [&](const Mark& o) { say(index, o.phase, of.of(o.label), o.micro_batch >= 0 ? 1 : 0); },
          Ignored<Free, CrossStreamUse, Record, Wait, Sync, CreateDriver, CreateCommunicator, Bind, Unbind>{},
      },
      op);
}

bool has_size(const Op& op) {
  return std::holds_alternative<Alloc>(op) || std::holds_alternative<Launch>(op) ||
         std::holds_alternative<Collective>(op) || std::holds_alternative<Memcpy>(op);
}

using Run = OtherSizes::Run;

// What is between passes comes first, if nothing, and last.
std::vector<Run> runs_of(const Program& program) {
  std::vector<Run> runs{{0, 0, false}};
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (const auto* mark = std::get_if<Mark>(&program.ops[i]); mark != nullptr) {
      const bool in_passes = mark->step > 0 && mark->micro_batch >= 0;
      if (in_passes != runs.back().in_passes) runs.push_back({i, i, in_passes});
    }
    runs.back().last = i + 1;
  }
  if (runs.back().in_passes) runs.push_back({program.ops.size(), program.ops.size(), false});
  return runs;
}

std::span<const Op> ops_of(const Program& program, const Run& run) {
  return std::span(program.ops).subspan(run.first, run.last - run.first);
}

// From one mark to the next.
struct Place {
  Deed deed;
  std::vector<std::uint32_t> with_size;  // ops
};

// Calls `each(place)` for all of a run, in order; false where it says so.
template <class Each>
bool for_each_place(const Program& program, const Run& run, const Numbering& numbering, Each each) {
  Place place;
  for (std::size_t i = run.first; i < run.last; ++i) {
    const Op& op = program.ops[i];
    if (std::holds_alternative<Mark>(op) && i > run.first) {
      if (!each(place)) return false;
      place.deed.clear(), place.with_size.clear();
    }
    add(program, numbering, op, place.deed);
    if (has_size(op)) place.with_size.push_back(static_cast<std::uint32_t>(i));
  }
  return each(place);
}

Deed deed_of(const Program& program, const Numbering& numbering, std::size_t op) {
  Deed deed;
  add(program, numbering, program.ops[op], deed);
  return deed;
}

// Whether ops of two programs of as many micro-batches do the same, but for sizes; and what the other calls things.
class SameButForSizes {
 public:
  SameButForSizes(const Program& its, const Program& other)
      : buffers(its.buffers), events(its.events), its_(its), other_(other), labels_(count_of(its.labels)) {}

  bool operator()(const Op& a, const Op& b) {
    return a.index() == b.index() &&
           std::visit([&](const auto& o) { return same(o, std::get<std::decay_t<decltype(o)>>(b)); }, a);
  }

  Renumbered buffers, events;

 private:
  bool same(BufferId a, BufferId b) { return buffers.same(a.value, b.value); }
  bool same(EventId a, EventId b) { return events.same(a.value, b.value); }
  bool same(LabelId a, LabelId b) {
    if (!a.valid() || !b.valid()) return a.valid() == b.valid();
    if (const std::int32_t known = labels_[a.value]; known >= 0) return known == b.value;
    return its_[a] == other_[b] && labels_.same(a.value, b.value);
  }
  bool same(OperandList a, OperandList b) {
    return std::ranges::equal(its_[a], other_[b],
                              [&](const Operand& s, const Operand& t) { return same(s.buffer, t.buffer); });
  }
  bool same(const Alloc& a, const Alloc& b) {
    return a.category == b.category && a.stream == b.stream && a.space == b.space && same(a.buffer, b.buffer) &&
           same(a.label, b.label);
  }
  bool same(const Free& a, const Free& b) { return same(a.buffer, b.buffer); }
  bool same(const CrossStreamUse& a, const CrossStreamUse& b) {
    return a.stream == b.stream && a.recorded == b.recorded && same(a.buffer, b.buffer);
  }
  bool same(const Launch& a, const Launch& b) {
    const Kernel &kernel = its_[a.kernel], &other = other_[b.kernel];
    return a.stream == b.stream && kernel.operation == other.operation && kernel.processor == other.processor &&
           kernel.follows() == other.follows() && same(a.inputs, b.inputs) && same(a.outputs, b.outputs) &&
           same(a.scratch, b.scratch);
  }
  bool same(const Collective& a, const Collective& b) {
    return std::tie(a.stream, a.comm, a.kind, a.dtype, a.reduction) ==
               std::tie(b.stream, b.comm, b.kind, b.dtype, b.reduction) &&
           same(a.in.buffer, b.in.buffer) && same(a.out.buffer, b.out.buffer) && a.row.valid() == b.row.valid() &&
           (!a.row.valid() || its_[a.row].matrix == other_[b.row].matrix);
  }
  bool same(const Exchange& a, const Exchange& b) {
    return a.stream == b.stream && a.comm == b.comm &&
           std::ranges::equal(its_[a.transfers], other_[b.transfers], [&](const Transfer& s, const Transfer& t) {
             return std::tie(s.direction, s.step, s.part, s.parts) == std::tie(t.direction, t.step, t.part, t.parts) &&
                    same(s.buffer, t.buffer);
           });
  }
  bool same(const Memcpy& a, const Memcpy& b) {
    return a.stream == b.stream && same(a.from.buffer, b.from.buffer) && same(a.to.buffer, b.to.buffer);
  }
  bool same(const Record& a, const Record& b) { return a.stream == b.stream && same(a.event, b.event); }
  bool same(const Wait& a, const Wait& b) { return a.stream == b.stream && same(a.event, b.event); }
  bool same(const Sync& a, const Sync& b) { return same(a.event, b.event); }
  static bool same(const CreateDriver& a, const CreateDriver& b) { return a == b; }
  static bool same(const CreateCommunicator& a, const CreateCommunicator& b) { return a == b; }
  bool same(const Bind& a, const Bind& b) { return its_[a.name] == other_[b.name] && same(a.buffer, b.buffer); }
  bool same(const Unbind& a, const Unbind& b) const { return its_[a.name] == other_[b.name]; }
  bool same(const Mark& a, const Mark& b) {
    return a.phase == b.phase && a.step == b.step && a.micro_batch == b.micro_batch &&
           a.empties_cache == b.empties_cache && same(a.label, b.label);
  }

  const Program& its_;
  const Program& other_;
  Renumbered labels_;
};

// Whether two ops of one program that do the same with the same sizes in another one do so here.
bool one_size(const Program& program, const Op& a, const Op& b) {
  const auto one_offset = [&](const Operand& s, const Operand& t) { return program[s.offset] == program[t.offset]; };
  const auto one = [&]<class T>(const T& o, const T& p) {
    if constexpr (std::is_same_v<T, Alloc>)
      return o.size == p.size;
    else if constexpr (std::is_same_v<T, Launch>)
      return (o.kernel == p.kernel || equal(program, o.kernel, program, p.kernel)) &&
             std::ranges::equal(program[o.inputs], program[p.inputs], one_offset) &&
             std::ranges::equal(program[o.outputs], program[p.outputs], one_offset) &&
             std::ranges::equal(program[o.scratch], program[p.scratch], one_offset);
    else if constexpr (std::is_same_v<T, Collective>)
      return o.size == p.size && one_offset(o.in, p.in) && one_offset(o.out, p.out) &&
             (!o.row.valid() || program[o.row] == program[p.row]);
    else if constexpr (std::is_same_v<T, Memcpy>)
      return o.size == p.size && one_offset(o.from, p.from) && one_offset(o.to, p.to);
    else
      return true;
  };
  return std::visit([&](const auto& o) { return one(o, std::get<std::decay_t<decltype(o)>>(b)); }, a);
}

// Made between passes: the others' number there, or -1.
std::vector<std::int32_t> made_between(const Renumbered& numbers, std::int32_t count) {
  std::vector<std::int32_t> all;
  for (std::int32_t i = 0; i < count; ++i) all.push_back(numbers[i]);
  return all;
}

// What is between passes may do to what they have made: a variable holds it from now on, or it is given up, of which a
// variable that holds it for a moment tells when.
enum class OfPasses : std::uint8_t { Nothing, Kept, GivenUp };

OfPasses done_to_passes(std::span<const Op> run, std::size_t at, const std::vector<char>& by_passes) {
  const auto by = [&](BufferId buffer) { return by_passes[buffer.index()] != 0; };
  if (const auto* free = std::get_if<Free>(&run[at])) return by(free->buffer) ? OfPasses::GivenUp : OfPasses::Nothing;
  const auto* bind = std::get_if<Bind>(&run[at]);
  if (bind == nullptr || !by(bind->buffer)) return OfPasses::Nothing;
  const auto* unbind = at + 1 < run.size() ? std::get_if<Unbind>(&run[at + 1]) : nullptr;
  return unbind != nullptr && unbind->name == bind->name ? OfPasses::GivenUp : OfPasses::Kept;
}

// What a run does so, in order.
std::vector<const Op*> done_to_passes(std::span<const Op> run, OfPasses what, const std::vector<char>& by_passes) {
  std::vector<const Op*> found;
  for (std::size_t i = 0; i < run.size(); ++i)
    if (done_to_passes(run, i, by_passes) == what) found.push_back(&run[i]);
  return found;
}

// What variables hold of passes from now on, and how many other ops of the run come after it.
struct Kept {
  const Op* op = nullptr;
  std::size_t before = 0;
};

std::vector<Kept> kept_of_passes(std::span<const Op> run, const std::vector<char>& by_passes) {
  std::vector<Kept> found;
  std::size_t others = 0;
  for (std::size_t i = run.size(); i-- > 0;) {
    if (done_to_passes(run, i, by_passes) == OfPasses::Kept)
      found.push_back({&run[i], others});
    else
      ++others;
  }
  std::ranges::reverse(found);
  return found;
}

BufferId given_up(const Op& op) {
  const auto* free = std::get_if<Free>(&op);
  return free != nullptr ? free->buffer : std::get<Bind>(op).buffer;
}

std::vector<char> made_by_passes(const Program& program, const std::vector<Run>& runs) {
  std::vector<char> by_passes(static_cast<std::size_t>(program.buffers), 0);
  for (const Run& run : runs)
    if (run.in_passes)
      for (const Op& op : ops_of(program, run))
        if (const auto* alloc = std::get_if<Alloc>(&op)) by_passes[alloc->buffer.index()] = 1;
  return by_passes;
}

}  // namespace

OtherSizes::OtherSizes(std::shared_ptr<const RepeatingProgram> whole, Program few)
    : whole_(std::move(whole)),
      few_(std::move(few)),
      runs_(runs_of(whole_->rolled)),
      runs_of_few_(runs_of(few_)),
      by_passes_(made_by_passes(whole_->rolled, runs_)) {}

std::optional<OtherSizes> OtherSizes::of(std::shared_ptr<const RepeatingProgram> whole, Program few) {
  OtherSizes found(std::move(whole), std::move(few));
  if (found.runs_.size() != found.runs_of_few_.size()) return std::nullopt;
  if (!found.match_state() || !found.find_places()) return std::nullopt;
  found.find_used();
  return found;
}

// Between passes both do the same, but for what variables hold of passes at the end.
bool OtherSizes::match_state() {
  const Program& rolled = whole_->rolled;
  const Numbering itself(few_, few_), numbering(rolled, few_);
  const std::vector<char> by_few = made_by_passes(few_, runs_of_few_);
  SameButForSizes same(rolled, few_);
  for (std::size_t r = 0; r < runs_.size(); r += 2) {
    const Run &run = runs_[r], &of_few = runs_of_few_[r];
    const std::span<const Op> ops = ops_of(rolled, run), ops_of_few = ops_of(few_, of_few);
    std::size_t at = 0, in_few = 0;
    const auto pass_kept = [&] {
      while (at < ops.size() && done_to_passes(ops, at, by_passes_) == OfPasses::Kept) ++at;
      while (in_few < ops_of_few.size() && done_to_passes(ops_of_few, in_few, by_few) == OfPasses::Kept) ++in_few;
    };
    for (pass_kept(); at < ops.size() && in_few < ops_of_few.size(); pass_kept()) {
      if (!same(ops[at], ops_of_few[in_few]) ||
          deed_of(rolled, numbering, run.first + at) != deed_of(few_, itself, of_few.first + in_few))
        return false;
      ++at, ++in_few;
    }
    if (at != ops.size() || in_few != ops_of_few.size()) return false;
  }
  buffers_in_few_ = made_between(same.buffers, rolled.buffers);
  events_in_few_ = made_between(same.events, rolled.events);
  return true;
}

bool OtherSizes::find_places() {
  const Program& rolled = whole_->rolled;
  const Numbering itself(few_, few_), numbering(rolled, few_);
  const auto note = [](const std::vector<std::uint32_t>& ops, const std::vector<std::uint32_t>& as,
                       std::vector<Same>& all) {
    for (std::size_t i = 0; i < ops.size(); ++i) all.push_back({ops[i], as[i]});
  };
  std::map<Deed, std::vector<std::uint32_t>> known;  // ops with sizes, of the first place that does it
  std::map<Deed, std::vector<std::uint32_t>> alone;  // ops wherever they stand
  for (const Run& run : runs_of_few_) {
    if (!run.in_passes) continue;
    for_each_place(few_, run, itself, [&](const Place& place) {
      const auto [first, added] = known.try_emplace(place.deed, place.with_size);
      if (!added) note(place.with_size, first->second, twins_);
      for (const std::uint32_t op : place.with_size) alone[deed_of(few_, itself, op)].push_back(op);
      return true;
    });
  }
  const auto find_alone = [&](std::uint32_t op) {
    const auto alike = alone.find(deed_of(rolled, numbering, op));
    if (alike == alone.end()) return false;
    places_.push_back({op, alike->second.front()});
    for (const std::uint32_t twin : alike->second) twins_.push_back({twin, alike->second.front()});
    return true;
  };
  return std::ranges::all_of(runs_, [&](const Run& run) {
    return !run.in_passes || for_each_place(rolled, run, numbering, [&](const Place& place) {
      const auto its = known.find(place.deed);
      if (its != known.end()) note(place.with_size, its->second, places_);
      // Stages send and receive together what in few micro-batches they do one after the other.
      return its != known.end() || std::ranges::all_of(place.with_size, find_alone);
    });
  });
}

void OtherSizes::find_used() {
  const Program& rolled = whole_->rolled;
  std::vector<char> buffers = by_passes_, events(static_cast<std::size_t>(rolled.events), 0);  // made, or noted
  used_.resize(runs_.size());
  for (std::size_t r = 1; r < runs_.size(); r += 2) {
    const auto use = [&](BufferId buffer) {
      if (std::exchange(buffers[buffer.index()], 1) == 0) used_[r].buffers.push_back(buffers_in_few_[buffer.index()]);
    };
    const auto wait = [&](EventId event) {
      if (std::exchange(events[event.index()], 1) == 0) used_[r].events.push_back(events_in_few_[event.index()]);
    };
    for (const Op& op : ops_of(rolled, runs_[r])) {
      for_each_operand(rolled, op, use);
      if (const auto* free = std::get_if<Free>(&op)) use(free->buffer);
      if (const auto* bind = std::get_if<Bind>(&op)) use(bind->buffer);
      if (const auto* its = std::get_if<Wait>(&op)) wait(its->event);
      if (const auto* its = std::get_if<Sync>(&op)) wait(its->event);
      if (const auto* record = std::get_if<Record>(&op))
        passes_events_ += std::exchange(events[record->event.index()], 1) == 0 ? 1 : 0;
    }
  }
}

// Another rank's `few`, op by op of passes.
class OtherSizes::Match {
 public:
  Match(const Program& few, const Program& other) : other_(other), runs(runs_of(other)), same(few, other) {}

  [[nodiscard]] const Op& at(std::uint32_t op_of_few) const { return other_.ops[later[op_of_few]]; }

 private:
  const Program& other_;

 public:
  std::vector<Run> runs;
  SameButForSizes same;
  std::vector<std::size_t> later;  // by op of `few`, in passes: where the other's stands
};

std::optional<OtherSizes::Match> OtherSizes::match(const Program& other_few) const {
  Match found(few_, other_few);
  if (found.runs.size() != runs_.size()) return std::nullopt;
  found.later.resize(few_.ops.size());
  for (std::size_t r = 1; r < found.runs.size(); r += 2) {
    if (!std::ranges::equal(ops_of(few_, runs_of_few_[r]), ops_of(other_few, found.runs[r]), std::ref(found.same)))
      return std::nullopt;
    for (std::size_t i = runs_of_few_[r].first; i < runs_of_few_[r].last; ++i)
      found.later[i] = found.runs[r].first + (i - runs_of_few_[r].first);
  }
  for (const Same& twin : twins_)
    if (!one_size(other_few, found.at(twin.op), found.at(twin.as))) return std::nullopt;
  const std::vector<char> by_few = made_by_passes(few_, runs_of_few_), by_other = made_by_passes(other_few, found.runs);
  const auto same_is_given_up = [&](const Op* a, const Op* b) {
    return a->index() == b->index() && found.same.buffers[given_up(*a).value] == given_up(*b).value;
  };
  for (std::size_t r = 0; r < found.runs.size(); r += 2)
    if (!std::ranges::equal(done_to_passes(ops_of(few_, runs_of_few_[r]), OfPasses::GivenUp, by_few),
                            done_to_passes(ops_of(other_few, found.runs[r]), OfPasses::GivenUp, by_other),
                            same_is_given_up))
      return std::nullopt;
  return found;
}

// As writing it, but for passes.
bool OtherSizes::fits(const Program& other_few) const {
  const std::optional<Match> found = match(other_few);
  if (!found) return false;
  const std::vector<char> by_other = made_by_passes(other_few, found->runs);
  SizedWriter writer(other_few);
  SizedWriter::Source state(writer, other_few);
  const auto nowhere = [](auto id) { return decltype(id){-1}; };
  const auto are_made = [](const std::vector<std::int32_t>& used, const Renumbered& others, const Renumbered& made) {
    return std::ranges::all_of(
        used, [&](std::int32_t in_few) { return in_few >= 0 && others[in_few] >= 0 && made[others[in_few]] >= 0; });
  };
  for (std::size_t r = 0; r < runs_.size(); ++r) {
    if (runs_[r].in_passes) {
      if (!are_made(used_[r].buffers, found->same.buffers, state.buffers)) return false;
      if (!are_made(used_[r].events, found->same.events, state.events)) return false;
      continue;
    }
    const std::span<const Op> ops = ops_of(other_few, found->runs[r]);
    for (std::size_t i = 0; i < ops.size(); ++i)
      if (done_to_passes(ops, i, by_other) == OfPasses::Nothing) writer.write(state, ops[i], ops[i], nowhere);
  }
  return writer.all_have_bounds() && std::move(writer).program().events + passes_events_ == whole_->rolled.events;
}

std::optional<RepeatingProgram> OtherSizes::as(const Program& other_few) const {
  std::optional<Match> found = match(other_few);
  if (!found) return std::nullopt;
  const std::vector<Run>& others = found->runs;
  const SameButForSizes& same = found->same;
  const Program& rolled = whole_->rolled;
  SizedWriter writer(other_few);
  writer.reserve(rolled.ops.size() + other_few.ops.size(), rolled.operands.size() + other_few.operands.size());
  SizedWriter::Source passes(writer, rolled), state(writer, other_few);
  // What passes have not made, the other rank's state has.
  const auto of_state = Overloaded{
      [&](BufferId id) {
        const std::int32_t in_few = buffers_in_few_[id.index()];
        const std::int32_t other = in_few < 0 ? -1 : same.buffers[in_few];
        return BufferId{other < 0 ? -1 : state.buffers[other]};
      },
      [&](EventId id) {
        const std::int32_t in_few = events_in_few_[id.index()];
        const std::int32_t other = in_few < 0 ? -1 : same.events[in_few];
        return EventId{other < 0 ? -1 : state.events[other]};
      },
  };
  const auto nowhere = [](auto id) { return decltype(id){-1}; };
  const std::vector<char> by_other = made_by_passes(other_few, others);
  std::vector<std::ptrdiff_t> moved(runs_.size());  // by run: its ops
  auto place = places_.begin();
  for (std::size_t r = 0; r < runs_.size(); ++r) {
    if (!runs_[r].in_passes) {
      const std::span<const Op> its = ops_of(rolled, runs_[r]), ops = ops_of(other_few, others[r]);
      const std::vector<const Op*> of_passes = done_to_passes(its, OfPasses::GivenUp, by_passes_);
      const std::vector<Kept> kept = kept_of_passes(its, by_passes_);
      auto next = of_passes.begin();
      auto next_kept = kept.begin();
      std::size_t left = ops.size() - done_to_passes(ops, OfPasses::Kept, by_other).size();
      const auto write_kept = [&] {
        for (; next_kept != kept.end() && next_kept->before >= left; ++next_kept)
          writer.write(passes, *next_kept->op, *next_kept->op, of_state);
      };
      for (std::size_t i = 0; i < ops.size(); ++i) {
        const OfPasses done = done_to_passes(ops, i, by_other);
        if (done == OfPasses::Kept) continue;
        write_kept();
        --left;
        if (done == OfPasses::Nothing) {
          writer.write(state, ops[i], ops[i], nowhere);
        } else {
          writer.write(passes, **next, **next, of_state);
          ++next;
        }
      }
      write_kept();
      continue;
    }
    moved[r] = static_cast<std::ptrdiff_t>(writer.ops()) - static_cast<std::ptrdiff_t>(runs_[r].first);
    for (std::size_t i = runs_[r].first; i < runs_[r].last; ++i) {
      const bool is_place = place != places_.end() && place->op == i;
      writer.write(passes, rolled.ops[i], is_place ? found->at(place->as) : rolled.ops[i], of_state);
      if (is_place) ++place;
    }
  }
  if (!writer.all_have_bounds()) return std::nullopt;
  RepeatingProgram made{std::move(writer).program(), whole_->repeats};
  if (made.rolled.events != rolled.events) return std::nullopt;
  for (Repeat& repeat : made.repeats) {
    const auto its = std::ranges::find_if(runs_, [&](const Run& run) { return repeat.last <= run.last; });
    const std::ptrdiff_t by = moved[static_cast<std::size_t>(its - runs_.begin())];
    for (std::size_t* op : {&repeat.before, &repeat.first, &repeat.last})
      *op = static_cast<std::size_t>(static_cast<std::ptrdiff_t>(*op) + by);
  }
  return made;
}

}  // namespace tidemark::sim
