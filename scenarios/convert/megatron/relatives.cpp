#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/interpolation.hpp"
#include "scenarios/convert/shell/launch_line.hpp"
#include "scenarios/formats/suggestion.hpp"

// Tools that train with Megatron-LM, or much as it does, and say so in words of their own: ms-swift, FlagScale.

namespace tidemark::scenarios {
namespace {

struct Renamed {
  std::string_view key, flag;
};

const TomlKey* find(const std::vector<TomlKey>& flags, std::string_view name) {
  const auto found = std::find_if(flags.rbegin(), flags.rend(), [&](const TomlKey& its) { return its.name == name; });
  return found == flags.rend() ? nullptr : &*found;
}

bool is_on(const TomlKey* key) {
  const auto* const on = key == nullptr ? nullptr : std::get_if<bool>(&key->value.value);
  return on != nullptr && *on;
}

// "--sequence_parallel true" is --sequence-parallel, and false asks for nothing.
std::optional<TomlKey> as_flag(TomlKey key, const std::string& name, Draft& draft) {
  std::ranges::replace(key.name, '_', '-');
  const auto* const on = std::get_if<bool>(&key.value.value);
  if (on != nullptr && !*on) {
    draft.remark(RemarkKind::NoMatter, fmt::format("{} = false", name), "asks for nothing", key.place);
    return std::nullopt;
  }
  return key;
}

void add(std::vector<TomlKey>& flags, std::string_view name, Content content, Place place = {}) {
  flags.push_back({std::string(name), place, {std::move(content), place}});
}

// A file that is shipped, as drafts name it, or a checkpoint by its name.
std::optional<ShippedModel> of_name(const ShippedModels& models, const std::string& name) {
  const auto file = std::ranges::find(models.files, name, &ShippedModel::file);
  return file != models.files.end() ? *file : shipped_model(models, name);
}

}  // namespace

// swift/megatron/arguments/megatron_args.py: Megatron-LM's words with underscores, true and false behind switches, and
// some defaults of its own; which model it is, a checkpoint's name says.
std::vector<TomlKey> swift_flags(std::vector<TomlKey> given, const ShippedModels& models, Draft& draft) {
  constexpr std::array renamed{
      Renamed{"max-length", "seq-length"},
      Renamed{"virtual-pipeline-model-parallel-size", "num-virtual-stages-per-pipeline-rank"},
      Renamed{"microbatch-group-size-per-vp-stage", "microbatch-group-size-per-virtual-pipeline-stage"}};
  // What Megatron-LM has no word for, and changes nothing.
  constexpr auto aside = std::to_array<std::string_view>({"save-safetensors",
                                                          "dataset",
                                                          "val-dataset",
                                                          "load-from-cache-file",
                                                          "split-dataset-ratio",
                                                          "num-train-epochs",
                                                          "output-dir",
                                                          "eval-steps",
                                                          "save-steps",
                                                          "dataloader-num-workers",
                                                          "dataset-num-proc",
                                                          "logging-steps",
                                                          "report-to",
                                                          "save-total-limit",
                                                          "add-version",
                                                          "use-hf",
                                                          "hub-token",
                                                          "system",
                                                          "loss-scale",
                                                          "streaming",
                                                          "max-epochs",
                                                          "model-author",
                                                          "model-name",
                                                          "packing-num-proc",
                                                          "dataset-shuffle",
                                                          "train-dataloader-shuffle",
                                                          "data-seed",
                                                          "strict",
                                                          "no-save-optim",
                                                          "no-save-rng",
                                                          "bridge-backend",
                                                          "merge-lora",
                                                          "template",
                                                          "agent-template",
                                                          "save-strategy",
                                                          "cached-dataset",
                                                          "model-type",
                                                          "attn-impl",
                                                          "dataloader-pin-memory",
                                                          "dataloader-prefetch-factor",
                                                          "dataloader-persistent-workers",
                                                          "custom-dataset-info",
                                                          "columns"});
  constexpr auto of_adapters = std::to_array<std::string_view>(
      {"lora-rank", "lora-alpha", "lora-dropout", "lora-bias", "lora-dtype", "use-rslora", "target-modules",
       "target-regex", "modules-to-save", "adapters", "freeze-llm", "freeze-vit", "freeze-aligner", "num-labels",
       "task-type", "problem-type"});
  std::vector<TomlKey> flags;
  std::optional<TomlKey> held;
  for (const TomlKey& key : given) {
    const std::string name = "--" + key.name;
    TomlKey its = key;
    std::ranges::replace(its.name, '_', '-');
    if (const auto* const other = std::ranges::find(renamed, std::string_view(its.name), &Renamed::key);
        other != renamed.end())
      its.name = other->flag;
    if (its.name == "model") {
      const auto* const text = std::get_if<std::string>(&its.value.value);
      std::optional<ShippedModel> shipped = text == nullptr ? std::nullopt : shipped_model(models, *text);
      // Weights that are published in FP8 too ("Qwen/Qwen3-8B-FP8"): the layers are Megatron core's, of the same shape.
      constexpr std::string_view in_bytes = "-FP8";
      if (!shipped && text != nullptr && text->ends_with(in_bytes))
        shipped = shipped_model(models, text->substr(0, text->size() - in_bytes.size()));
      if (draft.find("model") != nullptr)
        draft.remark(RemarkKind::NoMatter, name, "--model says which one", its.place);
      else if (!shipped)
        draft.remark(RemarkKind::NotExpressed, fmt::format("{} = {}", name, scenarios::text(its.value)),
                     why_not_shipped(models, text == nullptr ? std::string() : *text), its.place);
      else
        draft.set("model", shipped->file, its.place);
    } else if (std::ranges::find(aside, std::string_view(its.name)) != aside.end()) {
      draft.remark(RemarkKind::NoMatter, name, "of data, checkpoints and logs", its.place);
    } else if (its.name == "torch-dtype") {
      held = its;
    } else if (its.name == "packing") {
      if (is_on(&its))
        draft.remark_bounded(name, "the figures are of whole sequences of that length, which packed ones fill at most",
                             "packed-sequences", its.place);
    } else if ((its.name == "tuner-type" || its.name == "train-type") && scenarios::text(its.value) == "\"lora\"") {
      const TomlKey* rank = find(given, "lora_rank");
      if (rank == nullptr) rank = find(given, "lora-rank");
      const auto* const said = rank == nullptr ? nullptr : std::get_if<std::int64_t>(&rank->value.value);
      constexpr std::int64_t usual = 8;
      draft.remark_bounded(fmt::format("{} = \"lora\"", name), std::string(figures_of_all_weights),
                           fmt::format("lora-on-megatron:{}", said == nullptr ? usual : *said), its.place);
    } else if ((its.name == "tuner-type" || its.name == "train-type") && scenarios::text(its.value) != "\"full\"") {
      draft.remark(RemarkKind::NotExpressed, fmt::format("{} = {}", name, scenarios::text(its.value)),
                   not_modelled("adapters on Megatron-LM are not modelled"), its.place);
    } else if (its.name == "task-type" && scenarios::text(its.value) != "\"causal_lm\"") {
      draft.remark(RemarkKind::NotExpressed, fmt::format("{} = {}", name, scenarios::text(its.value)),
                   not_modelled("a head for another task is not modelled"), its.place);
    } else if (std::ranges::find(of_adapters, std::string_view(its.name)) != of_adapters.end()) {
      draft.remark(RemarkKind::NoMatter, name, "of an adapter, which tuner_type asks for", its.place);
    } else if (its.name == "tuner-type" || its.name == "train-type") {
      draft.remark(RemarkKind::NoMatter, name, "all weights are trained", its.place);
    } else if (std::optional<TomlKey> flag = as_flag(its, name, draft)) {
      flags.push_back(*std::move(flag));
    }
  }
  const auto usual = [&](std::string_view flag, Content content) {
    if (find(flags, flag) == nullptr && find(given, flag) == nullptr) add(flags, flag, std::move(content));
  };
  std::vector<TomlKey> dashed = given;
  for (TomlKey& key : dashed) std::ranges::replace(key.name, '_', '-');
  given = dashed;
  // base_args/model_args.py _init_mixed_precision, which megatron_args.py calls: fp32 is trained in fp16, too.
  const std::string type = held ? scenarios::text(held->value) : "\"bfloat16\"";
  if (type == "\"float16\"" || type == "\"float32\"") {
    if (find(given, "fp16") == nullptr) add(flags, "fp16", true, held->place);
  } else if (type != "\"bfloat16\"") {
    draft.remark(RemarkKind::NotExpressed, fmt::format("--torch_dtype = {}", type),
                 "is no type that swift takes: bfloat16, float16 and float32 are", held->place);
  } else {
    if (held) draft.remark(RemarkKind::NoMatter, "--torch_dtype", "bf16, which is usual", held->place);
    if (!is_on(find(flags, "fp16"))) usual("bf16", true);
  }
  usual("use-distributed-optimizer", true);
  usual("micro-batch-size", std::int64_t{1});
  usual("global-batch-size", std::int64_t{16});
  usual("recompute-granularity", std::string("selective"));
  usual("cross-entropy-loss-fusion", true);
  usual("attention-backend", std::string("flash"));
  usual("attention-softmax-in-fp32", true);
  usual("hidden-dropout", 0.0);
  usual("attention-dropout", 0.0);
  if (find(given, "apply-rope-fusion") == nullptr) usual("no-rope-fusion", true);
  std::erase_if(flags, [](const TomlKey& key) { return key.name == "apply-rope-fusion"; });
  const std::optional<ShippedModel> its = of_name(models, draft.text("model").value_or(""));
  if (const TomlKey* backend = find(flags, "attention-backend");
      its && its->model.latent() && scenarios::text(backend->value) == "\"flash\"") {
    if (backend->place.line > 0)
      draft.remark_bounded("--attention_backend = \"flash\"",
                           "the figures are of what the device would choose; FlashAttention takes values padded to the "
                           "width of keys",
                           "padded-values", backend->place);
    std::erase_if(flags, [](const TomlKey& key) { return key.name == "attention-backend"; });
  }
  if (its && its->model.experts()) {
    usual("moe-token-dispatcher-type", std::string("alltoall"));
    usual("moe-grouped-gemm", true);
    usual("num-experts", its->model.experts()->count);
    usual("expert-tensor-parallel-size", std::int64_t{1});  // megatron_args.py
  }
  return flags;
}

// flagscale/train: every key below its tables is a flag of Megatron-LM's, or of FlagScale's changes to it
// (flagscale/backends/Megatron-LM/megatron/training/arguments.py.patch).
std::vector<TomlKey> flagscale_flags(const TomlTable& document, Draft& draft) {
  TomlTable whole = document;
  interpolate(whole);
  std::vector<TomlKey> flags;
  const auto walk = [&](const auto& self, const TomlTable& table, const std::string& path) -> void {
    constexpr auto aside = std::to_array<std::string_view>(
        {"no_shared_fs", "tokenizer_path", "special_tokens_file", "norm_init_weight", "checkpoint", "logging"});
    for (const TomlKey& key : table.keys) {
      const std::string name = path + key.name;
      if (std::ranges::find(aside, std::string_view(key.name)) != aside.end())
        draft.remark(RemarkKind::NoMatter, name, "of what is logged, saved and read", key.place);
      else if (const auto* inner = std::get_if<TomlTable>(&key.value.value))
        self(self, *inner, name + '.');
      else if (std::optional<TomlKey> flag = as_flag(key, name, draft))
        flags.push_back(*std::move(flag));
    }
  };
  walk(walk, whole, "");
  const auto whole_number = [&](std::string_view name) -> std::optional<std::int64_t> {
    const TomlKey* const key = find(flags, name);
    const auto* const number = key == nullptr ? nullptr : std::get_if<std::int64_t>(&key->value.value);
    return number == nullptr ? std::nullopt : std::optional(*number);
  };
  // Llama's own rule for the width of its MLP, where that is left out.
  const auto multiple = whole_number("multiple-of"), hidden = whole_number("hidden-size");
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (multiple && hidden && *multiple > 0 && *hidden > 0 && *multiple < most && *hidden < most &&
      is_on(find(flags, "swiglu")) && find(flags, "hidden-dim-multiplier") == nullptr) {
    const TomlKey key = *find(flags, "multiple-of");
    if (find(flags, "ffn-hidden-size") == nullptr)
      add(flags, "ffn-hidden-size", (8 * *hidden / 3 + *multiple - 1) / *multiple * *multiple, key.place);
    std::erase_if(flags, [](const TomlKey& its) { return its.name == "multiple-of"; });
  }
  return flags;
}

}  // namespace tidemark::scenarios
