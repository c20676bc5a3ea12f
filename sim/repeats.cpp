#include "sim/repeats.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "sim/ensure.hpp"
#include "sim/overloaded.hpp"

namespace tidemark {
namespace {

// What a program numbers, one after the other, as it makes it; a name as it first comes up.
enum class Numbered : std::uint8_t { Buffer, Event, Name };
constexpr std::size_t numbered_kinds = 3;
constexpr std::size_t index(Numbered kind) { return static_cast<std::size_t>(kind); }

// Calls made(kind, number) or used(kind, number) for every number in the op.
template <class Made, class Used>
void for_each_number(const Program& program, const Op& op, Made&& made, Used&& used) {
  std::visit(Overloaded{
                 [&](const Alloc& o) { made(Numbered::Buffer, o.buffer.value); },
                 [&](const Free& o) { used(Numbered::Buffer, o.buffer.value); },
                 [&](const Borrow& o) { used(Numbered::Buffer, o.buffer.value); },
                 [&](const Launch& o) {
                   for (const BufferId b : program[o.inputs]) used(Numbered::Buffer, b.value);
                   for (const BufferId b : program[o.outputs]) used(Numbered::Buffer, b.value);
                 },
                 [&](const Collective& o) {
                   used(Numbered::Buffer, o.in.value);
                   used(Numbered::Buffer, o.out.value);
                 },
                 [&](const Exchange& o) {
                   for (const Transfer& t : program[o.transfers]) used(Numbered::Buffer, t.buffer.value);
                 },
                 [&](const Record& o) { made(Numbered::Event, o.event.value); },
                 [&](const Wait& o) { used(Numbered::Event, o.event.value); },
                 [&](const Sync& o) { used(Numbered::Event, o.event.value); },
                 [](const CreateDriver&) {},
                 [](const CreateCommunicator&) {},
                 [&](const Bind& o) {
                   used(Numbered::Name, o.name.value);
                   used(Numbered::Buffer, o.buffer.value);
                 },
                 [&](const Unbind& o) { used(Numbered::Name, o.name.value); },
                 [](const Mark&) {},
             },
             op);
}

// Whether two ops are the same but for numbers.
bool same_but_for_numbers(const Program& program, const Op& a, const Op& b) {
  const auto same = [&]<class T>(const T& o, const T& p) {
    if constexpr (std::is_same_v<T, Alloc>)
      return o.size == p.size && o.category == p.category && o.stream == p.stream && o.label == p.label;
    else if constexpr (std::is_same_v<T, Launch>)
      return o.stream == p.stream && o.kernel == p.kernel && o.inputs.count == p.inputs.count &&
             o.outputs.count == p.outputs.count;
    else if constexpr (std::is_same_v<T, Collective>)
      return o.stream == p.stream && o.comm == p.comm && o.kind == p.kind && o.size == p.size;
    else if constexpr (std::is_same_v<T, Exchange>)
      return o.stream == p.stream && o.comm == p.comm &&
             std::ranges::equal(program[o.transfers], program[p.transfers], [](const Transfer& s, const Transfer& t) {
               return s.direction == t.direction && s.step == t.step;
             });
    else if constexpr (std::is_same_v<T, Borrow> || std::is_same_v<T, Record> || std::is_same_v<T, Wait>)
      return o.stream == p.stream;
    else if constexpr (std::is_same_v<T, Mark>)
      return o.phase == p.phase && o.step == p.step && o.label == p.label;
    else  // what is created once does not repeat
      return !std::is_same_v<T, CreateDriver> && !std::is_same_v<T, CreateCommunicator>;
  };
  return a.index() == b.index() &&
         std::visit([&](const auto& o) { return same(o, std::get<std::decay_t<decltype(o)>>(b)); }, a);
}

// Where the host thread is, as marks tell. Micro-batches are counted over all steps.
struct Position {
  std::int32_t step = 0;
  std::int32_t first = 0;    // micro-batch of the step
  std::int32_t latest = -1;  // that has begun
  bool in_pass = false;

  /// How many micro-batches begin with the mark.
  std::int32_t enter(const Mark& mark) {
    if (mark.step != step) {
      step = mark.step;
      first = latest + 1;
    }
    in_pass = step > 0 && mark.micro_batch >= 0;
    const std::int32_t begun = in_pass ? std::max(0, first + mark.micro_batch - latest) : 0;
    latest += begun;
    return begun;
  }
};

// Where a number comes from: the latest micro-batch then, and how many of its kind had come since that began. Outside
// passes it is itself.
struct Origin {
  std::int32_t since = -1;
  std::int32_t place = 0;
};

// Everything numbered in a program, by where it comes from.
class Origins {
 public:
  struct MicroBatch {
    std::size_t begin = 0;  // op
    std::int32_t step = 0;
    std::int32_t first_of_step = 0;
    std::array<std::int32_t, numbered_kinds> first{};  // number of each kind from then on
  };

  explicit Origins(const Program& program) {
    origins_[index(Numbered::Buffer)].reserve(static_cast<std::size_t>(program.buffers));
    origins_[index(Numbered::Event)].reserve(static_cast<std::size_t>(program.events));
    origins_[index(Numbered::Name)].reserve(program.names.size());
    Position at;
    const auto made = [&](Numbered kind, std::int32_t number) {
      std::vector<Origin>& of_kind = origins_[index(kind)];
      in_order_ = in_order_ && static_cast<std::size_t>(number) == of_kind.size();
      of_kind.push_back(at.in_pass ? Origin{at.latest, number - micro_batches.back().first[index(kind)]}
                                   : Origin{-1, number});
    };
    for (std::size_t i = 0; i < program.ops.size() && in_order_; ++i) {
      if (const Mark* mark = std::get_if<Mark>(&program.ops[i]))
        for (std::int32_t n = at.enter(*mark); n > 0; --n)
          micro_batches.push_back(
              {i,
               at.step,
               at.first,
               {static_cast<std::int32_t>(origins_[0].size()), static_cast<std::int32_t>(origins_[1].size()),
                static_cast<std::int32_t>(origins_[2].size())}});
      for_each_number(program, program.ops[i], made, [&](Numbered kind, std::int32_t number) {
        if (kind != Numbered::Name || static_cast<std::size_t>(number) < origins_[index(kind)].size()) return;
        made(kind, number);
        first_uses.push_back(i);
      });
    }
  }

  [[nodiscard]] bool in_order() const { return in_order_; }
  [[nodiscard]] Origin of(Numbered kind, std::int32_t number) const {
    return origins_[index(kind)][static_cast<std::size_t>(number)];
  }
  [[nodiscard]] std::int32_t number(Numbered kind, Origin origin) const {
    return origin.since < 0 ? origin.place : (*this)[origin.since].first[index(kind)] + origin.place;
  }
  [[nodiscard]] const MicroBatch& operator[](std::int32_t micro_batch) const {
    return micro_batches[static_cast<std::size_t>(micro_batch)];
  }

  std::vector<MicroBatch> micro_batches;  // over all steps
  std::vector<std::size_t> first_uses;    // by name: the op

 private:
  bool in_order_ = true;
  std::array<std::vector<Origin>, numbered_kinds> origins_;
};

// A number of an op, and how many micro-batches before the latest one it comes from: -1 from outside passes. Names are
// used again in every step: what counts is the micro-batch of the step.
struct Reference {
  Numbered kind = Numbered::Buffer;
  bool makes = false;
  std::int32_t number = 0, behind = -1, place = 0;

  [[nodiscard]] bool same(const Reference& other) const { return number == other.number; }
  [[nodiscard]] bool alike(const Reference& other) const {
    return makes == other.makes && behind >= 0 && behind == other.behind && place == other.place;
  }
};

// Ops of some micro-batches, with their numbers told in that way.
struct Body {
  std::span<const Op> ops;
  std::vector<Reference> references;
  std::vector<std::int32_t> marks_behind;  // by mark in a pass: its micro-batch before the latest
};

Body body_of(const Program& program, const Origins& origins, std::int32_t first, std::int32_t end) {
  Body body;
  const std::size_t begin = origins[first].begin;
  body.ops = std::span(program.ops).subspan(begin, origins[end].begin - begin);
  Position at{origins[first].step, origins[first].first_of_step, first - 1, true};
  const auto add = [&](Numbered kind, std::int32_t number, bool makes) {
    const Origin origin = origins.of(kind, number);
    std::int32_t behind = -1;
    if (origin.since >= 0 && kind == Numbered::Name)
      behind = (at.latest - at.first) - (origin.since - origins[origin.since].first_of_step);
    else if (origin.since >= 0)
      behind = at.latest - origin.since;
    body.references.push_back({kind, makes, number, behind, origin.place});
  };
  for (const Op& op : body.ops) {
    if (const Mark* mark = std::get_if<Mark>(&op)) {
      at.enter(*mark);
      body.marks_behind.push_back(mark->micro_batch < 0 ? -1 : at.latest - at.first - mark->micro_batch);
    }
    for_each_number(
        program, op, [&](Numbered kind, std::int32_t number) { add(kind, number, true); },
        [&](Numbered kind, std::int32_t number) { add(kind, number, false); });
  }
  return body;
}

bool same_but_for_numbers(const Program& program, const Body& a, const Body& b) {
  return a.marks_behind == b.marks_behind && a.references.size() == b.references.size() &&
         std::ranges::equal(a.ops, b.ops,
                            [&](const Op& o, const Op& p) { return same_but_for_numbers(program, o, p); });
}

bool alike(const Program& program, const Body& a, const Body& b) {
  return same_but_for_numbers(program, a, b) &&
         std::ranges::equal(a.references, b.references, [](const Reference& r, const Reference& s) {
           return r.kind == s.kind && ((r.same(s) && !r.makes) || r.alike(s));
         });
}

// Whether two bodies make the same, whatever they refer to.
bool make_alike(const Program& program, const Body& a, const Body& b) {
  const auto made = [](const Body& body) {
    std::vector<Reference> found;
    std::ranges::copy_if(body.references, std::back_inserter(found), &Reference::makes);
    return found;
  };
  const auto makers = [](const Body& body) {
    std::vector<Op> found;
    std::ranges::copy_if(body.ops, std::back_inserter(found), [](const Op& op) {
      return std::holds_alternative<Alloc>(op) || std::holds_alternative<Record>(op);
    });
    return found;
  };
  return std::ranges::equal(made(a), made(b),
                            [](const Reference& r, const Reference& s) { return r.kind == s.kind && r.alike(s); }) &&
         std::ranges::equal(makers(a), makers(b),
                            [&](const Op& o, const Op& p) { return same_but_for_numbers(program, o, p); });
}

// A text with one number in it that counts micro-batches, as that of a list's element.
struct CountingText {
  std::string before, after;
  std::int64_t count = 0;

  [[nodiscard]] std::string later(std::int64_t micro_batches) const {
    return before + std::to_string(count + micro_batches) + after;
  }
};

// That of a name, by the text of the one `period` micro-batches before.
std::optional<CountingText> counting_text(const std::string& text, const std::string& earlier, std::int32_t period) {
  constexpr std::string_view digits = "0123456789";
  std::size_t at = 0;
  while (at < text.size() && at < earlier.size() && text[at] == earlier[at]) ++at;
  while (at > 0 && digits.find(text[at - 1]) != std::string_view::npos) --at;
  const std::size_t end = std::min(text.find_first_not_of(digits, at), text.size());
  if (end == at || end - at > std::numeric_limits<std::int64_t>::digits10) return std::nullopt;
  CountingText found{text.substr(0, at), text.substr(end), std::stoll(text.substr(at, end - at))};
  return found.later(-period) == earlier ? std::optional(found) : std::nullopt;
}

// Those of the names that come up first in the last body of a step, which begins with micro-batch `begin`, and later in
// the step; by name.
std::optional<std::vector<std::pair<std::int32_t, CountingText>>> texts_of(const Program& program,
                                                                           const Origins& origins, std::int32_t begin,
                                                                           std::int32_t period) {
  std::vector<std::pair<std::int32_t, CountingText>> found;
  const auto text = [&](std::int32_t name) { return program.names[static_cast<std::size_t>(name)]; };
  const auto first_of = [&](std::int32_t micro_batch) { return origins[micro_batch].first[index(Numbered::Name)]; };
  const auto names = static_cast<std::int32_t>(program.names.size());
  for (std::int32_t name = first_of(begin); name < names; ++name) {
    const Origin origin = origins.of(Numbered::Name, name);
    if (origin.since < 0) continue;  // made after passes
    if (origins[origin.since].step != origins[begin].step) break;
    std::int32_t earlier = origins.number(Numbered::Name, {origin.since - period, origin.place});
    auto counting = counting_text(text(name), text(earlier), period);
    // The last of a step may come up in another order, beside others that do not count.
    for (earlier = first_of(begin - period); !counting && earlier < name && origin.since >= begin + period; ++earlier)
      counting = counting_text(text(name), text(earlier), period);
    if (counting)
      found.emplace_back(name, std::move(*counting));
    else if (origin.since < begin + period)
      return std::nullopt;
  }
  return found;
}

// Whether the same buffers are live where the last body begins as where it ends: the same ones or those that came
// before.
bool same_is_live(const Program& program, const Origins& origins, std::int32_t begin, std::int32_t end,
                  std::int32_t back) {
  std::vector<bool> live(static_cast<std::size_t>(program.buffers), false);
  std::vector<bool> at_begin;
  const std::size_t first = origins[begin].begin, last = origins[end].begin;
  for (std::size_t i = 0; i < last; ++i) {
    if (i == first) at_begin = live;
    if (const Alloc* alloc = std::get_if<Alloc>(&program.ops[i])) live[alloc->buffer.index()] = true;
    if (const Free* free = std::get_if<Free>(&program.ops[i])) live[free->buffer.index()] = false;
  }
  std::int64_t more = 0;  // at the end than at the beginning
  for (std::size_t b = 0; b < live.size(); ++b) {
    more += static_cast<int>(live[b]) - static_cast<int>(at_begin[b]);
    if (!live[b]) continue;
    Origin origin = origins.of(Numbered::Buffer, static_cast<std::int32_t>(b));
    if (origin.since >= end - back) origin.since -= end - begin;
    if (!at_begin[static_cast<std::size_t>(origins.number(Numbered::Buffer, origin))]) return false;
  }
  return more == 0;
}

std::optional<Repeat> find_repeat(const Program& program, const Origins& origins, std::int32_t step,
                                  const std::vector<MoreOf>& by_step) {
  const MoreOf& more = by_step[static_cast<std::size_t>(step) - 1];
  const auto in_step = [&](const Origins::MicroBatch& m) { return m.step == step; };
  const auto& all = origins.micro_batches;
  const auto first = static_cast<std::int32_t>(std::ranges::find_if(all, in_step) - all.begin());
  const auto count = static_cast<std::int32_t>(std::ranges::count_if(all, in_step));
  const std::int32_t period = more.period;
  // The last period begins here, or, where periods leave a rest, the last whole one.
  const std::int32_t end = first + (period == 1 ? count - 1 : (count / period - 1) * period);
  if (end - 2 * period < first) return std::nullopt;
  const auto ending = [&](std::int32_t at) { return body_of(program, origins, at - period, at); };

  // A number is that of the body before, and older than what repeats; or it is as far behind.
  const Body body = ending(end), previous = ending(end - period);
  if (!alike(program, body, previous)) return std::nullopt;
  std::int32_t back = 0, fixed = std::numeric_limits<std::int32_t>::max();
  for (std::size_t r = 0; r < body.references.size(); ++r) {
    const Reference& its = body.references[r];
    if (!its.makes && its.same(previous.references[r])) {
      if (its.behind >= 0) fixed = std::min(fixed, its.behind);
      continue;
    }
    back = std::max(back, its.behind);
    if (its.kind != Numbered::Name) continue;
    // Names that came up in an earlier step have to be there for all micro-batches.
    const std::int32_t whose = origins[origins.of(its.kind, its.number).since].step;
    if (by_step[static_cast<std::size_t>(whose) - 1] != more) return std::nullopt;
  }
  if (fixed <= back + period) return std::nullopt;
  // What the two refer to has to have been made as they make it, or numbers would tell something else one body later.
  for (std::int32_t at = end - 2 * period; at > end - period - back; at -= period)
    if (at - period < first || !make_alike(program, body, ending(at))) return std::nullopt;
  if (!same_is_live(program, origins, end - period, end, back) || !texts_of(program, origins, end - period, period))
    return std::nullopt;
  return Repeat{step, origins[end - period].begin, origins[end].begin, more.micro_batches / period, period, back};
}

// Writes a program out.
class Unroller {
 public:
  explicit Unroller(const RepeatingProgram& program)
      : program_(program), few_(program.few), origins_(program.few), texts_(few_.names.size()) {
    out_.labels = few_.labels;
    out_.kernels = few_.kernels;
    outside_[index(Numbered::Buffer)].resize(static_cast<std::size_t>(few_.buffers));
    outside_[index(Numbered::Event)].resize(static_cast<std::size_t>(few_.events));
    outside_[index(Numbered::Name)].resize(few_.names.size());
    std::size_t ops = few_.ops.size(), operands = few_.operands.size();
    for (const Repeat& repeat : program.repeats) {
      const auto times = static_cast<std::size_t>(repeat.more);
      ops += times * (repeat.last - repeat.first);
      for (std::size_t i = repeat.first; i < repeat.last; ++i)
        if (const Launch* launch = std::get_if<Launch>(&few_.ops[i]))
          operands += times * (launch->inputs.count + launch->outputs.count);
    }
    out_.ops.reserve(ops);
    out_.operands.reserve(operands);
  }

  Program run() && {
    std::size_t next = 0;
    for (const Repeat& repeat : program_.repeats) {
      copy(next, repeat.last);
      repeat_body(repeat);
      next = repeat.last;
    }
    copy(next, few_.ops.size());
    out_.buffers = next_[index(Numbered::Buffer)];
    out_.events = next_[index(Numbered::Event)];
    return std::move(out_);
  }

 private:
  void repeat_body(const Repeat& repeat) {
    const std::int32_t end = at_.latest + 1, begin = end - repeat.period;
    const auto texts = texts_of(few_, origins_, begin, repeat.period);
    ensure(texts.has_value(), "names of what repeats count micro-batches");
    for (const auto& [name, text] : *texts) texts_[static_cast<std::size_t>(name)] = text;
    const auto later = [&](std::int32_t from, std::int64_t by) {
      for (std::int32_t m = from; m < end; ++m) unrolled_[static_cast<std::size_t>(m)] += static_cast<std::int32_t>(by);
    };
    // Once bodies refer to nothing but what came again, each goes on as the two before it do.
    const std::int64_t settled = repeat.back / repeat.period + 2;
    for (std::int64_t n = 1; n <= repeat.more; ++n) {
      later(begin - repeat.back, repeat.period);
      at_.latest = begin - 1;
      repeated_ = n * repeat.period;
      if (n <= settled)
        copy(repeat.first, repeat.last);
      else
        go_on(repeat.first, repeat.last);
    }
    at_.latest = end - 1;
    // What came as long ago as no body looks back is what it was.
    for (std::int32_t m = begin - repeat.back; m < end - repeat.back; ++m)
      unrolled_[static_cast<std::size_t>(m)] -= static_cast<std::int32_t>(repeat.more * repeat.period);
  }

  // The ops of a body in the few, as what comes after the last two of its kind.
  void go_on(std::size_t from, std::size_t to) {
    const std::size_t length = to - from;
    for (op_ = from; op_ < to; ++op_) {
      const Op& last = out_.ops[out_.ops.size() - length];
      const Op& before = out_.ops[out_.ops.size() - 2 * length];
      std::visit([&](const auto& o) { go_on(o, std::get<std::decay_t<decltype(o)>>(before)); }, last);
    }
  }

  // Room is reserved: what is referred to stays where it is.
  template <class Id>
  static Id next(Id last, Id before) {
    return {last.value + (last.value - before.value)};
  }
  void go_on(const Alloc& o, const Alloc& before) {
    ++next_[index(Numbered::Buffer)];
    out_.ops.emplace_back(Alloc{next(o.buffer, before.buffer), o.size, o.category, o.stream, o.label});
  }
  void go_on(const Free& o, const Free& before) { out_.ops.emplace_back(Free{next(o.buffer, before.buffer)}); }
  void go_on(const Borrow& o, const Borrow& before) {
    out_.ops.emplace_back(Borrow{next(o.buffer, before.buffer), o.stream});
  }
  void go_on(const Launch& o, const Launch& before) {
    const BufferList inputs = next(o.inputs, before.inputs), outputs = next(o.outputs, before.outputs);
    out_.ops.emplace_back(Launch{o.stream, o.kernel, inputs, outputs});
  }
  BufferList next(BufferList last, BufferList before) {
    const auto first = static_cast<std::uint32_t>(out_.operands.size());
    for (std::uint32_t i = 0; i < last.count; ++i)
      out_.operands.push_back(next(out_.operands[last.first + i], out_.operands[before.first + i]));
    return {first, last.count};
  }
  void go_on(const Collective& o, const Collective& before) {
    out_.ops.emplace_back(Collective{o.stream, o.comm, o.kind, next(o.in, before.in), next(o.out, before.out), o.size});
  }
  void go_on(const Exchange& o, const Exchange& before) {
    const TransferList list{static_cast<std::uint32_t>(out_.transfers.size()), o.transfers.count};
    for (std::uint32_t i = 0; i < list.count; ++i) {
      const Transfer its = out_.transfers[o.transfers.first + i];
      out_.transfers.push_back(
          {its.direction, its.step, next(its.buffer, out_.transfers[before.transfers.first + i].buffer)});
    }
    out_.ops.emplace_back(Exchange{o.stream, o.comm, list});
  }
  void go_on(const Record& o, const Record& before) {
    ++next_[index(Numbered::Event)];
    out_.ops.emplace_back(Record{next(o.event, before.event), o.stream});
  }
  void go_on(const Wait& o, const Wait& before) { out_.ops.emplace_back(Wait{o.stream, next(o.event, before.event)}); }
  void go_on(const Sync& o, const Sync& before) { out_.ops.emplace_back(Sync{next(o.event, before.event)}); }
  void go_on(const CreateDriver&, const CreateDriver&) {}              // no body
  void go_on(const CreateCommunicator&, const CreateCommunicator&) {}  // has any
  void go_on(const Bind& o, const Bind& before) {
    if (const NameId its = std::get<Bind>(few_.ops[op_]).name; makes_name(its)) name_next(its);
    out_.ops.emplace_back(Bind{next(o.name, before.name), next(o.buffer, before.buffer)});
  }
  void go_on(const Unbind& o, const Unbind& before) { out_.ops.emplace_back(Unbind{next(o.name, before.name)}); }
  void go_on(const Mark& o, const Mark& before) {
    const std::int32_t begun = at_.enter(std::get<Mark>(few_.ops[op_]));
    firsts_.insert(firsts_.end(), static_cast<std::size_t>(begun), next_);
    Mark mark = o;
    mark.micro_batch += o.micro_batch - before.micro_batch;
    out_.ops.emplace_back(mark);
  }

  void copy(std::size_t from, std::size_t to) {
    for (op_ = from; op_ < to; ++op_) std::visit([&](const auto& op) { copy(op); }, few_.ops[op_]);
  }

  void copy(const Alloc& o) {
    out_.ops.emplace_back(Alloc{make<BufferId>(o.buffer), o.size, o.category, o.stream, o.label});
  }
  void copy(const Free& o) { out_.ops.emplace_back(Free{now(o.buffer)}); }
  void copy(const Borrow& o) { out_.ops.emplace_back(Borrow{now(o.buffer), o.stream}); }
  void copy(const Launch& o) {
    const BufferList inputs = now(o.inputs), outputs = now(o.outputs);
    out_.ops.emplace_back(Launch{o.stream, o.kernel, inputs, outputs});
  }
  void copy(const Collective& o) {
    out_.ops.emplace_back(Collective{o.stream, o.comm, o.kind, now(o.in), now(o.out), o.size});
  }
  void copy(const Exchange& o) {
    const TransferList list{static_cast<std::uint32_t>(out_.transfers.size()), o.transfers.count};
    for (const Transfer& t : few_[o.transfers]) out_.transfers.push_back({t.direction, t.step, now(t.buffer)});
    out_.ops.emplace_back(Exchange{o.stream, o.comm, list});
  }
  void copy(const Record& o) { out_.ops.emplace_back(Record{make<EventId>(o.event), o.stream}); }
  void copy(const Wait& o) { out_.ops.emplace_back(Wait{o.stream, now(o.event)}); }
  void copy(const Sync& o) { out_.ops.emplace_back(Sync{now(o.event)}); }
  void copy(const CreateDriver& o) { out_.ops.emplace_back(o); }
  void copy(const CreateCommunicator& o) { out_.ops.emplace_back(o); }
  void copy(const Bind& o) {
    const NameId name = named(o.name);
    out_.ops.emplace_back(Bind{name, now(o.buffer)});
  }
  void copy(const Unbind& o) { out_.ops.emplace_back(Unbind{named(o.name)}); }
  void copy(const Mark& o) {
    const std::int32_t step = at_.step;
    const std::int32_t begun = at_.enter(o);
    for (std::int32_t m = at_.latest - begun + 1; m <= at_.latest; ++m) {
      const bool first_time = static_cast<std::size_t>(m) == unrolled_.size();
      if (first_time) unrolled_.push_back(static_cast<std::int32_t>(firsts_.size()));
      firsts_.push_back(next_);
    }
    if (at_.step != step) {
      repeated_ = 0;
      first_of_step_ = static_cast<std::int32_t>(firsts_.size()) - begun;
    }
    Mark mark = o;
    if (mark.micro_batch >= 0 && at_.in_pass)
      mark.micro_batch = unrolled_[static_cast<std::size_t>(at_.first + o.micro_batch)] - first_of_step_;
    out_.ops.emplace_back(mark);
  }

  [[nodiscard]] std::int32_t number(Numbered kind, std::int32_t few) const {
    const Origin origin = origins_.of(kind, few);
    if (origin.since < 0) return outside_[index(kind)][static_cast<std::size_t>(few)];
    return firsts_[static_cast<std::size_t>(unrolled_since(kind, origin.since))][index(kind)] + origin.place;
  }
  // In passes a name of another step is that of the same micro-batch there.
  [[nodiscard]] std::int32_t unrolled_since(Numbered kind, std::int32_t since) const {
    const Origins::MicroBatch& its = origins_[since];
    const std::int32_t here = at_.first + (since - its.first_of_step);
    if (kind != Numbered::Name || its.step == at_.step || !at_.in_pass || here > at_.latest)
      return unrolled_[static_cast<std::size_t>(since)];
    return unrolled_[static_cast<std::size_t>(here)] - first_of_step_ +
           unrolled_[static_cast<std::size_t>(its.first_of_step)];
  }

  std::int32_t make(Numbered kind, std::int32_t few) {
    const std::int32_t made = next_[index(kind)]++;
    if (!at_.in_pass) outside_[index(kind)][static_cast<std::size_t>(few)] = made;
    return made;
  }
  template <class Id>
  Id make(Id few) {
    return {make(std::is_same_v<Id, BufferId> ? Numbered::Buffer : Numbered::Event, few.value)};
  }
  [[nodiscard]] BufferId now(BufferId few) const { return {number(Numbered::Buffer, few.value)}; }
  [[nodiscard]] EventId now(EventId few) const { return {number(Numbered::Event, few.value)}; }
  BufferList now(BufferList few) {
    const BufferList list{static_cast<std::uint32_t>(out_.operands.size()), few.count};
    for (const BufferId b : few_[few]) out_.operands.push_back(now(b));
    return list;
  }
  NameId named(NameId few) { return makes_name(few) ? name_next(few) : NameId{number(Numbered::Name, few.value)}; }
  [[nodiscard]] bool makes_name(NameId few) const { return origins_.first_uses[few.index()] == op_; }
  NameId name_next(NameId few) {
    const auto& text = texts_[few.index()];
    out_.names.push_back(text ? text->later(repeated_) : few_[few]);
    return {make(Numbered::Name, few.value)};
  }

  const RepeatingProgram& program_;
  const Program& few_;
  Origins origins_;
  std::vector<std::optional<CountingText>> texts_;  // by name, of those that come up in bodies
  Program out_;
  std::size_t op_ = 0;
  Position at_;                // in the few
  std::int64_t repeated_ = 0;  // micro-batches of this step by bodies that came again
  std::int32_t first_of_step_ = 0;
  std::vector<std::int32_t> unrolled_;                             // by micro-batch of the few: which of all it is now
  std::vector<std::array<std::int32_t, numbered_kinds>> firsts_;   // numbers, by micro-batch of all
  std::array<std::int32_t, numbered_kinds> next_{};                // numbers
  std::array<std::vector<std::int32_t>, numbered_kinds> outside_;  // of what comes from outside passes
};

}  // namespace

std::optional<std::vector<Repeat>> find_repeats(const Program& few, const std::vector<MoreOf>& more) {
  const Origins origins(few);
  if (!origins.in_order()) return std::nullopt;
  std::vector<Repeat> found;
  for (std::size_t s = 0; s < more.size(); ++s) {
    if (more[s].micro_batches == 0) continue;
    const std::optional<Repeat> repeat = find_repeat(few, origins, static_cast<std::int32_t>(s) + 1, more);
    if (!repeat) return std::nullopt;
    found.push_back(*repeat);
  }
  return found;
}

Program unrolled(RepeatingProgram program) {
  return program.repeats.empty() ? std::move(program.few) : Unroller(program).run();
}

Workload unrolled(RepeatingWorkload workload) {
  Workload all{{}, std::move(workload.program_of_rank), std::move(workload.communicators)};
  for (RepeatingProgram& program : workload.programs) all.programs.push_back(unrolled(std::move(program)));
  return all;
}

Workload shortened(RepeatingWorkload workload) {
  // Micro-batches that every program leaves unsaid, by step.
  std::map<std::int32_t, std::int64_t> spare;
  for (const RepeatingProgram& program : workload.programs)
    for (const Repeat& repeat : program.repeats) {
      const auto [step, added] = spare.try_emplace(repeat.step, repeat.more * repeat.period);
      step->second = std::min(step->second, repeat.more * repeat.period);
    }
  for (RepeatingProgram& program : workload.programs) {
    const auto says_all = [&](std::int32_t step) {
      return std::ranges::none_of(program.repeats, [&](const Repeat& repeat) { return repeat.step == step; });
    };
    std::erase_if(spare, [&](const auto& step) { return says_all(step.first); });
  }
  for (RepeatingProgram& program : workload.programs)
    for (Repeat& repeat : program.repeats)
      if (const auto its = spare.find(repeat.step); its != spare.end()) repeat.more -= its->second / repeat.period;
  return unrolled(std::move(workload));
}

}  // namespace tidemark
