#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/interpolation.hpp"
#include "scenarios/convert/nemo/names.hpp"
#include "scenarios/convert/nemo/other_models.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/frameworks/megatron/megatron_switches.hpp"

// Megatron-Bridge's ConfigContainer and NeMo 1's YAML say the same as Megatron-LM's flags, under the names of the
// dataclasses: megatron/core/transformer/transformer_config.py and its like.

namespace tidemark::scenarios {
namespace {

class BridgeWalk {
 public:
  BridgeWalk(Draft& draft, bool nemo, bool whole) : draft_(draft), nemo_(nemo), whole_(whole) {}

  void table(const TomlTable& table, const std::string& path) {
    if (path == "model.")
      falcon_ = std::ranges::any_of(table.keys, [](const TomlKey& key) {
        return key.name == "name" && scenarios::text(key.value).find("falcon") != std::string::npos;
      });
    for (const TomlKey& key : table.keys) {
      const std::string name = path + key.name;
      if (path == "trainer." && !of_trainer(key.name)) {
        draft_.remark(RemarkKind::NoMatter, name, "of what is logged, saved and read", key.place);
        continue;
      }
      // megatron/falcon/falcon_decoder_layer.py reads these, and nothing else does.
      if (path == "model.mcore_customization_config." && !falcon_ &&
          (key.name == "new_decoder_architecture" || key.name == "parallel_attention")) {
        draft_.remark(RemarkKind::NoMatter, name, "of Falcon's layers, which these are not", key.place);
        continue;
      }
      if (const auto* its = std::get_if<TomlTable>(&key.value.value); name == "model.tokenizer" && its != nullptr) {
        tokenizer(*its);
      } else if (path == "model.data." && key.name != "seq_length" && !key.name.starts_with("reset_")) {
        draft_.remark(RemarkKind::NoMatter, name, "which data comes", key.place);
      } else if (std::ranges::find(tables_aside, key.name) != tables_aside.end()) {
        draft_.remark(RemarkKind::NoMatter, name, "of what is logged, saved and read", key.place);
      } else if (const auto* inner = std::get_if<TomlTable>(&key.value.value)) {
        this->table(*inner, name + '.');
      } else {
        entry(key, name);
      }
    }
  }

  std::vector<TomlKey> flags() && {
    defer_heads_gradients();
    tell_apex();
    if (devices_ > 0) {
      const std::optional<std::int64_t> named = nodes_ > 0 ? std::nullopt : devices_in_name();
      draft_.set("gpus", named.value_or(product({std::max<std::int64_t>(nodes_, 1), devices_})));
      if (nodes_ > 1) draft_.each_node = devices_;
    }
    take_length_of_rows();
    drop_overlap_of_nothing();
    settle_precision();
    // src/megatron/bridge/training/gpt_step.py: masks are not asked for unless the dataset says so.
    if (!nemo_ && !masks_) flags_.push_back({"no-create-attention-mask-in-dataloader", {}, {true, {}}});
    refuse_second_ones();
    return std::move(flags_);
  }

 private:
  // nemo/collections/nlp/models/language_modeling/megatron_gpt_model.py: rows are as long as data.seq_length;
  // encoder_seq_length says how far positions reach, and the length of what stages pass on.
  void take_length_of_rows() {
    const bool one_stage = std::ranges::none_of(flags_, [](const TomlKey& its) {
      return its.name == "pipeline-model-parallel-size" && scenarios::text(its.value) != "1";
    });
    if (!rows_ || !positions_ || !one_stage || scenarios::text(rows_->value) == scenarios::text(positions_->value))
      return;
    draft_.remark(RemarkKind::Assumed, fmt::format("model.encoder_seq_length = {}", scenarios::text(positions_->value)),
                  fmt::format("how far positions reach: rows are of model.data.seq_length = {} tokens",
                              scenarios::text(rows_->value)),
                  positions_->place);
    std::erase_if(flags_, [&](const TomlKey& its) { return its.name == "seq-length"; });
    add("seq-length", *rows_);
  }
  // src/megatron/bridge/training/mixed_precision.py, update_config_with_precision_overrides: once all settings are
  // there (runtime_config_update), what the precision says of gradients is written over what DDP's configuration says.
  void settle_precision() {
    const bool half = precision_ && flag_text(precision_->value).find("fp16") != std::string::npos;
    if (fp8_weights_ && !*fp8_weights_)
      std::erase_if(flags_, [](const TomlKey& its) { return its.name == "fp8-param-gather"; });
    const std::optional<TomlKey>& said = of_precision_ ? of_precision_ : precision_ ? precision_ : of_ddp_;
    if (said) {
      const bool wide = &said == &precision_ ? !half : std::get<bool>(said->value.value);
      if (of_ddp_ && std::get<bool>(of_ddp_->value.value) != wide)
        draft_.remark(RemarkKind::Assumed, fmt::format("ddp.grad_reduce_in_fp32 = {}", !wide),
                      fmt::format("has no effect: the mixed precision writes {} over it", wide), of_ddp_->place);
      add(wide ? "accumulate-allreduce-grads-in-fp32" : "grad-reduce-in-bf16", *said, true);
    }
    // There it is the gradients' own type.
    if (std::ranges::find(flags_, "fp16", &TomlKey::name) != flags_.end())
      std::erase_if(flags_, [](const TomlKey& its) { return its.name == "grad-reduce-in-bf16"; });
  }

  // A field of Megatron-Bridge's MixedPrecisionConfig, besides the precision that has a name. Whether it was one.
  bool of_precision(const TomlKey& key, const std::string& name, const bool* flag) {
    if (flag != nullptr && name == "ddp.grad_reduce_in_fp32") return of_ddp_ = key, true;
    if (!name.starts_with("mixed_precision.")) return false;
    if (flag != nullptr && key.name == "grad_reduce_in_fp32") return of_precision_ = key, true;
    const bool follows = key.name.ends_with("_dtype") || key.name == "autocast_enabled";
    if (follows) draft_.remark(RemarkKind::NoMatter, name, "follows from bf16 and fp16", key.place);
    if (flag != nullptr && (key.name == "fp8_param_gather" || key.name == "fp8_param")) fp8_weights_ = *flag;
    if (flag != nullptr && *flag && (key.name == "bf16" || key.name == "fp16"))
      precision_ = TomlKey{key.name, key.place, {key.name, key.place}};
    return follows;
  }

  // NeMo's and Megatron-Bridge's comm_overlap.py turn it off where tensors are not cut along the sequence.
  void drop_overlap_of_nothing() {
    const auto named = [&](std::string_view name) { return std::ranges::find(flags_, name, &TomlKey::name); };
    const auto overlap = named("tp-comm-overlap"), tensor = named("tensor-model-parallel-size");
    const bool cut = tensor != flags_.end() && scenarios::text(tensor->value) != "1";
    if (overlap == flags_.end() || (cut && named("sequence-parallel") != flags_.end())) return;
    draft_.remark(RemarkKind::Assumed, "tp_comm_overlap",
                  "is turned off: it takes tensor ranks with sequence parallelism", overlap->place);
    std::erase_if(flags_, [](const TomlKey& its) { return its.name.starts_with("tp-comm-"); });
  }

  // Megatron-LM would reduce the head's gradients before they are complete; NeMo sees to it otherwise.
  void defer_heads_gradients() {
    const auto named = [&](std::string_view name) { return std::ranges::find(flags_, name, &TomlKey::name); };
    const auto deferred = named("defer-embedding-wgrad-compute");
    if (!nemo_ || deferred == flags_.end() || named("overlap-grad-reduce") == flags_.end()) return;
    const auto limit = named("wgrad-deferral-limit");
    const auto* const most = limit == flags_.end() ? nullptr : std::get_if<std::int64_t>(&limit->value.value);
    draft_.remark_bounded("model.defer_embedding_wgrad_compute = true",
                          "the figures are without it; it keeps the head's inputs and gradients of logits of so many "
                          "micro-batches",
                          fmt::format("deferred-head:{}", most == nullptr ? 0 : *most), deferred->place);
    flags_.erase(deferred);
    std::erase_if(flags_, [](const TomlKey& its) { return its.name == "wgrad-deferral-limit"; });
  }

  // Two tables may have keys of one name.
  void refuse_second_ones() const {
    std::map<std::string_view, const TomlKey*> first;
    for (const TomlKey& flag : flags_) {
      const auto [its, is_new] = first.emplace(flag.name, &flag);
      const std::string now = scenarios::text(flag.value), before = scenarios::text(its->second->value);
      const std::optional<MegatronFlag> known = megatron_flag(flag.name);
      if (!is_new && now != before && known && known->kind != MegatronFlag::Kind::NoMatter)
        draft_.remark(RemarkKind::NotExpressed, fmt::format("--{} = {}", flag.name, now),
                      fmt::format("line {} says {}", its->second->place.line, before), flag.place);
    }
  }
  // NeMo 1: "library: megatron, type: GPT2BPETokenizer", "library: huggingface, type: meta-llama/Llama-2-7b-hf".
  void tokenizer(const TomlTable& table) {
    for (const TomlKey& key : table.keys) {
      const auto* const text = std::get_if<std::string>(&key.value.value);
      if (key.name == "library" && text != nullptr && *text == "sentencepiece")
        add("tokenizer-type", key, std::string("GPTSentencePieceTokenizer"));
      else if (key.name == "type" && text != nullptr)
        add(text->find("Tokenizer") != std::string::npos ? "tokenizer-type" : "tokenizer-model", key);
      else
        draft_.remark(RemarkKind::NoMatter, "model.tokenizer." + key.name, "the vocabulary's size is what counts",
                      key.place);
    }
  }

  // Apex's DistributedFusedAdam, and dtypes that it is told.
  void optimizer(const TomlKey& key, const std::string& name, const std::string& text) {
    if (text == "distributed_fused_adam" || text == "mcore_distributed_optim")
      add("use-distributed-optimizer", key, true);
    if (text == "distributed_fused_adam") apex_ = TomlKey{fmt::format("{} = {}", name, in_quotes(text)), key.place, {}};
    if (text != "distributed_fused_adam" && text != "mcore_distributed_optim" && name.ends_with("optim.name") &&
        std::ranges::find(plain_adams, text) == plain_adams.end())
      unknown(key, name, "is no optimizer that is known here");
  }

  void tell_apex() {
    if (!apex_) return;
    draft_.remark_bounded(apex_->name,
                          contiguous_ == 2
                              ? "the figures are of Megatron-LM's distributed optimizer; Apex's has its share of "
                                "gradients once more"
                              : "the figures are of Megatron-LM's distributed optimizer; Apex's has buckets beside it",
                          fmt::format("apex-distributed-adam:{}", contiguous_), apex_->place);
  }

  // "llama3-70b-256gpus.yaml", "gpt3_175b_32nodes.yaml": launchers give the number of nodes beside such files.
  std::optional<std::int64_t> devices_in_name() {
    const std::string stem = std::filesystem::path(draft_.file).stem().string();
    constexpr std::int64_t most = std::int64_t{1} << 20;
    for (const auto& [word, each] : {std::pair{"gpu", std::int64_t{1}}, std::pair{"node", devices_}}) {
      const std::size_t end = stem.find(word);
      std::size_t begin = end == std::string::npos ? 0 : end;
      while (begin > 0 && std::isdigit(static_cast<unsigned char>(stem[begin - 1])) != 0) --begin;
      if (end == std::string::npos || begin == end) continue;
      std::int64_t number = 0;
      const auto [rest, error] = std::from_chars(stem.data() + begin, stem.data() + end, number);
      if (error != std::errc() || rest != stem.data() + end || number < 1 || number > most) continue;
      const std::int64_t all = product({number, each});
      draft_.remark(RemarkKind::Assumed, "trainer.num_nodes",
                    fmt::format("is not said: {} GPUs, as the file's name says", all));
      return all;
    }
    return std::nullopt;
  }

  // Of Lightning's trainer, all else is loops, logs and checkpoints.
  static bool of_trainer(std::string_view key) {
    return key == "devices" || key == "num_nodes" || key == "precision" || key == "strategy" ||
           key == "accumulate_grad_batches";
  }
  void add(std::string flag, const TomlKey& key, Content content) {
    flags_.push_back({std::move(flag), key.place, {std::move(content), key.value.place}});
  }
  void add(std::string flag, const TomlKey& key) { add(std::move(flag), key, key.value.value); }

  void entry(const TomlKey& key, const std::string& name) {
    const auto* flag = std::get_if<bool>(&key.value.value);
    const auto* text = std::get_if<std::string>(&key.value.value);
    const auto* number = std::get_if<std::int64_t>(&key.value.value);
    const std::string& k = key.name;
    if (name == "model.data.seq_length") rows_ = key;
    if (name == "model.encoder_seq_length") positions_ = key;
    if (name == "dataset.skip_getting_attention_mask_from_dataset" && flag != nullptr) masks_ = !*flag;
    if (!nemo_ && of_precision(key, name, flag)) return;
    if (is_switch(k) && flag == nullptr) {
      unknown(key, name, "takes true or false");
    } else if (number != nullptr && *number < 1 && *number != all_there_are && is_count(k)) {
      unknown(key, name, "is no number of nodes or devices");
    } else if (k == "num_nodes" && number != nullptr) {
      nodes_ = *number;
    } else if (is_count(k) && number != nullptr) {
      devices_ = *number;
    } else if ((k == "mixed_precision" || k == "precision") && text != nullptr) {
      if (!nemo_ && k == "mixed_precision") precision_ = key;
      // bf16_mixed, bf16-mixed, bf16; fp16 likewise.
      // megatron/bridge/training/mixed_precision.py: bf16_with_fp8_delayed_scaling_mixed, bf16_with_mxfp8_mixed.
      const bool eighth = text->find("fp8") != std::string::npos;
      if (eighth) {
        // Blocks keep parameters in half precision.
        const bool blocks = text->find("subchannel_scaling") != std::string::npos;
        const bool of_tensors = text->find("current_scaling") != std::string::npos && !text->starts_with("nanov2");
        add("fp8-format", key, std::string("hybrid"));
        if (!blocks) add("fp8-param-gather", key, true);
        add("fp8-recipe", key,
            std::string(text->find("mxfp8") != std::string::npos               ? "mxfp8"
                        : of_tensors                                           ? "tensorwise"
                        : blocks || text->find("current") != std::string::npos ? "blockwise"
                                                                               : "delayed"));
      }
      std::string_view kind = *text;
      kind = kind.substr(0, kind.find_first_of("-_"));
      const std::string_view rest = std::string_view(*text).substr(kind.size());
      const bool plain = rest.empty() || rest.substr(1) == "mixed" || rest.substr(1) == "true";
      if (kind == "bf16")
        add("bf16", key, true);
      else if (kind == "fp16" || kind == "16")
        add("fp16", key, true);
      if (!(eighth || plain) || (kind != "bf16" && kind != "fp16" && kind != "16" && kind != "32" && kind != "fp32"))
        unknown(key, name, "is no precision that is known here");
    } else if (k == "precision" && number != nullptr && (*number == 32 || *number == 16)) {
      if (*number == 16) add("fp16", key, true);
    } else if (k == "megatron_amp_O2" && nemo_ && whole_ && flag != nullptr) {
      draft_.remark(RemarkKind::NoMatter, name, "of half precision: in fp32 there are no other parameters", key.place);
    } else if (k == "transformer_engine" && nemo_ && flag != nullptr && !*flag) {
      add("transformer-impl", key, std::string("local"));
    } else if (k == "pipeline_dtype") {
      draft_.remark(RemarkKind::NoMatter, name, "stages pass on what they compute in", key.place);
    } else if (k == "log_mode" || k == "log_every_n_steps") {
      draft_.remark(RemarkKind::NoMatter, name, "what is logged", key.place);
    } else if (k == "gated_linear_unit") {
      if (flag != nullptr && *flag) add("swiglu", key, true);
    } else if (k == "activation" && text != nullptr) {
      if (text->ends_with("swiglu"))
        add("swiglu", key, true);
      else if (*text == "squared-relu")
        add("squared-relu", key, true);
      else if (*text != "gelu")
        unknown(key, name, "is no activation that is known here: gelu, swiglu, fast-swiglu and squared-relu are");
    } else if (k == "num_query_groups") {
      add("group-query-attention", key, true);
      add("num-query-groups", key);
    } else if (k == "normalization" && text != nullptr) {
      const bool by_squares = *text == "RMSNorm" || *text == "rmsnorm";
      if (!by_squares && std::ranges::find(of_means, *text) == of_means.end())
        unknown(key, name, "is no normalization that is known here: RMSNorm and LayerNorm are");
      add("normalization", key, std::string(by_squares ? "RMSNorm" : "LayerNorm"));
    } else if (k == "grad_reduce_in_fp32" && flag != nullptr) {
      add(*flag ? "accumulate-allreduce-grads-in-fp32" : "grad-reduce-in-bf16", key, true);
    } else if (k == "name" && text != nullptr) {  // NeMo's optim.name
      optimizer(key, name, *text);
    } else if (k == "grad_sync_dtype" && text != nullptr) {  // megatron_gpt_model.py: fp32 where nothing is said
      if (*text == "bf16" || *text == "fp16") add("grad-reduce-in-bf16", key, true);
    } else if (k == "bias_activation_fusion") {
      if (flag != nullptr && !*flag) add("no-bias-swiglu-fusion", key, true), add("no-bias-gelu-fusion", key, true);
    } else if (k == "fp8" && flag != nullptr && *flag) {
      add("fp8-format", key, std::string("hybrid"));
    } else if (k == "fp8" && text != nullptr) {
      add("fp8-format", key);
    } else if (k == "fp8_params" || k == "fp8_param_gather" || k == "fp8_param") {
      if (flag != nullptr && *flag) add("fp8-param-gather", key, true);
    } else if (k.starts_with("contiguous_") && nemo_ && flag != nullptr) {
      if (*flag) ++contiguous_;
      draft_.remark(RemarkKind::NoMatter, name, "of Apex's optimizer, whose bound has it", key.place);
    } else if (k == "fp8_recipe" && text != nullptr && !nemo_) {
      add("fp8-recipe", key);
    } else if (k == "fp4" && text != nullptr) {
      add("fp4-format", key);
    } else if (k.starts_with("fp4_")) {
      draft_.remark(RemarkKind::NoMatter, name, "is of FP4, which fp4 asks for", key.place);
    } else if (k == "should_pad_vocab" && flag != nullptr && *flag && !nemo_) {
      // src/megatron/bridge/models/gpt_provider.py provide: by calculate_padded_vocab_size, as Megatron-LM does.
      draft_.remark(RemarkKind::NoMatter, name, "asks for the padding that Megatron-LM does by itself", key.place);
    } else if (k == "disable_parameter_transpose_cache") {
      draft_.remark(RemarkKind::NoMatter, name, "is of FP8, whose bound has transposed weights", key.place);
    } else if (k.starts_with("fp8_")) {
      draft_.remark(RemarkKind::NoMatter, name, "is of FP8, which fp8 asks for", key.place);
    } else if (const auto its = std::ranges::find(nemo_keys(), std::string_view(k), &OfNoMatter::key);
               nemo_ && its != nemo_keys().end()) {
      const std::string written = flag_text(key.value);
      const bool by_false = std::ranges::find(nemo_by_false, std::string_view(k)) != nemo_by_false.end();
      if (its->values.empty() || std::ranges::find(its->values, written) != its->values.end() ||
          (flag != nullptr && !*flag && !by_false))
        draft_.remark(RemarkKind::NoMatter, name, "changes neither memory nor time", key.place);
      else
        draft_.remark(RemarkKind::NotJudged, fmt::format("{} = {}", name, written),
                      fmt::format("is not modelled: {} is", fmt::join(its->values, " or ")), key.place);
    } else if (const auto other = std::ranges::find(inverted_names, k, &BridgeName::key);
               other != inverted_names.end()) {
      if (flag != nullptr && !*flag) add(std::string(other->flag), key, true);
    } else {
      plain(key, name, flag);
    }
  }

  static constexpr std::int64_t all_there_are = -1;  // Lightning's
  static constexpr std::array<std::string_view, 3> of_means{"LayerNorm", "layernorm", "layernorm1p"};
  static constexpr std::array<std::string_view, 5> plain_adams{"adam", "adamw", "fused_adam", "megatron_fused_adam",
                                                               "fused_adamw"};
  static bool is_switch(std::string_view key) {
    return key == "gated_linear_unit" ||
           std::ranges::find(inverted_names, key, &BridgeName::key) != inverted_names.end();
  }
  static bool is_count(std::string_view key) {
    return key == "num_nodes" || key == "devices" || key == "num_gpus_per_node" || key == "gpus_per_node";
  }
  // On where nothing is said; Megatron-LM has one flag for both.
  static bool is_check(std::string_view key) {
    return key == "check_for_nan_in_loss" || key == "check_for_nan_in_grad";
  }
  void unknown(const TomlKey& key, const std::string& name, std::string_view why) {
    draft_.remark(RemarkKind::NotExpressed, fmt::format("{} = {}", name, scenarios::text(key.value)), std::string(why),
                  key.place);
  }

  // What asks for nothing at zero: nemo/collections/llm/gpt/model/ssm.py, nemo/lightning/pytorch/strategies; and names
  // of tokenizers and checkpoints' formats, which no step reads.
  static bool asks_for_nothing(const TomlKey& key) {
    constexpr auto at_zero = std::to_array<std::string_view>(
        {"hybrid_attention_ratio", "hybrid_mlp_ratio", "pipeline_model_parallel_split_rank",
         "encoder_pipeline_model_parallel_size", "encoder_tensor_model_parallel_size"});
    constexpr auto names = std::to_array<std::string_view>(
        {"tokenizer_library", "tokenizer_name", "mapping_type", "tokenizer_model_path"});
    const std::string value = scenarios::text(key.value);
    if (std::ranges::find(at_zero, std::string_view(key.name)) != at_zero.end()) return value == "0" || value == "0.0";
    return std::ranges::find(names, std::string_view(key.name)) != names.end();
  }

  // Megatron-Bridge 067f987d, src/megatron/bridge/training/config.py and data/packing/config.py: fields of what comes
  // and of how often Python collects garbage, which Megatron-LM has no argument for.
  static bool is_of_data(std::string_view name) {
    constexpr auto fields = std::to_array<std::string_view>({"train.manual_gc_eval",
                                                             "train.num_epochs",
                                                             "train.check_optimizer_step_success",
                                                             "dataset.random_seed",
                                                             "dataset.data_sharding",
                                                             "dataset.pin_memory",
                                                             "dataset.persistent_workers",
                                                             "dataset.trust_remote_code",
                                                             "dataset.drop_last",
                                                             "dataset.per_dataset_sequences_path",
                                                             "dataset.dataset_name",
                                                             "dataset.dataset_root",
                                                             "dataset.seed",
                                                             "dataset.memmap_workers",
                                                             "dataset.max_train_samples",
                                                             "dataset.do_validation",
                                                             "dataset.do_test",
                                                             "dataset.split_val_from_train",
                                                             "dataset.rewrite",
                                                             "dataset.delete_raw",
                                                             "dataset.val_proportion",
                                                             "dataset.skip_getting_attention_mask_from_dataset",
                                                             "dataset.defer_in_batch_packing_to_step",
                                                             "dataset.offline_packing_specs.pad_seq_to_mult",
                                                             "dataset.offline_packing_specs.pad_cu_seqlens",
                                                             "dataset.offline_packing_specs.tokenizer_model_name",
                                                             "model.use_te_rng_tracker"});
    return std::ranges::find(fields, name) != fields.end();
  }

  void plain(const TomlKey& key, const std::string& name, const bool* flag) {
    if (asks_for_nothing(key) || is_of_data(name))
      return draft_.remark(RemarkKind::NoMatter, fmt::format("{} = {}", name, scenarios::text(key.value)),
                           "changes neither memory nor time", key.place);
    if (name == "dataset.offline_packing_specs.packed_sequence_size")
      return draft_.remark_bounded(fmt::format("{} = {}", name, scenarios::text(key.value)),
                                   "the figures are of whole sequences of that length, which packed ones fill at most",
                                   "packed-sequences", key.place);
    std::string its = key.name;
    if (const auto other = std::ranges::find(bridge_names, key.name, &BridgeName::key); other != bridge_names.end())
      its = std::string(other->flag);
    std::ranges::replace(its, '_', '-');
    if (is_check(key.name)) return add(key.name, key);
    if (flag != nullptr && !*flag) {
      draft_.remark(RemarkKind::NoMatter, fmt::format("{} = false", name), "asks for nothing", key.place);
      return;
    }
    if (megatron_flag(its)) return add(its, key);
    draft_.remark_unknown(fmt::format("{} = {}", name, scenarios::text(key.value)), its,
                          "no argument of Megatron-LM's says it", names_known(), key.place);
  }

  static const std::vector<std::string>& names_known() {
    static const std::vector<std::string> names = [] {
      std::vector<std::string> made = megatron_flags();
      const auto add = [&](const auto& table) {
        for (const BridgeName& its : table) {
          std::string name(its.key);
          std::ranges::replace(name, '_', '-');
          made.push_back(std::move(name));
        }
      };
      add(bridge_names), add(inverted_names);
      return made;
    }();
    return names;
  }

  Draft& draft_;
  bool nemo_;
  bool whole_;           // trainer.precision is fp32
  bool falcon_ = false;  // model.name = megatron_falcon_gpt
  std::vector<TomlKey> flags_;
  std::int64_t nodes_ = 0, devices_ = 0;
  std::optional<TomlKey> rows_, positions_;  // NeMo 1's model.data.seq_length and model.encoder_seq_length
  std::optional<TomlKey> precision_, of_precision_, of_ddp_;  // Bridge's, and what two tables say of gradients' type
  bool masks_ = false;                                        // the data loader makes them: Bridge's
  std::optional<bool> fp8_weights_;                           // that the precision asks for by itself
  std::optional<TomlKey> apex_;  // what asks for Apex's optimizer, under the name that is told
  std::int64_t contiguous_ = 0;  // of gradients and parameters, how many are in one buffer there
};

// Lightning's trainer.precision: 32, "32" or "32-true".
bool trains_in_fp32(const TomlTable& document) {
  const auto trainer = std::ranges::find(document.keys, "trainer", &TomlKey::name);
  const auto* const table = trainer == document.keys.end() ? nullptr : std::get_if<TomlTable>(&trainer->value.value);
  if (table == nullptr) return false;
  const auto precision = std::ranges::find(table->keys, "precision", &TomlKey::name);
  return precision != table->keys.end() && flag_text(precision->value).find("32") != std::string::npos;
}

// Megatron-LM's own tests write flags as a YAML map: MODEL_ARGS, ENV_VARS.
std::vector<TomlKey> flags_of_tests(const TomlTable& arguments, Draft& draft) {
  std::vector<TomlKey> flags;
  for (const TomlKey& key : arguments.keys)
    if (key.name.starts_with("--"))
      flags.push_back({key.name.substr(2), key.place, key.value});
    else
      draft.remark(RemarkKind::NotExpressed, fmt::format("MODEL_ARGS.{}", key.name), "is no flag: those begin with --",
                   key.place);
  return flags;
}

}  // namespace

std::vector<TomlKey> bridge_flags(TomlTable document, Draft& draft) {
  interpolate(document);
  refuse_other_models(document, draft);
  for (const TomlKey& key : document.keys) {
    const auto* table = std::get_if<TomlTable>(&key.value.value);
    if (key.name != "ENV_VARS") continue;
    if (table == nullptr) {
      draft.remark(RemarkKind::NotExpressed, fmt::format("{} = {}", key.name, scenarios::text(key.value)),
                   "names no variables: NAME: value on a line of its own does", key.place);
      continue;
    }
    for (const TomlKey& variable : table->keys) {
      const auto* value = std::get_if<std::string>(&variable.value.value);
      draft.set("runtime.environment." + variable.name, value != nullptr ? *value : scenarios::text(variable.value),
                variable.place);
    }
  }
  for (const TomlKey& key : document.keys)
    if (const auto* table = std::get_if<TomlTable>(&key.value.value); table != nullptr && key.name == "MODEL_ARGS")
      return flags_of_tests(*table, draft);
  const auto has = [&](std::string_view name) {
    return std::ranges::any_of(document.keys, [&](const TomlKey& key) { return key.name == name; });
  };
  BridgeWalk walk(draft, has("trainer") && has("model"), trains_in_fp32(document));
  walk.table(document, "");
  std::vector<TomlKey> flags = std::move(walk).flags();
  const bool virtual_stages =
      std::ranges::any_of(flags, [](const TomlKey& f) { return f.name == "num-virtual-stages-per-pipeline-rank"; });
  if (virtual_stages)  // of one stage each rank there is nothing to say
    std::erase_if(flags, [](const TomlKey& f) {
      return f.name == "num-virtual-stages-per-pipeline-rank" && scenarios::text(f.value) == "1";
    });
  take_alibi(flags, draft);
  return flags;
}

}  // namespace tidemark::scenarios
