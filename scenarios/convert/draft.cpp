#include "scenarios/convert/draft.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/shell/launch_line.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/slips.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"

namespace tidemark::scenarios {
namespace {

template <class Table>
auto* key_in(Table& table, std::string_view name) {
  const auto found = std::ranges::find_if(table.keys, [&](const TomlKey& key) { return key.name == name; });
  return found == table.keys.end() ? nullptr : &*found;
}

TomlKey& key_made(TomlTable& table, std::string_view name, Place place) {
  if (TomlKey* found = key_in(table, name)) return *found;
  const auto after = std::ranges::find_if(table.keys, [&](const TomlKey& key) { return key.name > name; });
  return *table.keys.insert(after, TomlKey{std::string(name), place, {TomlTable{}, place}});
}

}  // namespace

void Draft::set(std::string_view path, Content content, Place place) {
  TomlTable* table = &document;
  for (std::size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    TomlKey& key = key_made(*table, path.substr(0, dot), place);
    table = std::get_if<TomlTable>(&key.value.value);
    if (table == nullptr)
      throw InputError(Problem{
          file, place.line, place.column,
          fmt::format("{}: {} is there, too, as {}", in_quotes(path), in_quotes(key.name), scenarios::text(key.value)),
          "give it as a table, or as one value"});
    path.remove_prefix(dot + 1);
  }
  key_made(*table, path, place).value = {std::move(content), place};
}

void Draft::erase(std::string_view path) {
  TomlTable* table = &document;
  for (std::size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    TomlKey* key = key_in(*table, path.substr(0, dot));
    table = key == nullptr ? nullptr : std::get_if<TomlTable>(&key->value.value);
    if (table == nullptr) return;
    path.remove_prefix(dot + 1);
  }
  std::erase_if(table->keys, [&](const TomlKey& key) { return key.name == path; });
}

const TomlValue* Draft::find(std::string_view path) const {
  const TomlTable* table = &document;
  for (std::size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    const TomlKey* key = key_in(*table, path.substr(0, dot));
    table = key == nullptr ? nullptr : std::get_if<TomlTable>(&key->value.value);
    if (table == nullptr) return nullptr;
    path.remove_prefix(dot + 1);
  }
  const TomlKey* key = key_in(*table, path);
  return key == nullptr ? nullptr : &key->value;
}

std::optional<std::int64_t> Draft::integer(std::string_view path) const {
  const TomlValue* found = find(path);
  const auto* number = found == nullptr ? nullptr : std::get_if<std::int64_t>(&found->value);
  return number == nullptr ? std::nullopt : std::optional(*number);
}

std::optional<std::string> Draft::text(std::string_view path) const {
  const TomlValue* found = find(path);
  const auto* text = found == nullptr ? nullptr : std::get_if<std::string>(&found->value);
  return text == nullptr ? std::nullopt : std::optional(*text);
}

void Draft::remark(RemarkKind kind, std::string what, ProblemText why, Place place) {
  what = printable(what), why.text = printable(why.text);
  if (!reported_.insert(fmt::format("{}\n{}\n{}", static_cast<int>(kind), what, why.text)).second) return;
  remarks.push_back({kind, file, place, std::move(what), std::move(why.text), false, why.kind, {}});
}

void Draft::part_rows(std::int64_t parts, std::string what, Place place) {
  if (parts <= 1) return;
  row_parts = parts;
  parts_rows = {
      .kind = RemarkKind::Bounded, .file = file, .place = std::move(place), .what = std::move(what), .why = {}};
}

void Draft::remark_bounded(std::string what, std::string why, std::string bound, Place place) {
  const std::size_t before = remarks.size();
  remark(RemarkKind::Bounded, std::move(what), std::move(why), place);
  if (remarks.size() > before) remarks.back().bound = std::move(bound);
}

void Draft::remark_unknown(std::string what, std::string_view name, std::string why,
                           const std::vector<std::string>& known, Place place) {
  const std::string meant = one_slip_from(name, known);
  if (meant.empty()) return remark(RemarkKind::NotJudged, std::move(what), std::move(why), place);
  const std::size_t before = remarks.size();
  const std::string_view dashes = what.starts_with("--") ? "--" : "";
  remark(RemarkKind::NotExpressed, std::move(what), fmt::format("{}: did you mean {}{}?", why, dashes, meant), place);
  if (remarks.size() > before) remarks.back().is_slip = true;
}

bool Remark::is_not_modelled() const {
  return kind == RemarkKind::NotExpressed && !is_slip && problem == ProblemKind::NotModelled;
}

std::string bare_name(std::string_view what) {
  what = what.substr(0, what.find(" = "));
  what.remove_prefix(std::min(what.find_first_not_of('-'), what.size()));
  std::string name(what.substr(0, what.find('=')));
  std::ranges::replace(name, '_', '-');
  return name;
}

Given::Given(std::vector<TomlKey> keys, std::string prefix, Draft& draft)
    : keys_(std::move(keys)), prefix_(std::move(prefix)), draft_(&draft) {
  // As argparse has it, the last one counts.
  for (std::size_t i = 0; i < keys_.size(); ++i) last_[keys_[i].name] = i;
}

const TomlKey* Given::find(std::string_view name) const {
  requested_.emplace(name);
  const auto found = last_.find(name);
  return found == last_.end() ? nullptr : &keys_[found->second];
}

bool Given::has(std::string_view name) const { return find(name) != nullptr; }

bool Given::left_to_others(std::string_view name) const {
  const TomlKey* key = find(name);
  const auto* text = key == nullptr ? nullptr : std::get_if<std::string>(&key->value.value);
  return text != nullptr && *text == "auto";
}

TomlKey Given::made(std::string_view name, Content content, std::string_view of) const {
  const Place its = place(of);
  return {std::string(name), its, {std::move(content), its}};
}

std::string Given::half_type(std::string_view name, std::string_view otherwise) {
  const std::optional<std::string> type = text(name);
  if (type == "bf16" || type == "fp16") return *type;
  if (type) tell(RemarkKind::NotExpressed, name, "this trainer takes bf16 or fp16");
  return std::string(otherwise);
}

Place Given::place(std::string_view name) const {
  const TomlKey* key = find(name);
  return key == nullptr ? Place{} : key->value.place;
}

const TomlValue* Given::look_at(std::string_view name) const {
  const TomlKey* key = find(name);
  return key == nullptr ? nullptr : &key->value;
}

const TomlValue* Given::take(std::string_view name) {
  const TomlKey* key = find(name);
  if (key == nullptr) return nullptr;
  taken_.emplace(name);
  const auto* text = std::get_if<std::string>(&key->value.value);
  return text != nullptr &&
                 (*text == "auto" || *text == "None" || *text == "none" || *text == "null" || text->empty()) &&
                 prefix_ != "--"
             ? nullptr
             : &key->value;
}

void Given::wrong(const TomlKey& key, std::string_view wanted) const {
  const auto* const said = std::get_if<std::string>(&key.value.value);
  if (said != nullptr && said->starts_with(unknown_value)) {
    const std::string_view unknown = std::string_view(*said).substr(unknown_value.size());
    throw InputError(Problem{draft_->file, key.value.place.line, key.value.place.column,
                             fmt::format("{}{}: {} is not known without running it", prefix_, key.name, unknown),
                             hint_of_unknown(unknown)});
  }
  throw InputError(
      Problem{.file = draft_->file,
              .line = key.value.place.line,
              .column = key.value.place.column,
              .message = fmt::format("{}{} takes {}, not {}", prefix_, key.name, wanted, scenarios::text(key.value)),
              .hint = "a value such as the framework itself takes"});
}

std::optional<std::int64_t> Given::integer(std::string_view name) {
  const TomlValue* value = take(name);
  if (value == nullptr) return std::nullopt;
  if (const auto* whole = std::get_if<std::int64_t>(&value->value)) return *whole;
  constexpr double most = 9e18;
  if (const auto* real = std::get_if<double>(&value->value);
      real != nullptr && std::trunc(*real) == *real && std::fabs(*real) < most)
    return static_cast<std::int64_t>(*real);
  if (const auto* quoted = std::get_if<std::string>(&value->value)) {
    const Content content = typed(*quoted);
    if (const auto* whole = std::get_if<std::int64_t>(&content)) return *whole;
  }
  wrong(*find(name), "a whole number");
}

std::optional<double> Given::number(std::string_view name) {
  const TomlValue* value = take(name);
  if (value == nullptr) return std::nullopt;
  if (const auto* whole = std::get_if<std::int64_t>(&value->value)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&value->value)) return *real;
  if (const auto* quoted = std::get_if<std::string>(&value->value)) {
    const Content content = typed(*quoted);
    if (const auto* whole = std::get_if<std::int64_t>(&content)) return static_cast<double>(*whole);
    if (const auto* real = std::get_if<double>(&content)) return *real;
  }
  wrong(*find(name), "a number");
}

std::optional<bool> Given::flag(std::string_view name) {
  const TomlValue* value = take(name);
  if (value == nullptr) return std::nullopt;
  if (const auto* boolean = std::get_if<bool>(&value->value)) return *boolean;
  if (const auto* quoted = std::get_if<std::string>(&value->value)) {
    std::string lower = *quoted;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    if (lower == "true" || lower == "yes") return true;
    if (lower == "false" || lower == "no") return false;
  }
  if (const auto* whole = std::get_if<std::int64_t>(&value->value); whole != nullptr && (*whole == 0 || *whole == 1))
    return *whole == 1;
  wrong(*find(name), "true or false");
}

std::optional<std::string> Given::text(std::string_view name) {
  const TomlValue* value = take(name);
  if (value == nullptr) return std::nullopt;
  if (const auto* text = std::get_if<std::string>(&value->value)) return *text;
  if (std::holds_alternative<TomlTable>(value->value) || std::holds_alternative<std::vector<TomlValue>>(value->value))
    wrong(*find(name), "a text");
  return scenarios::text(*value);
}

Given Given::table(std::string_view name) {
  const TomlValue* value = take(name);
  if (value == nullptr) return {{}, prefix_ + std::string(name) + '.', *draft_};
  const auto* table = std::get_if<TomlTable>(&value->value);
  if (table == nullptr) wrong(*find(name), "a table");
  return {table->keys, prefix_ + std::string(name) + '.', *draft_};
}

std::string Given::written(const TomlKey& key) const {
  const bool bare = std::get_if<bool>(&key.value.value) != nullptr && prefix_ == "--";
  // What only running a script would tell stands as the script writes it.
  const auto* text = std::get_if<std::string>(&key.value.value);
  const bool unknown = text != nullptr && text->starts_with(unknown_value);
  const std::string value = unknown ? text->substr(unknown_value.size()) : scenarios::text(key.value);
  return bare ? prefix_ + key.name : fmt::format("{}{} = {}", prefix_, key.name, value);
}

void Given::tell(RemarkKind kind, std::string_view name, ProblemText why) {
  const TomlKey* key = find(name);
  if (key == nullptr) return;
  taken_.emplace(name);
  draft_->remark(kind, written(*key), std::move(why), key->value.place);
}

void Given::tell_bounded(std::string_view name, std::string why, std::string bound) {
  const TomlKey* key = find(name);
  if (key == nullptr) return;
  taken_.emplace(name);
  draft_->remark_bounded(written(*key), std::move(why), std::move(bound), key->value.place);
}

void Given::refuse(std::string_view name, std::string_view what, const std::vector<std::string>& neutral) {
  const TomlKey* key = find(name);
  if (key == nullptr) return;
  taken_.emplace(name);
  if (take(name) == nullptr || std::ranges::find(neutral, scenarios::text(key->value)) != neutral.end()) return;
  tell(RemarkKind::NotJudged, name, fmt::format("{} not modelled", what));
}

void Given::refuse_the_rest(std::string_view why, std::vector<std::string> known) {
  for (const std::string& name : requested_)
    if (!has(name)) known.push_back(name);
  for (const TomlKey& key : std::vector<TomlKey>(keys_)) {
    if (!taken_.emplace(key.name).second) continue;
    draft_->remark_unknown(written(key), key.name, std::string(why), known, key.value.place);
  }
}

std::filesystem::path named_beside(const std::filesystem::path& folder, const std::string& name) {
  constexpr int most_above = 8;
  std::filesystem::path from = folder;
  for (int above = 0; above < most_above; ++above) {
    if (is_there(from / name)) return from / name;
    if (from.empty() || from == from.parent_path()) break;
    from = from.parent_path();
  }
  return folder / name;
}

std::int64_t product(std::initializer_list<std::int64_t> factors) {
  std::int64_t made = 1;
  for (const std::int64_t factor : factors)
    if (__builtin_mul_overflow(made, factor, &made)) return std::numeric_limits<std::int64_t>::max();
  return made;
}

Content typed(const std::string& word) {
  if (word == "true" || word == "True") return true;
  if (word == "false" || word == "False") return false;
  const char* const end = word.data() + word.size();
  std::int64_t whole = 0;
  if (const auto [at, error] = std::from_chars(word.data(), end, whole); error == std::errc{} && at == end)
    return whole;
  // "8_192", as Python's int takes it.
  if (const std::size_t first = word.find('_'); first != std::string::npos && first > 0 && word.back() != '_' &&
                                                word.find("__") == std::string::npos &&
                                                word.find_first_not_of("0123456789_") == std::string::npos) {
    std::string plain = word;
    std::erase(plain, '_');
    const char* const last = plain.data() + plain.size();
    if (const auto [at, error] = std::from_chars(plain.data(), last, whole); error == std::errc{} && at == last)
      return whole;
  }
  double real = 0;
  if (const auto [at, error] = std::from_chars(word.data(), end, real);
      error == std::errc{} && at == end && std::isfinite(real))
    return real;
  return word;
}

}  // namespace tidemark::scenarios
