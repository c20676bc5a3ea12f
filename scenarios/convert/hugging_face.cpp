#include <algorithm>
#include <array>
#include <cctype>
#include <sstream>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/hugging_face_names.hpp"
#include "scenarios/convert/shell/launch_line.hpp"
#include "scenarios/convert/yaml_table.hpp"
#include "scenarios/formats/json_table.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/scenario/names.hpp"
#include "scenarios/scenario/zero_keys.hpp"

// transformers 5.23 TrainingArguments, TRL's SFTConfig and ModelConfig as far as scripts share them, accelerate 1.15's
// launch configuration, DeepSpeed 0.19.

namespace tidemark::scenarios {

using namespace hugging_face;

namespace {

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// A JSON text is a table, too, and so is a file of one (training_args.py): {"use_reentrant": false}, fsdp.json.
TomlTable table_or_text(Given& given, std::string_view name) {
  const TomlValue* value = given.take(name);
  if (value == nullptr) return {};
  if (const auto* table = std::get_if<TomlTable>(&value->value)) return *table;
  const auto* const text = std::get_if<std::string>(&value->value);
  if (text != nullptr && text->starts_with('{')) return parse_json_table(*text, given.draft().file, Automatic::Kept);
  if (text == nullptr || !text->ends_with(".json")) {
    given.tell(RemarkKind::NotExpressed, name, "is no table");
    return {};
  }
  const std::filesystem::path path = named_beside(given.draft().folder, *text);
  if (is_there(path)) return parse_json_table(read_text(path), path.string(), Automatic::Kept);
  given.tell(RemarkKind::NotExpressed, name, "is not there: put it where the script looks for it");
  return {};
}

void copy(Given& given, std::string_view name, std::string_view path) {
  if (const TomlValue* value = given.take(name)) given.draft().set(path, value->value, value->place);
}

// "full_shard auto_wrap offload", or a list of those, or true.
std::string fsdp_words(Given& given) {
  const TomlValue* value = given.take("fsdp");
  if (value == nullptr) return {};
  if (const auto* list = std::get_if<std::vector<TomlValue>>(&value->value)) {
    std::string words;
    for (const TomlValue& v : *list)
      if (const auto* text = std::get_if<std::string>(&v.value)) words += (words.empty() ? "" : " ") + *text;
    return words;
  }
  if (const auto* flag = std::get_if<bool>(&value->value)) return *flag ? "full_shard auto_wrap" : "";
  if (const auto* text = std::get_if<std::string>(&value->value)) return *text;
  given.tell(RemarkKind::NotExpressed, "fsdp", "takes true or a text such as \"full_shard auto_wrap\"");
  return "";
}

// training_args.py: each is a member of FSDPOption.
void check_fsdp_words(Given& given, const std::string& words) {
  static constexpr auto known = std::to_array<std::string_view>(
      {"full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2", "offload", "auto_wrap"});
  std::istringstream each(words);
  for (std::string word; each >> word;)
    if (std::ranges::find(known, word) == known.end())
      given.tell(RemarkKind::NotExpressed, "fsdp",
                 fmt::format("{} is none of transformers' options: {}", in_quotes(word), fmt::join(known, ", ")));
}

// FSDP's strategy, by its name or its number (torch.distributed.fsdp.ShardingStrategy).
void set_strategy(Given& given, std::string_view key, std::string strategy, std::int64_t devices_per_node) {
  Draft& draft = given.draft();
  const Place place = given.place(key);
  constexpr std::array<std::string_view, 5> numbered{"full_shard", "shard_grad_op", "no_shard", "hybrid_shard",
                                                     "hybrid_shard_zero2"};
  strategy = lower(strategy);
  if (strategy.size() == 1 && strategy[0] >= '1' && strategy[0] <= '5')
    strategy = numbered.at(static_cast<std::size_t>(strategy[0] - '1'));
  const bool hybrid = strategy.starts_with("hybrid_shard");
  if (strategy == "full_shard" || strategy == "hybrid_shard")
    draft.set("layout.sharding", std::string("zero3"), place);
  else if (strategy == "shard_grad_op" || strategy.starts_with("hybrid_shard_zero2") ||
           strategy == "_hybrid_shard_zero2")
    draft.set("layout.sharding", std::string("zero2"), place);
  else if (strategy == "no_shard")
    draft.set("layout.sharding", std::string("none"), place);
  else
    given.tell(RemarkKind::NotExpressed, key, "is no strategy of FullyShardedDataParallel's");
  if (!hybrid) return;
  if (devices_per_node > 0)
    draft.set("layout.shard_group", devices_per_node, place);
  else
    given.tell(RemarkKind::NotExpressed, key, "shards within a node, and how many devices one has is not said");
}

// What is said of FSDP elsewhere.
struct BesideFsdpConfig {
  bool mixed = false;  ///< precisions
  std::string precision;
  bool wraps = false;  ///< layers are units
  std::int64_t devices_per_node = 0;
};

// Keys of an fsdp_config, with or without their prefix.
void read_fsdp_config(Given config, const BesideFsdpConfig& beside) {
  const auto& [mixed, precision, wraps, devices_per_node] = beside;
  Draft& draft = config.draft();
  const auto either = [&](std::string_view name) {
    return config.has(fmt::format("fsdp_{}", name)) ? fmt::format("fsdp_{}", name) : std::string(name);
  };
  const auto flag = [&](std::string_view name) { return config.flag(either(name)); };
  const std::int64_t version = config.integer(either("version")).value_or(1);
  if (version != 1 && version != 2)
    config.tell(RemarkKind::NotExpressed, either("version"), "FullyShardedDataParallel is 1, fully_shard is 2");
  const bool second = version == 2 || draft.text("runtime.name") == "fsdp2";
  draft.set("runtime.name", std::string(second ? "fsdp2" : "fsdp"), config.place(either("version")));
  const std::string strategy = either("sharding_strategy"), reshard = either("reshard_after_forward");
  if (const TomlValue* value = config.take(reshard)) {
    const auto* truth = std::get_if<bool>(&value->value);
    if (truth != nullptr)
      draft.set("layout.sharding", std::string(*truth ? "zero3" : "zero2"), value->place);
    else if (const auto text = config.text(reshard))
      set_strategy(config, reshard,
                   *text == "true"    ? "full_shard"
                   : *text == "false" ? "shard_grad_op"
                                      : *text,
                   devices_per_node);
  }
  if (!second) {
    if (const auto text = config.text(strategy)) set_strategy(config, strategy, *text, devices_per_node);
    const std::string prefetch = lower(config.text(either("backward_prefetch")).value_or("no_prefetch"));
    draft.set("runtime.switches.backward_prefetch", std::string(prefetch == "no_prefetch" ? "none" : prefetch),
              config.place(either("backward_prefetch")));
    for (const char* its : {"forward_prefetch", "use_orig_params", "sync_module_states", "limit_all_gathers"})
      if (const auto on = flag(its); on)
        draft.set(fmt::format("runtime.switches.{}", its), *on, config.place(either(its)));
    if (mixed) {
      // accelerator.py prepare_model: autocast round a model whose shards are fp32, and what is gathered is narrow.
      draft.set("runtime.switches.autocast", true);
      draft.set("runtime.switches.buffer_dtype", precision);
    }
  } else {
    if (mixed) draft.set("runtime.switches.reduce_dtype", precision);
    for (const char* its :
         {"sharding_strategy", "backward_prefetch", "forward_prefetch", "use_orig_params", "sync_module_states"})
      if (config.has(either(its))) config.tell(RemarkKind::NoMatter, either(its), "means nothing with fully_shard");
  }
  if (flag("offload_params").value_or(false))
    draft.set("offload.parameters", std::string("cpu"), config.place(either("offload_params")));
  if (flag("activation_checkpointing").value_or(false)) {
    draft.fsdp_checkpoints = config.place(either("activation_checkpointing"));
    draft.set("train.recompute", std::string("full"), *draft.fsdp_checkpoints);
    draft.set("runtime.switches.use_reentrant", false);  // checkpoint_wrapper, CheckpointImpl.NO_REENTRANT
  }
  const std::string policy = either("auto_wrap_policy");
  const std::optional<std::string> wraps_by_policy = config.text(policy);
  if (wraps_by_policy && lower(*wraps_by_policy) != "transformer_based_wrap")
    config.tell(RemarkKind::NotExpressed, policy, not_modelled("other units than layers are not modelled yet"));
  else if (!wraps && !wraps_by_policy)
    draft.remark(RemarkKind::NotExpressed, policy,
                 not_modelled("without it the model is one unit, which is not modelled yet"));
  for (const char* its : {"min_num_params", "cpu_offload_pin_memory"})
    if (config.has(either(its)) && config.text(either(its)) != "0" && config.text(either(its)) != "true")
      config.tell(RemarkKind::NotExpressed, either(its), not_modelled("other units than layers are not modelled yet"));
  for (const char* its : {"transformer_layer_cls_to_wrap", "state_dict_type", "cpu_ram_efficient_loading",
                          "auto_wrap_policy", "min_num_params", "cpu_offload_pin_memory", "activation_cpu_offload"})
    config.no_matter(std::array{std::string_view(either(its))});
  config.refuse("xla", "XLA is", {"false"});
  config.refuse_the_rest("is no key of an fsdp_config that is known here");
}

void read_deepspeed_file(Given& given, std::string_view key, const std::string& name) {
  Draft& draft = given.draft();
  const std::filesystem::path path = named_beside(draft.folder, name);
  if (const std::optional<DeepspeedPreset> preset = deepspeed_preset(name); preset && !is_there(path)) {
    given.tell(RemarkKind::Assumed, key, fmt::format("is not there: taken as {} ships it", preset->tool));
    Given config(parse_json_table(preset->json, draft.file, Automatic::Kept).keys, "", draft);
    return read_deepspeed(config, draft);
  }
  if (!is_there(path)) {
    given.tell(RemarkKind::NotExpressed, key,
               fmt::format("there is no {}: give it as a file, too", in_quotes(path.string())));
    draft.set("runtime.name", std::string("deepspeed"), given.place(key));
    return;
  }
  const std::string before = std::exchange(draft.file, path.string());
  const TomlTable document = parse_json_table(read_text(path), path.string(), Automatic::Kept);
  Given config(document.keys, "", draft);
  read_deepspeed(config, draft);
  draft.file = before;
}

void read_batch(Given& given) {
  Draft& draft = given.draft();
  const auto counted = [&](std::string_view name) {
    const auto number = given.integer(name);
    if (number && *number < 1) given.tell(RemarkKind::NotExpressed, name, "takes a number from 1 up");
    return number;
  };
  for (const std::string_view name : {"per_device_train_batch_size", "per_gpu_train_batch_size", "micro_batch_size"})
    if (const auto batch = counted(name)) draft.set("train.micro_batch", *batch, given.place(name));
  if (const auto steps = counted("gradient_accumulation_steps")) {
    if (draft.text("runtime.name") == "deepspeed" && draft.accumulation && *draft.accumulation != *steps)
      draft.remark(
          RemarkKind::Assumed, fmt::format("gradient_accumulation_steps = {}", *steps),
          fmt::format("as the arguments say; DeepSpeed's configuration says {}, and transformers does not start "
                      "while they differ",
                      *draft.accumulation),
          given.place("gradient_accumulation_steps"));
    draft.accumulation = *steps;
  }
  for (const std::string_view name : length_names)
    if (const auto length = counted(name)) draft.set("train.sequence_length", *length, given.place(name));
}

bool is_type(std::string type) {
  if (type.starts_with("torch.")) type.erase(0, 6);
  constexpr auto known =
      std::to_array<std::string_view>({"bfloat16", "bf16", "float16", "half", "fp16", "float32", "float", "fp32"});
  return std::ranges::find(known, type) != known.end();
}

std::string our_type(const std::string& type) {
  const bool half = type.ends_with("float16") || type.ends_with("half") || type == "fp16";
  return type.ends_with("bfloat16") || type == "bf16" ? "bf16" : half ? "fp16" : "fp32";
}

// In which type a model is loaded ("bfloat16", "torch.bfloat16" or "bf16").
void set_held_type(Draft& draft, const std::string& held) {
  const std::string type = our_type(held);
  if (!draft.mixed_precision) draft.set("train.precision", type);
  if (type != "fp32") draft.set("train.master_dtype", type);
}

void read_precision(Given& given) {
  Draft& draft = given.draft();
  const bool fp16 = given.flag("fp16").value_or(false), left_open = given.left_to_others("bf16");
  const bool bf16 = left_open ? !fp16 : given.flag("bf16").value_or(false);
  if (left_open && bf16) given.tell(RemarkKind::Assumed, "bf16", "true, as on devices of Ampere and later");
  if (given.left_to_others("fp16") && !bf16)
    given.tell(RemarkKind::NotExpressed, "fp16", "\"auto\" does not say whether: true or false would");
  if (bf16 && fp16) {  // TrainingArguments.__post_init__
    const Place place = given.place("fp16");
    throw InputError({Problem{.file = draft.file,
                              .line = place.line,
                              .column = place.column,
                              .message = "fp16 and bf16 are asked for both, at which transformers stops",
                              .hint = "leave one of them out"}});
  }
  draft.mixed_precision |= bf16 || fp16;
  std::optional<std::string> held;
  for (const std::string_view name : {"torch_dtype", "dtype", "model_dtype"})
    if (const auto type = given.text(name)) {
      if (is_type(*type))
        held = *type;
      else
        given.tell(RemarkKind::NotExpressed, name,
                   "is no type that a model is loaded in here: bfloat16, float16, float32");
    } else if (given.left_to_others(name))
      draft.automatic.emplace("torch_dtype");
  if (bf16 || fp16)
    draft.set("train.precision", std::string(bf16 ? "bf16" : "fp16"), given.place(bf16 ? "bf16" : "fp16"));
  else if (!draft.mixed_precision && (given.has("bf16") || given.has("fp16") || held))
    draft.set("train.precision", std::string("fp32"));
  // PEFT's examples/sft/utils.py: of a base in 4 bits.
  if (const auto storage = given.text("bnb_4bit_quant_storage_dtype");
      storage && !held && is_type(*storage) && given.flag("use_4bit_quantization").value_or(false))
    held = *storage;
  draft.type_said |= held.has_value();
  if (held) set_held_type(draft, *held);
}

void read_recomputation(Given& given) {
  Draft& draft = given.draft();
  for (const std::string_view name : {"gradient_checkpointing", "activation_checkpointing"})
    if (given.flag(name).value_or(false)) draft.set("train.recompute", std::string("full"), given.place(name));
  if (given.flag("gradient_checkpointing").value_or(false))
    draft.trainer_checkpoints = given.place("gradient_checkpointing");
  if (const auto reentrant = given.flag("use_reentrant"); reentrant && draft.find("train.recompute") != nullptr)
    draft.set("runtime.switches.use_reentrant", *reentrant, given.place("use_reentrant"));
  for (const std::string_view name : {"gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"}) {
    Given options(table_or_text(given, name).keys, fmt::format("{}.", name), draft);
    if (const auto reentrant = options.flag("use_reentrant"); reentrant && draft.find("train.recompute") != nullptr)
      draft.set("runtime.switches.use_reentrant", *reentrant, options.place("use_reentrant"));
    options.no_matter(std::array<std::string_view, 3>{"preserve_rng_state", "determinism_check", "early_stop"});
    options.refuse_the_rest("is no option of torch.utils.checkpoint's that is known here");
  }
}

void read_optimizer(Given& given) {
  Draft& draft = given.draft();
  const std::string name = given.text("optim").value_or("adamw_torch_fused");
  const auto its = std::ranges::find(optimizers, name, &OptimizerName::hugging);
  if (its == optimizers.end())
    given.tell(RemarkKind::NotExpressed, "optim", not_modelled("an optimizer that is not modelled yet"));
  else if (!its->ours.empty())
    draft.set("train.optimizer", std::string(its->ours), given.place("optim"));
  // transformers/trainer.py get_optimizer_cls_and_kwargs.
  if (name.starts_with("galore_") && !given.has("optim_target_modules"))
    given.tell(RemarkKind::NotExpressed, "optim", "is refused by transformers without optim_target_modules");
  if (name == "adamw_torch_fused") draft.set("runtime.switches.fused", true, given.place("optim"));
  copy(given, "weight_decay", "runtime.switches.weight_decay");
  copy(given, "max_grad_norm", "runtime.switches.max_grad_norm");
}

// "q_proj,v_proj" is two names; "all-linear", and a list of that alone, is a word of PEFT's. Text that is no list of
// names is a regular expression there.
Content names_in(const TomlValue& value) {
  constexpr std::string_view every = "all-linear";
  if (const auto* list = std::get_if<std::vector<TomlValue>>(&value.value);
      list != nullptr && list->size() == 1 && scenarios::text(list->front()) == "\"all-linear\"")
    return std::string(every);
  const auto* const text = std::get_if<std::string>(&value.value);
  if (text == nullptr || *text == every || text->find_first_of("[(|*\\+?^$") != std::string::npos) return value.value;
  std::vector<TomlValue> names;
  std::string rest = *text;
  std::ranges::replace(rest, ',', ' ');
  std::istringstream each(rest);
  for (std::string name; each >> name;) names.push_back({name, value.place});
  return names;
}

// One of TRL's scripts, by its name or by an argument that others lack; PEFT's examples/sft is one of them.
bool is_of_trl(const Given& given, const Draft& draft) {
  constexpr auto telling = std::to_array<std::string_view>(
      {"use_peft", "use_peft_lora", "packing", "dataset_text_field", "loss_type", "assistant_only_loss",
       "completion_only_loss", "chat_template_path", "chat_template_format", "max_length"});
  return !draft.own_defaults &&
         (draft.trl || std::ranges::any_of(telling, [&](std::string_view name) { return given.has(name); }));
}

// A rank alone asks for no adapter where a word does: use_peft, which TRL's ModelConfig leaves false. Tools with words
// of their own have said use_peft by now.
bool asks_for_adapter(Given& given) {
  const Draft& draft = given.draft();
  std::optional<bool> said = given.flag("use_peft");
  // PEFT's own examples; scripts that say it themselves.
  for (const std::string_view name : {"use_peft_lora", "use_lora", "lora_enable"})
    if (const auto its = given.flag(name)) said = said.value_or(false) || *its;
  if (said) return *said;
  const std::string_view rank = given.has("lora_r") ? "lora_r" : "lora_rank";
  if (!given.has(rank) || draft.own_defaults || is_of_trl(given, draft)) return false;
  if (!draft.names_lora)
    given.tell(RemarkKind::NotJudged, rank,
               "asks for LoRA where the script makes adapters by itself, which is not known: use_peft = true or false "
               "says it");
  return true;
}

// PEFT and bitsandbytes, as TRL's ModelConfig asks for them.
void read_adapter(Given& given) {
  Draft& draft = given.draft();
  const bool requested = asks_for_adapter(given);
  if (requested) {
    draft.set("adapter.method", std::string("lora"), given.place("use_peft"));
    if (!given.has("lora_r") && !given.has("lora_rank") && !given.has("use_peft") && !given.has("use_peft_lora")) {
      draft.remark(RemarkKind::NotJudged, "lora_r",
                   "is not said, and is what the script takes: the figures are of PEFT's 8");
      draft.set("adapter.rank", std::int64_t{8});
    }
    for (const auto& [name, path] : {std::pair{"lora_r", "adapter.rank"},
                                     {"lora_rank", "adapter.rank"},
                                     {"lora_alpha", "adapter.alpha"},
                                     {"lora_dropout", "adapter.dropout"},
                                     {"modules_to_save", "adapter.modules_to_save"},
                                     {"lora_modules_to_save", "adapter.modules_to_save"}})
      copy(given, name, path);
    if (const TomlValue* saved = draft.find("adapter.modules_to_save"))
      draft.set("adapter.modules_to_save", names_in(*saved), saved->place);
    for (const char* name : {"lora_target_modules", "target_modules", "trainable"})
      if (const TomlValue* value = given.take(name))
        draft.set("adapter.target_modules", names_in(*value), value->place);
    given.refuse("use_dora", "DoRA is", {"false"});
    given.refuse("use_rslora", "another scale of LoRA's is", {"false", "true"});
  } else {
    constexpr auto of_lora =
        std::to_array<std::string_view>({"lora_r", "lora_rank", "lora_alpha", "lora_dropout", "lora_target_modules",
                                         "lora_target", "target_modules", "lora_modules_to_save", "modules_to_save",
                                         "additional_target", "lora_bias", "lora_dtype", "use_dora", "use_rslora"});
    given.no_matter(of_lora, "of LoRA, which nothing asks for");
  }
  const std::int64_t bits = given.integer("load_in_kbits").value_or(16);  // of Chinese-LLaMA-Alpaca's scripts
  const auto named_either = [&](std::string_view name, std::string_view in_examples) {
    const bool its = given.flag(name).value_or(false) || name == fmt::format("load_in_{}bit", bits);
    return given.flag(in_examples).value_or(false) || its;
  };
  if (named_either("load_in_4bit", "use_4bit_quantization")) {
    draft.set("quantization.format", given.text("bnb_4bit_quant_type").value_or("nf4"), given.place("load_in_4bit"));
    for (const char* name : {"use_bnb_nested_quant", "bnb_4bit_use_double_quant", "use_nested_quant"})
      if (given.flag(name).value_or(false)) draft.set("quantization.double_quant", true, given.place(name));
    for (const char* name : {"bnb_4bit_quant_storage", "bnb_4bit_quant_storage_dtype"})
      if (const auto type = given.text(name); type && is_type(*type))
        draft.set("quantization.storage_dtype", our_type(*type), given.place(name));
    (void)given.text("bnb_4bit_compute_dtype");  // that of autocast
  }
  if (named_either("load_in_8bit", "use_8bit_quantization")) {
    if (draft.find("quantization.format") != nullptr)
      given.tell(RemarkKind::NotExpressed, "load_in_8bit",
                 "4 and 8 bits are asked for both, at which transformers stops");
    draft.set("quantization.format", std::string("int8"), given.place("load_in_8bit"));
  }
}

// The loss is chunked_nll from 1.7 on (trl/trainer/sft_config.py).
void read_loss_of_trl(Given& given) {
  Draft& draft = given.draft();
  const bool liger = given.flag("use_liger_kernel").value_or(false) || given.flag("use_liger").value_or(false);
  const std::optional<std::string> loss = given.text("loss_type");
  constexpr std::string_view chunked = "chunked-loss";
  if (loss == "nll")
    given.tell(RemarkKind::NoMatter, "loss_type", "logits are whole, as they are simulated");
  else if (loss == "chunked_nll")
    given.tell_bounded("loss_type", "the figures are of whole logits, which it never has", std::string(chunked));
  else if (loss)
    given.tell(RemarkKind::NotExpressed, "loss_type", not_modelled("a loss that is not modelled: nll is"));
  else if (!liger)
    draft.remark_bounded(
        "loss_type",
        "is not said: the figures are of nll, with whole logits, which TRL had before 1.7; chunked_nll, its default "
        "since, never has them",
        std::string(chunked));
}

// TRL's defaults are not TrainingArguments', and changed with its releases (trl/trainer/base_config.py, sft_config.py):
// bf16 and gradient_checkpointing were false up to 0.18 and 0.21, and are true from 0.20 and 0.22 on.
void read_trl(Given& given) {
  Draft& draft = given.draft();
  draft.trl = is_of_trl(given, draft);
  if (!draft.trl) return;
  if (draft.learns_from == LearnsFrom::Rows) read_loss_of_trl(given);
  const auto recent = [&](std::string_view name, std::string_view older) {
    if (given.has(name) && !given.left_to_others(name)) return false;
    draft.remark(RemarkKind::Assumed, std::string(name),
                 fmt::format("true, which is TRL's default in releases after {}; false up to that", older));
    return true;
  };
  if (!given.has("activation_checkpointing") && recent("gradient_checkpointing", "0.21"))
    draft.set("train.recompute", std::string("full"));
  if (!given.flag("fp16").value_or(false) && !draft.mixed_precision && recent("bf16", "0.18")) {
    draft.mixed_precision = true;
    draft.set("train.precision", std::string("bf16"));
  }
}

// Rows of several sequences. What a row of them takes beside whole sequences is bounded.
void read_packing(Given& given) {
  for (const char* name : {"packing", "padding_free"})
    if (given.flag(name).value_or(false))
      given.tell_bounded(name,
                         "the figures are of whole sequences of that length, which packed ones of 128 tokens and more "
                         "on average fill at most",
                         "packed-rows");
}

// Evaluation is not simulated. Its logits are those of a batch of its own.
void read_evaluation(Given& given) {
  Draft& draft = given.draft();
  const auto says = [&](std::string_view name) {
    const std::optional<std::string> when = given.text(name);
    return when && *when != "no" && *when != "false";
  };
  constexpr std::string_view key = "per_device_eval_batch_size";
  constexpr std::int64_t usual = 8;  // TrainingArguments
  const bool evaluates = says("eval_strategy") || says("evaluation_strategy") ||
                         given.flag("eval_on_start").value_or(false) || given.flag("do_eval").value_or(false);
  const bool pairs = draft.learns_from == LearnsFrom::Pairs || draft.learns_from == LearnsFrom::RankedPairs;
  const std::int64_t answers = pairs ? 2 : 1, batch = product({answers, given.integer(key).value_or(usual)}),
                     trained = product({answers, draft.integer("train.micro_batch").value_or(usual)});
  if (!evaluates) {
    if (given.has(key)) given.tell(RemarkKind::NoMatter, key, "nothing is evaluated");
    return;
  }
  const std::string what = given.has(key) ? fmt::format("{} = {}", key, batch / answers) : std::string(key);
  const Place place = given.place(given.has(key) ? key : says("eval_strategy") ? "eval_strategy" : "do_eval");
  const bool liger = draft.find("runtime.switches.use_liger_kernel") != nullptr;
  if (batch > trained || liger)
    draft.remark_bounded(
        what,
        liger ? "evaluation is not simulated, and makes the logits that Liger's loss spares"
              : fmt::format("evaluation is not simulated, and has {} sequences at once where {} are "
                            "trained",
                            batch, trained),
        fmt::format("{}:{}", liger ? "evaluation-beside-liger" : "evaluation", std::max<std::int64_t>(batch, 1)),
        place);
  else
    draft.remark(RemarkKind::Assumed, what,
                 "evaluation is not modelled: no more sequences at once than are trained, and no gradients", place);
}

// Arguments that scripts add for their data: "train_file_path", "image_folder".
std::vector<std::string_view> names_of_files(const Given& given) {
  constexpr auto of_what = std::to_array<std::string_view>(
      {"train", "eval", "valid", "test", "data", "image", "video", "corpus", "cache", "log", "tokenizer", "prompt"});
  constexpr auto files =
      std::to_array<std::string_view>({"_file", "_files", "_path", "_paths", "_dir", "_folder", "_root"});
  std::vector<std::string_view> names;
  for (const TomlKey& key : given.keys()) {
    const std::string_view name = key.name;
    const bool whats = std::ranges::any_of(of_what, [&](std::string_view part) { return name.starts_with(part); });
    const bool named = std::ranges::any_of(files, [&](std::string_view part) { return name.ends_with(part); });
    if (whats && named && std::holds_alternative<std::string>(key.value.value)) names.push_back(name);
  }
  return names;
}

void read_kernels(Given& given) {
  Draft& draft = given.draft();
  if (const auto attention = given.text("attn_implementation")) {
    if (*attention == "flash_attention_2" || *attention == "flash_attention_3" ||
        attention->starts_with("kernels-community/")) {
      draft.set("train.attention", std::string("flash"), given.place("attn_implementation"));
      if (*attention != "flash_attention_2")
        given.tell(RemarkKind::Assumed, "attn_implementation", "saves what FlashAttention-2 does");
    } else if (*attention == "eager")
      draft.set("train.attention", std::string("unfused"), given.place("attn_implementation"));
    else if (*attention != "sdpa")
      given.tell(RemarkKind::NotExpressed, "attn_implementation",
                 not_modelled("an attention that is not modelled yet"));
  }
  if (given.flag("use_flash_attn").value_or(false))
    draft.set("train.attention", std::string("flash"), given.place("use_flash_attn"));
  if (given.has("chat_template_format") && given.text("chat_template_format") != "none")
    given.tell(RemarkKind::Assumed, "chat_template_format",
               "adds some tokens to the vocabulary, whose rows of the embedding and the head are not counted");
  if (given.flag("torch_compile").value_or(false))
    draft.set("runtime.switches.torch_compile", true, given.place("torch_compile"));
  for (const char* name : {"use_liger_kernel", "use_liger"})
    if (given.flag(name).value_or(false)) draft.set("runtime.switches.use_liger_kernel", true, given.place(name));
  if (const TomlTable config = table_or_text(given, "liger_kernel_config"); !config.keys.empty())
    draft.set("runtime.switches.liger_kernel_config", config, given.place("liger_kernel_config"));
  if (given.number("neftune_noise_alpha").value_or(0) > 0)
    copy(given, "neftune_noise_alpha", "runtime.switches.neftune_noise_alpha");
  if (const auto cache = given.flag("use_cache"))
    draft.set("runtime.switches.use_cache", *cache, given.place("use_cache"));
  copy(given, "ddp_bucket_cap_mb", "runtime.switches.bucket_cap_mb");
  // trainer.py _inner_training_loop, by default: the host looks at each loss.
  if (given.flag("logging_nan_inf_filter").value_or(true))
    draft.set("runtime.switches.logging_nan_inf_filter", true, given.place("logging_nan_inf_filter"));
}

std::int64_t devices_per_node(const Draft& draft, std::int64_t nodes) {
  const std::int64_t gpus = draft.integer("gpus").value_or(0);
  return nodes > 0 && gpus % nodes == 0 ? gpus / nodes : 0;
}

// accelerate/utils/dataclasses.py ParallelismConfig: parameters are shared out among ranks that work on one row, too.
void read_parallelism(Given config) {
  Draft& draft = config.draft();
  const auto degree = [&](std::string_view name) {
    return config.integer(fmt::format("parallelism_config_{}", name)).value_or(1);
  };
  for (const char* name : {"cp_size", "sp_size"})
    draft.part_rows(degree(name), fmt::format("parallelism_config_{} = {}", name, degree(name)),
                    config.place(fmt::format("parallelism_config_{}", name)));
  const std::int64_t replicas = degree("dp_replicate_size"), gpus = draft.integer("gpus").value_or(0);
  if (replicas > 1 && gpus > 0 && gpus % replicas == 0)
    draft.set("layout.shard_group", gpus / replicas, config.place("parallelism_config_dp_replicate_size"));
  else if (replicas > 1)
    config.tell(RemarkKind::NotExpressed, "parallelism_config_dp_replicate_size",
                "how many ranks each replica has is not said");
  if (degree("tp_size") > 1)
    config.tell(RemarkKind::NotExpressed, "parallelism_config_tp_size",
                not_modelled("transformers' tensor parallelism is not modelled"));
  config.no_matter(std::array<std::string_view, 6>{
      "parallelism_config_dp_shard_size", "parallelism_config_cp_comm_strategy", "parallelism_config_sp_backend",
      "parallelism_config_sp_seq_length", "parallelism_config_sp_seq_length_is_variable",
      "parallelism_config_sp_attn_implementation"});
  config.refuse_the_rest("is no key of a parallelism_config that is known here");
}

}  // namespace

void read_training_arguments(Given& given, const ShippedModels& models, Draft& draft) {
  draft.trainer = true;
  if (std::ranges::none_of(length_names, [&](std::string_view name) { return given.has(name); }))
    draft.rows_of_data = "max_length";
  for (const char* name : {"model_name_or_path", "model_id", "base_model", "model_name"})
    if (const auto checkpoint = given.text(name); checkpoint && draft.find("model") == nullptr) {
      const std::optional<ShippedModel> shipped = shipped_model(models, *checkpoint);
      if (shipped)
        draft.set("model", shipped->file, given.place(name));
      else
        given.tell(RemarkKind::NotExpressed, name, why_not_shipped(models, *checkpoint));
    }
  read_batch(given);
  read_precision(given);
  read_recomputation(given);
  read_optimizer(given);
  read_adapter(given);
  read_kernels(given);
  const std::string precision = draft.text("train.precision").value_or("fp32");
  const std::string words = fsdp_words(given);
  if (!words.empty()) {
    draft.set("runtime.name", std::string("fsdp"), given.place("fsdp"));
    const TomlTable config = table_or_text(given, "fsdp_config");
    for (const std::string_view strategy :
         {"hybrid_shard_zero2", "hybrid_shard", "full_shard", "shard_grad_op", "no_shard"})
      if (words.find(strategy) != std::string::npos) {
        set_strategy(given, "fsdp", std::string(strategy), devices_per_node(draft, 1));
        break;
      }
    // training_args.py: it is true unless the config says otherwise.
    draft.set("runtime.switches.use_orig_params", true);
    if (words.find("offload") != std::string::npos)
      draft.set("offload.parameters", std::string("cpu"), given.place("fsdp"));
    check_fsdp_words(given, words);
    read_fsdp_config(Given(config.keys, "fsdp_config.", draft), {.mixed = draft.mixed_precision,
                                                                 .precision = precision,
                                                                 .wraps = words.find("auto_wrap") != std::string::npos,
                                                                 .devices_per_node = devices_per_node(draft, 1)});
    if (draft.text("runtime.name") == "fsdp2") draft.erase("runtime.switches.use_orig_params");
  } else if (given.has("fsdp_config")) {
    given.tell(RemarkKind::NoMatter, "fsdp_config", "fsdp does not ask for it");
  }
  if (const TomlValue* value = given.take("deepspeed")) {
    if (const auto* table = std::get_if<TomlTable>(&value->value)) {
      Given config(table->keys, "deepspeed.", draft);
      read_deepspeed(config, draft);
    } else if (const auto* name = std::get_if<std::string>(&value->value); name != nullptr && name->starts_with('{')) {
      // training_args.py: a text that is a JSON object is the configuration itself.
      Given config(parse_json_table(*name, draft.file, Automatic::Kept).keys, "deepspeed.", draft);
      read_deepspeed(config, draft);
    } else if (name != nullptr) {
      read_deepspeed_file(given, "deepspeed", *name);
    } else {
      given.tell(
          RemarkKind::NotExpressed, "deepspeed",
          std::holds_alternative<bool>(value->value)
              ? not_modelled("names no file: the program makes DeepSpeed's configuration itself, which is not modelled")
              : "takes a file's name or a table");
    }
  }
  read_preferences(given);
  read_trl(given);
  read_packing(given);
  read_evaluation(given);
  for (const auto& [name, what, neutral] : refused_arguments)
    given.refuse(name, what, {std::string(neutral), "false", "0"});
  given.no_matter(plain_arguments);
  given.no_matter(names_of_files(given), "names files of data, as it is called");
  given.refuse_the_rest("is none of TrainingArguments that are known here");
}

void read_accelerate(Given& config, Draft& draft) {
  const std::string kind = config.text("distributed_type").value_or("NO");
  if (const auto gpus = config.integer("num_processes"); gpus && draft.find("gpus") == nullptr)
    draft.set("gpus", *gpus, config.place("num_processes"));
  const std::int64_t nodes = config.integer("num_machines").value_or(1);
  // accelerate/utils/launch.py prepare_multi_gpu_env: num_processes // num_machines on each.
  if (const auto all = config.integer("num_processes"); nodes < 1 || (all && *all % nodes != 0))
    config.tell(RemarkKind::NotExpressed, "num_machines", "does not divide num_processes, so that others are started");
  else if (nodes > 1)
    draft.each_node = config.integer("num_processes").value_or(0) / nodes;
  const std::string precision = config.text("mixed_precision").value_or("no");
  if (precision == "bf16" || precision == "fp16")
    draft.set("train.precision", precision, config.place("mixed_precision"));
  else if (precision != "no" && precision != "false")  // YAML's own word for no
    config.tell(RemarkKind::NotExpressed, "mixed_precision", not_modelled("FP8 is not modelled yet"));
  if (const auto steps = config.integer("gradient_accumulation_steps")) draft.accumulation = *steps;
  const bool mixed = precision == "bf16" || precision == "fp16";
  draft.mixed_precision |= mixed;
  if (kind == "FSDP") {
    draft.set("runtime.name", std::string("fsdp"), config.place("distributed_type"));
    read_fsdp_config(
        config.table("fsdp_config"),
        {.mixed = mixed, .precision = precision, .wraps = false, .devices_per_node = devices_per_node(draft, nodes)});
  } else if (kind == "DEEPSPEED") {
    draft.set("runtime.name", std::string("deepspeed"), config.place("distributed_type"));
    Given zero = config.table("deepspeed_config");
    if (const auto file = zero.text("deepspeed_config_file")) read_deepspeed_file(zero, "deepspeed_config_file", *file);
    if (const auto stage = zero.integer("zero_stage"); stage && *stage > 0) {
      draft.set("layout.sharding", fmt::format("zero{}", *stage), zero.place("zero_stage"));
    } else if (!stage && !zero.has("deepspeed_config_file")) {
      draft.set("layout.sharding", std::string("zero2"));
      draft.remark(RemarkKind::Assumed, "zero_stage", "2, which is accelerate's default");  // utils/dataclasses.py
    }
    for (const char* what : {"optimizer", "param"}) {
      const std::string key = fmt::format("offload_{}_device", what);
      if (const auto device = zero.text(key)) {
        draft.set(fmt::format("runtime.switches.offload_{}.device", what), *device, zero.place(key));
        draft.set(fmt::format("runtime.switches.offload_{}.pin_memory", what), true);  // dataclasses.py DeepSpeedPlugin
      }
    }
    if (const auto steps = zero.integer("gradient_accumulation_steps")) draft.accumulation = *steps;
    copy(zero, "gradient_clipping", "runtime.switches.gradient_clipping");
    zero.no_matter(std::array<std::string_view, 5>{"zero3_init_flag", "zero3_save_16bit_model",
                                                   "deepspeed_multinode_launcher", "offload_optimizer_nvme_path",
                                                   "offload_param_nvme_path"});
    zero.refuse_the_rest("is no key of a deepspeed_config that is known here");
  } else if (kind == "MULTI_GPU" || kind == "NO") {
    draft.set("runtime.name", std::string("pytorch"), config.place("distributed_type"));
    if (config.has("distributed_type") && kind == "NO" && config.integer("num_processes").value_or(1) > 1) {
      draft.set("gpus", std::int64_t{1}, config.place("distributed_type"));
      draft.each_node = 0;
      draft.remark(RemarkKind::Assumed, "distributed_type = NO",
                   "accelerate starts one process, on one device: with more of them visible the Trainer would wrap the "
                   "model in DataParallel, which is not modelled",
                   config.place("distributed_type"));
    }
  } else {
    config.tell(RemarkKind::NotExpressed, "distributed_type",
                kind == "MEGATRON_LM" ? not_modelled("Megatron-LM by accelerate is not modelled")
                                      : ProblemText("FSDP, DEEPSPEED and MULTI_GPU are modelled"));
  }
  if (Given dynamo = config.table("dynamo_config"); !dynamo.keys().empty()) {
    const std::string backend = lower(dynamo.text("dynamo_backend").value_or("no"));
    if (backend == "inductor")
      draft.set("runtime.switches.torch_compile",
                dynamo.flag("dynamo_use_regional_compilation").value_or(false) ? Content(std::string("regional"))
                                                                               : Content(true),
                dynamo.place("dynamo_backend"));
    else if (backend != "no")
      dynamo.tell(RemarkKind::NotExpressed, "dynamo_backend", "inductor is modelled");
    dynamo.no_matter(std::array<std::string_view, 4>{"dynamo_mode", "dynamo_use_dynamic", "dynamo_use_fullgraph",
                                                     "dynamo_use_regional_compilation"});
    dynamo.refuse_the_rest("is no key of a dynamo_config that is known here");
  }
  config.refuse("downcast_bf16", "bf16 for everything is", {"false", "\"no\""});
  config.refuse("use_cpu", "training on hosts is", {"false"});
  if (config.has("parallelism_config")) read_parallelism(config.table("parallelism_config"));
  config.no_matter(plain_accelerate);
  config.refuse_the_rest("is no key of accelerate's that is known here");
}

namespace {

// zero/config.py takes fields by their names and their aliases. In groups of no elements each parameter is one
// (stage3.py _create_fp16_sub_groups); stages 1 and 2 read no offload_param.
std::vector<TomlKey> with_aliases(std::vector<TomlKey> keys, Draft& draft) {
  const auto found = std::ranges::find(keys, "zero_optimization", &TomlKey::name);
  auto* const zero = found == keys.end() ? nullptr : std::get_if<TomlTable>(&found->value.value);
  if (zero == nullptr) return keys;
  for (TomlKey& key : zero->keys) {
    for (const std::string_view name : {"max_live_parameters", "max_reuse_distance", "prefetch_bucket_size",
                                        "param_persistence_threshold", "model_persistence_threshold"})
      if (key.name == name) key.name = fmt::format("stage3_{}", name);
    if (key.name == "sub_group_size" && scenarios::text(key.value) == "0") key.value.value = std::int64_t{1};
  }
  const auto stage = std::ranges::find(zero->keys, "stage", &TomlKey::name);
  const std::string its = stage == zero->keys.end() ? "" : scenarios::text(stage->value);
  if (its == "1" || its == "2")
    std::erase_if(zero->keys, [&](const TomlKey& key) {
      if (key.name != "offload_param") return false;
      draft.remark(RemarkKind::NoMatter, "zero_optimization.offload_param",
                   "stages 1 and 2 do not read it, and keep parameters on the device", key.place);
      return true;
    });
  return keys;
}

}  // namespace

void read_deepspeed(Given& given, Draft& draft) {
  Given config(with_aliases(given.keys(), draft), "", draft);
  draft.set("runtime.name", std::string("deepspeed"));
  const auto set_integer = [&](std::string_view name, std::string_view path) {
    if (const auto value = config.integer(name)) draft.set(path, *value, config.place(name));
  };
  set_integer("train_micro_batch_size_per_gpu", "train.micro_batch");
  set_integer("train_batch_size", "train.global_batch");
  if (const auto steps = config.integer("gradient_accumulation_steps")) draft.accumulation = *steps;
  copy(config, "gradient_clipping", "runtime.switches.gradient_clipping");
  Given bf16 = config.table("bf16"), fp16 = config.table("fp16"), types = config.table("data_types");
  if (bf16.flag("enabled").value_or(false)) draft.set("train.precision", std::string("bf16"), bf16.place("enabled"));
  if (fp16.flag("enabled").value_or(false)) {
    draft.set("train.precision", std::string("fp16"), fp16.place("enabled"));
    copy(fp16, "initial_scale_power", "runtime.switches.initial_scale_power");
  }
  if (bf16.left_to_others("enabled")) draft.automatic.emplace("bf16");
  if (fp16.left_to_others("enabled")) draft.automatic.emplace("fp16");
  copy(types, "grad_accum_dtype", "runtime.switches.grad_accum_dtype");
  Given zero = config.table("zero_optimization");
  if (const auto stage = zero.integer("stage"); stage && *stage >= 1 && *stage <= 3)
    draft.set("layout.sharding", fmt::format("zero{}", *stage), zero.place("stage"));
  else
    draft.remark(RemarkKind::NotExpressed, "zero_optimization.stage",
                 not_modelled("DeepSpeed without ZeRO is not modelled"), config.place("zero_optimization"));
  for (const std::string_view name : zero_switches()) copy(zero, name, fmt::format("runtime.switches.{}", name));
  for (const std::string_view name :
       {"reduce_bucket_size", "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold"})
    if (zero.left_to_others(name)) draft.automatic.emplace(name);
  if (config.left_to_others("gradient_clipping")) draft.automatic.emplace("gradient_clipping");
  for (const std::string_view name : {"offload_optimizer", "offload_param"})
    copy(zero, name, fmt::format("runtime.switches.{}", name));
  for (const auto& [old, now] : {std::pair{"cpu_offload", "offload_optimizer"}, {"cpu_offload_param", "offload_param"}})
    if (zero.flag(old).value_or(false))
      draft.set(fmt::format("runtime.switches.{}.device", now), std::string("cpu"), zero.place(old));
  for (const std::string_view name : {"aio", "activation_checkpointing"})
    copy(config, name, fmt::format("runtime.switches.{}", name));
  copy(config, "zero_force_ds_cpu_optimizer", "runtime.switches.zero_force_ds_cpu_optimizer");
  Given optimizer = config.table("optimizer");
  if (!optimizer.keys().empty()) {
    Given parameters = optimizer.table("params");
    const bool plain = parameters.flag("torch_adam").value_or(false);
    copy(parameters, "weight_decay", "runtime.switches.weight_decay");
    // An Adam that DeepSpeed makes itself is one kernel (DeepSpeedEngine._configure_basic_optimizer).
    if (!plain && draft.find("runtime.switches.offload_optimizer") == nullptr)
      draft.set("runtime.switches.fused", true);
  }
  // What its reader does not take is said in its words; all else it passes over.
  try {
    (void)parse_ds_config(deepspeed_text(config.keys()), draft.file);
  } catch (const InputError& error) {
    for (const Problem& problem : error.problems())
      draft.remark(RemarkKind::NotExpressed, problem.message, {problem.hint, problem.kind});
  }
}

namespace {

// modeling_utils.py _get_dtype: "auto" is what the checkpoint's config.json says. Without a Trainer beside it a
// ds_config.json that leaves its precision open is taken as bf16.
void settle_automatic_types(Draft& draft, const std::string& checkpoint_type) {
  if (draft.automatic.contains("torch_dtype") && draft.find("train.master_dtype") == nullptr) {
    const std::string type = checkpoint_type.empty() ? "bfloat16" : checkpoint_type;
    set_held_type(draft, type);
    draft.remark(RemarkKind::Assumed, "torch_dtype",
                 checkpoint_type.empty() ? "\"auto\" is the checkpoint's, which its config.json does not say: bfloat16"
                                         : fmt::format("\"auto\" is the checkpoint's: {}", type));
  }
  for (const char* type : {"bf16", "fp16"})
    if (draft.automatic.contains(type) && !draft.trainer && draft.find("train.precision") == nullptr) {
      draft.set("train.precision", std::string(type));
      draft.remark(RemarkKind::Assumed, fmt::format("{}.enabled", type),
                   fmt::format("\"auto\" is what the Trainer's arguments say, which are not given: {}", type));
    }
}

// integrations/deepspeed.py trainer_config_finalize, accelerator.py _prepare_deepspeed: "auto" follows the model's
// width, and the Trainer's own arguments.
void settle_automatic(Draft& draft, std::int64_t hidden) {
  constexpr double prefetched = 0.9;
  constexpr std::int64_t kept = 10;
  const auto set = [&](const char* key, std::int64_t value) {
    if (hidden > 0 && draft.automatic.contains(key)) draft.set(fmt::format("runtime.switches.{}", key), value);
  };
  set("reduce_bucket_size", hidden * hidden);
  set("stage3_prefetch_bucket_size", static_cast<std::int64_t>(prefetched * static_cast<double>(hidden * hidden)));
  set("stage3_param_persistence_threshold", kept * hidden);
  if (draft.automatic.contains("gradient_clipping") && draft.trainer &&
      draft.find("runtime.switches.max_grad_norm") == nullptr)
    draft.set("runtime.switches.gradient_clipping", 1.0);  // TrainingArguments' max_grad_norm
}

// What is trained is fp32, whatever a checkpoint was loaded in: DeepSpeed's optimizers have copies of their own, and
// accelerate makes shards wide where it mixes precisions (utils/fsdp_utils.py fsdp2_prepare_model; accelerator.py
// prepare_model, of what is trained).
void settle_held_type(Draft& draft, const std::string& runtime) {
  if (draft.find("train.master_dtype") == nullptr) return;
  const bool whole = runtime == "fsdp2" || (runtime == "fsdp" && draft.find("adapter.method") == nullptr);
  const bool upcasts =
      whole && draft.mixed_precision && !draft.shards_as_loaded && draft.find("quantization.format") == nullptr;
  if (runtime != "deepspeed" && !upcasts) {
    // accelerator.py autocast: whatever type the model is held in.
    if (runtime == "pytorch" && draft.mixed_precision) draft.set("runtime.switches.autocast", true);
    // Without a MixedPrecisionPolicy gradients are reduced as they are.
    if (runtime == "fsdp2" && !draft.mixed_precision && draft.find("runtime.switches.reduce_dtype") == nullptr)
      draft.set("runtime.switches.reduce_dtype", *draft.text("train.master_dtype"));
    return;
  }
  draft.erase("train.master_dtype");
  draft.remark(RemarkKind::Assumed, "torch_dtype",
               runtime == "deepspeed" ? "what DeepSpeed's optimizers update is fp32 whatever it was loaded in"
                                      : "shards are fp32 where precisions are mixed: accelerate makes them so");
}

// Under FSDP a base of 4 bits is loaded on the host, and TRL prepares nothing of it; adapters get its type, by
// autocast_adapter_dtype = false or cast later (trl/trainer/sft_trainer.py is_sharded_qlora, _is_quantized_model).
void settle_sharded_base(Draft& draft, const std::string& runtime) {
  const TomlValue* const stored = draft.find("quantization.storage_dtype");
  if ((runtime != "fsdp" && runtime != "fsdp2") || stored == nullptr || draft.find("quantization.prepare") != nullptr)
    return;
  draft.set("quantization.prepare", std::string("none"), stored->place);
  if (draft.find("adapter.method") != nullptr && draft.find("adapter.dtype") == nullptr)
    draft.set("adapter.dtype", *draft.text("quantization.storage_dtype"), stored->place);
  draft.remark(RemarkKind::Assumed, "bnb_4bit_quant_storage",
               "loaded on the host under FSDP: TRL leaves norms as they are, and adapters have that type",
               stored->place);
}

// deepspeed/runtime/config.py _batch_assertion.
void check_batch(Draft& draft, std::int64_t micro) {
  const TomlValue* const all = draft.find("train.global_batch");
  if (all == nullptr || !draft.accumulation || draft.find("gpus") == nullptr) return;
  const std::int64_t gpus = draft.integer("gpus").value_or(1), made = product({micro, *draft.accumulation, gpus}),
                     given = draft.integer("train.global_batch").value_or(made);
  if (given == made) return;
  draft.remark(RemarkKind::NotExpressed, fmt::format("train_batch_size = {}", given),
               fmt::format("DeepSpeed stops: {} samples x {} micro-batches x {} GPUs are {}", micro,
                           *draft.accumulation, gpus, made),
               all->place);
}

// litgpt/args.py TrainArgs.gradient_accumulation_iters.
void share_sequences(Draft& draft, std::int64_t micro) {
  const std::int64_t gpus = std::max<std::int64_t>(draft.integer("gpus").value_or(1), 1);
  draft.accumulation = draft.sequences_shared / gpus / micro;
  if (*draft.accumulation < 1)
    throw InputError(Problem{
        .file = draft.file,
        .line = draft.shares_sequences.line,
        .column = draft.shares_sequences.column,
        .message = fmt::format("global_batch_size = {}: LitGPT does not start with less than a micro-batch of {} "
                               "for each of {} devices",
                               draft.sequences_shared, micro, gpus),
        .hint = fmt::format("{} or more", product({micro, gpus}))});
}

}  // namespace

void settle_hugging_face(Draft& draft, const ModelSays& model) {
  settle_automatic_types(draft, model.dtype);
  settle_automatic(draft, model.hidden);
  if (draft.find("runtime.name") == nullptr) {
    draft.set("runtime.name", std::string("pytorch"));
    if (draft.alone && draft.integer("gpus").value_or(1) > 1)
      draft.remark(
          RemarkKind::Assumed, "DistributedDataParallel",
          "each device has the whole model: neither FSDP nor DeepSpeed is asked for; accelerate's configuration "
          "or a ds_config.json beside the file would");
  }
  const std::string runtime = *draft.text("runtime.name");
  if (draft.find("train.sequence_length") == nullptr && draft.trl) {
    draft.set("train.sequence_length", std::int64_t{1024});  // trl/trainer/sft_config.py
    draft.remark(RemarkKind::Assumed, "max_length", "1024, which is TRL's default; --sequence says another");
  }
  if (draft.find("train.sequence_length") == nullptr && !draft.rows_of_data.empty()) {
    constexpr std::int64_t shown = 2048;
    draft.set("train.sequence_length", shown);
    draft.remark(RemarkKind::NotJudged, draft.rows_of_data,
                 fmt::format("is not said, so that rows are as long as the data's: the figures are of {} tokens; "
                             "--sequence says how many there are at most",
                             shown));
    draft.remarks.back().is_length = true;
  }
  if (draft.find("train.micro_batch") == nullptr) {
    draft.set("train.micro_batch", std::int64_t{8});  // TrainingArguments
    draft.remark(RemarkKind::Assumed, "per_device_train_batch_size", "8, which is the default of TrainingArguments");
  }
  const std::int64_t micro = draft.integer("train.micro_batch").value_or(1);
  if (draft.at_least_sequences > 0 && draft.find("gpus") != nullptr && micro > 0) {
    const std::int64_t each = product({micro, std::max<std::int64_t>(draft.integer("gpus").value_or(1), 1)});
    draft.accumulation = std::max<std::int64_t>((draft.at_least_sequences + each - 1) / each, 1);
  }
  if (draft.sequences_shared > 0 && draft.find("gpus") != nullptr && micro > 0) share_sequences(draft, micro);
  if (draft.accumulation && draft.find("gpus") != nullptr && draft.find("train.global_batch") == nullptr)
    draft.set("train.global_batch", product({micro, *draft.accumulation, draft.integer("gpus").value_or(1)}));
  if (runtime == "deepspeed") {
    check_batch(draft, micro);
    if (const TomlValue* compiled = draft.find("runtime.switches.torch_compile")) {
      draft.remark(RemarkKind::NotJudged, "torch_compile",
                   not_modelled("under DeepSpeed is not modelled: the figures are without a compiler"),
                   compiled->place);
      draft.erase("runtime.switches.torch_compile");
    }
    // trainer hands its own to the engine where the file says "auto".
    if (const TomlValue* norm = draft.find("runtime.switches.max_grad_norm")) {
      const TomlValue kept = *norm;
      if (draft.find("runtime.switches.gradient_clipping") == nullptr)
        draft.set("runtime.switches.gradient_clipping", kept.value, kept.place);
      draft.erase("runtime.switches.max_grad_norm");
    }
    if (draft.find("runtime.switches.offload_optimizer") != nullptr) draft.erase("runtime.switches.fused");
  }
  // Liger's functions are not simulated there: without them there are whole logits, and more of each layer is saved.
  if (const TomlValue* liger = draft.find("runtime.switches.use_liger_kernel");
      liger != nullptr && (runtime == "deepspeed" || draft.learns_from != LearnsFrom::Rows)) {
    draft.remark_bounded("use_liger_kernel",
                         runtime == "deepspeed"
                             ? "the figures under DeepSpeed are without it, which take more"
                             : "the figures of training by preferences are without it, which take more",
                         "liger-kernel", liger->place);
    draft.erase("runtime.switches.use_liger_kernel");
    draft.erase("runtime.switches.liger_kernel_config");
  }
  // transformers/trainer.py, create_accelerator_and_postprocess.
  if (draft.trainer && draft.fsdp_checkpoints && draft.trainer_checkpoints)
    throw InputError(Problem{.file = draft.file,
                             .line = draft.trainer_checkpoints->line,
                             .column = draft.trainer_checkpoints->column,
                             .message = "gradient_checkpointing and FSDP's activation_checkpointing are both on, at "
                                        "which transformers stops",
                             .hint = "turn one of them off: under FSDP its own is the one that saves communication"});
  if (draft.text("train.optimizer").value_or("adamw") != "adamw") draft.erase("runtime.switches.fused");
  // transformers before 5; TRL's scripts from 0.28 on, whatever transformers does.
  const bool loaded_wide = draft.find("train.master_dtype") == nullptr && draft.find("quantization.format") == nullptr;
  if (loaded_wide && !draft.type_said && draft.trainer && (runtime == "pytorch" || !draft.mixed_precision) &&
      runtime != "deepspeed")
    draft.remark(
        RemarkKind::Assumed, "dtype",
        "float32: nothing says in which type the model is loaded, which transformers 5 leaves to the checkpoint");
  // A reference is loaded as the model is, and DeepSpeed has it in what it computes in.
  const bool narrow = runtime == "deepspeed" || draft.text("train.master_dtype").value_or("fp32") != "fp32";
  settle_held_type(draft, runtime);
  settle_sharded_base(draft, runtime);
  if (draft.find("train.precision") == nullptr) draft.set("train.precision", std::string("fp32"));
  settle_preferences(draft, narrow && draft.text("train.precision") != "fp32" ? 2 : 4);
}

}  // namespace tidemark::scenarios
