#include "scenarios/reader/scenario_checks.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "parallel/job/mesh.hpp"
#include "parallel/lowering/lower.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/quantity.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/version_text.hpp"
#include "scenarios/frameworks/megatron/hybrid_checks.hpp"
#include "scenarios/frameworks/pytorch/transformers_alone.hpp"
#include "scenarios/model_config/moe_reader.hpp"
#include "scenarios/reader/recompute_reader.hpp"
#include "scenarios/scenario/axis_order.hpp"
#include "scenarios/scenario/names.hpp"
#include "scenarios/scenario/schedule_reader.hpp"

namespace tidemark::scenarios {
namespace {

std::string would(const std::vector<std::string>& alternatives) {
  return alternatives.empty() ? std::string() : one_of(alternatives) + " would";
}

/// The divisors of `n` that `fits` accepts, smallest first.
template <class Fits>
std::vector<std::string> divisors_that(std::int64_t n, Fits fits) {
  constexpr std::size_t most_shown = 12;
  std::vector<std::string> found;
  for (std::int64_t d = 1; d <= n && found.size() < most_shown; ++d) {
    if (n % d == 0 && fits(d)) found.push_back(std::to_string(d));
  }
  return found;
}

/// The multiples of `step` on either side of `n`.
std::vector<std::string> multiples_around(std::int64_t n, std::int64_t step) {
  std::vector<std::string> found;
  if (n / step > 0) found.push_back(std::to_string(n / step * step));
  found.push_back(std::to_string((n / step + 1) * step));
  return found;
}

class Checks {
 public:
  Checks(Scenario& scenario, ScenarioTables& tables)
      : scenario_(scenario),
        layout_(scenario.layout),
        train_(scenario.train),
        model_(scenario.model),
        tables_(tables) {}

  void run() {
    check_tensor();
    check_stages();
    derive_data();
    check_context();
    check_sharding();
    check_order();
    // Of a model without any, whatever else is wrong.
    if (data_known_ || scenario_.model.experts() == nullptr) check_experts(scenario_, tables_);
    check_sequence();
    check_attention();
    check_head_width();
    check_multi_latent_attention();
    check_sinks();
    check_latent_contexts();
    check_hybrid(scenario_, tables_);
    check_transformers_alone(scenario_, tables_);
    check_mtp_layers();
    check_recomputed_modules(scenario_, tables_);
    check_schedule_of_megatron();
    check_weight_gradients();
    check_batch();
    check_precision();
    check_headroom();
    check_size();
  }

 private:
  [[nodiscard]] bool degrees_sound() const {
    return tables_.top.sound("gpus") && tables_.layout.sound("tensor") && tables_.layout.sound("context") &&
           tables_.layout.sound("pipeline");
  }
  [[nodiscard]] bool batch_sound() const {
    return tables_.train.sound("sequence_length") && tables_.train.sound("micro_batch") &&
           tables_.train.sound("global_batch");
  }
  // Ranks that work on one sequence.
  [[nodiscard]] std::int64_t model_ranks() const {
    return std::int64_t{layout_.tensor} * layout_.context * layout_.pipeline;
  }
  [[nodiscard]] std::string degrees() const {
    return layout_.context > 1 ? "tensor x context x pipeline" : "tensor x pipeline";
  }
  [[nodiscard]] std::string degrees_in_numbers() const {
    return layout_.context > 1 ? fmt::format("{} x {} x {}", layout_.tensor, layout_.context, layout_.pipeline)
                               : fmt::format("{} x {}", layout_.tensor, layout_.pipeline);
  }

  [[nodiscard]] std::int64_t counted_layers() const {
    return model_.layers.size() + (layout_.count_embedding ? 1 : 0) + (layout_.count_loss ? 1 : 0);
  }

  // The width of an MLP that so many ranks cannot share; 0: there is none.
  [[nodiscard]] std::int64_t uncut_mlp(std::int64_t ranks) const {
    if (model_.ffn % ranks != 0) return model_.ffn;
    for (const Layer& its : model_.layers.kinds())
      if (const auto* dense = std::get_if<DenseMlp>(&its.mlp); dense != nullptr && dense->ffn % ranks != 0)
        return dense->ffn;
    return 0;
  }

  void check_tensor() {
    if (!tables_.model_sound || !tables_.layout.sound("tensor")) return;
    const std::int64_t t = layout_.tensor;
    ProblemText message("");
    if (model_.heads % t != 0) {
      message = fmt::format("tensor = {} does not divide {} attention heads", t, model_.heads);
    } else if (t > model_.kv_heads && t % model_.kv_heads == 0) {
      message = not_modelled(
          fmt::format("tensor = {} is more than {} key/value heads: replicated key/value heads are not modelled yet", t,
                      model_.kv_heads));
    } else if (model_.kv_heads % t != 0) {
      message = fmt::format("tensor = {} does not divide {} key/value heads", t, model_.kv_heads);
    } else if (const std::int64_t ffn = uncut_mlp(t); ffn > 0) {
      message = fmt::format("tensor = {} does not divide intermediate_size = {}", t, ffn);
    } else {
      return;
    }
    std::int64_t common = std::gcd(std::gcd(model_.heads, model_.kv_heads), model_.ffn);
    for (const Layer& its : model_.layers.kinds())
      if (const auto* dense = std::get_if<DenseMlp>(&its.mlp)) common = std::gcd(common, dense->width(model_));
    const bool gpus_known = tables_.top.sound("gpus") && tables_.layout.sound("pipeline");
    const auto fits = [&](std::int64_t d) {
      return !gpus_known || scenario_.gpus % (d * layout_.context * layout_.pipeline) == 0;
    };
    std::vector<std::string> degrees = divisors_that(common, fits);
    if (degrees.empty()) degrees = divisors_that(common, [](std::int64_t) { return true; });
    tables_.layout.problem("tensor", std::move(message), would(degrees));
  }

  void check_stages() {
    if (!tables_.model_sound || !tables_.layout.sound("pipeline")) return;
    if (!layout_.stage_layers.empty() || layout_.first_layers > 0 || layout_.last_layers > 0 ||
        (layout_.chunks > 1 && counted_layers() % layout_.pipeline == 0)) {
      scenarios::check_stages(tables_.layout, static_cast<std::int32_t>(model_.layers.size()), layout_);
      return;
    }
    const std::int64_t counted = counted_layers();
    if (counted % layout_.pipeline == 0) {
      scenarios::check_stages(tables_.layout, static_cast<std::int32_t>(model_.layers.size()), layout_);
      return;
    }
    std::string what = fmt::format("{} layers", model_.layers.size());
    if (layout_.count_embedding) what += " + 1 for the embedding";
    if (layout_.count_loss) what += " + 1 for the loss";
    const bool gpus_known = tables_.top.sound("gpus") && tables_.layout.sound("tensor");
    const auto fits = [&](std::int64_t d) {
      return !gpus_known || scenario_.gpus % (d * layout_.context * layout_.tensor) == 0;
    };
    std::string hint = would(divisors_that(counted, fits));
    // Stages of unlike length, the last one shorter.
    const std::int64_t others = (model_.layers.size() + layout_.pipeline - 1) / layout_.pipeline;
    const std::int64_t last = model_.layers.size() - others * (layout_.pipeline - 1);
    if (counted == model_.layers.size() && last > 0)
      hint += fmt::format("; or last_stage_layers = {}, with {} in each of the others", last, others);
    tables_.layout.problem("pipeline", fmt::format("pipeline = {} does not divide {}", layout_.pipeline, what),
                           std::move(hint));
  }

  void derive_data() {
    if (!degrees_sound() || !tables_.layout.sound("data")) return;
    const std::int64_t parts = model_ranks();
    if (scenario_.gpus % parts != 0) {
      tables_.top.problem("gpus",
                          fmt::format("gpus = {} is not a multiple of {} = {} = {}", scenario_.gpus, degrees(),
                                      degrees_in_numbers(), parts),
                          would(multiples_around(scenario_.gpus, parts)));
      return;
    }
    const std::int64_t data = scenario_.gpus / parts;
    if (tables_.layout.has("data") && layout_.data != data) {
      tables_.layout.problem("data",
                             fmt::format("data = {} disagrees with gpus / ({}) = {} / {} = {}", layout_.data, degrees(),
                                         scenario_.gpus, parts, data),
                             fmt::format("leave it out, or set {}", data));
      return;
    }
    layout_.data = static_cast<std::int32_t>(data);
    data_known_ = true;
  }

  void check_sharding() {
    if (!tables_.layout.sound("sharding")) return;
    const RuntimeKind& runtime = runtime_kind(scenario_.runtime.name);
    const bool sharded = layout_.sharding == Sharding::Zero2 || layout_.sharding == Sharding::Zero3;
    if (sharded && !runtime.shards_units() && runtime.id != RuntimeId::DeepSpeed)
      tables_.layout.problem("sharding",
                             fmt::format("sharding = \"{}\": {} shards no parameters here",
                                         word(sharding_names, layout_.sharding), runtime.name),
                             R"([runtime] name = "fsdp2", "fsdp" or "deepspeed" does)");
    if (!tables_.layout.sound("shard_group") || layout_.shard_group == 0) return;
    const bool in_instances = runtime.id == RuntimeId::Megatron && layout_.sharding == Sharding::Zero1;
    if (!runtime.shards_units() && !in_instances)
      tables_.layout.problem(
          "shard_group", "shard_group: there is no sharding within groups here",
          "leave it out; [runtime] name = \"fsdp2\" or \"fsdp\" has it, and megatron with sharding = "
          "\"zero1\"");
    else if (data_known_ && layout_.data % layout_.shard_group != 0)
      tables_.layout.problem(
          "shard_group", fmt::format("shard_group = {} does not divide data = {}", layout_.shard_group, layout_.data),
          would(divisors_that(layout_.data, [&](std::int64_t n) { return !in_instances || cuts_experts(n); })));
    else if (data_known_ && layout_.instances() > 1 && in_instances)
      check_instances();
  }

  // core/parallel_state.py: instances are next to each other among the ranks that share parameters, and among those
  // that share an expert.
  void check_instances() {
    const auto place = [&](MeshAxis axis) { return std::ranges::find(layout_.order, axis); };
    if (layout_.context > 1 && place(MeshAxis::Data) < place(MeshAxis::Context))
      tables_.layout.problem("shard_group",
                             "shard_group: optimizer instances are cut along data, which runs faster than context here",
                             "name cp before dp in order");
    if (!cuts_experts(layout_.shard_group))
      tables_.layout.problem(
          "shard_group",
          fmt::format(
              "shard_group = {} makes {} optimizer instances, over which {} replicas of each expert do not divide",
              layout_.shard_group, layout_.instances(), layout_.experts_data()),
          would(divisors_that(layout_.data, [&](std::int64_t n) { return cuts_experts(n); })));
  }
  // Each instance of so many ranks holds whole replicas of every expert.
  [[nodiscard]] bool cuts_experts(std::int64_t shard_group) const {
    const std::int32_t cut = layout_.expert_tensor_parallel() * layout_.expert,
                       ranks = layout_.replicas() * layout_.tensor;
    return !model_.experts() || ranks % cut != 0 || layout_.experts_data() % (layout_.data / shard_group) == 0;
  }

  void check_sequence() {
    const bool tensor_known = tables_.layout.sound("tensor") && tables_.layout.sound("sequence_parallel");
    if (tables_.model_sound && tables_.train.sound("sequence_length") && model_.positions == Positions::Learned &&
        train_.sequence_length > model_.max_positions) {
      tables_.train.problem("sequence_length",
                            fmt::format("sequence_length = {} is more than the {} positions that the model has learned",
                                        train_.sequence_length, model_.max_positions),
                            "n_positions in [model_override] says how many there are");
    }
    // As Megatron does (arguments.py): with one tensor-parallel rank there is nothing to spread.
    if (tensor_known && layout_.tensor == 1) layout_.sequence_parallel = false;
    if (!tables_.train.sound("sequence_length") || !tables_.layout.sound("context")) return;
    const std::int64_t spread = tensor_known && layout_.sequence_parallel ? layout_.tensor : 1;
    if (layout_.context > 1) {
      // Two chunks a rank, and of these together a part for each tensor-parallel rank.
      const std::int64_t parts = std::lcm(std::int64_t{2}, spread) * layout_.context;
      if (train_.sequence_length % parts == 0) return;
      tables_.train.problem(
          "sequence_length",
          fmt::format("sequence_length = {} is not a multiple of {}: each of context = {} ranks takes "
                      "two equal chunks{}",
                      train_.sequence_length, parts, layout_.context,
                      spread > 1 ? fmt::format(", which tensor = {} ranks spread", spread) : ""),
          would(multiples_around(train_.sequence_length, parts)));
    } else if (train_.sequence_length % spread != 0) {
      tables_.train.problem(
          "sequence_length",
          fmt::format("sequence_length = {} is not a multiple of tensor = {}, over which sequence_parallel spreads it",
                      train_.sequence_length, layout_.tensor),
          would(multiples_around(train_.sequence_length, layout_.tensor)));
    }
  }

  // core/parallel_state.py asserts that experts, which a dense model has none of, cut the ranks of a stage and of no
  // other.
  void check_order() {
    if (!data_known_ || !tables_.layout.sound("order") || !tables_.layout.sound("expert_tensor")) return;
    const std::int64_t ranks = std::int64_t{layout_.tensor} * layout_.context * layout_.data;
    const std::string likely = std::to_string(layout_.tensor * layout_.context) + " would";
    if (ranks % layout_.expert_tensor_parallel() != 0) {
      tables_.layout.problem(
          "expert_tensor",
          fmt::format("expert_tensor = {} does not divide tensor x context x data = {}", layout_.expert_tensor, ranks),
          likely);
    } else if (layout_.pipeline > 1 && ranks % (layout_.expert_tensor_parallel() * layout_.expert) == 0 &&
               layout_.order.back() != MeshAxis::Pipeline && layout_.experts_data() != layout_.data) {
      // core/parallel_state.py initialize_model_parallel
      const std::int32_t model = layout_.tensor * layout_.context;
      const bool fits = model % layout_.expert == 0;
      tables_.layout.problem(
          tables_.layout.has("order") ? "order" : "expert_tensor",
          fmt::format("order = {} does not end with pp: Megatron takes that only where experts have as many "
                      "data-parallel ranks as all else, and they are {} and {}, for dense models too",
                      in_quotes(text(layout_.order)), layout_.experts_data(), layout_.data),
          fits ? fmt::format("expert_tensor = {} would, or an order that ends with pp", model / layout_.expert)
               : "an order that ends with pp would");
    } else if (layout_.pipeline > 1 && ranks % (layout_.expert_tensor_parallel() * layout_.expert) == 0 &&
               dense_mesh(layout_).along(axis::pp) != expert_mesh(layout_).along(axis::pp)) {
      tables_.layout.problem(
          tables_.layout.has("order") ? "order" : "expert_tensor",
          fmt::format("order = {}: with expert_tensor = {} the ranks of a stage are others to experts, which Megatron "
                      "refuses for dense models too",
                      in_quotes(text(layout_.order)), layout_.expert_tensor_parallel()),
          fmt::format("expert_tensor = {}", likely));
    }
  }

  [[nodiscard]] AttentionKernel resolved_scenario(AttentionKernel requested) const {
    const Device& device = scenario_.cluster.device;
    return resolved_attention(requested, model_,
                              {.compute_capability = device.compute_capability,
                               .devices_per_node = scenario_.cluster.node.devices,
                               .capacity = device.capacity,
                               .multiprocessors = device.multiprocessors},
                              scenario_.runtime.deterministic ? Determinism::Required : Determinism::NotRequired);
  }
  [[nodiscard]] AttentionKernel resolved_scenario() const { return resolved_scenario(train_.attention); }

  // What Transformer Engine 2.11 asserts (attention/dot_product_attention/context_parallel.py), and which of its
  // attentions it takes (utils.py get_attention_backend).
  void check_context() {
    if (!tables_.layout.sound("context")) return;
    check_context_kind();
    if (layout_.context == 1 || !tables_.model_sound) return;
    if (tables_.train.sound("attention") && tables_.cluster_sound && stores_scores(resolved_scenario())) {
      const bool requested =
          stores_scores(train_.attention) && !stores_scores(resolved_scenario(AttentionKernel::Auto));
      tables_.layout.problem(
          "context",
          fmt::format("context = {}: attention kernels that store scores cannot split a sequence", layout_.context),
          model_.attention_softcap > 0 ? "leave it out: the model caps its scores"
          : !requested                 ? "leave it out: the device has no other attention kernel for such heads"
          : model_.latent()            ? "leave attention out, or set \"fused\""
                                       : "leave attention out, or set \"fused\" or \"flash\"");
    }
    if (!tables_.layout.sound("tensor") || !tables_.layout.sound("context_kind") ||
        !tables_.layout.sound("context_inner"))
      return;
    const std::int64_t ranks = layout_.ulysses(), heads = model_.heads / layout_.tensor,
                       kv_heads = model_.kv_heads / layout_.tensor;
    if (heads % ranks == 0 && kv_heads % ranks == 0) return;
    const bool inner = layout_.context_kind == ContextKind::AllToAllAndRing;
    tables_.layout.problem(inner ? "context_inner" : "context",
                           fmt::format("{} = {} does not divide the {} attention and {} key/value heads of a rank",
                                       inner ? "context_inner" : "context", ranks, heads, kv_heads),
                           would(divisors_that(std::gcd(heads, kv_heads), [](std::int64_t) { return true; })));
  }

  void check_context_kind() {
    if (!tables_.layout.sound("context_kind") || !tables_.layout.sound("context_inner")) return;
    const bool inner = tables_.layout.has("context_inner");
    const std::int64_t context = layout_.context;
    const auto inside = [&](std::int64_t d) { return 1 < d && d < context; };
    if (layout_.context_kind != ContextKind::AllToAllAndRing) {
      if (inner)
        tables_.layout.problem("context_inner", "context_inner says how a2a+p2p divides ranks, and the kind is another",
                               "leave it out, or set context_kind = \"a2a+p2p\"");
    } else if (!inside(layout_.context_inner) || context % layout_.context_inner != 0) {
      const std::vector<std::string> good = divisors_that(context, inside);
      const std::string message =
          inner ? fmt::format("context_inner = {} does not cut context = {} into several groups of several ranks",
                              layout_.context_inner, context)
                : fmt::format(
                      "context_kind = \"a2a+p2p\" needs context_inner: how many of the {} ranks each all-to-all joins",
                      context);
      tables_.layout.problem(inner ? "context_inner" : "context_kind", message,
                             good.empty() ? "\"a2a\" or \"p2p\" would do" : would(good));
    }
  }

  void check_mtp_layers() {
    if (!tables_.model_sound || model_.further.empty()) return;
    // training/arguments.py: from 0.14 on tokens are rolled over ranks (multi_token_prediction.py roll_tensor).
    const Version& core = scenario_.runtime.versions.megatron;
    if (layout_.context > 1 && core < Version{0, 14})
      tables_.layout.problem("context",
                             fmt::format("Megatron-LM core {} has no context parallelism of models that predict "
                                         "further tokens (num_nextn_predict_layers)",
                                         text(core)),
                             "megatron = \"0.14\" in [runtime.versions]");
    // A head beside the copy of the embedding that it is tied to gets no gradient, and its bucket is never complete
    // (core/distributed/param_and_grad_buffer.py finish_grad_sync).
    if (model_.tied_embeddings && layout_.pipeline > 1 && scenario_.runtime.overlap.gradients)
      tables_.runtime.problem("switches",
                              "overlap-grad-reduce: a last stage that predicts further tokens with a tied embedding "
                              "has a head whose gradient Megatron waits for, and nobody makes",
                              "leave overlap-grad-reduce out, or pipeline = 1 in [layout]");
  }

  void check_attention() {
    // transformers hands the cap to FlashAttention (modeling_flash_attention_utils.py, softcap), which has it from 2.6
    // on, and keeps no more for it.
    const RuntimeKind& runtime = runtime_kind(scenario_.runtime.name);
    const bool capped = runtime.eager() && runtime.id != RuntimeId::TorchTitan;
    const bool can = train_.attention == AttentionKernel::Auto || stores_scores(train_.attention) ||
                     (capped && train_.attention == AttentionKernel::Flash);
    if (!tables_.model_sound || !tables_.train.sound("attention") || model_.attention_softcap == 0 || can) return;
    tables_.train.problem(
        "attention",
        fmt::format("attention = \"{}\" cannot cap scores, as the model's attn_logit_softcapping asks",
                    word(attention_names, train_.attention)),
        R"("auto", "unfused" or "local" can)");
  }

  // The 16-byte loads of both attention libraries. scaled_dot_product_attention pads heads for them; torchtitan's
  // models and FlashAttention's own functions were not looked at.
  void check_head_width() {
    constexpr std::int64_t aligned = 8;
    if (!tables_.model_sound || model_.latent() || model_.head_dim % aligned == 0) return;
    const RuntimeKind& runtime = runtime_kind(scenario_.runtime.name);
    const bool pads = runtime.eager() && runtime.id != RuntimeId::TorchTitan;
    const bool takes = stores_scores(train_.attention) || (pads && train_.attention == AttentionKernel::Fused);
    if (takes || !tables_.train.sound("attention")) return;
    tables_.train.problem(
        "attention",
        fmt::format("attention = \"{}\": {} per head, and FlashAttention and cuDNN take multiples of 8",
                    word(attention_names, train_.attention), model_.head_dim),
        pads ? "\"fused\" would do, for which PyTorch pads heads, or \"unfused\"" : "\"unfused\" would do");
  }

  // TransformerEngine dot_product_attention/utils.py: softmax_type "learnable".
  void check_sinks() {
    if (!tables_.model_sound || !model_.attention_sinks) return;
    if (tables_.train.sound("attention") && train_.attention == AttentionKernel::Flash)
      tables_.train.problem("attention", "attention = \"flash\" has no attention sinks, as the model does",
                            R"("auto", "fused" or "unfused" would do)");
    if (tables_.layout.sound("context") && layout_.context > 1)
      tables_.layout.problem("context",
                             not_modelled("context parallelism of a model with attention sinks is not modelled yet"),
                             "leave it out");
  }

  void check_multi_latent_attention() {
    if (!tables_.model_sound || !model_.latent()) return;
    const RuntimeKind& runtime = runtime_kind(scenario_.runtime.name);
    if (runtime.eager() && runtime.id != RuntimeId::TorchTitan)
      tables_.runtime.problem("name",
                              not_modelled(fmt::format("name = \"{}\": latent attention is not modelled there yet",
                                                       scenario_.runtime.name)),
                              "\"megatron\" or \"torchtitan\" would do");
    if (tables_.train.sound("attention") &&
        (train_.attention == AttentionKernel::Flash || train_.attention == AttentionKernel::Local))
      tables_.train.problem("attention",
                            fmt::format("attention = \"{}\" does not go with latent attention, whose values are not as "
                                        "wide as its keys",
                                        word(attention_names, train_.attention)),
                            R"("auto", "fused" or "unfused" would)");
    // multi_latent_attention.py gathers k_pos_emb under sequence parallelism only: otherwise each rank keeps the
    // gradient that its heads give it.
    if (tables_.layout.sound("tensor") && layout_.tensor > 1 && !layout_.sequence_parallel)
      tables_.layout.problem("tensor",
                             fmt::format("tensor = {} without sequence_parallel: Megatron-LM would leave gradients of "
                                         "latent attention apart",
                                         layout_.tensor),
                             "sequence_parallel = true, or tensor = 1");
  }

  void check_latent_contexts() {
    if (!tables_.model_sound || !model_.latent() || layout_.context == 1 || !tables_.layout.sound("context")) return;
    // Values of another width than keys came to context_parallel.py with 2.5, for rings (attn_forward_func_with_cp).
    const bool as_wide = model_.latent()->query_head() == model_.latent()->value_head;
    const bool rings =
        layout_.context_kind == ContextKind::Ring || layout_.context_kind == ContextKind::AllToAllAndRing;
    if (!as_wide && scenario_.runtime.versions.transformer_engine < Version{2, 5})
      tables_.layout.problem(
          "context",
          fmt::format("context = {}: Transformer Engine {} takes no values that are not as wide as keys",
                      layout_.context, text(scenario_.runtime.versions.transformer_engine)),
          "transformer_engine = \"2.5\" in [runtime.versions] would do");
    else if (tables_.layout.sound("context_kind") && !as_wide && !rings)
      tables_.layout.problem(
          "context_kind",
          fmt::format("context_kind = \"{}\": Transformer Engine takes no latent attention that way, "
                      "where values are not as wide as keys",
                      word(context_kind_names, layout_.context_kind)),
          R"("p2p" or "a2a+p2p" would do)");
    // yarn_rotary_pos_embedding.py get_cached_cos_sin: what was made in fp32 for 4,096 positions, and cut for ranks
    // then, is long enough.
    constexpr std::int64_t original = 4096;
    if (scenario_.runtime.rope_fusion && train_.precision == DType::FP32 && train_.sequence_length < original)
      tables_.layout.problem("context",
                             fmt::format("context = {} in fp32: Megatron-LM would turn what latent attention turns by "
                                         "positions of {} tokens, not of {}",
                                         layout_.context, original, train_.sequence_length),
                             "precision = \"bf16\", or the switch no-rope-fusion");
  }

  void check_schedule_of_megatron() {
    if (!tables_.layout.sound("schedule") || runtime_kind(scenario_.runtime.name).eager()) return;
    if (traits_of(layout_.schedule).of_pytorch_alone)
      tables_.layout.problem("schedule",
                             fmt::format("schedule = \"{}\" is PyTorch's, and Megatron has no such",
                                         word(schedule_names, layout_.schedule)),
                             "name = \"torchtitan\" in [runtime], or \"interleaved\"");
  }

  // Of linears that are Transformer Engine's (delay_wgrad_compute came with 2.3).
  void check_weight_gradients() {
    if (!tables_.layout.sound("schedule") || layout_.schedule != ScheduleKind::ZeroBubbleH1) return;
    if (train_.attention == AttentionKernel::Local)
      tables_.layout.problem("schedule", "schedule = \"zb-h1\": weight gradients of Megatron's own layers do not wait",
                             "leave attention = \"local\" out, or set \"1f1b\"");
    else if (scenario_.runtime.versions.transformer_engine < Version{2, 3})
      tables_.layout.problem("schedule", "schedule = \"zb-h1\": weight gradients wait from Transformer Engine 2.3 on",
                             "set a later release, or \"1f1b\"");
    else if (scenario_.runtime.overlap.gradients)
      tables_.layout.problem("schedule",
                             "schedule = \"zb-h1\" does not go with overlap-grad-reduce: gradients are complete later",
                             "leave the switch out, or set \"1f1b\"");
  }

  void check_batch() {
    if (!data_known_ || !batch_sound()) return;
    const std::int64_t together = train_.micro_batch * layout_.data;
    if (!tables_.train.has("global_batch")) {
      train_.global_batch = together;
    } else if (train_.global_batch % together != 0) {
      tables_.train.problem("global_batch",
                            fmt::format("global_batch = {} is not a multiple of micro_batch x data = {} x {} = {}",
                                        train_.global_batch, train_.micro_batch, layout_.data, together),
                            would(multiples_around(train_.global_batch, together)));
      return;
    }
    if (tables_.layout.sound("chunks") && tables_.layout.sound("schedule"))
      check_interleaving(tables_.layout, layout_, train_.global_batch / together);
  }

  void check_precision() {
    if (!tables_.train.sound("precision") || runtime_kind(scenario_.runtime.name).eager()) return;
    if (!tables_.train.has("gradient_dtype")) {
      // Megatron turns accumulate-allreduce-grads-in-fp32 on for bf16 by itself (arguments.py, validate_args).
      train_.gradient_dtype = train_.precision == DType::BF16 ? DType::FP32 : train_.precision;
    } else if (tables_.train.sound("gradient_dtype") && train_.gradient_dtype != DType::FP32 &&
               train_.gradient_dtype != train_.precision) {
      tables_.train.problem("gradient_dtype",
                            fmt::format("gradient_dtype = \"{}\" is neither \"fp32\" nor precision = \"{}\"",
                                        name(train_.gradient_dtype), name(train_.precision)));
    }
  }

  void check_headroom() {
    const Bytes capacity = scenario_.cluster.device.capacity;
    if (!tables_.cluster_sound || !tables_.runtime.sound("headroom") || scenario_.runtime.headroom < capacity) return;
    tables_.runtime.problem("headroom", fmt::format("headroom = {} leaves nothing of a device's {:.2f} GiB",
                                                    in_quotes(text(scenario_.runtime.headroom)),
                                                    static_cast<double>(capacity.count()) / (1 << 30)));
  }

  /// Keeps sizes within 64 bits and programs within this machine's memory, far beyond anything that runs.
  void check_size() {
    if (!tables_.model_sound || !data_known_ || !batch_sound() || !tables_.train.sound("steps")) return;
    const auto real = [](std::int64_t n) { return static_cast<double>(n); };
    const double hidden = real(model_.hidden);
    const double attention = real(model_.heads + 2 * model_.kv_heads) * real(model_.head_dim);
    const Experts of = model_.experts() ? *model_.experts() : Experts{};
    const double mlp = real(model_.widest_mlp());
    const double experts = real(of.count) * real(of.ffn) + real(of.shared_ffn);
    const double met = real(of.chosen) * real(of.ffn) + real(of.shared_ffn);  // of those by a token
    const double vocabulary = real(model_.vocabulary + model_.vocabulary_extra) +
                              real(std::max<std::int64_t>(model_.vocabulary_multiple, 128)) * layout_.tensor;
    const double parameters =
        (2 * vocabulary + (model_.positions == Positions::Learned ? real(model_.max_positions) : 0)) * hidden +
        real(model_.layers.size()) * hidden * (2 * attention + 3 * (mlp + experts) + 8);
    const bool stored = stores_scores(train_.attention) || model_.attention_softcap > 0;
    const double scores = stored ? real(model_.heads) * real(train_.sequence_length) : 0;
    const double per_token =
        real(model_.layers.size()) * (16 * hidden + 8 * attention + 12 * (mlp + met) + 16 * scores) + 16 * vocabulary;
    constexpr double most_bytes = 1.0e18;  // below 2^60
    if (24 * parameters + 2 * real(train_.tokens()) * per_token > most_bytes) {
      tables_.train.problem("sequence_length",
                            "the job is too large to simulate: one rank could need more than an exabyte");
    }
    constexpr double most_passes = 1 << 20;
    const double passes = real(model_.layers.size()) / layout_.pipeline * real(train_.global_batch) /
                          real(train_.micro_batch * layout_.data) * train_.steps;
    if (passes > most_passes) {
      tables_.train.problem(
          "global_batch",
          fmt::format("the job is too long to simulate: {:.0f} passes through a layer on one rank", passes),
          fmt::format("at most {:.0f} would do: fewer sequences, or fewer steps", most_passes));
    }
  }

  Scenario& scenario_;
  Layout& layout_;
  Train& train_;
  const Model& model_;
  ScenarioTables& tables_;
  bool data_known_ = false;
};

}  // namespace

void settle(Scenario& scenario, ScenarioTables& tables) { Checks(scenario, tables).run(); }

}  // namespace tidemark::scenarios
