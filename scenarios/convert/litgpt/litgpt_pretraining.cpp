#include "scenarios/convert/litgpt/litgpt_pretraining.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"

// LitGPT's config_hub/pretrain (26857050), litgpt/pretrain.py: the compiled model by Fabric, on several devices under
// FSDP with a unit for each block and nothing recomputed, whole within a node.

namespace tidemark::scenarios {
namespace {

// litgpt/config.py: names that are not those of their checkpoints.
struct Named {
  std::string_view its, checkpoint;
};
constexpr std::array named{Named{"tiny-llama-1.1b", "TinyLlama/TinyLlama-1.1B-intermediate-step-1431k-3T"},
                           Named{"tiny-llama-1.1b-chat", "TinyLlama/TinyLlama-1.1B-Chat-v1.0"},
                           Named{"micro-llama-300M", "keeeeenw/MicroLlama"}};

class Pretraining {
 public:
  Pretraining(const TomlTable& whole, const ShippedModels& models, Draft& draft)
      : given_(whole.keys, "", draft), models_(models), draft_(draft) {}

  void read() {
    read_model();
    read_devices();
    read_precision();
    read_batch();
    read_optimizer();
    draft_.set("runtime.switches.use_cache", false);
    given_.no_matter(std::array<std::string_view, 9>{"out_dir", "resume", "data", "eval", "log", "logger_name", "seed",
                                                     "tokenizer_dir", "initial_checkpoint_dir"},
                     "of data, checkpoints and logs");
    given_.refuse_the_rest("is no argument of LitGPT's pre-training that is known here");
    const Place at = given_.place("model_name");
    draft_.remark_bounded("LitGPT",
                          "the figures are of transformers' modules with this model, layout and batch; LitGPT's have "
                          "one projection of queries, keys and values, and norms in fp32",
                          "litgpt", at);
    draft_.remark_bounded("torch.compile", "the figures are of layers that are not compiled", "compiled-layers", at);
    draft_.remark_bounded("chunked_cross_entropy",
                          "the figures are of whole logits in fp32; LitGPT has them in chunks of 128 tokens",
                          "chunked-loss", at);
  }

 private:
  // Of what is left out, too, where a default asks for it.
  void open(const Given& of, std::string_view key, std::string why) {
    draft_.remark(RemarkKind::NotExpressed, std::string(key), not_modelled(std::move(why)), of.place(key));
  }
  void leave_unjudged(const Given& of, std::string_view key, std::string why) {
    draft_.remark(RemarkKind::NotJudged, std::string(key), std::move(why), of.place(key));
  }

  void read_model() {
    const std::string name = given_.text("model_name").value_or("");
    if (given_.has("model_config") && given_.look_at("model_config") != nullptr &&
        std::holds_alternative<TomlTable>(given_.look_at("model_config")->value)) {
      Given its = given_.table("model_config");
      read_shape(its);
      return;
    }
    (void)given_.take("model_config");
    const auto* const other = std::ranges::find(named, std::string_view(name), &Named::its);
    std::string checkpoint = other == named.end() ? name : std::string(other->checkpoint);
    if (!shipped_model(models_, checkpoint) && checkpoint.find('/') == std::string::npos)
      if (const auto found = by_last_name(checkpoint); !found.empty()) checkpoint = found;
    (void)name_checkpoint(models_, checkpoint, "model_name", given_.place("model_name"), draft_);
  }

  // A configuration's name is that of its checkpoint without who published it.
  std::string by_last_name(const std::string& name) const {
    for (const char* of : {"meta-llama", "EleutherAI", "Qwen", "mistralai", "google", "microsoft", "allenai"})
      if (const std::string whole = fmt::format("{}/{}", of, name); shipped_model(models_, whole)) return whole;
    return {};
  }

  // litgpt/config.py Config.
  void read_shape(Given& its) {
    const std::string norm = its.text("norm_class_name").value_or("LayerNorm");
    const std::string mlp = its.text("mlp_class_name").value_or("GptNeoxMLP");
    if (norm != "RMSNorm" || mlp != "LLaMAMLP" || its.flag("bias").value_or(true) ||
        its.flag("parallel_residual").value_or(true))
      open(its, "mlp_class_name", "a model_config of other layers than Llama's is not modelled");
    const std::int64_t hidden = its.integer("n_embd").value_or(4096), heads = its.integer("n_head").value_or(32);
    const auto padded = its.integer("padded_vocab_size"), tokens = its.integer("vocab_size");
    const std::int64_t multiple = std::max<std::int64_t>(its.integer("padding_multiple").value_or(512), 1);
    const std::int64_t rows = tokens.value_or(50'254);
    if (draft_.find("model") == nullptr)
      draft_.set("model", std::string("models/llama-2-7b.json"), its.place("n_embd"));
    for (const auto& [key, value] :
         {std::pair<std::string_view, std::int64_t>{"hidden_size", hidden},
          {"num_attention_heads", heads},
          {"num_key_value_heads", its.integer("n_query_groups").value_or(heads)},
          {"num_hidden_layers", its.integer("n_layer").value_or(16)},
          {"intermediate_size", its.integer("intermediate_size").value_or(product({4, hidden}))},
          {"vocab_size", padded.value_or(multiple * (rows / multiple + (rows % multiple == 0 ? 0 : 1)))},
          {"max_position_embeddings", its.integer("block_size").value_or(4096)}})
      draft_.set(fmt::format("model_override.{}", key), value, its.place("n_embd"));
    if (const auto width = its.integer("head_size"))
      draft_.set("model_override.head_dim", *width, its.place("head_size"));
    length_ = its.integer("block_size").value_or(4096);
    its.no_matter(
        std::array<std::string_view, 9>{"name", "hf_config", "scale_embeddings", "rotary_percentage", "norm_eps",
                                        "rope_base", "lm_head_bias", "rope_condense_ratio", "shared_attention_norm"},
        "shapes nothing, or is within what LitGPT's own bound covers");
    its.refuse_the_rest("is no key of LitGPT's Config that is known here");
  }

  // litgpt/utils.py parse_devices: "auto" and -1 are all that there are.
  void read_devices() {
    constexpr std::int64_t all_there_are = -1;
    const bool left = given_.left_to_others("devices") || !given_.has("devices");
    const std::int64_t devices = left ? all_there_are : given_.integer("devices").value_or(all_there_are);
    const std::int64_t nodes = given_.integer("num_nodes").value_or(1);
    for (const auto& [key, number] :
         {std::pair<std::string_view, std::int64_t>{"devices", devices}, {"num_nodes", nodes}})
      if (number < 1 && !(number == all_there_are && key == "devices")) {
        const Place at = given_.place(key);
        throw InputError(Problem{.file = draft_.file,
                                 .line = at.line,
                                 .column = at.column,
                                 .message = fmt::format("{} takes a number from 1 up", key),
                                 .hint = "LitGPT takes \"auto\" and -1, too, for all devices of a node"});
      }
    if (draft_.find("gpus") == nullptr) {
      if (devices == all_there_are)
        draft_.starts_all = "devices = \"auto\": Fabric", draft_.starts_nodes = nodes;
      else
        draft_.set("gpus", product({devices, nodes}), given_.place("devices"));
    }
    const std::int64_t gpus = draft_.integer("gpus").value_or(0);
    alone_ = draft_.starts_all.empty() && gpus == 1;
    draft_.set("runtime.name", std::string(alone_ ? "pytorch" : "fsdp"), given_.place("devices"));
    if (alone_) return;
    draft_.set("layout.sharding", std::string("zero3"));
    if (nodes > 1 && gpus > nodes && gpus % nodes == 0)  // HYBRID_SHARD: within a node
      draft_.set("layout.shard_group", gpus / nodes, given_.place("num_nodes"));
    draft_.set("runtime.switches.use_orig_params", true);  // lightning/fabric/strategies/fsdp.py
  }

  // lightning/fabric/plugins/precision/fsdp.py: weights are fp32 where it is mixed, and all else is in half precision.
  void read_precision() {
    if (!given_.has("precision") || given_.look_at("precision") == nullptr)
      draft_.remark(RemarkKind::Assumed, "precision", "bf16-true, which LitGPT takes on devices that have bf16");
    const std::string precision = given_.text("precision").value_or("bf16-true");
    constexpr auto known =
        std::to_array<std::string_view>({"bf16-true", "bf16-mixed", "16-true", "16-mixed", "32-true"});
    if (std::ranges::find(known, std::string_view(precision)) == known.end())
      open(given_, "precision", fmt::format("precision = {}: is not modelled here", in_quotes(precision)));
    const std::string type = precision.starts_with("bf16") ? "bf16" : precision.starts_with("16") ? "fp16" : "fp32";
    const bool mixed = precision.ends_with("-mixed");
    draft_.set("train.precision", type, given_.place("precision"));
    draft_.type_said = true;
    if (type == "fp32") return;
    if (mixed)
      draft_.set("runtime.switches.autocast", true);
    else
      draft_.set("train.master_dtype", type);
    if (!alone_) draft_.set("runtime.switches.buffer_dtype", type);
  }

  void read_batch() {
    Given train = given_.table("train");
    draft_.set("train.micro_batch", std::max<std::int64_t>(train.integer("micro_batch_size").value_or(4), 1),
               train.place("micro_batch_size"));
    draft_.sequences_shared = std::max<std::int64_t>(train.integer("global_batch_size").value_or(512), 1);
    draft_.shares_sequences = train.place("global_batch_size");
    std::optional<std::int64_t> length = train.integer("max_seq_length");
    if (!length && length_ > 0) length = length_;
    if (length)
      draft_.set("train.sequence_length", *length, train.place("max_seq_length"));
    else
      draft_.rows_of_data = "train.max_seq_length";
    if (const auto tied = train.flag("tie_embeddings")) tied_ = *tied;
    draft_.set("model_override.tie_word_embeddings", tied_, train.place("tie_embeddings"));
    draft_.set("runtime.switches.max_grad_norm", train.number("max_norm").value_or(0.0), train.place("max_norm"));
    train.no_matter(std::array<std::string_view, 9>{"save_interval", "log_interval", "lr_warmup_steps",
                                                    "lr_warmup_fraction", "epochs", "max_tokens", "max_steps",
                                                    "max_time", "min_lr"});
    train.refuse_the_rest("is none of LitGPT's TrainArgs that are known here");
  }

  // litgpt/pretrain.py main: a fused kernel where there is one.
  void read_optimizer() {
    std::string name = "AdamW";
    if (const TomlValue* const value = given_.take("optimizer"); value != nullptr) {
      if (const auto* text = std::get_if<std::string>(&value->value)) name = *text;
      if (const auto* table = std::get_if<TomlTable>(&value->value)) {
        Given its(table->keys, "optimizer.", draft_);
        name = its.text("class_path").value_or(name);
        Given arguments = its.table("init_args");
        if (const TomlValue* decay = arguments.take("weight_decay"))
          draft_.set("runtime.switches.weight_decay", decay->value, decay->place);
        arguments.no_matter(std::array<std::string_view, 5>{"lr", "betas", "eps", "fused", "foreach"});
        arguments.refuse_the_rest("is no argument of this optimizer that is known here");
      }
    }
    const std::string bare = name.substr(name.rfind('.') + 1);
    if (bare == "SGD")
      draft_.set("train.optimizer", std::string("sgd"));
    else if (bare != "AdamW" || name.starts_with("bitsandbytes"))
      leave_unjudged(given_, "optimizer", "is not modelled: the figures are of AdamW");
    else
      draft_.set("runtime.switches.fused", true);
  }

  Given given_;
  const ShippedModels& models_;
  Draft& draft_;
  std::int64_t length_ = 0;
  bool alone_ = false, tied_ = false;
};

}  // namespace

bool is_litgpt_pretraining(const TomlTable& document) {
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(document.keys, [&](const TomlKey& key) { return key.name == name; });
  };
  return !has("checkpoint_dir") && (has("model_name") || has("model_config"));
}

void read_litgpt_pretraining(const TomlTable& document, const ShippedModels& models, Draft& draft) {
  Pretraining(document, models, draft).read();
}

}  // namespace tidemark::scenarios
