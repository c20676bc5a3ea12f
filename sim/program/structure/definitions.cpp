#include "sim/program/detail/definitions.hpp"

#include <limits>
#include <string_view>

namespace tidemark::sim::repeating {

Definitions::Definitions(const Program& program)
    : freed_(static_cast<std::size_t>(program.buffers), program.ops.size()) {
  definitions_[index(Numbered::Buffer)].reserve(static_cast<std::size_t>(program.buffers));
  definitions_[index(Numbered::Event)].reserve(static_cast<std::size_t>(program.events));
  definitions_[index(Numbered::Name)].reserve(program.names.size());
  Position at;
  const auto made = [&](Numbered kind, std::int32_t number) {
    std::vector<Definition>& of_kind = definitions_[index(kind)];
    in_order_ = in_order_ && static_cast<std::size_t>(number) == of_kind.size();
    of_kind.push_back(at.in_pass ? Definition{at.latest, number - micro_batches.back().first[index(kind)]}
                                 : Definition{-1, number});
  };
  const auto named = [&](NameId name, std::size_t op) {
    if (name.index() < definitions_[index(Numbered::Name)].size()) return;
    made(Numbered::Name, name.value);
    first_uses.push_back(op);
  };
  const auto made_so_far = [&](Numbered kind) { return static_cast<std::int32_t>(definitions_[index(kind)].size()); };
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

namespace {

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

}  // namespace

std::optional<std::vector<std::pair<std::int32_t, CountingText>>> texts_of(const Program& program,
                                                                           const Definitions& definitions,
                                                                           std::int32_t begin, std::int32_t period) {
  std::vector<std::pair<std::int32_t, CountingText>> found;
  const auto text = [&](std::int32_t name) -> const std::string& {
    return program.names[static_cast<std::size_t>(name)];
  };
  const auto first_of = [&](std::int32_t micro_batch) { return definitions[micro_batch].first[index(Numbered::Name)]; };
  const auto names = static_cast<std::int32_t>(program.names.size());
  for (std::int32_t name = first_of(begin); name < names; ++name) {
    const Definition definition = definitions.of(Numbered::Name, name);
    if (definition.since < 0) continue;  // made after passes
    if (definitions[definition.since].step != definitions[begin].step) break;
    std::int32_t earlier = definitions.number(Numbered::Name, {definition.since - period, definition.place});
    auto counting = counting_text(text(name), text(earlier), period);
    // The last of a step may come up in another order, beside others that do not count.
    for (earlier = first_of(begin - period); !counting && earlier < name && definition.since >= begin + period;
         ++earlier)
      counting = counting_text(text(name), text(earlier), period);
    if (counting)
      found.emplace_back(name, std::move(*counting));
    else if (definition.since < begin + period)
      return std::nullopt;
  }
  return found;
}

}  // namespace tidemark::sim::repeating
