#include <algorithm>
#include <array>
#include <sstream>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/hugging_face/parts.hpp"

namespace tidemark::scenarios {

namespace hugging_face {
namespace {

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

}  // namespace

// One of TRL's scripts, by its name or by an argument that others lack; PEFT's examples/sft is one of them.
bool is_of_trl(const Given& given, const Draft& draft) {
  constexpr auto telling = std::to_array<std::string_view>(
      {"use_peft", "use_peft_lora", "packing", "dataset_text_field", "loss_type", "assistant_only_loss",
       "completion_only_loss", "chat_template_path", "chat_template_format", "max_length"});
  return !draft.own_defaults &&
         (draft.trl || std::ranges::any_of(telling, [&](std::string_view name) { return given.has(name); }));
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
    if (given.flag("use_dora").value_or(false))
      draft.set("adapter.method", std::string("dora"), given.place("use_dora"));
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

}  // namespace hugging_face

}  // namespace tidemark::scenarios
