#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/megatron/model.hpp"
#include "scenarios/frameworks/megatron/megatron_switches.hpp"
#include "scenarios/frameworks/megatron/muon_switches.hpp"
#include "scenarios/model_config/config_reader.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/scenario/names.hpp"

// A scenario as Megatron-LM's arguments.

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

/// A flag of the layout or the training, and what Megatron takes where it is left out.
struct Usual {
  std::string_view flag, usual;
};
constexpr std::array training_flags{
    Usual{"tensor-model-parallel-size", "1"},
    Usual{"sequence-parallel", "false"},
    Usual{"pipeline-model-parallel-size", "1"},
    Usual{"num-virtual-stages-per-pipeline-rank", "1"},
    Usual{"decoder-first-pipeline-num-layers", "0"},
    Usual{"decoder-last-pipeline-num-layers", "0"},
    Usual{"account-for-embedding-in-pipeline-split", "false"},
    Usual{"account-for-loss-in-pipeline-split", "false"},
    Usual{"context-parallel-size", "1"},
    Usual{"cp-comm-type", "\"p2p\""},
    Usual{"expert-model-parallel-size", "1"},
    Usual{"use-tp-pp-dp-mapping", "false"},
    Usual{"use-distributed-optimizer", "false"},
    Usual{"num-distributed-optimizer-instances", "1"},
    Usual{"seq-length", ""},
    Usual{"micro-batch-size", ""},
    Usual{"global-batch-size", ""},
    Usual{"bf16", "false"},
    Usual{"fp16", "false"},
    Usual{"grad-reduce-in-bf16", "false"},
    Usual{"optimizer", "\"adam\""},
    Usual{"attention-backend", "\"auto\""},
    Usual{"transformer-impl", "\"transformer_engine\""},
    Usual{"cross-entropy-loss-fusion", "false"},
    Usual{"cross-entropy-fusion-impl", "\"native\""},
    Usual{"hidden-dropout", "0.1"},
    Usual{"attention-dropout", "0.1"},
    Usual{"recompute-granularity", "\"none\""},
    Usual{"recompute-method", ""},
    Usual{"recompute-num-layers", ""},
    Usual{"recompute-modules", "[\"core_attn\"]"},  // which releases before 0.12 have no flag for
    Usual{"optimizer-cpu-offload", "false"},
};

// "a" to a, ["a", "b"] to a b.
std::vector<std::string> words_of(const std::string& value) {
  const TomlTable bare = parse_toml("x = " + value, {});
  const TomlValue& its = bare.keys.front().value;
  std::vector<std::string> words;
  const auto word = [](const TomlValue& v) {
    const auto* text = std::get_if<std::string>(&v.value);
    return text != nullptr ? *text : flag_text(v);
  };
  if (const auto* list = std::get_if<std::vector<TomlValue>>(&its.value))
    for (const TomlValue& v : *list) words.push_back(word(v));
  else
    words.push_back(word(its));
  return words;
}

class Writer {
 public:
  explicit Writer(const Scenario& scenario) : s_(scenario) {}

  std::vector<std::vector<std::string>> write() {
    for (const ModelFlag& its : model_flags()) {
      if ((its.of_experts && !s_.model.experts()) || (its.of_latent && !s_.model.latent())) continue;
      if (its.of_hybrid && !s_.model.hybrid()) continue;
      if (its.flag == "kv-channels" && (s_.model.latent() || s_.model.head_dim * s_.model.heads == s_.model.hidden))
        continue;
      if (its.flag == "group-query-attention" && s_.model.kv_heads == s_.model.heads) continue;
      if (its.flag == "num-query-groups" && s_.model.kv_heads == s_.model.heads) continue;
      add(its.flag, its.usual);
    }
    if (s_.model.latent()) arguments_.push_back({"--rope-type", "yarn"});
    if (s_.model.hybrid()) {
      arguments_.push_back({"--is-hybrid-model"});
      arguments_.push_back({"--spec", "megatron.core.models.mamba.mamba_layer_specs", "mamba_stack_spec"});
    }
    // arguments.py: required, and no less than the sequence.
    const std::int64_t positions = s_.model.positions == Positions::Learned
                                       ? s_.model.max_positions
                                       : std::max(s_.model.max_positions, s_.train.sequence_length);
    arguments_.push_back({"--max-position-embeddings", std::to_string(positions)});
    if (s_.model.vocabulary_extra == 1) arguments_.push_back({"--tokenizer-type", "NullTokenizer"});
    for (const Usual& its : training_flags)
      if (is_there(its.flag)) add(its.flag, its.usual);
    if (s_.layout.context_kind == ContextKind::AllToAllAndRing && s_.layout.context > 1)
      add("hierarchical-context-parallel-sizes", "");
    if (s_.layout.expert_tensor > 0) add("expert-tensor-parallel-size", "");
    if (s_.train.precision == DType::FP16 && s_.train.gradient_dtype == DType::FP32)
      arguments_.push_back({"--accumulate-allreduce-grads-in-fp32"});
    if (s_.runtime.optimizer.precision_aware && s_.train.gradient_dtype != DType::FP32)
      add("main-grads-dtype", "\"fp32\"");
    if (s_.train.optimizer == Optimizer::Sgd) arguments_.push_back({"--sgd-momentum", "0"});
    if (s_.run.steps > 0) arguments_.push_back({"--train-iters", std::to_string(s_.run.steps)});
    if (s_.runtime.optimizer.offloaded) add("optimizer-offload-fraction", "1");
    if (s_.model.experts()) {
      add("moe-token-dispatcher-type", "\"allgather\"");
      if (s_.train.routing.capacity_factor > 0) add("moe-expert-capacity-factor", "");
      add("moe-pad-expert-input-to-capacity", "false");
      const ExpertBehavior& behavior = s_.runtime.experts;
      if (behavior.grouped_linears) arguments_.push_back({"--moe-grouped-gemm"});
      if (!behavior.balancing.empty() && !behavior.balances_by(LoadBalancing::Sinkhorn)) {
        std::vector<std::string> coefficients{"--moe-aux-loss-coeff"};
        for (const double its : behavior.loss_coefficients) coefficients.push_back(fmt::format("{}", its));
        arguments_.push_back(std::move(coefficients));
      }
    }
    if (s_.layout.chunk_group > 0)
      arguments_.push_back(
          {"--microbatch-group-size-per-virtual-pipeline-stage", std::to_string(s_.layout.chunk_group)});
    add_switches();
    return std::move(arguments_);
  }

 private:
  [[nodiscard]] bool is_there(std::string_view flag) const {
    const Recompute kind = s_.train.recompute.kind;
    if (flag == "recompute-method" || flag == "recompute-num-layers") return kind == Recompute::Full;
    if (flag == "recompute-modules") return kind == Recompute::Selective;
    if (flag == "cross-entropy-fusion-impl") return s_.train.cross_entropy != CrossEntropy::Unfused;
    if (flag == "cp-comm-type") return s_.layout.context > 1;
    if (flag == "attention-backend") return s_.train.attention != AttentionKernel::Local;
    if (flag == "global-batch-size") return s_.train.global_batch != s_.train.micro_batch * s_.layout.data;
    return true;
  }

  void add(std::string_view flag, std::string_view usual) {
    const std::vector<std::string> values = agreeing_values(flag, s_);
    if (values.empty() || (!usual.empty() && std::ranges::find(values, usual) != values.end())) return;
    const std::string name = fmt::format("--{}", flag);
    if (values.front() == "true") {
      arguments_.push_back({name});
      return;
    }
    std::vector<std::string> words = words_of(values.front());
    if (values.front() == "false" || words.empty()) return;
    words.insert(words.begin(), name);
    arguments_.push_back(std::move(words));
  }

  // Switches that are not as they are by default.
  void add_switches() {
    const auto switches_of = [](const Scenario& scenario) {
      return Json::parse(scenario_json(scenario, -1)).at("runtime").at("switches");
    };
    Scenario plain;
    const Json usual = switches_of(plain), ours = switches_of(s_);
    for (const auto& [flag, value] : ours.items()) {
      if (usual.contains(flag) && usual.at(flag) == value) continue;
      if (!usual.contains(flag) && value.is_boolean() && !value.get<bool>()) continue;
      const std::optional<MegatronFlag> its = megatron_flag(flag);
      if (!its || its->kind != MegatronFlag::Kind::Own) continue;  // what repeats a key is said above
      if (flag == "store-param-remainders") continue;  // a key of OptimizerConfig, for which no release has a flag
      if (flag == "moe-grouped-gemm" || (flag.starts_with("moe-") && !s_.model.experts())) continue;
      std::vector<std::string> words{"--" + flag};
      const auto add_word = [&](const Json& v) { words.push_back(v.is_string() ? v.get<std::string>() : v.dump()); };
      if (value.is_array())
        for (const Json& v : value) add_word(v);
      else if (!value.is_boolean())
        add_word(value);
      else if (!value.get<bool>())
        add_word(value);
      arguments_.push_back(std::move(words));
    }
  }

  const Scenario& s_;
  std::vector<std::vector<std::string>> arguments_;
};

}  // namespace

std::vector<std::vector<std::string>> megatron_arguments(const Scenario& scenario) {
  Scenario requested = scenario;
  // The reader turns it on where it means nothing.
  if (requested.layout.tensor == 1) requested.layout.sequence_parallel = false;
  return Writer(requested).write();
}

}  // namespace tidemark::scenarios
