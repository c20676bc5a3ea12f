#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/litgpt/litgpt_pretraining.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"

// LitGPT's config_hub/finetune (26857050): litgpt/finetune/full.py and lora.py with Lightning's Fabric. On one device
// nothing is wrapped and nothing recomputed; on several, full.py has FSDP around checkpointed blocks and lora.py
// fully_shard. The figures are of transformers' modules and PEFT's adapters, within a bound.

namespace tidemark::scenarios {
namespace {

class LitgptReader {
 public:
  LitgptReader(const TomlTable& document, const ShippedModels& models, Draft& draft)
      : given_(document.keys, "", draft), models_(models), draft_(draft) {}

  void read() {
    refuse_others();
    read_devices();
    read_precision();
    read_adapter();
    read_batch();
    read_optimizer();
    draft_.set("runtime.switches.use_cache", false);
    draft_.set("runtime.switches.max_grad_norm", 0.0);
    given_.no_matter(std::array<std::string_view, 8>{"out_dir", "resume", "data", "eval", "log", "logger_name", "seed",
                                                     "access_token"},
                     "of data, checkpoints and logs");
    given_.refuse_the_rest("is no argument of LitGPT's fine-tuning that is known here");
    draft_.remark_bounded("LitGPT",
                          "the figures are of transformers' modules with this model, layout and batch; LitGPT's have "
                          "one projection of queries, keys and values, and norms in fp32",
                          "litgpt", given_.place("checkpoint_dir"));
    draft_.remark_bounded("lm_head_chunk_size",
                          "the figures are of whole logits in fp32; LitGPT has them in chunks of 128 tokens",
                          "chunked-loss", given_.place("checkpoint_dir"));
  }

 private:
  [[noreturn]] void fail(std::string_view key, std::string message) const {
    const Place place = given_.place(key);
    throw InputError(Problem{draft_.file, place.line, place.column, std::move(message),
                             "full fine-tuning and LoRA are modelled", ProblemKind::NotModelled});
  }

  void refuse_number(std::string_view key, bool wrong) const {
    const Place place = given_.place(key);
    if (wrong)
      throw InputError(Problem{.file = draft_.file,
                               .line = place.line,
                               .column = place.column,
                               .message = fmt::format("{} takes a number from 1 up", key),
                               .hint = "LitGPT takes \"auto\" and -1, too, for all devices of a node"});
  }

  void refuse_others() {
    if (!given_.has("checkpoint_dir")) fail("train", "LitGPT's arguments without a checkpoint are not modelled");
    for (const std::string_view key : {"adapter_start_layer", "adapter_prompt_length"})
      if (given_.has(key)) fail(key, fmt::format("{}: LitGPT's other adapters are not modelled", key));
    const std::string checkpoint = *given_.text("checkpoint_dir");
    its_ = name_checkpoint(models_, checkpoint, "checkpoint_dir", given_.place("checkpoint_dir"), draft_);
    // litgpt/model.py has a head of its own, into which scripts/convert_hf_checkpoint.py copies a tied one.
    if (its_ && its_->model.tied_embeddings)
      draft_.set("model_override.tie_word_embeddings", false, given_.place("checkpoint_dir"));
    adapted_ = std::ranges::any_of(given_.keys(), [](const TomlKey& key) { return key.name.starts_with("lora_"); });
  }

  // litgpt/utils.py parse_devices: "auto" and -1 are all that there are; jsonargparse reads "4" as 4.
  void read_devices() {
    constexpr std::int64_t all_there_are = -1;
    const std::int64_t devices =
        given_.left_to_others("devices") ? all_there_are : given_.integer("devices").value_or(1);
    const std::int64_t nodes = given_.integer("num_nodes").value_or(1);
    const bool none = given_.has("devices") && given_.take("devices") == nullptr && !given_.left_to_others("devices");
    refuse_number("devices", none || (devices < 1 && devices != all_there_are));
    refuse_number("num_nodes", nodes < 1);
    const bool all = devices == all_there_are;
    if (draft_.find("gpus") == nullptr) {
      if (all)
        draft_.starts_all = "devices = \"auto\": Fabric", draft_.starts_nodes = nodes;
      else
        draft_.set("gpus", product({devices, nodes}), given_.place("devices"));
    }
    alone_ = draft_.starts_all.empty() && draft_.integer("gpus").value_or(1) == 1;
    draft_.set("runtime.name", std::string(alone_ ? "pytorch" : adapted_ ? "fsdp2" : "fsdp"), given_.place("devices"));
    if (alone_) return;
    draft_.set("layout.sharding", std::string("zero3"));
    draft_.set("train.recompute", std::string("full"));
    draft_.set("runtime.switches.use_reentrant", false);
    if (!adapted_) draft_.set("runtime.switches.use_orig_params", true);  // lightning/fabric/strategies/fsdp.py
  }

  void read_precision() {
    const bool said = given_.has("precision");
    const std::string precision = given_.text("precision").value_or("bf16-mixed");
    if (!said)
      draft_.remark(RemarkKind::Assumed, "precision", "bf16-mixed, which LitGPT takes on devices that have bf16");
    const bool mixed = precision.ends_with("-mixed");
    const std::string type = precision.starts_with("bf16") ? "bf16" : precision.starts_with("16") ? "fp16" : "fp32";
    constexpr auto known =
        std::to_array<std::string_view>({"bf16-true", "bf16-mixed", "16-true", "16-mixed", "32-true"});
    if (std::ranges::find(known, std::string_view(precision)) == known.end())
      fail("precision", fmt::format("precision = {}: is not modelled here", in_quotes(precision)));
    draft_.set("train.precision", type, given_.place("precision"));
    draft_.type_said = true;
    if (!mixed && type != "fp32") draft_.set("train.master_dtype", type), held_ = type;
    if (mixed && alone_) draft_.set("runtime.switches.autocast", true);
    if (mixed && !alone_) fail("precision", "precision: Fabric's mixed precision under FSDP is not modelled");
    if (!alone_) draft_.set("runtime.switches.reduce_dtype", type);
    if (!alone_ && !adapted_) draft_.set("runtime.switches.buffer_dtype", type);
  }

  // litgpt/lora.py: one update for queries, keys and values together, of those that are asked for.
  void read_adapter() {
    if (!adapted_) return;
    constexpr auto named_alike =
        std::to_array<std::string_view>({"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"});
    if (its_ && std::ranges::find(named_alike, std::string_view(its_->model.architecture)) == named_alike.end())
      fail("lora_r", fmt::format("lora_r: LoRA on models of type {} is not modelled here", its_->model.architecture));
    draft_.set("adapter.method", std::string("lora"), given_.place("lora_r"));
    draft_.set("adapter.rank", given_.integer("lora_r").value_or(8), given_.place("lora_r"));
    draft_.set("adapter.alpha", given_.number("lora_alpha").value_or(16), given_.place("lora_alpha"));
    draft_.set("adapter.dropout", given_.number("lora_dropout").value_or(0.05), given_.place("lora_dropout"));
    draft_.set("adapter.dtype", held_);
    std::vector<TomlValue> targets;
    const auto take = [&](std::string_view key, bool usual, std::initializer_list<const char*> modules) {
      if (!given_.flag(key).value_or(usual)) return;
      for (const char* module : modules) targets.push_back({std::string(module), given_.place(key)});
    };
    take("lora_query", true, {"q_proj"});
    take("lora_key", false, {"k_proj"});
    take("lora_value", true, {"v_proj"});
    take("lora_projection", false, {"o_proj"});
    take("lora_mlp", false, {"gate_proj", "up_proj", "down_proj"});
    take("lora_head", false, {"lm_head"});
    draft_.set("adapter.target_modules", std::move(targets), given_.place("lora_r"));
    read_quantization();
  }

  void read_quantization() {
    const std::string format = given_.text("quantize").value_or("");
    if (format.empty()) return;
    if (!alone_) fail("quantize", "quantize: LitGPT quantizes on one device, and stops on several; not modelled");
    const bool nf4 = format.starts_with("bnb.nf4"), fp4 = format.starts_with("bnb.fp4");
    if (!nf4 && !fp4) fail("quantize", fmt::format("quantize = {}: is not modelled", in_quotes(format)));
    draft_.set("quantization.format", std::string(nf4 ? "nf4" : "fp4"), given_.place("quantize"));
    draft_.set("quantization.double_quant", format.ends_with("-dq"));
    draft_.set("quantization.prepare", std::string("none"));
    quantized_ = true;
  }

  // litgpt/args.py TrainArgs.
  void read_batch() {
    Given train = given_.table("train");
    const auto counted = [&](std::string_view key, std::int64_t usual) {
      const std::int64_t number = train.integer(key).value_or(usual);
      if (number < 1) train.tell(RemarkKind::NotExpressed, key, "takes a number from 1 up");
      return std::max<std::int64_t>(number, 1);
    };
    draft_.set("train.micro_batch", counted("micro_batch_size", 1), train.place("micro_batch_size"));
    draft_.sequences_shared = counted("global_batch_size", 16);
    draft_.shares_sequences = train.place("global_batch_size");
    if (const auto longest = train.integer("max_seq_length"))
      draft_.set("train.sequence_length", *longest, train.place("max_seq_length"));
    else
      draft_.rows_of_data = "train.max_seq_length";
    train.refuse("tie_embeddings", "embeddings that fine-tuning ties are", {"false"});
    train.no_matter(std::array<std::string_view, 9>{"save_interval", "log_interval", "lr_warmup_steps",
                                                    "lr_warmup_fraction", "epochs", "max_tokens", "max_steps",
                                                    "max_time", "min_lr"});
    // validate_args: fine-tuning stops where it is said.
    train.refuse("max_norm", "clipping while LitGPT fine-tunes is", {"0.0"});
    train.refuse_the_rest("is none of LitGPT's TrainArgs that are known here");
  }

  // litgpt/utils.py instantiate_torch_optimizer, instantiate_bnb_optimizer.
  void read_optimizer() {
    const TomlValue* const value = given_.take("optimizer");
    std::string name = "AdamW";
    if (value != nullptr) {
      if (const auto* text = std::get_if<std::string>(&value->value)) name = *text;
      if (const auto* table = std::get_if<TomlTable>(&value->value)) {
        Given its(table->keys, "optimizer.", draft_);
        name = its.text("class_path").value_or(name);
        Given arguments = its.table("init_args");
        if (const TomlValue* decay = arguments.take("weight_decay"); decay != nullptr && !quantized_)
          draft_.set("runtime.switches.weight_decay", decay->value, decay->place);
        for (const char* key : {"fused", "foreach"})
          if (const auto on = arguments.flag(key))
            draft_.set(fmt::format("runtime.switches.{}", key), *on, arguments.place(key));
        arguments.no_matter(std::array<std::string_view, 4>{"lr", "betas", "eps", "momentum"});
        arguments.refuse_the_rest("is no argument of this optimizer that is known here");
      }
    }
    const std::string bare = name.substr(name.rfind('.') + 1);
    const bool of_bitsandbytes = name.starts_with("bitsandbytes") || name.starts_with("bnb");
    if (quantized_)
      draft_.set("train.optimizer", std::string("paged_adamw_32bit"));
    else if (of_bitsandbytes && (bare == "AdamW8bit" || bare == "PagedAdamW8bit"))
      draft_.set("train.optimizer", std::string(bare == "AdamW8bit" ? "adamw_8bit" : "paged_adamw_8bit"));
    else if (bare == "SGD")
      draft_.set("train.optimizer", std::string("sgd"));
    else if (bare != "AdamW" || of_bitsandbytes)
      given_.tell(RemarkKind::NotJudged, "optimizer", "is not modelled: the figures are of AdamW");
  }

  Given given_;
  const ShippedModels& models_;
  Draft& draft_;
  std::optional<ShippedModel> its_;
  std::string held_ = "fp32";  // the type of what is trained
  bool adapted_ = false, alone_ = false, quantized_ = false;
};

}  // namespace

void read_litgpt(const TomlTable& document, const ShippedModels& models, Draft& draft) {
  draft.own_defaults = true;
  if (is_litgpt_pretraining(document)) return read_litgpt_pretraining(document, models, draft);
  LitgptReader(document, models, draft).read();
}

}  // namespace tidemark::scenarios
