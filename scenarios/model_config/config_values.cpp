#include "scenarios/model_config/detail/config_values.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "scenarios/formats/detail/config_document.hpp"
#include "scenarios/formats/slips.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/model_config/detail/config_format.hpp"
#include "scenarios/model_config/detail/transformers_families.hpp"

namespace tidemark::scenarios {

using namespace config_format;
using nlohmann::json;

namespace {

// Those that mean something here.
std::vector<std::string_view> own_keys() {
  std::vector<std::string_view> keys{"model_type",
                                     kv_heads_rule.key,
                                     head_dim_rule.key,
                                     vocabulary_rule.key,
                                     "tie_word_embeddings",
                                     attention_bias,
                                     mlp_bias,
                                     position_kind,
                                     linear_bias,
                                     multi_query,
                                     parallel_residual,
                                     attention_softcap,
                                     logit_softcap,
                                     sliding_window,
                                     use_sliding_window,
                                     rotary_percent,
                                     partial_rotary,
                                     rope_parameters,
                                     window_pattern,
                                     first_window,
                                     qkv_bias,
                                     normalized_weights,
                                     scoring,
                                     choice,
                                     routed_scaling,
                                     dense_listed,
                                     use_bias,
                                     use_qkv_bias,
                                     attention_out_bias,
                                     layers_without_rotary,
                                     interval_without_rotary};
  for (const Keys& k : {usual_keys, gemma_keys, gpt2_keys})
    keys.insert(keys.end(), {k.hidden, k.layers, k.heads, k.ffn, k.positions, k.activation});
  for (const CountRule& rule :
       {first_dense_rule, top_k_experts_rule, groups_rule, topk_group_rule, sparse_step_rule, expert_layers_rule})
    keys.push_back(rule.key);
  for (const Unmodelled& u : foreign_keys) keys.push_back(u.key);
  return keys;
}

bool known(std::string_view key) {
  const auto names = own_keys();
  return std::find(names.begin(), names.end(), key) != names.end() ||
         std::find(harmless_keys.begin(), harmless_keys.end(), key) != harmless_keys.end() ||
         std::any_of(unmodelled_keys.begin(), unmodelled_keys.end(), [&](const Unmodelled& u) { return u.key == key; });
}

bool is_whole(double x) {
  constexpr double exact = 1e15;
  return x > -exact && x < exact && static_cast<double>(static_cast<std::int64_t>(x)) == x;
}

}  // namespace

ConfigValues::ConfigValues(json document, const std::vector<ConfigOverride>& overrides, Problems& problems)
    : document_(std::move(document)), problems_(&problems) {
  for (const ConfigOverride& o : overrides) apply(o);
}

void ConfigValues::apply(const ConfigOverride& o) {
  overridden_.push_back(o);
  if (!document_.contains(o.key) && !known(o.key)) {
    const std::string meant = nearest(o.key, all_keys());
    problem(o.key, "is neither in the file nor known",
            meant.empty() ? "leave it out" : fmt::format("did you mean {}?", meant));
  }
  std::visit([&](const auto& value) { document_[o.key] = value; }, o.value);
}

std::vector<std::string> ConfigValues::all_keys() const {
  std::vector<std::string> keys{"vocabulary_extra", "vocabulary_multiple"};
  for (const std::string_view key : own_keys()) keys.emplace_back(key);
  for (const std::string_view key : harmless_keys) keys.emplace_back(key);
  for (const auto& [key, value] : document_.items()) keys.push_back(key);
  return keys;
}

const json* ConfigValues::find(std::string_view key) const {
  read_.emplace(key);
  const auto found = document_.find(key);
  return found == document_.end() || found->is_null() ? nullptr : &*found;
}

void ConfigValues::also_called(std::string_view key, std::string_view other) {
  if (key == other || !document_.contains(other)) return;
  const auto overrides = [](std::string_view name) {
    return [name](const ConfigOverride& o) { return o.key == name; };
  };
  const bool sets_key = std::ranges::any_of(overridden_, overrides(key)),
             sets_other = std::ranges::any_of(overridden_, overrides(other));
  if (sets_key && !sets_other) {
    document_.erase(std::string(other));
    return;
  }
  const bool replaces = sets_other && !sets_key;
  if (!replaces && document_.contains(key) && document_[key] != document_[other])
    problem(other, fmt::format("{} is not what {} says", shown(document_[other]), key),
            "both mean the same: leave one of them out");
  document_[key] = document_[other];
  document_.erase(std::string(other));
  for (ConfigOverride& o : overridden_)
    if (o.key == other) o.key = key;
}

void ConfigValues::refuse_unread_overrides(std::string_view family) {
  const std::vector<std::string_view> meaningful = own_keys();
  for (const ConfigOverride& o : overridden_)
    if (!read(o.key) && std::ranges::find(meaningful, o.key) != meaningful.end())
      problem(o.key, fmt::format("means nothing to this model, of type {}", in_quotes(family)), "leave it out");
}

void ConfigValues::refuse_slips() {
  std::vector<std::string> absent;
  for (const std::string& key : read_)
    if (!document_.contains(key)) absent.push_back(key);
  for (const auto& [key, value] : document_.items()) {
    if (read(key) || known(key)) continue;
    if (const std::string meant = one_slip_from(key, absent); !meant.empty())
      problem(key, "is not a key that models of this type have", fmt::format("did you mean {}?", meant));
  }
}

void ConfigValues::problem(std::string_view key, const ProblemText& message, std::string hint) {
  const auto overridden =
      std::find_if(overridden_.rbegin(), overridden_.rend(), [&](const ConfigOverride& o) { return o.key == key; });
  Problem found = overridden == overridden_.rend() ? Problem{problems_->file(), 0, 0, {}, {}} : overridden->place;
  found.message = fmt::format("{}: {}", key, message.text);
  found.kind = message.kind;
  found.hint = std::move(hint);
  problems_->add(InputError(std::move(found)));
}

std::int64_t ConfigValues::count(const CountRule& rule, std::optional<std::int64_t> fallback) {
  const auto would_do = [&] { return fmt::format("{} to {} would do", rule.low, rule.high); };
  const json* value = find(rule.key);
  if (value == nullptr) {
    if (rule.low == 0 && given(rule.key)) return 0;
    if (!fallback) problem(rule.key, "is missing", would_do());
    return fallback.value_or(0);
  }
  // transformers itself writes whole numbers as floats here and there.
  const bool whole = value->is_number_integer() || (value->is_number_float() && is_whole(value->get<double>()));
  if (!whole) {
    problem(rule.key, fmt::format("takes a whole number, not {}", shown(*value)), would_do());
    return 0;
  }
  const bool fits =
      !value->is_number_unsigned() || value->get<std::uint64_t>() <= static_cast<std::uint64_t>(rule.high);
  const std::int64_t number = fits ? value->get<std::int64_t>() : -1;
  if (number >= rule.low && number <= rule.high) return number;
  problem(rule.key, fmt::format("{} is out of range", shown(*value)), would_do());
  return 0;
}

bool ConfigValues::flag(std::string_view key, bool fallback) {
  const json* value = find(key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  problem(key, fmt::format("takes true or false, not {}", shown(*value)), "true or false, without quotes");
  return false;
}

std::optional<std::string> ConfigValues::text(std::string_view key) {
  const json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  problem(key, fmt::format("takes a text, not {}", shown(*value)), "a text between quotes");
  return std::nullopt;
}

double ConfigValues::number(std::string_view key, const json& value, double low, double high) {
  if (!value.is_number()) {
    problem(key, fmt::format("takes a number, not {}", shown(value)),
            fmt::format("above {} and up to {} would do", low, high));
    return 0;
  }
  const double x = value.get<double>();
  if (x > low && x <= high) return x;
  problem(key, fmt::format("{} is out of range", shown(value)),
          fmt::format("above {} and up to {} would do", low, high));
  return 0;
}

}  // namespace tidemark::scenarios
