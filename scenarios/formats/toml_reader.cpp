#include "scenarios/formats/toml_reader.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "scenarios/formats/quantity.hpp"
#include "scenarios/formats/suggestion.hpp"

namespace tidemark::scenarios {

namespace {

/// What a text between quotes would be without them, if that is what was wanted.
template <class Wanted>
std::optional<Wanted> without_quotes(const TomlKey& key) {
  constexpr std::size_t longest = 24;  // of a number or a word
  const auto* text = std::get_if<std::string>(&key.value.value);
  if (text == nullptr || text->size() > longest || text->find_first_of("\n\r#") != std::string::npos) return {};
  try {
    const TomlTable bare = parse_toml("x = " + *text, {});
    if (bare.keys.size() != 1) return {};
    if (const auto* value = std::get_if<Wanted>(&bare.keys.front().value.value)) return *value;
  } catch (const InputError&) {  // nothing that TOML knows
  }
  return {};
}

std::string bare_hint(const TomlKey& key) {
  return fmt::format("without the quotes: {} = {}", key.name, std::get<std::string>(key.value.value));
}

std::string cut(std::string text) {
  constexpr std::size_t longest_shown = 80;
  if (text.size() <= longest_shown) return text;
  std::size_t end = longest_shown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;  // not within a character
  return text.substr(0, end) + "...";
}

}  // namespace

const TomlKey* TomlReader::find(std::string_view key) const {
  if (table_ == nullptr) return nullptr;
  const auto found =
      std::find_if(table_->keys.begin(), table_->keys.end(), [&](const TomlKey& k) { return k.name == key; });
  return found == table_->keys.end() ? nullptr : &*found;
}

const TomlKey* TomlReader::look_up(std::string_view key, Presence presence, std::string_view wanted) {
  known_.push_back(key);
  const TomlKey* found = find(key);
  if (found == nullptr && presence == Presence::Required) {
    unsound_.emplace(key);
    problems_->add(place_, fmt::format("{} is missing{}", key, where()), std::string(wanted));
  }
  return found;
}

Place TomlReader::place(std::string_view key) const {
  const TomlKey* found = find(key);
  return found == nullptr ? place_ : found->value.place;
}

void TomlReader::problem(std::string_view key, ProblemText message, std::string hint) {
  unsound_.emplace(key);
  problems_->add(place(key), std::move(message), std::move(hint));
}

void TomlReader::wrong_type(const TomlKey& key, std::string_view wanted, std::string hint) {
  problem(key.name, fmt::format("{} takes {}, not {}", key.name, wanted, cut(text(key.value))), std::move(hint));
}

TomlReader TomlReader::table(std::string_view key, Presence presence) {
  std::string name;
  name.reserve(name_.size() + 1 + key.size());
  if (!name_.empty()) name.append(name_).append(".");
  name.append(key);
  const TomlKey* found = look_up(key, presence, "begin the table with its name between brackets");
  if (found == nullptr) return {nullptr, place_, std::move(name), *problems_};
  const auto* table = std::get_if<TomlTable>(&found->value.value);
  if (table == nullptr) wrong_type(*found, "a table", fmt::format("begin it with [{}] on a line of its own", name));
  return {table, found->value.place, std::move(name), *problems_};
}

std::optional<bool> TomlReader::boolean(std::string_view key, Presence presence) {
  const TomlKey* found = look_up(key, presence, "true or false");
  if (found == nullptr) return std::nullopt;
  if (const auto* value = std::get_if<bool>(&found->value.value)) return *value;
  wrong_type(*found, "true or false",
             without_quotes<bool>(*found) ? bare_hint(*found) : fmt::format("such as {} = true", key));
  return std::nullopt;
}

std::optional<std::int64_t> TomlReader::integer(std::string_view key, IntegerRange range, Presence presence) {
  const TomlKey* found = look_up(key, presence, "give a whole number");
  if (found == nullptr) return std::nullopt;
  const auto* value = std::get_if<std::int64_t>(&found->value.value);
  if (value == nullptr) {
    const std::optional<std::int64_t> bare = without_quotes<std::int64_t>(*found);
    wrong_type(*found, "a whole number",
               bare && *bare >= range.low && *bare <= range.high
                   ? bare_hint(*found)
                   : fmt::format("{} to {} would do", range.low, range.high));
    return std::nullopt;
  }
  if (*value < range.low || *value > range.high) {
    problem(key, fmt::format("{} = {} is out of range", key, *value),
            fmt::format("{} to {} would do", range.low, range.high));
    return std::nullopt;
  }
  return *value;
}

std::optional<std::string> TomlReader::string(std::string_view key, Presence presence) {
  const TomlKey* found = look_up(key, presence, "give a text between quotes");
  if (found == nullptr) return std::nullopt;
  if (const auto* value = std::get_if<std::string>(&found->value.value)) return *value;
  // Not the value itself: a number is no longer as it was written (2.10).
  wrong_type(*found, "a text between quotes", fmt::format("between quotes: {} = \"...\"", key));
  return std::nullopt;
}

const std::string* TomlReader::text_with_unit(std::string_view key, std::string_view example, Presence presence) {
  const TomlKey* found = look_up(key, presence, example);
  if (found == nullptr) return nullptr;
  const auto* value = std::get_if<std::string>(&found->value.value);
  if (value == nullptr) wrong_type(*found, "a text with a unit", std::string(example));
  return value;
}

std::optional<Bytes> TomlReader::bytes(std::string_view key, Presence presence) {
  constexpr std::string_view example = "such as \"80 GiB\", \"512 MiB\" or \"8519680 B\"";
  const std::string* value = text_with_unit(key, example, presence);
  if (value == nullptr) return std::nullopt;
  const ParsedBytes parsed = parse_bytes(*value);
  if (!parsed.bytes) {
    std::string hint = parsed.below ? fmt::format("such as \"{} B\"", parsed.below->count()) : std::string(example);
    problem(key, fmt::format("{} = {}", key, parsed.why), std::move(hint));
  }
  return parsed.bytes;
}

std::optional<Bandwidth> TomlReader::bandwidth(std::string_view key, Presence presence) {
  constexpr std::string_view example = "such as \"450 GB/s\" or \"400 Gb/s\"";
  const std::string* value = text_with_unit(key, example, presence);
  if (value == nullptr) return std::nullopt;
  const ParsedBandwidth parsed = parse_bandwidth(*value);
  if (!parsed.bandwidth) problem(key, fmt::format("{} = {}", key, parsed.why), std::string(example));
  return parsed.bandwidth;
}

std::optional<Duration> TomlReader::duration(std::string_view key, Presence presence) {
  constexpr std::string_view example = "such as \"2 us\" or \"850 ns\"";
  const std::string* value = text_with_unit(key, example, presence);
  if (value == nullptr) return std::nullopt;
  const ParsedDuration parsed = parse_duration(*value);
  if (!parsed.duration) problem(key, fmt::format("{} = {}", key, parsed.why), std::string(example));
  return parsed.duration;
}

std::optional<OperationRate> TomlReader::operation_rate(std::string_view key, Presence presence) {
  constexpr std::string_view example = "such as \"989 TFLOP/s\"";
  const std::string* value = text_with_unit(key, example, presence);
  if (value == nullptr) return std::nullopt;
  const ParsedOperationRate parsed = parse_operation_rate(*value);
  if (!parsed.rate) problem(key, fmt::format("{} = {}", key, parsed.why), std::string(example));
  return parsed.rate;
}

std::optional<Power> TomlReader::power(std::string_view key, Presence presence) {
  constexpr std::string_view example = "such as \"700 W\"";
  const std::string* value = text_with_unit(key, example, presence);
  if (value == nullptr) return std::nullopt;
  const ParsedPower parsed = parse_power(*value);
  if (!parsed.power) problem(key, fmt::format("{} = {}", key, parsed.why), std::string(example));
  return parsed.power;
}

std::optional<Ratio> TomlReader::ratio(std::string_view key, Ratio low, Ratio high, Presence presence) {
  const TomlKey* found = look_up(key, presence, "give a number");
  if (found == nullptr) return std::nullopt;
  const auto* whole = std::get_if<std::int64_t>(&found->value.value);
  const auto* real = std::get_if<double>(&found->value.value);
  if (whole == nullptr && real == nullptr) {
    wrong_type(*found, "a number", fmt::format("{} to {} would do", scenarios::text(low), scenarios::text(high)));
    return std::nullopt;
  }
  const double value = real != nullptr ? *real : static_cast<double>(*whole);
  const double millionths = value * static_cast<double>(one.count());
  // Not a number is not in range either.
  if (!(millionths >= static_cast<double>(low.count()) && millionths <= static_cast<double>(high.count()))) {
    problem(key, fmt::format("{} = {} is out of range", key, scenarios::text(found->value)),
            fmt::format("{} to {} would do", scenarios::text(low), scenarios::text(high)));
    return std::nullopt;
  }
  constexpr double rounding = 1e-3;  // of the product, far above a double's error and far below a seventh decimal
  if (std::abs(millionths - std::round(millionths)) > rounding) {
    problem(key, fmt::format("{} = {} has more than six decimals", key, scenarios::text(found->value)),
            fmt::format("such as {}", scenarios::text(Ratio{std::llround(millionths)})));
    return std::nullopt;
  }
  return Ratio{std::llround(millionths)};
}

std::optional<std::size_t> TomlReader::option(std::string_view key, std::span<const Option> options,
                                              Presence presence) {
  const auto would_do = [&] {
    std::vector<std::string> modelled;
    for (const Option& o : options)
      if (o.modelled == Modelled::Yes) modelled.push_back(in_quotes(o.text));
    return one_of(modelled) + " would do";
  };
  const TomlKey* key_given = look_up(key, presence, "give a text between quotes");
  if (key_given == nullptr) return std::nullopt;
  const auto* value = std::get_if<std::string>(&key_given->value.value);
  if (value == nullptr) {
    wrong_type(*key_given, "a text between quotes", would_do());
    return std::nullopt;
  }
  const auto found = std::find_if(options.begin(), options.end(), [&](const Option& o) { return o.text == *value; });
  if (found != options.end() && found->modelled == Modelled::Yes)
    return static_cast<std::size_t>(found - options.begin());
  problem(key,
          fmt::format("{} = {} is not {}", key, in_quotes(*value), found == options.end() ? "known" : "modelled yet"),
          would_do());
  return std::nullopt;
}

const TomlValue* TomlReader::raw(std::string_view key) {
  const TomlKey* found = look_up(key, Presence::Optional, {});
  return found == nullptr ? nullptr : &found->value;
}

const std::vector<TomlKey>& TomlReader::keys() {
  static const std::vector<TomlKey> none;
  if (table_ == nullptr) return none;
  for (const TomlKey& key : table_->keys) known_.emplace_back(key.name);
  return table_->keys;
}

void TomlReader::refuse(std::string_view key, std::string_view what, std::initializer_list<std::string_view> neutral) {
  const TomlValue* value = raw(key);
  if (value == nullptr) return;
  const std::string given = text(*value);
  if (std::find(neutral.begin(), neutral.end(), given) != neutral.end()) return;
  const bool is_table = std::holds_alternative<TomlTable>(value->value);
  const std::string found = is_table ? fmt::format("[{}]", key) : fmt::format("{} = {}", key, given);
  std::string hint = "leave it out";
  if (neutral.size() > 0) hint += fmt::format(", or set {}", *neutral.begin());
  problem(key, not_modelled(fmt::format("{}: {} not modelled yet", found, what)), std::move(hint));
}

void TomlReader::refuse_unknown_keys(std::span<const TomlReader* const> tables) {
  if (table_ == nullptr) return;
  std::vector<std::string> known;  // in order, each once: made where there is something to say
  for (const TomlKey& key : table_->keys) {
    if (std::find(known_.begin(), known_.end(), key.name) != known_.end()) continue;
    if (known.empty()) {
      known.assign(known_.begin(), known_.end());
      std::sort(known.begin(), known.end());
      known.erase(std::unique(known.begin(), known.end()), known.end());
    }
    const auto elsewhere = std::ranges::find_if(
        tables, [&](const TomlReader* its) { return std::ranges::count(its->known_, key.name) > 0; });
    const std::string meant =
        elsewhere != tables.end() ? (*elsewhere)->name_ + '.' + key.name : nearest(key.name, known);
    std::string hint;
    if (!meant.empty()) hint = fmt::format("did you mean {}?", meant);
    if (key.name.find('.') != std::string::npos) hint = fmt::format("did you mean {} without quotes?", key.name);
    if (hint.empty() && !known.empty()) hint = "known here: " + one_of(known);
    problems_->add(key.place, fmt::format("unknown key {}{}", in_quotes(key.name), where()), std::move(hint));
  }
}

}  // namespace tidemark::scenarios
