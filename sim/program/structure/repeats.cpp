#include "sim/program/structure/repeats.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "sim/program/detail/definitions.hpp"

namespace tidemark::sim {
namespace {

using namespace repeating;

// Whether two ops are the same but for numbers.
bool same_but_for_numbers(const Program& program, const Op& a, const Op& b) {
  const auto same = [&]<class T>(const T& o, const T& p) {
    if constexpr (std::is_same_v<T, Alloc>)
      return o.size == p.size && o.category == p.category && o.stream == p.stream && o.label == p.label &&
             o.space == p.space;
    else if constexpr (std::is_same_v<T, Launch>)
      return o.stream == p.stream && o.kernel == p.kernel && o.scratch.count == p.scratch.count;
    else if constexpr (std::is_same_v<T, Collective>)
      return o.stream == p.stream && o.comm == p.comm && o.kind == p.kind && o.dtype == p.dtype &&
             o.reduction == p.reduction && o.in.offset == p.in.offset && o.out.offset == p.out.offset &&
             o.row == p.row && o.size == p.size;
    else if constexpr (std::is_same_v<T, Exchange>)
      return o.stream == p.stream && o.comm == p.comm &&
             std::ranges::equal(program[o.transfers], program[p.transfers], [](const Transfer& s, const Transfer& t) {
               return s.direction == t.direction && s.step == t.step && s.part == t.part && s.parts == t.parts;
             });
    else if constexpr (std::is_same_v<T, Memcpy>)
      return o.stream == p.stream && o.from.offset == p.from.offset && o.to.offset == p.to.offset && o.size == p.size;
    else if constexpr (std::is_same_v<T, CrossStreamUse>)
      return o.stream == p.stream && o.recorded == p.recorded;
    else if constexpr (std::is_same_v<T, Record> || std::is_same_v<T, Wait>)
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
  const auto operands = [&](const Operand& s, const Operand& t) {
    return s.offset == t.offset && buffers(s.buffer, t.buffer);
  };
  const auto events = [&](EventId s, EventId t) { return alike(As::Used, Numbered::Event, s.value, t.value); };
  const auto names = [&](NameId s, NameId t) { return alike(As::Used, Numbered::Name, s.value, t.value); };
  const auto numbers = [&]<class T>(const T& o, const T& p) {
    if constexpr (std::is_same_v<T, Alloc>)
      return alike(As::Made, Numbered::Buffer, o.buffer.value, p.buffer.value);
    else if constexpr (std::is_same_v<T, Record>)
      return alike(As::Made, Numbered::Event, o.event.value, p.event.value);
    else if constexpr (std::is_same_v<T, Free> || std::is_same_v<T, CrossStreamUse>)
      return buffers(o.buffer, p.buffer);
    else if constexpr (std::is_same_v<T, Launch>)
      return std::ranges::equal(program[o.inputs], program[p.inputs], operands) &&
             std::ranges::equal(program[o.outputs], program[p.outputs], operands) &&
             std::ranges::equal(program[o.scratch], program[p.scratch], operands);
    else if constexpr (std::is_same_v<T, Collective>)
      return operands(o.in, p.in) && operands(o.out, p.out);
    else if constexpr (std::is_same_v<T, Exchange>)
      return std::ranges::equal(program[o.transfers], program[p.transfers], buffers, &Transfer::buffer,
                                &Transfer::buffer);
    else if constexpr (std::is_same_v<T, Memcpy>)
      return operands(o.from, p.from) && operands(o.to, p.to);
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

// Micro-batches [first, end).
struct Body {
  std::int32_t first = 0, end = 0;
};

std::span<const Op> ops_of(const Program& program, const Definitions& definitions, Body body) {
  const std::size_t begin = definitions[body.first].begin;
  return std::span(program.ops).subspan(begin, definitions[body.end].begin - begin);
}

// Goes through a body and says how far away definitions are, in micro-batches from the latest one: -1 outside passes.
// Names are used again in every step: what counts is the micro-batch of the step.
class DistanceTo {
 public:
  DistanceTo(const Definitions& definitions, Body body)
      : definitions_(definitions),
        at_{definitions[body.first].step, definitions[body.first].first_of_step, body.first - 1, true} {}

  /// Of the mark itself.
  std::int32_t enter(const Mark& mark) {
    at_.enter(mark);
    return mark.micro_batch < 0 ? -1 : at_.latest - at_.first - mark.micro_batch;
  }
  [[nodiscard]] std::int32_t of(Numbered kind, Definition definition) const {
    if (definition.since < 0) return -1;
    if (kind != Numbered::Name) return at_.latest - definition.since;
    return (at_.latest - at_.first) - (definition.since - definitions_[definition.since].first_of_step);
  }

 private:
  const Definitions& definitions_;
  Position at_;
};

// What bodies that are alike depend on, by distance in micro-batches.
struct Dependences {
  std::int32_t farthest = 0;  // of those that each body has on definitions of its own
  std::int32_t nearest_shared = std::numeric_limits<std::int32_t>::max();  // of those that all have on one definition
  std::vector<std::int32_t> steps;  // where names of its own came up first, the first first
};

// That of two bodies, if they are alike: a number is that of the body before, or it is defined at the same distance.
std::optional<Dependences> dependences_of(const Program& program, const Definitions& definitions, Body body,
                                          Body previous) {
  Dependences found;
  DistanceTo distance(definitions, body), distance_before(definitions, previous);
  const auto alike = [&](As how, Numbered kind, std::int32_t number, std::int32_t before) {
    const Definition definition = definitions.of(kind, number);
    const std::int32_t its = distance.of(kind, definition);
    if (how == As::Used && number == before) {
      if (its >= 0) found.nearest_shared = std::min(found.nearest_shared, its);
      return true;
    }
    const Definition same = definitions.of(kind, before);
    if (its < 0 || its != distance_before.of(kind, same) || definition.place != same.place) return false;
    found.farthest = std::max(found.farthest, its);
    if (kind != Numbered::Name) return true;
    const std::int32_t step = definitions[definition.since].step;
    if (std::ranges::find(found.steps, step) == found.steps.end()) found.steps.push_back(step);
    return true;
  };
  const auto both = [&](const Op& op, const Op& before) {
    if (!same_but_for_numbers(program, op, before)) return false;
    if (const Mark* mark = std::get_if<Mark>(&op))
      return distance.enter(*mark) == distance_before.enter(std::get<Mark>(before));
    return numbers_alike(program, op, before, alike);
  };
  if (!std::ranges::equal(ops_of(program, definitions, body), ops_of(program, definitions, previous), both))
    return std::nullopt;
  return found;
}

// Whether two bodies make the same, whatever they refer to.
bool make_alike(const Program& program, const Definitions& definitions, Body a, Body b) {
  const auto next_made = [](std::span<const Op>& ops) -> const Op* {
    while (!ops.empty()) {
      const Op& op = ops.front();
      ops = ops.subspan(1);
      if (std::holds_alternative<Alloc>(op) || std::holds_alternative<Record>(op)) return &op;
    }
    return nullptr;
  };
  const auto same_place = [&](As, Numbered kind, std::int32_t its, std::int32_t other) {
    const Definition s = definitions.of(kind, its), t = definitions.of(kind, other);
    return s.since >= 0 && t.since >= 0 && s.place == t.place;
  };
  std::span<const Op> of_a = ops_of(program, definitions, a), of_b = ops_of(program, definitions, b);
  for (;;) {
    const Op *const made = next_made(of_a), *const other = next_made(of_b);
    if (made == nullptr || other == nullptr) return made == other;
    if (!same_but_for_numbers(program, *made, *other) || !numbers_alike(program, *made, *other, same_place))
      return false;
  }
}

// Whether the same buffers are live where the last body begins as where it ends: the same ones or those that came
// before.
bool same_is_live(const Definitions& definitions, Body body, std::int32_t distance) {
  std::int64_t more = 0;  // at the end than at the beginning
  for (std::int32_t b = 0; b < definitions[body.end].first[index(Numbered::Buffer)]; ++b) {
    const bool live = definitions.live(b, body.end);
    more += static_cast<int>(live) - static_cast<int>(definitions.live(b, body.first));
    if (!live) continue;
    Definition definition = definitions.of(Numbered::Buffer, b);
    if (definition.since >= body.end - distance) definition.since -= body.end - body.first;
    if (!definitions.live(definitions.number(Numbered::Buffer, definition), body.first)) return false;
  }
  return more == 0;
}

std::optional<Repeat> find_repeat(const Program& program, const Definitions& definitions, std::int32_t step,
                                  const std::vector<MoreOf>& by_step) {
  const MoreOf& more = by_step[static_cast<std::size_t>(step) - 1];
  const auto in_step = [&](const Definitions::MicroBatch& m) { return m.step == step; };
  const auto& all = definitions.micro_batches;
  const auto first = static_cast<std::int32_t>(std::ranges::find_if(all, in_step) - all.begin());
  const auto count = static_cast<std::int32_t>(std::ranges::count_if(all, in_step));
  const std::int32_t period = more.period;
  // The last period begins here, or, where periods leave a rest, the last whole one.
  const std::int32_t end = first + (period == 1 ? count - 1 : (count / period - 1) * period);
  if (end - 2 * period < first) return std::nullopt;
  const auto ending = [&](std::int32_t at) { return Body{at - period, at}; };

  const Body body = ending(end);
  const std::optional<Dependences> found = dependences_of(program, definitions, body, ending(end - period));
  // What all refer to is older than what repeats.
  if (!found || found->nearest_shared <= found->farthest + period) return std::nullopt;
  const std::int32_t distance = found->farthest;
  // Names that came up in an earlier step have to be there for all micro-batches.
  for (const std::int32_t its : found->steps)
    if (by_step[static_cast<std::size_t>(its) - 1] != more) return std::nullopt;
  // What the two refer to has to have been made as they make it, or numbers would tell something else one body later.
  for (std::int32_t at = end - 2 * period; at > end - period - distance; at -= period)
    if (at - period < first || !make_alike(program, definitions, body, ending(at))) return std::nullopt;
  if (!same_is_live(definitions, body, distance) || !texts_of(program, definitions, body.first, period))
    return std::nullopt;
  return Repeat{step,
                definitions[end - 2 * period].begin,
                definitions[end - period].begin,
                definitions[end].begin,
                more.micro_batches / period,
                period,
                distance,
                definitions[end - distance].first[index(Numbered::Event)]};
}

}  // namespace

std::optional<std::vector<Repeat>> find_repeats(const Program& rolled, const std::vector<MoreOf>& more) {
  const Definitions definitions(rolled);
  if (!definitions.in_order()) return std::nullopt;
  std::vector<Repeat> found;
  for (std::size_t s = 0; s < more.size(); ++s) {
    if (more[s].micro_batches == 0) continue;
    const std::optional<Repeat> repeat = find_repeat(rolled, definitions, static_cast<std::int32_t>(s) + 1, more);
    if (!repeat) return std::nullopt;
    found.push_back(*repeat);
  }
  return found;
}

}  // namespace tidemark::sim
