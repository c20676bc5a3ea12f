#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "parallel/job/layout.hpp"
#include "parallel/job/train.hpp"
#include "parallel/model/model.hpp"
#include "parallel/runtime/runtime.hpp"
#include "scenarios/formats/toml_reader.hpp"
#include "topology/cluster.hpp"

namespace tidemark::scenarios {

/// How the files write a value of ours.
template <class T>
struct Named {
  std::string_view text;
  T value;
};

inline constexpr auto node_link_names = std::to_array<Named<NodeLink>>(
    {{"nvswitch", NodeLink::NvSwitch}, {"nvlink", NodeLink::NvLink}, {"pcie", NodeLink::Pcie}});
inline constexpr auto fabric_kind_names =
    std::to_array<Named<FabricKind>>({{"single", FabricKind::Single}, {"leaf_spine", FabricKind::LeafSpine}});
inline constexpr auto peer_access_names = std::to_array<Named<PeerAccess>>(
    {{"everywhere", PeerAccess::Everywhere}, {"nvlink", PeerAccess::NvLink}, {"nowhere", PeerAccess::Nowhere}});
inline constexpr auto sharding_names = std::to_array<Named<Sharding>>(
    {{"none", Sharding::None}, {"zero1", Sharding::Zero1}, {"zero2", Sharding::Zero2}, {"zero3", Sharding::Zero3}});
inline constexpr auto backward_prefetch_names =
    std::to_array<Named<BackwardPrefetch>>({{"none", BackwardPrefetch::None},
                                            {"backward_pre", BackwardPrefetch::Pre},
                                            {"backward_post", BackwardPrefetch::Post}});
inline constexpr auto context_kind_names =
    std::to_array<Named<ContextKind>>({{"p2p", ContextKind::Ring},
                                       {"all_gather", ContextKind::AllGather},
                                       {"a2a", ContextKind::AllToAll},
                                       {"a2a+p2p", ContextKind::AllToAllAndRing}});
inline constexpr auto dispatcher_names =
    std::to_array<Named<TokenDispatcher>>({{"alltoall", TokenDispatcher::AllToAll},
                                           {"allgather", TokenDispatcher::AllGather},
                                           {"flex", TokenDispatcher::Flex}});
inline constexpr auto load_balancing_names =
    std::to_array<Named<LoadBalancing>>({{"aux_loss", LoadBalancing::Loss},
                                         {"seq_aux_loss", LoadBalancing::SequenceLoss},
                                         {"global_aux_loss", LoadBalancing::GlobalLoss},
                                         {"sinkhorn", LoadBalancing::Sinkhorn}});
inline constexpr auto precision_names =
    std::to_array<Named<DType>>({{"bf16", DType::BF16}, {"fp16", DType::FP16}, {"fp32", DType::FP32}});
inline constexpr auto kv_dtype_names = std::to_array<Named<DType>>(
    {{"bf16", DType::BF16}, {"fp16", DType::FP16}, {"fp32", DType::FP32}, {"fp8", DType::E4M3}});
inline constexpr auto engine_weights_names =
    std::to_array<Named<EngineWeights>>({{"own", EngineWeights::Own}, {"shared", EngineWeights::Shared}});
/// Keys of [rollout] that put a model beside the trained one.
inline constexpr auto frozen_model_keys =
    std::to_array<Named<ModelRole>>({{"reference_model", ModelRole::Reference}, {"reward_model", ModelRole::Reward}});
inline constexpr auto quantized_format_names = std::to_array<Named<QuantizedFormat>>(
    {{"nf4", QuantizedFormat::Nf4}, {"fp4", QuantizedFormat::Fp4}, {"int8", QuantizedFormat::Int8}});
inline constexpr auto prepared_names =
    std::to_array<Named<Prepared>>({{"none", Prepared::Nothing}, {"norms", Prepared::Norms}, {"all", Prepared::All}});
/// bnb_4bit_quant_storage.
inline constexpr auto storage_names = std::to_array<Named<std::optional<DType>>>(
    {{"uint8", std::nullopt}, {"bf16", DType::BF16}, {"fp16", DType::FP16}, {"fp32", DType::FP32}});
inline constexpr auto optimizer_names =
    std::to_array<Named<Optimizer>>({{"adamw", Optimizer::AdamW},
                                     {"sgd", Optimizer::Sgd},
                                     {"sgd_momentum", Optimizer::SgdMomentum},
                                     {"adafactor", Optimizer::Adafactor},
                                     {"muon", Optimizer::Muon},
                                     {"adamw_8bit", Optimizer::AdamW8Bit},
                                     {"lion_32bit", Optimizer::Lion},
                                     {"lion_8bit", Optimizer::Lion8Bit},
                                     {"paged_adamw_32bit", Optimizer::PagedAdamW},
                                     {"paged_adamw_8bit", Optimizer::PagedAdamW8Bit},
                                     {"paged_lion_32bit", Optimizer::PagedLion},
                                     {"paged_lion_8bit", Optimizer::PagedLion8Bit},
                                     {"apollo_adamw", Optimizer::ApolloAdamW},
                                     {"galore_adamw", Optimizer::GaloreAdamW},
                                     {"galore_adamw_layerwise", Optimizer::GaloreAdamWLayerwise}});
inline constexpr auto attention_names = std::to_array<Named<AttentionKernel>>({{"auto", AttentionKernel::Auto},
                                                                               {"fused", AttentionKernel::Fused},
                                                                               {"flash", AttentionKernel::Flash},
                                                                               {"unfused", AttentionKernel::Unfused},
                                                                               {"local", AttentionKernel::Local}});
inline constexpr auto activation_names = std::to_array<Named<Activation>>({{"swiglu", Activation::SwiGlu},
                                                                           {"geglu", Activation::GeGlu},
                                                                           {"gelu", Activation::Gelu},
                                                                           {"relu2", Activation::SquaredRelu}});
inline constexpr auto norm_placement_names = std::to_array<Named<NormPlacement>>(
    {{"before", NormPlacement::Before}, {"after", NormPlacement::After}, {"around", NormPlacement::Around}});
inline constexpr auto qk_norm_names = std::to_array<Named<QkNorm>>(
    {{"none", QkNorm::None}, {"per_head", QkNorm::PerHead}, {"all_heads", QkNorm::AllHeads}});
inline constexpr auto router_score_names =
    std::to_array<Named<RouterScore>>({{"softmax", RouterScore::Softmax},
                                       {"softmax_before", RouterScore::SoftmaxBefore},
                                       {"sigmoid", RouterScore::Sigmoid}});
inline constexpr auto normalization_names =
    std::to_array<Named<Normalization>>({{"rmsnorm", Normalization::Rms}, {"layernorm", Normalization::Layer}});
inline constexpr auto positions_names = std::to_array<Named<Positions>>(
    {{"rope", Positions::Rotary}, {"absolute", Positions::Learned}, {"none", Positions::None}});
inline constexpr auto schedule_names = [] {
  std::array<Named<ScheduleKind>, schedule_kinds> names{};
  for (std::size_t i = 0; i < schedule_kinds; ++i) {
    const auto kind = static_cast<ScheduleKind>(i);
    names[i] = {traits_of(kind).name, kind};
  }
  return names;
}();
inline constexpr auto recompute_names = std::to_array<Named<Recompute>>(
    {{"none", Recompute::None}, {"full", Recompute::Full}, {"selective", Recompute::Selective}});
inline constexpr auto recompute_method_names =
    std::to_array<Named<RecomputeMethod>>({{"uniform", RecomputeMethod::Uniform}, {"block", RecomputeMethod::Block}});
inline constexpr auto recomputed_module_names =
    std::to_array<Named<RecomputedModule>>({{"core_attn", RecomputedModule::CoreAttention},
                                            {"mlp", RecomputedModule::Mlp},
                                            {"layernorm", RecomputedModule::LayerNorm},
                                            {"mla_up_proj", RecomputedModule::LatentUp},
                                            {"moe", RecomputedModule::Experts},
                                            {"moe_act", RecomputedModule::ExpertActivation},
                                            {"shared_experts", RecomputedModule::SharedExperts}});
inline constexpr auto offloaded_module_names =
    std::to_array<Named<OffloadedModule>>({{"attn_norm", OffloadedModule::AttentionNorm},
                                           {"qkv_linear", OffloadedModule::Qkv},
                                           {"core_attn", OffloadedModule::CoreAttention},
                                           {"attn_proj", OffloadedModule::AttentionProjection},
                                           {"mlp_norm", OffloadedModule::MlpNorm},
                                           {"expert_fc1", OffloadedModule::ExpertFc1},
                                           {"moe_act", OffloadedModule::ExpertActivation}});
inline constexpr auto cross_entropy_names = std::to_array<Named<CrossEntropy>>(
    {{"unfused", CrossEntropy::Unfused}, {"fused", CrossEntropy::Fused}, {"te", CrossEntropy::TransformerEngine}});

inline constexpr auto module_library_names = std::to_array<Named<ModuleLibrary>>(
    {{"transformers", ModuleLibrary::Transformers}, {"litgpt", ModuleLibrary::LitGpt}});
inline constexpr auto adafactor_names = std::to_array<Named<bool>>({{"transformers", false}, {"torch", true}});
inline constexpr auto fused_module_names =
    std::to_array<Named<FusedModule>>({{"rope", FusedModule::Rope},
                                       {"rms_norm", FusedModule::RmsNorm},
                                       {"swiglu", FusedModule::SwiGlu},
                                       {"cross_entropy", FusedModule::CrossEntropy},
                                       {"fused_linear_cross_entropy", FusedModule::LinearCrossEntropy}});
/// fms-acceleration's fast_loss.
inline constexpr auto fast_loss_names = std::to_array<Named<FusedModule>>(
    {{"cross_entropy", FusedModule::CrossEntropy}, {"fused_ce_liger", FusedModule::LinearCrossEntropy}});
inline constexpr auto optimizer_kernel_names =
    std::to_array<Named<OptimizerKernels>>({{"fused", OptimizerKernels::Fused},
                                            {"foreach", OptimizerKernels::Foreach},
                                            {"for-loop", OptimizerKernels::ForLoop}});
inline constexpr auto reshard_policy_names = std::to_array<Named<ReshardPolicy>>(
    {{"default", ReshardPolicy::Default}, {"always", ReshardPolicy::Always}, {"never", ReshardPolicy::Never}});

/// The files' word for `value`.
template <class T, std::size_t N>
constexpr std::string_view word(const std::array<Named<T>, N>& names, T value) {
  for (const Named<T>& named : names) {
    if (named.value == value) return named.text;
  }
  return "?";
}

/// The files' words for a set of modules.
template <class T, std::size_t N>
std::vector<std::string_view> words(const std::array<Named<T>, N>& names, ModuleSet<T> modules) {
  std::vector<std::string_view> found;
  for (const Named<T>& named : names)
    if (modules.has(named.value)) found.push_back(named.text);
  return found;
}

/// Reads a key that takes one of `names`; `later` are values of the format that are not modelled yet.
template <class T, std::size_t N>
std::optional<T> read_name(TomlReader& table, std::string_view key, const std::array<Named<T>, N>& names,
                           std::initializer_list<std::string_view> later = {}, Presence presence = Presence::Optional) {
  const TomlValue* given = table.raw(key);
  if (const auto* text = given == nullptr ? nullptr : std::get_if<std::string>(&given->value))
    for (const Named<T>& named : names)
      if (named.text == *text) return named.value;
  // A problem, or nothing: what the key may be is made where there is something to say.
  if (given == nullptr && presence == Presence::Optional) return std::nullopt;
  std::vector<Option> options;
  for (const Named<T>& named : names) options.push_back({named.text});
  for (const std::string_view text : later) options.push_back({text, Modelled::NotYet});
  const std::optional<std::size_t> index = table.option(key, options, presence);
  if (!index) return std::nullopt;
  return names[*index].value;
}

}  // namespace tidemark::scenarios
