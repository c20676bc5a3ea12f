#include "scenarios/convert/hugging_face/rewritten.hpp"

#include <algorithm>
#include <cstdint>
#include <variant>

#include <fmt/format.h>

#include "scenarios/convert/shell/launch_line.hpp"

namespace tidemark::scenarios {

const TomlKey* Rewritten::find(std::string_view name) const {
  const auto found = std::find_if(keys_.rbegin(), keys_.rend(), [&](const TomlKey& key) { return key.name == name; });
  return found == keys_.rend() ? nullptr : &*found;
}

std::optional<TomlKey> Rewritten::take(std::string_view name) {
  const TomlKey* const found = find(name);
  if (found == nullptr) return std::nullopt;
  TomlKey key = *found;
  std::erase_if(keys_, [&](const TomlKey& its) { return its.name == name; });
  return key;
}

std::string Rewritten::word(const std::optional<TomlKey>& key) {
  if (!key) return {};
  if (const auto* text = std::get_if<std::string>(&key->value.value)) return *text;
  return scenarios::text(key->value);
}

bool Rewritten::on(std::string_view name) const {
  const TomlKey* const key = find(name);
  return key != nullptr && (word(*key) == "true" || word(*key) == "1");
}

bool Rewritten::off(std::string_view name) const {
  const TomlKey* const key = find(name);
  return key != nullptr && (word(*key) == "false" || word(*key) == "0");
}

bool Rewritten::take_on(std::string_view name) {
  const bool its = on(name);
  (void)take(name);
  return its;
}

void Rewritten::set(std::string_view name, Content content, Place place) {
  (void)take(name);
  keys_.push_back({std::string(name), place, {std::move(content), place}});
}

void Rewritten::usual(std::string_view name, Content content) {
  if (find(name) == nullptr) set(name, std::move(content));
}

void Rewritten::rename(std::string_view name, std::string_view as) {
  if (std::optional<TomlKey> key = take(name)) set(as, std::move(key->value.value), key->place);
}

void Rewritten::no_matter(std::span<const std::string_view> names, std::string_view why) {
  for (const std::string_view name : names)
    if (const std::optional<TomlKey> key = take(name)) tell(RemarkKind::NoMatter, *key, why);
}

void Rewritten::no_matter_of(Names beginnings, std::string_view why) {
  for (const TomlKey& key : std::vector<TomlKey>(keys_))
    if (std::ranges::any_of(beginnings, [&](std::string_view its) { return key.name.starts_with(its); })) {
      (void)take(key.name);
      tell(RemarkKind::NoMatter, key, why);
    }
}

void Rewritten::refuse(Names names, std::string_view what) {
  for (const std::string_view name : names)
    if (const std::optional<TomlKey> key = take(name)) {
      const std::string its = word(key);
      const bool asks = its != "false" && its != "0" && its != "1" && its != "none" && its != "None" && !its.empty();
      tell(asks || its == "1" ? RemarkKind::NotJudged : RemarkKind::NoMatter, *key,
           asks || its == "1" ? fmt::format("{} not modelled", what) : "asks for nothing");
    }
}

void Rewritten::tell(RemarkKind kind, const TomlKey& key, const ProblemText& why) {
  draft_->remark(kind, written(key), why, key.place);
}

void Rewritten::bound(const TomlKey& key, std::string_view why, std::string_view name) {
  draft_->remark_bounded(written(key), std::string(why), std::string(name), key.place);
}

void Rewritten::fail(const TomlKey& key, ProblemText message, std::string hint) const {
  throw InputError(
      Problem{draft_->file, key.place.line, key.place.column, std::move(message.text), std::move(hint), message.kind});
}

std::string Rewritten::written(const TomlKey& key) const {
  const auto* text = std::get_if<std::string>(&key.value.value);
  const bool unknown = text != nullptr && text->starts_with(unknown_value);
  return fmt::format("{}{} = {}", dashes_, key.name,
                     unknown ? text->substr(unknown_value.size()) : scenarios::text(key.value));
}

void pack(Rewritten& its, const TomlKey& key) {
  its.bound(key,
            "the figures are of whole sequences of that length, which packed ones of 128 tokens and more on average "
            "fill at most",
            "packed-rows");
}

void part_rows(const Rewritten& its, const TomlKey& key, Draft& draft) {
  const auto* const parts = std::get_if<std::int64_t>(&key.value.value);
  draft.part_rows(parts == nullptr ? 1 : *parts, its.written(key), key.place);
}

void set_attention(Rewritten& its, const TomlKey& key, std::string_view kernel) {
  its.set("attn_implementation", std::string(kernel), key.place);
}

}  // namespace tidemark::scenarios
