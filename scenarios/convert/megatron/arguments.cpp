#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/megatron/model.hpp"
#include "scenarios/convert/megatron/stage_layout.hpp"
#include "scenarios/convert/shell/launch_line.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/frameworks/megatron/megatron_flags.hpp"
#include "scenarios/frameworks/megatron/megatron_switches.hpp"
#include "scenarios/frameworks/megatron/muon_switches.hpp"
#include "scenarios/model_config/config_reader.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/scenario/memory_bounds.hpp"
#include "scenarios/scenario/model_names.hpp"
#include "scenarios/scenario/names.hpp"

// Megatron-LM's megatron/training/arguments.py, core 0.10 to 0.19, and what its forks add to it.

namespace tidemark::scenarios {
namespace {

/// A flag whose value is the key's own.
struct Copied {
  std::string_view flag, path;
};
constexpr std::array copied{
    Copied{"tensor-model-parallel-size", "layout.tensor"},
    Copied{"sequence-parallel", "layout.sequence_parallel"},
    Copied{"pipeline-model-parallel-size", "layout.pipeline"},
    Copied{"context-parallel-size", "layout.context"},
    Copied{"account-for-embedding-in-pipeline-split", "layout.count_embedding"},
    Copied{"account-for-loss-in-pipeline-split", "layout.count_loss"},
    Copied{"num-virtual-stages-per-pipeline-rank", "layout.chunks"},
    Copied{"decoder-first-pipeline-num-layers", "layout.first_stage_layers"},
    Copied{"decoder-last-pipeline-num-layers", "layout.last_stage_layers"},
    Copied{"expert-model-parallel-size", "layout.expert"},
    Copied{"expert-tensor-parallel-size", "layout.expert_tensor"},
    Copied{"seq-length", "train.sequence_length"},
    Copied{"micro-batch-size", "train.micro_batch"},
    Copied{"global-batch-size", "train.global_batch"},
    Copied{"hidden-dropout", "train.hidden_dropout"},
    Copied{"attention-dropout", "train.attention_dropout"},
    Copied{"recompute-granularity", "train.recompute"},
    Copied{"recompute-method", "train.recompute_method"},
    Copied{"recompute-num-layers", "train.recompute_layers"},
    Copied{"recompute-modules", "train.recompute_modules"},
    Copied{"attention-backend", "train.attention"},
    Copied{"moe-token-dispatcher-type", "moe.dispatcher"},
    Copied{"moe-expert-capacity-factor", "moe.capacity_factor"},
    Copied{"moe-pad-expert-input-to-capacity", "moe.pad_to_capacity"},
    Copied{"optimizer-offload-fraction", "offload.optimizer_fraction"},
};

/// Flags that argparse makes a list of, however many words they are given.
constexpr std::array<std::string_view, 2> lists{"recompute-modules", "offload-modules"};

Content in_list(const TomlValue& value) {
  if (std::holds_alternative<std::vector<TomlValue>>(value.value)) return value.value;
  return std::vector<TomlValue>{value};
}

class MegatronReader {
 public:
  MegatronReader(Given& flags, Draft& draft, bool names_experts)
      : flags_(flags), draft_(draft), names_experts_(names_experts) {}

  void read() {
    draft_.set("runtime.name", std::string("megatron"));
    refuse_unknown_values();
    refuse_what_megatron_refuses();
    pass_over_fsdp();
    for (const Copied& its : copied)
      if (const TomlValue* value = flags_.take(its.flag))
        draft_.set(its.path,
                   std::ranges::find(lists, its.flag) != lists.end() ? in_list(*value) : whole_as_whole(*value),
                   value->place);
    // It changes neither a step's memory nor its time, which is said of it below.
    if (const TomlValue* const steps = flags_.look_at("train-iters"))
      if (const auto* count = std::get_if<std::int64_t>(&steps->value); count != nullptr && *count > 0)
        draft_.set("run.steps", *count, steps->place);
    read_precision();
    read_loss();
    read_recomputation();
    read_layout();
    read_stage_layout();
    read_context();
    read_optimizer();
    if (flags_.text("transformer-impl") == "local") {
      set("train.attention", std::string("local"), "transformer-impl");
      if (on("apply-layernorm-1p")) set("runtime.switches.apply-layernorm-1p", true, "apply-layernorm-1p");
    }
    read_tokenizer();
    read_experts();
    // megatron/training/arguments.py core_transformer_config_from_args
    if (!on("group-query-attention") && flags_.has("num-query-groups"))
      flags_.tell(RemarkKind::NoMatter, "num-query-groups", "counts with group-query-attention only");
    if (flags_.has("rampup-batch-size"))
      flags_.has("global-batch-size")
          ? flags_.tell(RemarkKind::Assumed, "rampup-batch-size",
                        "the batch grows to global-batch-size: the answer is of its last size")
          : flags_.tell(RemarkKind::NotExpressed, "rampup-batch-size",
                        "grows to a global-batch-size that is not given");
    read_batch_schedule();
  }

  // megatron/training/global_vars.py: "0:16 2.4B:320", sizes of the batch from so many samples or tokens on.
  void read_batch_schedule() {
    const TomlValue* const its = flags_.look_at("step-batch-size-schedule");
    if (its == nullptr) return;
    std::string last = scenarios::text(*its);
    if (const auto* list = std::get_if<std::vector<TomlValue>>(&its->value); list != nullptr && !list->empty())
      last = scenarios::text(list->back());
    std::erase(last, '"');
    const Content size = typed(last.substr(last.rfind(':') + 1));
    const auto* const number = std::get_if<std::int64_t>(&size);
    if (number == nullptr || *number < 1) return;  // told as not modelled
    draft_.set("train.global_batch", *number, its->place);
    flags_.tell(RemarkKind::Assumed, "step-batch-size-schedule",
                fmt::format("the batch grows to {}: the answer is of its last size", *number));
  }

  void rest() {
    for (const TomlKey& key : std::vector<TomlKey>(flags_.keys())) {
      if (!flags_.has(key.name) || std::ranges::find(of_no_use_, key.name) != of_no_use_.end()) continue;
      const std::optional<MegatronFlag> its = megatron_flag(key.name);
      if (!its) continue;
      using enum MegatronFlag::Kind;
      if (its->kind == NoMatter) {
        keep(key.name);
        flags_.no_matter(std::array{std::string_view(key.name)},
                         its->why.empty() ? "changes neither memory nor time" : its->why);
      } else if (its->kind == Bound) {
        keep(key.name);
        const std::string value = flag_text(*flags_.look_at(key.name));
        const bool asks = value != "0" && value != "false";
        if (asks && has_memory_bound(key.name))
          flags_.tell_bounded(key.name, its->why, key.name == "fp8-format" ? bound_of_fp8() : key.name);
        else
          flags_.tell(asks ? RemarkKind::Assumed : RemarkKind::NoMatter, key.name,
                      asks ? its->why : "asks for nothing");
      } else if (its->kind == Own) {
        if (const TomlValue* value = flags_.take(key.name)) {
          const bool list = std::ranges::find(lists, key.name) != lists.end();
          draft_.set("runtime.switches." + key.name, list ? in_list(*value) : value->value, value->place);
        }
      } else if (its->kind == Unmodelled) {
        if (flags_.is_taken(key.name)) continue;
        const TomlValue* value = flags_.take(key.name);
        if (value != nullptr && asks_for_nothing(key.name, *value))
          flags_.tell(RemarkKind::NoMatter, key.name, "asks for nothing");
        else
          flags_.tell(says_which_job(key.name) ? RemarkKind::NotExpressed : RemarkKind::NotJudged, key.name,
                      not_modelled(its->why));
      } else if (!flags_.is_taken(key.name)) {
        // What nothing above asked for repeats what is said of model or layout: the scenario's reader holds it to that.
        if (const TomlValue* value = flags_.take(key.name))
          draft_.set("runtime.switches." + key.name, value->value, value->place);
      }
    }
    std::vector<std::string> known = megatron_flags();
    for (const MegatronArgument& its : megatron_arguments_known()) known.emplace_back(its.flag);
    flags_.refuse_the_rest("is no argument of Megatron-LM's, core 0.10 to 0.19, nor of a fork that is known here",
                           known);
  }

 private:
  // Without these, what is left is not the job: another file says how large it is, or layers are of another kind.
  static bool says_which_job(std::string_view flag) {
    constexpr auto flags = std::to_array<std::string_view>({"spec",
                                                            "use-checkpoint-args",
                                                            "use-mp-args-from-checkpoint-args",
                                                            "yaml-cfg",
                                                            "heterogeneous-layers-config-path",
                                                            "heterogeneous-layers-config-encoded-json",
                                                            "hybrid-layer-pattern",
                                                            "hybrid-override-pattern",
                                                            "hybrid-attention-ratio",
                                                            "is-hybrid-model",
                                                            "experimental-attention-variant",
                                                            "batch-size",
                                                            "model-parallel-size",
                                                            "skip-train",
                                                            "encoder-num-layers",
                                                            "encoder-seq-length",
                                                            "tensor-parallel-size",
                                                            "pipeline-parallel-size",
                                                            "vision-pretraining",
                                                            "retro-add-retriever"});
    return std::ranges::find(flags, flag) != flags.end();
  }
  static Content whole_as_whole(const TomlValue& value) { return value.value; }
  // For another script; what only running it would tell is the original's alone.
  // transformer_config.py fp8_recipe, whose scales the bound has; delayed where nothing is said.
  std::string bound_of_fp8() const {
    const TomlValue* const value = flags_.look_at("fp8-recipe");
    const auto* const text = value == nullptr ? nullptr : std::get_if<std::string>(&value->value);
    const std::string recipe = value == nullptr ? "delayed" : text == nullptr ? "" : *text;
    if (recipe == "delayed" || recipe == "tensorwise") return "fp8-format:1";
    if (recipe == "blockwise") return "fp8-format:2";
    return recipe == "mxfp8" ? "fp8-format:3" : "fp8-format";
  }

  void keep(const std::string& flag) {
    const TomlValue* value = flags_.look_at(flag);
    const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(&value->value);
    if (value == nullptr || (text != nullptr && text->starts_with(unknown_value))) return;
    std::vector<std::string> words{"--" + flag};
    const auto word = [](const TomlValue& its) {
      const auto* plain = std::get_if<std::string>(&its.value);
      return plain != nullptr ? *plain : scenarios::text(its);
    };
    if (const auto* list = std::get_if<std::vector<TomlValue>>(&value->value))
      for (const TomlValue& each : *list) words.push_back(word(each));
    else if (const auto* on = std::get_if<bool>(&value->value); on == nullptr || !*on)
      words.push_back(word(*value));
    const auto same = [&](const std::vector<std::string>& its) { return its.front() == words.front(); };
    if (std::ranges::none_of(draft_.kept.flags, same)) draft_.kept.flags.push_back(std::move(words));
  }
  void set(std::string_view path, Content content, std::string_view flag) {
    draft_.set(path, std::move(content), flags_.place(flag));
  }
  bool on(std::string_view flag) { return flags_.flag(flag).value_or(false); }

  // What only running the script would tell: asked for where a value counts.
  void refuse_unknown_values() {
    std::vector<Problem> problems;
    for (const TomlKey& key : flags_.keys()) {
      const auto* text = std::get_if<std::string>(&key.value.value);
      if (text == nullptr || !text->starts_with(unknown_value)) continue;
      const std::optional<MegatronFlag> its = megatron_flag(key.name);
      using enum MegatronFlag::Kind;
      const bool counts = its ? its->kind == Repeats || its->kind == Own : key.name == "sgd-momentum";
      if (!counts) continue;
      const std::string unknown = text->substr(unknown_value.size());
      problems.push_back({.file = draft_.file,
                          .line = key.place.line,
                          .column = key.place.column,
                          .message = fmt::format("--{}: {} is not known without running it", key.name, unknown),
                          .hint = hint_of_unknown(unknown)});
    }
    if (!problems.empty()) throw InputError(std::move(problems));
  }

  // core/distributed/fsdp reads these, and nothing else does.
  void pass_over_fsdp() {
    if (flags_.has("use-megatron-fsdp") || flags_.has("use-custom-fsdp")) return;  // which are judged by themselves
    for (const std::string_view flag :
         {"data-parallel-sharding-strategy", "outer-dp-sharding-strategy", "fsdp-double-buffer",
          "fsdp-manual-registration", "suggested-communication-unit-size"})
      if (flags_.has(flag)) flags_.tell(RemarkKind::NoMatter, flag, "is for Megatron's FSDP, which is not asked for");
  }

  // What ends the run as it starts (core 0.12 to 0.15: validate_args of arguments.py, TransformerConfig.__post_init__).
  void refuse_what_megatron_refuses() {
    std::vector<Problem> problems;
    const auto refuse = [&](std::string_view flag, std::string_view message, std::string_view hint) {
      const Place place = flags_.place(flag);
      problems.push_back({.file = draft_.file,
                          .line = place.line,
                          .column = place.column,
                          .message = fmt::format("--{}: Megatron-LM stops at it: {}", flag, message),
                          .hint = std::string(hint)});
    };
    if (on("bf16") && on("fp16")) refuse("fp16", "bf16 is asked for too", "leave out one of --bf16 and --fp16");
    const std::string granularity =
        flags_.text("recompute-granularity").value_or(on("recompute-activations") ? "selective" : "");
    const bool method = flags_.has("recompute-method"), layers = flags_.has("recompute-num-layers");
    if (granularity == "full" && !method)
      refuse("recompute-granularity", "full takes a method", "--recompute-method uniform or block");
    else if (granularity == "full" && !layers)
      refuse("recompute-method", "it takes a number of layers", "such as --recompute-num-layers 1");
    for (const auto& [flag, given] : {std::pair{"recompute-method", method}, {"recompute-num-layers", layers}})
      if (granularity == "selective" && given) refuse(flag, "it is for --recompute-granularity full", "leave it out");
    const bool sharded = on("use-distributed-optimizer") || flags_.text("optimizer") == "dist_muon";
    if (on("overlap-param-gather") && (!sharded || !on("overlap-grad-reduce")))
      refuse("overlap-param-gather", "it takes a distributed optimizer and --overlap-grad-reduce",
             "leave it out, or add --use-distributed-optimizer --overlap-grad-reduce");
    if (const auto [why, hint] = uneven_virtual_stages(); !why.empty())
      refuse("num-layers-per-virtual-pipeline-stage", why, hint);
    if (!problems.empty()) throw InputError(std::move(problems));
  }

  // validate_args: what embedding and loss count for is shared out with the layers.
  [[nodiscard]] std::int64_t shared_out_layers() {
    return flags_.integer("num-layers").value_or(0) + (on("account-for-embedding-in-pipeline-split") ? 1 : 0) +
           (on("account-for-loss-in-pipeline-split") ? 1 : 0);
  }

  // What is wrong and what would do; empty where stages have whole virtual stages, or nothing says so.
  [[nodiscard]] std::pair<std::string, std::string> uneven_virtual_stages() {
    const std::optional<std::int64_t> each = flags_.integer("num-layers-per-virtual-pipeline-stage");
    const std::int64_t stages = flags_.integer("pipeline-model-parallel-size").value_or(1), all = shared_out_layers();
    // Lighter ends are judged by rules of their own, which differ from release to release.
    const bool ends = flags_.has("decoder-first-pipeline-num-layers") || flags_.has("decoder-last-pipeline-num-layers");
    if (!each || *each < 1 || stages <= 1 || ends || !flags_.has("num-layers")) return {};
    if (all % stages != 0)
      return {fmt::format("{} pipeline stages do not divide {} layers", stages, all),
              "--pipeline-model-parallel-size of a divisor of the layers"};
    if (all / stages % *each != 0)
      return {fmt::format("{} does not divide the {} layers of a stage", *each, all / stages),
              "a number that divides the layers of a stage"};
    return {};
  }

  // validate_args: fp32 where neither is said; gradients of bf16 are fp32 unless they are reduced in bf16.
  void read_precision() {
    const bool bf16 = on("bf16"), fp16 = on("fp16");
    if (bf16 || fp16)
      set("train.precision", std::string(bf16 ? "bf16" : "fp16"), bf16 ? "bf16" : "fp16");
    else
      draft_.set("train.precision", std::string("fp32"));
    const bool wide = on("accumulate-allreduce-grads-in-fp32"), narrow = on("grad-reduce-in-bf16");
    if (narrow)
      set("train.gradient_dtype", std::string("bf16"), "grad-reduce-in-bf16");
    else if (fp16)  // which a scenario would take for fp16
      set("train.gradient_dtype", std::string(wide ? "fp32" : "fp16"),
          wide ? "accumulate-allreduce-grads-in-fp32" : "fp16");
    if (const std::optional<std::string> type = flags_.text("main-grads-dtype"); type && type != "fp32")
      set("train.gradient_dtype", *type, "main-grads-dtype");
  }

  void read_loss() {
    const std::string kind = flags_.text("cross-entropy-fusion-impl").value_or("native");
    if (on("cross-entropy-loss-fusion"))
      set("train.cross_entropy", std::string(kind == "te" ? "te" : "fused"), "cross-entropy-loss-fusion");
  }

  void read_recomputation() {
    // transformer_block.py _checkpointed_forward: of "block" so many layers run again.
    if (draft_.text("train.recompute") == "full" && draft_.text("train.recompute_method") == "block" &&
        draft_.integer("train.recompute_layers") == 0)
      set("train.recompute", std::string("none"), "recompute-num-layers");
    if (on("recompute-activations") && !flags_.has("recompute-granularity"))
      set("train.recompute", std::string("selective"), "recompute-activations");
    // Nothing asks for these where nothing is computed again, and recipes leave them in.
    if (draft_.text("train.recompute") != "full")
      for (const auto& [flag, path] : {std::pair{"recompute-method", "train.recompute_method"},
                                       {"recompute-num-layers", "train.recompute_layers"}})
        if (flags_.has(flag)) {
          draft_.erase(path);
          flags_.tell(RemarkKind::NoMatter, flag, "is for recompute-granularity = full");
        }
  }

  void read_layout() {
    if (on("use-distributed-optimizer")) set("layout.sharding", std::string("zero1"), "use-distributed-optimizer");
    const std::optional<std::int64_t> gpus = draft_.integer("gpus");
    const std::int64_t each =
        product({draft_.integer("layout.tensor").value_or(1), draft_.integer("layout.pipeline").value_or(1),
                 draft_.integer("layout.context").value_or(1)});
    if (const auto instances = flags_.integer("num-distributed-optimizer-instances"); instances && *instances > 1) {
      const std::int64_t data = gpus.value_or(0) / std::max<std::int64_t>(each, 1);
      if (gpus && *instances > 0 && data % *instances == 0)
        set("layout.shard_group", data / *instances, "num-distributed-optimizer-instances");
      else
        flags_.tell(RemarkKind::NotExpressed, "num-distributed-optimizer-instances",
                    "takes the number of GPUs, of which it divides the replicas");
    }
    if (on("use-tp-pp-dp-mapping")) set("layout.order", std::string("tp-cp-ep-pp-dp"), "use-tp-pp-dp-mapping");
    const std::int64_t pipeline = draft_.integer("layout.pipeline").value_or(1);
    if (const auto layers = flags_.integer("num-layers-per-virtual-pipeline-stage"); layers && *layers > 0) {
      const std::int64_t chunks = shared_out_layers() / std::max<std::int64_t>(product({pipeline, *layers}), 1);
      if (chunks > 1) set("layout.chunks", chunks, "num-layers-per-virtual-pipeline-stage");
    }
  }

  // One's own stages, from which the number of virtual ones follows (core/transformer/transformer_config.py).
  void read_stage_layout() {
    const std::optional<std::string> said = flags_.text("pipeline-model-parallel-layout");
    const std::optional<std::vector<std::int64_t>> stages = said ? layers_of_stages(*said) : std::nullopt;
    const std::int64_t pipeline = draft_.integer("layout.pipeline").value_or(1);
    if (!stages || pipeline < 1 || std::ssize(*stages) % pipeline != 0) return;  // told as not modelled
    const Place place = flags_.take("pipeline-model-parallel-layout")->place;
    std::vector<TomlValue> layers;
    for (const std::int64_t its : *stages) layers.push_back({its, place});
    draft_.set("layout.stage_layers", std::move(layers), place);
    if (const std::int64_t chunks = std::ssize(*stages) / pipeline; chunks > 1)
      draft_.set("layout.chunks", chunks, place);
  }

  void read_context() {
    if (const TomlValue* kind = flags_.take("cp-comm-type")) {
      const auto* list = std::get_if<std::vector<TomlValue>>(&kind->value);
      if (list != nullptr && list->size() > 1)
        flags_.tell(RemarkKind::NotExpressed, "cp-comm-type",
                    not_modelled("another kind for each layer is not modelled yet"));
      else if (draft_.integer("layout.context").value_or(1) > 1)
        set("layout.context_kind", list != nullptr ? list->front().value : kind->value, "cp-comm-type");
    }
    if (const TomlValue* sizes = flags_.take("hierarchical-context-parallel-sizes"))
      if (const auto* list = std::get_if<std::vector<TomlValue>>(&sizes->value); list != nullptr && list->size() == 2)
        set("layout.context_inner", list->front().value, "hierarchical-context-parallel-sizes");
  }

  void read_optimizer() {
    const std::string optimizer = flags_.text("optimizer").value_or("adam");
    const double momentum = flags_.number("sgd-momentum").value_or(0.9);
    if (optimizer == "sgd")
      set("train.optimizer", std::string(momentum > 0 ? "sgd_momentum" : "sgd"), "optimizer");
    else if (optimizer.ends_with("muon"))
      set("train.optimizer", std::string("muon"), "optimizer");
    else if (optimizer == "ademamix")
      flags_.tell_bounded(
          "optimizer", "the figures are of adam; swiss-ai's AdEMAMix has a third number of each parameter", "ademamix");
    else if (optimizer != "adam")
      flags_.tell(RemarkKind::NotJudged, "optimizer",
                  "Megatron's adam, sgd and muon are modelled: the figures are of adam");
    if (!optimizer.ends_with("muon"))
      for (const std::string_view flag : muon_switches)
        if (flags_.has(flag)) flags_.tell(RemarkKind::NoMatter, flag, "is for Muon"), of_no_use_.emplace_back(flag);
    if (flags_.has("sgd-momentum") && optimizer != "sgd")
      flags_.tell(RemarkKind::NoMatter, "sgd-momentum", "is for SGD");
    if (on("optimizer-cpu-offload"))
      set("offload.optimizer", std::string("cpu"), "optimizer-cpu-offload");
    else if (flags_.has("optimizer-offload-fraction")) {
      draft_.erase("offload");
      flags_.tell(RemarkKind::NoMatter, "optimizer-offload-fraction", "is for optimizer-cpu-offload");
    }
    if (on("cpu-offloading") || flags_.integer("cpu-offloading-num-layers").value_or(0) > 0)
      set("offload.activations", std::string("cpu"), "cpu-offloading-num-layers");
  }

  // arguments.py: tokens are gathered, and experts are MLPs one after the other, unless it is told otherwise.
  void read_experts() {
    const bool experts = flags_.integer("num-experts").value_or(0) > 0;
    if (!experts && !names_experts_) return draft_.erase("moe");
    if (!experts) return;  // its own tool's defaults are those of a scenario
    if (flags_.has("moe-router-num-groups") && flags_.integer("moe-router-num-groups") == 1)
      for (const std::string_view flag : {"moe-router-num-groups", "moe-router-group-topk"})
        flags_.tell(RemarkKind::NoMatter, flag, "one group of experts is no grouping");
    if (!flags_.has("moe-token-dispatcher-type")) draft_.set("moe.dispatcher", std::string("allgather"));
    if (!flags_.has("moe-grouped-gemm")) draft_.set("runtime.switches.moe-grouped-gemm", false);
  }

  void read_tokenizer() {
    keep("max-position-embeddings");
    const std::optional<std::string> tokenizer =
        flags_.has("tokenizer-type") ? flags_.text("tokenizer-type") : std::nullopt;
    if (flags_.has("padded-vocab-size"))  // arguments.py since core 0.14: as large as it is after padding
      set("model_override.vocabulary_multiple", std::int64_t{1}, "padded-vocab-size");
    else if (tokenizer == "NullTokenizer")
      set("model_override.vocabulary_extra", std::int64_t{1}, "tokenizer-type");
    else if (tokenizer)
      keep("tokenizer-type"),
          flags_.tell(RemarkKind::NoMatter, "tokenizer-type", "the vocabulary's size is what counts");
    if (const auto multiple = flags_.integer("make-vocab-size-divisible-by");
        multiple && *multiple != 128 && !flags_.has("padded-vocab-size"))
      set("model_override.vocabulary_multiple", *multiple, "make-vocab-size-divisible-by");
    if (flags_.has("use-rotary-position-embeddings") || flags_.has("no-position-embedding"))
      flags_.no_matter(std::array<std::string_view, 2>{"use-rotary-position-embeddings", "no-position-embedding"},
                       "position-embedding-type says it");
  }

  Given& flags_;
  Draft& draft_;
  bool names_experts_;  ///< a model is named which has experts
  std::vector<std::string> of_no_use_;
};

// Whether the job's model is named, and has experts.
bool names_experts(const ShippedModels& models, const Draft& draft) {
  const std::optional<std::string> name = draft.text("model");
  if (!name) return false;
  const auto shipped = std::ranges::find(models.files, *name, &ShippedModel::file);
  if (shipped != models.files.end()) return shipped->model.experts() != nullptr;
  if (is_there(*name)) return read_model(*name).experts() != nullptr;
  const std::optional<NamedConfig> its = named_config(*name, models.data_root);
  return its && parse_model(its->text, its->path).experts() != nullptr;
}

// A nemotron-nas config.json is the model, which flags repeat. Megatron-LM takes how wide MLPs are from there.
void take_blocks(Given& flags, Draft& draft) {
  constexpr std::string_view key = "heterogeneous-layers-config-path", width = "ffn-hidden-size";
  const TomlValue* const value = flags.look_at(key);
  const auto* const name = value == nullptr ? nullptr : std::get_if<std::string>(&value->value);
  if (name == nullptr || draft.find("model") != nullptr) return;
  const std::filesystem::path file = named_beside(draft.folder, *name);
  if (!is_there(file) || read_model(file).architecture != "nemotron-nas") return;
  draft.set("model", std::filesystem::absolute(file).string(), value->place);
  (void)flags.take(key);
  if (flags.has(width)) flags.tell(RemarkKind::NoMatter, width, "each layer's width is the file's");
}

}  // namespace

void read_megatron(Given& flags, const ShippedModels& models, Draft& draft) {
  take_blocks(flags, draft);
  MegatronReader reader(flags, draft, names_experts(models, draft));
  reader.read();
  if (draft.find("model") == nullptr) {
    draft.kept.describes_model = true;
    describe_model(flags, models, draft);
  } else {
    // Another place says which model it is: what is said here has to agree, which the scenario's reader sees to.
    for (const TomlKey& key : flags.keys())
      if (describes_model(key.name))
        if (const TomlValue* value = flags.take(key.name))
          draft.set("runtime.switches." + key.name, value->value, value->place);
  }
  reader.rest();
}

}  // namespace tidemark::scenarios
