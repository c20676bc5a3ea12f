#include "scenarios/model_config/detail/config_experts.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "scenarios/formats/suggestion.hpp"
#include "scenarios/model_config/detail/config_format.hpp"

namespace tidemark::scenarios {
namespace {

using namespace config_format;
using nlohmann::json;

class ExpertsReader {
 public:
  ExpertsReader(ConfigValues& config, const ExpertsFormat& format, const Model& model, std::int64_t layers)
      : config_(config), format_(format), model_(model), layers_(layers) {}

  std::optional<ExpertLayers> read() {
    Experts experts;
    experts.count = config_.count({format_.count_key, most_experts}, format_.count);
    experts.chosen = config_.count(top_k_experts_rule, some(format_.chosen));
    const std::int64_t usual_ffn = format_.requested_for ? model_.ffn : format_.ffn;
    experts.ffn = usual_ffn > 0 ? config_.count(expert_ffn_rule, usual_ffn) : model_.ffn;
    if (format_.requested_for) experts.shared_ffn = config_.count(shared_ffn_rule, 0);
    if (format_.requested_for && model_.mlp_bias)
      config_.problem(format_.count_key, not_modelled("experts with biases are not modelled in this family"),
                      fmt::format("{} = false would do", config_format::linear_bias));
    experts.biases = experts.clamped_gate = format_.as_gpt_oss;
    read_shared(experts);
    read_router(experts);
    std::vector<bool> dense = dense_layers();
    check(experts);
    if (layers_ > 0 && std::ranges::count(dense, true) == layers_) return std::nullopt;
    return ExpertLayers{experts, std::move(dense)};
  }

 private:
  static std::optional<std::int64_t> some(std::int64_t n) { return n > 0 ? std::optional(n) : std::nullopt; }

  void read_shared(Experts& experts) {
    switch (format_.shared) {
      case ExpertsFormat::Shared::None:
        return;
      case ExpertsFormat::Shared::Counted:
        experts.shared_ffn = config_.count(shared_count_rule, format_.shared_size) * experts.ffn;
        return;
      case ExpertsFormat::Shared::Wide:
        experts.shared_ffn = config_.count(shared_ffn_rule, format_.shared_size);
        experts.shared_gate = experts.shared_ffn > 0;
        return;
    }
  }

  void read_router(Experts& experts) {
    switch (format_.router) {
      case ExpertsFormat::Router::OfChosen:
        return;
      case ExpertsFormat::Router::OfAll:
        experts.score = config_.flag(normalized_weights) ? RouterScore::Softmax : RouterScore::SoftmaxBefore;
        only(scoring, {"softmax"});
        if (format_.shared != ExpertsFormat::Shared::Counted) return;
        only(choice, {"greedy", "group_limited_greedy"});
        if (config_.text(choice) == "group_limited_greedy") read_groups(experts);
        break;
      case ExpertsFormat::Router::Sigmoid:
        experts.score = RouterScore::Sigmoid;
        experts.correction_bias = true;
        if (!config_.flag(normalized_weights, true))
          config_.problem(normalized_weights, not_modelled("sigmoids whose sum is not made one are not modelled yet"));
        only(scoring, {"sigmoid"});
        only(choice, {"noaux_tc"});
        read_groups(experts);
        break;
    }
    constexpr double most = 1e6;
    const json* scaling = config_.find(routed_scaling);
    experts.scale = scaling == nullptr ? format_.scaling : config_.number(routed_scaling, *scaling, 0, most);
  }

  // Several groups, of which not all are kept: anything else is no choice.
  void read_groups(Experts& experts) {
    const std::int64_t groups = config_.count(groups_rule, format_.groups);
    const std::int64_t kept = config_.count(topk_group_rule, format_.topk_group);
    if (groups <= 1 || experts.count == 0 || experts.chosen == 0) return;
    if (experts.count % groups != 0)
      config_.problem(groups_rule.key, fmt::format("{} does not divide {} experts", groups, experts.count),
                      "1 would do, which is one group of all");
    else if (kept < 1 || kept > groups)
      config_.problem(topk_group_rule.key, fmt::format("{} of {} groups cannot be chosen", kept, groups),
                      fmt::format("1 to {} would do", groups));
    else if (const std::int64_t each = experts.count / groups;
             experts.chosen > kept * each && experts.chosen <= experts.count)
      config_.problem(topk_group_rule.key,
                      fmt::format("{} groups have fewer experts than the {} that are chosen", kept, experts.chosen),
                      fmt::format("{} would do", (experts.chosen + each - 1) / each));
    experts.groups = groups;
    experts.topk_group = kept;
  }

  void only(std::string_view key, std::vector<std::string> modelled) {
    const std::optional<std::string> requested = config_.text(key);
    if (!requested || std::find(modelled.begin(), modelled.end(), *requested) != modelled.end()) return;
    for (std::string& name : modelled) name = in_quotes(name);
    config_.problem(key, not_modelled(fmt::format("{} is not modelled yet", in_quotes(*requested))),
                    one_of(modelled) + " would do");
  }

  std::vector<bool> dense_layers() {
    const auto layers = static_cast<std::size_t>(layers_);
    std::vector<bool> dense(layers, false);
    switch (format_.dense) {
      case ExpertsFormat::Dense::None:
        break;
      case ExpertsFormat::Dense::First: {
        const auto first = static_cast<std::size_t>(config_.count(first_dense_rule, format_.first_dense));
        const std::size_t step = one_in(expert_layers_rule);
        for (std::size_t i = 0; i < layers; ++i) dense[i] = i < first || i % step != 0;
        break;
      }
      case ExpertsFormat::Dense::Listed: {
        const std::size_t step = one_in(sparse_step_rule);
        for (std::size_t i = 0; i < layers; ++i) dense[i] = (i + 1) % step != 0;
        mark_listed(dense);
        break;
      }
    }
    return dense;
  }

  // Of so many layers one has experts.
  std::size_t one_in(const CountRule& rule) {
    return static_cast<std::size_t>(std::max<std::int64_t>(config_.count(rule, 1), 1));
  }

  void mark_listed(std::vector<bool>& dense) {
    const json* listed = config_.find(dense_listed);
    if (listed == nullptr) return;
    const auto is_layer = [&](const json& layer) {
      return layer.is_number_unsigned() && layer.get<std::uint64_t>() < dense.size();
    };
    if (!listed->is_array() || !std::all_of(listed->begin(), listed->end(), is_layer)) {
      config_.problem(dense_listed, "takes a list of layers", fmt::format("0 to {} each", layers_ - 1));
      return;
    }
    for (const json& layer : *listed) dense[layer.get<std::size_t>()] = true;
  }

  void check(const Experts& experts) {
    if (experts.count > 0 && experts.chosen > experts.count)
      config_.problem(top_k_experts, fmt::format("{} experts cannot be chosen from {}", experts.chosen, experts.count),
                      fmt::format("1 to {} would do", experts.count));
    if (experts.count * layers_ > most_experts_of_all_layers)
      config_.problem(format_.count_key, fmt::format("{} in each of {} layers are more than {} together", experts.count,
                                                     layers_, most_experts_of_all_layers));
  }

  ConfigValues& config_;
  const ExpertsFormat& format_;
  const Model& model_;
  std::int64_t layers_;
};

}  // namespace

std::optional<ExpertLayers> read_experts(ConfigValues& config, const ExpertsFormat& format, const Model& model,
                                         std::int64_t layers) {
  return ExpertsReader(config, format, model, layers).read();
}

// The defaults of DeepseekV2Config and DeepseekV3Config.
MultiLatentAttention read_multi_latent_attention(ConfigValues& config) {
  MultiLatentAttention latent{.query_rank = config.count(query_rank_rule, 1536),
                              .kv_rank = config.count(kv_rank_rule, 512),
                              .qk_nope_head_dim = config.count(qk_nope_head_dim_rule, 128),
                              .qk_rope_head_dim = config.count(qk_rope_head_dim_rule, 64),
                              .value_head = config.count(value_head_rule, 128)};
  for (const auto& [rule, width] :
       {std::pair{qk_rope_head_dim_rule, latent.qk_rope_head_dim}, {value_head_rule, latent.value_head}})
    if (width % 8 != 0)  // the 16-byte loads of both attention libraries
      config.problem(rule.key, fmt::format("{} per head: FlashAttention and cuDNN take multiples of 8", width));
  return latent;
}

}  // namespace tidemark::scenarios
