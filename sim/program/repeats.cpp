#include "sim/program/repeats.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "sim/base/ensure.hpp"
#include "sim/base/overloaded.hpp"
#include "sim/program/next_body.hpp"

namespace tidemark::sim {
namespace {

// What a program numbers, one after the other, as it makes it; a name as it first comes up.
enum class Numbered : std::uint8_t { Buffer, Event, Name };
constexpr std::size_t numbered_kinds = 3;
constexpr std::size_t index(Numbered kind) { return static_cast<std::size_t>(kind); }

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

enum class As : std::uint8_t { Made, Used };

// Whether `alike(how, kind, number of a, number of b)` holds for all numbers of ops that are the same but for those.
template <class Alike>
bool numbers_alike(const Program& program, const Op& a, const Op& b, Alike&& alike) {
  const auto buffers = [&](BufferId s, BufferId t) { return alike(As::Used, Numbered::Buffer, s.value, t.value); };
  const auto events = [&](EventId s, EventId t) { return alike(As::Used, Numbered::Event, s.value, t.value); };
  const auto names = [&](NameId s, NameId t) { return alike(As::Used, Numbered::Name, s.value, t.value); };
  const auto numbers = [&]<class T>(const T& o, const T& p) {
    if constexpr (std::is_same_v<T, Alloc>)
      return alike(As::Made, Numbered::Buffer, o.buffer.value, p.buffer.value);
    else if constexpr (std::is_same_v<T, Record>)
      return alike(As::Made, Numbered::Event, o.event.value, p.event.value);
    else if constexpr (std::is_same_v<T, Free> || std::is_same_v<T, Borrow>)
      return buffers(o.buffer, p.buffer);
    else if constexpr (std::is_same_v<T, Launch>)
      return std::ranges::equal(program[o.inputs], program[p.inputs], buffers) &&
             std::ranges::equal(program[o.outputs], program[p.outputs], buffers);
    else if constexpr (std::is_same_v<T, Collective>)
      return buffers(o.in, p.in) && buffers(o.out, p.out);
    else if constexpr (std::is_same_v<T, Exchange>)
      return std::ranges::equal(program[o.transfers], program[p.transfers], buffers, &Transfer::buffer,
                                &Transfer::buffer);
    else if constexpr (std::is_same_v<T, Wait> || std::is_same_v<T, Sync>)
      return events(o.event, p.event);
    else if constexpr (std::is_same_v<T, Bind>)
      return names(o.name, p.name) && buffers(o.buffer, p.buffer);
    else if constexpr (std::is_same_v<T, Unbind>)
      return names(o.name, p.name);
    else
      return std::is_same_v<T, Mark> || std::is_same_v<T, CreateDriver> || std::is_same_v<T, CreateCommunicator>;
  };
  return std::visit([&](const auto& o) { return numbers(o, std::get<std::decay_t<decltype(o)>>(b)); }, a);
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

  explicit Origins(const Program& program) : freed_(static_cast<std::size_t>(program.buffers), program.ops.size()) {
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
    const auto named = [&](NameId name, std::size_t op) {
      if (name.index() < origins_[index(Numbered::Name)].size()) return;
      made(Numbered::Name, name.value);
      first_uses.push_back(op);
    };
    const auto made_so_far = [&](Numbered kind) { return static_cast<std::int32_t>(origins_[index(kind)].size()); };
    for (std::size_t i = 0; i < program.ops.size() && in_order_; ++i) {
      const Op& op = program.ops[i];
      if (const Alloc* alloc = std::get_if<Alloc>(&op))
        made(Numbered::Buffer, alloc->buffer.value);
      else if (const Free* free = std::get_if<Free>(&op))
        freed_[free->buffer.index()] = i;
      else if (const Bind* bind = std::get_if<Bind>(&op))
        named(bind->name, i);
      else if (const Unbind* unbind = std::get_if<Unbind>(&op))
        named(unbind->name, i);
      else if (const Record* record = std::get_if<Record>(&op))
        made(Numbered::Event, record->event.value);
      else if (const Mark* mark = std::get_if<Mark>(&op))
        for (std::int32_t n = at.enter(*mark); n > 0; --n)
          micro_batches.push_back(
              {i,
               at.step,
               at.first,
               {made_so_far(Numbered::Buffer), made_so_far(Numbered::Event), made_so_far(Numbered::Name)}});
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
  /// Whether a buffer is live where a micro-batch begins.
  [[nodiscard]] bool live(std::int32_t buffer, std::int32_t micro_batch) const {
    const MicroBatch& its = (*this)[micro_batch];
    return buffer < its.first[index(Numbered::Buffer)] && freed_[static_cast<std::size_t>(buffer)] >= its.begin;
  }

  std::vector<MicroBatch> micro_batches;  // over all steps
  std::vector<std::size_t> first_uses;    // by name: the op

 private:
  bool in_order_ = true;
  std::array<std::vector<Origin>, numbered_kinds> origins_;
  std::vector<std::size_t> freed_;  // by buffer: the op, or past the last
};

// Micro-batches [first, end).
struct Body {
  std::int32_t first = 0, end = 0;
};

std::span<const Op> ops_of(const Program& program, const Origins& origins, Body body) {
  const std::size_t begin = origins[body.first].begin;
  return std::span(program.ops).subspan(begin, origins[body.end].begin - begin);
}

// Goes through a body and tells how many micro-batches before the latest one things come from: -1 from outside passes.
// Names are used again in every step: what counts is the micro-batch of the step.
class Behind {
 public:
  Behind(const Origins& origins, Body body)
      : origins_(origins), at_{origins[body.first].step, origins[body.first].first_of_step, body.first - 1, true} {}

  /// Of the mark itself.
  std::int32_t enter(const Mark& mark) {
    at_.enter(mark);
    return mark.micro_batch < 0 ? -1 : at_.latest - at_.first - mark.micro_batch;
  }
  [[nodiscard]] std::int32_t of(Numbered kind, Origin origin) const {
    if (origin.since < 0) return -1;
    if (kind != Numbered::Name) return at_.latest - origin.since;
    return (at_.latest - at_.first) - (origin.since - origins_[origin.since].first_of_step);
  }

 private:
  const Origins& origins_;
  Position at_;
};

// What bodies that are alike refer to.
struct Reach {
  std::int32_t back = 0;                                          // micro-batches to the oldest thing of a body's own
  std::int32_t fixed = std::numeric_limits<std::int32_t>::max();  // to the latest that all refer to
  std::vector<std::int32_t> steps;                                // those where its own names came up, the first first
};

// That of two bodies, if they are alike: a number is that of the body before, or it is as far behind.
std::optional<Reach> reach_of(const Program& program, const Origins& origins, Body body, Body previous) {
  Reach reach;
  Behind behind(origins, body), behind_before(origins, previous);
  const auto alike = [&](As how, Numbered kind, std::int32_t number, std::int32_t before) {
    const Origin origin = origins.of(kind, number);
    const std::int32_t its = behind.of(kind, origin);
    if (how == As::Used && number == before) {
      if (its >= 0) reach.fixed = std::min(reach.fixed, its);
      return true;
    }
    const Origin same = origins.of(kind, before);
    if (its < 0 || its != behind_before.of(kind, same) || origin.place != same.place) return false;
    reach.back = std::max(reach.back, its);
    if (kind != Numbered::Name) return true;
    const std::int32_t step = origins[origin.since].step;
    if (std::ranges::find(reach.steps, step) == reach.steps.end()) reach.steps.push_back(step);
    return true;
  };
  const auto both = [&](const Op& op, const Op& before) {
    if (!same_but_for_numbers(program, op, before)) return false;
    if (const Mark* mark = std::get_if<Mark>(&op))
      return behind.enter(*mark) == behind_before.enter(std::get<Mark>(before));
    return numbers_alike(program, op, before, alike);
  };
  if (!std::ranges::equal(ops_of(program, origins, body), ops_of(program, origins, previous), both))
    return std::nullopt;
  return reach;
}

// Whether two bodies make the same, whatever they refer to.
bool make_alike(const Program& program, const Origins& origins, Body a, Body b) {
  const auto next_made = [](std::span<const Op>& ops) -> const Op* {
    while (!ops.empty()) {
      const Op& op = ops.front();
      ops = ops.subspan(1);
      if (std::holds_alternative<Alloc>(op) || std::holds_alternative<Record>(op)) return &op;
    }
    return nullptr;
  };
  const auto same_place = [&](As, Numbered kind, std::int32_t its, std::int32_t other) {
    const Origin s = origins.of(kind, its), t = origins.of(kind, other);
    return s.since >= 0 && t.since >= 0 && s.place == t.place;
  };
  std::span<const Op> of_a = ops_of(program, origins, a), of_b = ops_of(program, origins, b);
  for (;;) {
    const Op *const made = next_made(of_a), *const other = next_made(of_b);
    if (made == nullptr || other == nullptr) return made == other;
    if (!same_but_for_numbers(program, *made, *other) || !numbers_alike(program, *made, *other, same_place))
      return false;
  }
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
  const auto text = [&](std::int32_t name) -> const std::string& {
    return program.names[static_cast<std::size_t>(name)];
  };
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
bool same_is_live(const Origins& origins, Body body, std::int32_t back) {
  std::int64_t more = 0;  // at the end than at the beginning
  for (std::int32_t b = 0; b < origins[body.end].first[index(Numbered::Buffer)]; ++b) {
    const bool live = origins.live(b, body.end);
    more += static_cast<int>(live) - static_cast<int>(origins.live(b, body.first));
    if (!live) continue;
    Origin origin = origins.of(Numbered::Buffer, b);
    if (origin.since >= body.end - back) origin.since -= body.end - body.first;
    if (!origins.live(origins.number(Numbered::Buffer, origin), body.first)) return false;
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
  const auto ending = [&](std::int32_t at) { return Body{at - period, at}; };

  const Body body = ending(end);
  const std::optional<Reach> reach = reach_of(program, origins, body, ending(end - period));
  // What all refer to is older than what repeats.
  if (!reach || reach->fixed <= reach->back + period) return std::nullopt;
  const std::int32_t back = reach->back;
  // Names that came up in an earlier step have to be there for all micro-batches.
  for (const std::int32_t its : reach->steps)
    if (by_step[static_cast<std::size_t>(its) - 1] != more) return std::nullopt;
  // What the two refer to has to have been made as they make it, or numbers would tell something else one body later.
  for (std::int32_t at = end - 2 * period; at > end - period - back; at -= period)
    if (at - period < first || !make_alike(program, origins, body, ending(at))) return std::nullopt;
  if (!same_is_live(origins, body, back) || !texts_of(program, origins, body.first, period)) return std::nullopt;
  return Repeat{step,
                origins[end - 2 * period].begin,
                origins[end - period].begin,
                origins[end].begin,
                more.micro_batches / period,
                period,
                back,
                origins[end - back].first[index(Numbered::Event)]};
}

// How much of a program has been written.
struct Written {
  Extent extent;
  std::size_t micro_batches = 0;
  std::array<std::int32_t, numbered_kinds> numbers{};  // that it has of each kind
};

// Writes a program out.
class Unroller {
 public:
  explicit Unroller(const RepeatingProgram& program)
      : program_(program), few_(program.few), origins_(program.few), texts_(few_.names.size()) {
    outside_[index(Numbered::Buffer)].resize(static_cast<std::size_t>(few_.buffers));
    outside_[index(Numbered::Event)].resize(static_cast<std::size_t>(few_.events));
    outside_[index(Numbered::Name)].resize(few_.names.size());
  }

  Program run() && {
    reserve();
    out_.labels = few_.labels;
    out_.kernels = few_.kernels;
    unroll([&](const Repeat& repeat, NextBody& body, std::int64_t times) {
      for (std::int64_t n = 0; n < times; ++n) {
        body.go_on();
        body.append_to(out_);
        repeated_ += repeat.period;
        name_again(repeat);
      }
    });
    out_.buffers = next_[index(Numbered::Buffer)];
    out_.events = next_[index(Numbered::Event)];
    return std::move(out_);
  }

  void tell(const std::function<bool(std::span<const Op>)>& hear) && {
    bool goes_on = true;
    const auto told = [&] {
      goes_on = goes_on && hear(out_.ops);
      out_.ops.clear();
    };
    unroll([&](const Repeat&, NextBody& body, std::int64_t times) {
      told();
      for (std::int64_t n = 0; n < times && goes_on; ++n) {
        body.go_on();
        goes_on = hear(body.ops());
      }
    });
    told();
  }

 private:
  void reserve() {
    std::size_t ops = few_.ops.size(), operands = few_.operands.size();
    for (const Repeat& repeat : program_.repeats) {
      const auto times = static_cast<std::size_t>(repeat.more);
      ops += times * (repeat.last - repeat.first);
      for (std::size_t i = repeat.first; i < repeat.last; ++i)
        if (const Launch* launch = std::get_if<Launch>(&few_.ops[i]))
          operands += times * (launch->inputs.count + launch->outputs.count);
    }
    out_.ops.reserve(ops);
    out_.operands.reserve(operands);
  }

  // Has all bodies that go on as the two before them do written by `more(repeat, body, times)`.
  template <class More>
  void unroll(More more) {
    std::size_t next = 0;
    for (const Repeat& repeat : program_.repeats) {
      copy(next, repeat.last);
      repeat_body(repeat, more);
      next = repeat.last;
    }
    copy(next, few_.ops.size());
  }

  [[nodiscard]] Written written() const { return {extent_of(out_), firsts_.size(), next_}; }

  template <class More>
  void repeat_body(const Repeat& repeat, More more) {
    const std::int32_t end = at_.latest + 1, begin = end - repeat.period;
    const auto texts = texts_of(few_, origins_, begin, repeat.period);
    ensure(texts.has_value(), "names of what repeats count micro-batches");
    for (const auto& [name, text] : *texts) texts_[static_cast<std::size_t>(name)] = text;
    const auto later = [&](std::int32_t from, std::int64_t by) {
      for (std::int32_t m = from; m < end; ++m) unrolled_[static_cast<std::size_t>(m)] += static_cast<std::int32_t>(by);
    };
    // Once bodies refer to nothing but what came again, each goes on as the two before it do.
    const std::int64_t settled = std::min<std::int64_t>(repeat.more, repeat.back / repeat.period + 2);
    Written before_last;
    for (std::int64_t n = 1; n <= settled; ++n) {
      later(begin - repeat.back, repeat.period);
      at_.latest = begin - 1;
      repeated_ = n * repeat.period;
      before_last = written();
      copy(repeat.first, repeat.last);
    }
    if (const std::int64_t times = repeat.more - settled; times > 0) {
      later(begin - repeat.back, repeat.period * times);
      number_again(before_last, times);
      NextBody body(out_, before_last.extent);
      more(repeat, body, times);
      repeated_ = repeat.more * repeat.period;
    }
    at_.latest = end - 1;
    // What came as long ago as no body looks back is what it was.
    for (std::int32_t m = begin - repeat.back; m < end - repeat.back; ++m)
      unrolled_[static_cast<std::size_t>(m)] -= static_cast<std::int32_t>(repeat.more * repeat.period);
  }

  // What bodies make that come as often as that again, each as much as came since `before_last`.
  void number_again(const Written& before_last, std::int64_t times) {
    const std::size_t begun = firsts_.size() - before_last.micro_batches;
    std::array<std::int32_t, numbered_kinds> made{};
    for (std::size_t k = 0; k < numbered_kinds; ++k) made[k] = next_[k] - before_last.numbers[k];
    const auto add = [&](std::array<std::int32_t, numbered_kinds> numbers, std::int32_t bodies) {
      for (std::size_t k = 0; k < numbered_kinds; ++k) numbers[k] += bodies * made[k];
      return numbers;
    };
    for (std::size_t m = begun * static_cast<std::size_t>(times); m > 0; --m)
      firsts_.push_back(add(firsts_[firsts_.size() - begun], 1));
    next_ = add(next_, static_cast<std::int32_t>(times));
  }

  // The names that a body makes.
  void name_again(const Repeat& repeat) {
    const auto first = std::ranges::lower_bound(origins_.first_uses, repeat.first);
    for (auto use = first; use != origins_.first_uses.end() && *use < repeat.last; ++use)
      add_name(static_cast<std::size_t>(use - origins_.first_uses.begin()));
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
    add_name(few.index());
    return {make(Numbered::Name, few.value)};
  }
  void add_name(std::size_t few) {
    const auto& text = texts_[few];
    out_.names.push_back(text ? text->later(repeated_) : few_.names[few]);
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

void tell_unrolled(const RepeatingProgram& program, const std::function<bool(std::span<const Op>)>& hear) {
  if (program.repeats.empty())
    hear(program.few.ops);
  else
    Unroller(program).tell(hear);
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

}  // namespace tidemark::sim
