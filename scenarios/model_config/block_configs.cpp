#include "scenarios/model_config/detail/block_configs.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "scenarios/formats/detail/config_document.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/model_config/detail/config_format.hpp"

namespace tidemark::scenarios {
namespace {

using config_format::block_configs;
using nlohmann::json;
using parallel::Attention;
using parallel::DenseMlp;
using parallel::NoMixer;
using parallel::NoMlp;

constexpr std::int64_t ffn_multiple = 256;  // heterogeneous_config.py MLPConfig.find_multiple
constexpr double most_hidden_sizes = 1024;  // that an MLP is wide

class BlocksReader {
 public:
  BlocksReader(ConfigValues& config, std::int64_t layers, const Model& model)
      : config_(config), layers_(layers), model_(model) {}

  std::optional<Blocks> read() {
    const json* blocks = config_.find(block_configs);
    if (blocks == nullptr || !blocks->is_array() || std::ssize(*blocks) != layers_) {
      wrong(fmt::format("takes a list of {} layers, one for each", layers_),
            R"(each such as {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 5.25}})");
      return std::nullopt;
    }
    for (const json& block : *blocks)
      if (!add(block)) return std::nullopt;
    return resolved();
  }

 private:
  // Widths of MLPs, 0 where a layer has none.
  struct Block {
    bool attention = false;
    std::int64_t ffn = 0;
  };

  void wrong(const ProblemText& what, std::string hint = {}) { config_.problem(block_configs, what, std::move(hint)); }
  [[nodiscard]] std::string place() const { return fmt::format("layer {}", blocks_.size()); }

  static bool says(const json& part, const char* key) {
    const auto value = part.find(key);
    return value != part.end() && !value->is_null() && *value != false;
  }

  // A part of a layer that is there; nothing where it is not, which is told if it is wrong.
  const json* part_of(const json& block, const char* name, const char* other) {
    const char* const key = block.is_object() && block.contains(name) ? name : other;
    if (!block.is_object() || !block.contains(key) || !block.at(key).is_object()) {
      wrong(fmt::format("{} has no {}", place(), name),
            fmt::format(R"("{}": {{"no_op": true}} where it has none)", name));
      return nullptr;
    }
    const json& part = block.at(key);
    for (const char* unmodelled : {"replace_with_linear", "sparsify", "num_sink_tokens", "unshifted_sink",
                                   "use_prefill_window_in_sink_attention", "window_length", "mamba", "llama4", "moe"})
      if (says(part, unmodelled)) {
        wrong(not_modelled(fmt::format("{}: {} is not modelled yet", place(), unmodelled)), "false, or null, would do");
        return nullptr;
      }
    return &part;
  }

  // What Megatron-LM (heterogeneous_config.py) and the model's own code (configuration_decilm.py) know of a part.
  bool names_all(const json& part, const char* name, std::initializer_list<std::string_view> known) {
    for (const auto& [key, value] : part.items()) {
      if (std::ranges::find(known, std::string_view(key)) != known.end()) continue;
      wrong(fmt::format("{}: {} of its {} is not known here", place(), in_quotes(printable(key)), name),
            "leave it out, if it does not change memory");
      return false;
    }
    return true;
  }

  bool add(const json& block) {
    if (block.is_object() && !names_all(block, "configuration", {"attention", "ffn", "mlp", "parallel_blocks"}))
      return false;
    const json* const attention = part_of(block, "attention", "attention");
    const json* const mlp = attention == nullptr ? nullptr : part_of(block, "ffn", "mlp");
    if (mlp == nullptr) return false;
    if (!names_all(*attention, "attention",
                   {"no_op", "replace_with_linear", "sparsify", "n_heads_in_group", "num_query_groups", "window_length",
                    "num_sink_tokens", "use_prefill_window_in_sink_attention", "unshifted_sink", "mamba", "llama4"}) ||
        !names_all(*mlp, "MLP",
                   {"no_op", "replace_with_linear", "sparsify", "ffn_mult", "ffn_hidden_size", "intermediate_size",
                    "gated", "hidden_act", "moe"}))
      return false;
    const std::optional<std::int64_t> kv_heads = says(*attention, "no_op") ? 0 : kv_heads_of(*attention);
    const std::optional<std::int64_t> ffn = says(*mlp, "no_op") ? 0 : ffn_of(*mlp);
    if (!kv_heads || !ffn) return false;
    if (kv_heads_ > 0 && *kv_heads > 0 && *kv_heads != kv_heads_) {
      wrong(fmt::format("{} has {} heads of keys, and others have {}: Megatron-LM takes one number", place(), *kv_heads,
                        kv_heads_),
            "the same n_heads_in_group in all layers that have attention");
      return false;
    }
    kv_heads_ = std::max(kv_heads_, *kv_heads);
    blocks_.push_back({*kv_heads > 0, *ffn});
    return true;
  }

  static std::optional<std::int64_t> whole(const json& part, const char* key, std::int64_t most) {
    const auto value = part.find(key);
    if (value == part.end() || !value->is_number_unsigned()) return std::nullopt;
    const auto number = value->get<std::uint64_t>();
    if (number < 1 || number > static_cast<std::uint64_t>(most)) return std::nullopt;
    return static_cast<std::int64_t>(number);
  }

  std::optional<std::int64_t> kv_heads_of(const json& attention) {
    if (const auto groups = whole(attention, "num_query_groups", model_.heads); groups && model_.heads % *groups == 0)
      return groups;
    if (const auto heads = whole(attention, "n_heads_in_group", model_.heads); heads && model_.heads % *heads == 0)
      return model_.heads / *heads;
    wrong(fmt::format("{}: n_heads_in_group has to divide {} heads", place(), model_.heads),
          "\"no_op\": true where it has no attention");
    return std::nullopt;
  }

  // MLPConfig.ffn_mult_to_intermediate_size
  std::optional<std::int64_t> ffn_of(const json& mlp) {
    if (const auto given = whole(mlp, "ffn_hidden_size", config_format::most_ffn)) return given;
    const auto times = mlp.find("ffn_mult");
    if (times != mlp.end() && times->is_number()) {
      const auto given = times->get<double>();
      if (given > 0 && given <= most_hidden_sizes) {
        const auto width = static_cast<std::int64_t>(2 * given * static_cast<double>(model_.hidden) / 3);
        const std::int64_t ffn = (width + ffn_multiple - 1) / ffn_multiple * ffn_multiple;
        if (ffn > 0 && ffn <= config_format::most_ffn) return ffn;
      }
    }
    wrong(fmt::format("{}: ffn_mult is not a number above 0 that makes an MLP", place()),
          "\"no_op\": true where it has no MLP");
    return std::nullopt;
  }

  std::optional<Blocks> resolved() {
    std::map<std::int64_t, std::int64_t> layers_of_width;
    for (const Block& block : blocks_)
      if (block.ffn > 0) ++layers_of_width[block.ffn];
    if (kv_heads_ == 0 || layers_of_width.empty()) {
      wrong("no layer has attention, or none has an MLP");
      return std::nullopt;
    }
    const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
    Blocks made;
    made.kv_heads = kv_heads_;
    made.ffn = std::ranges::max_element(layers_of_width, fewer)->first;
    for (const Block& block : blocks_) {
      Layer layer;
      if (!block.attention) layer.mixer = NoMixer{};
      if (block.ffn == 0)
        layer.mlp = NoMlp{};
      else if (block.ffn != made.ffn)
        layer.mlp = DenseMlp{.ffn = block.ffn};
      made.layers.append(1, layer);
    }
    return made;
  }

  ConfigValues& config_;
  std::int64_t layers_;
  const Model& model_;
  std::vector<Block> blocks_;
  std::int64_t kv_heads_ = 0;
};

}  // namespace

std::optional<Blocks> read_block_configs(ConfigValues& config, std::int64_t layers, const Model& model) {
  return BlocksReader(config, layers, model).read();
}

}  // namespace tidemark::scenarios
