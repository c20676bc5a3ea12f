#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/hugging_face/rewritten.hpp"

// QLoRA's own script (artidoro/qlora, qlora.py): transformers' Trainer and PEFT, with defaults of its own.

namespace tidemark::scenarios {
namespace {

class Qlora {
 public:
  Qlora(std::vector<TomlKey> given, Draft& draft) : its_(std::move(given), draft, "--"), draft_(draft) {}

  std::vector<TomlKey> arguments() && {
    draft_.own_defaults = true;
    its_.usual("model_name_or_path", std::string("EleutherAI/pythia-12b"));
    its_.usual("per_device_train_batch_size", std::int64_t{1});
    its_.usual("gradient_accumulation_steps", std::int64_t{16});
    its_.usual("optim", std::string("paged_adamw_32bit"));
    its_.usual("max_grad_norm", 0.3);
    its_.usual("gradient_checkpointing", true);
    read_length();
    read_types();
    read_adapter();
    read_evaluation();
    its_.no_matter({"eval_dataset_size", "max_mmlu_samples", "mmlu_split", "mmlu_dataset", "train_on_source",
                    "dataset_format", "max_new_tokens", "min_new_tokens", "do_sample", "temperature", "top_p", "top_k",
                    "num_beams", "use_auth", "lora_modules", "skip_excess_length"},
                   of_data);
    its_.no_matter({"max_memory_MB"}, "is where device_map puts layers, and they are all on one device here");
    return std::move(its_).done();
  }

 private:
  std::int64_t number(std::string_view name, std::int64_t otherwise) {
    const std::optional<TomlKey> key = its_.take(name);
    if (!key) return otherwise;
    const auto* const its = std::get_if<std::int64_t>(&key->value.value);
    if (its == nullptr || *its < 1)
      its_.fail(*key, fmt::format("{} takes a number from 1 up", its_.written(*key)), "as many tokens as it cuts to");
    return *its;
  }

  // A row is a source and a target, cut to as much each; in a fork (jondurbin/qlora), both together to one length.
  void read_length() {
    if (its_.find("model_max_len") != nullptr) {
      length_ = std::min(number("model_max_len", most_tokens), most_tokens);
      return its_.set("max_length", length_);
    }
    const std::int64_t source = number("source_max_len", 1024), target = number("target_max_len", 256);
    length_ = source > most_tokens || target > most_tokens ? most_tokens : source + target;
    its_.set("max_length", length_);
  }

  // get_accelerate_model: what is not quantized becomes fp32, and all but norms bf16 again.
  void read_types() {
    const bool wide = its_.on("bf16"), half = its_.on("fp16");
    its_.set("torch_dtype", std::string(wide ? "bfloat16" : "float32"));
    const std::optional<TomlKey> key = its_.take("bits");
    bits_ = key ? Rewritten::word(key) : "4";
    if (bits_ == "4") {
      its_.set("load_in_4bit", true);
      its_.set("bnb_4bit_use_double_quant", !its_.off("double_quant"));
      its_.rename("quant_type", "bnb_4bit_quant_type");
    } else if (bits_ == "8") {
      its_.set("load_in_8bit", true);
    } else if (bits_ != "16" && bits_ != "32") {
      its_.fail(*key, fmt::format("{}: qlora.py takes 4, 8, 16 and 32", its_.written(*key)), "--bits 4 is its default");
    }
    if (bits_ == "4" || bits_ == "8") draft_.set("quantization.prepare", std::string(wide ? "norms" : "all"));
    if (half && bits_ != "4" && bits_ != "8") its_.set("torch_dtype", std::string("float32"));
    its_.no_matter({"double_quant", "quant_type"}, "of four bits, which nothing asks for");
  }

  void read_adapter() {
    const std::optional<TomlKey> full = its_.take("full_finetune");
    if (Rewritten::word(full) == "true") {
      if (bits_ == "4" || bits_ == "8")
        its_.fail(*full, fmt::format("{}: qlora.py stops at {} bits with it", its_.written(*full), bits_),
                  "--bits 16 trains the whole model");
      return;
    }
    its_.set("use_peft", true);
    its_.usual("lora_r", std::int64_t{64});
    its_.usual("lora_alpha", std::int64_t{16});
    its_.usual("lora_dropout", 0.0);
    its_.set("lora_target_modules", std::string("all-linear"));
    if (its_.on("bf16")) draft_.set("adapter.dtype", std::string("bf16"));
  }

  // MMLU's prompts are as long as they may be: so many rows of the training's length.
  void read_evaluation() {
    const std::int64_t prompt = number("mmlu_source_max_len", 2048);
    if (!its_.take_on("do_mmlu_eval") || !its_.on("do_eval")) return;
    const TomlKey* const rows = its_.find("per_device_eval_batch_size");
    const auto* const given = rows == nullptr ? nullptr : std::get_if<std::int64_t>(&rows->value.value);
    if (rows != nullptr && given == nullptr) return;
    const std::int64_t usual = 8;  // TrainingArguments
    const Place place = rows == nullptr ? Place{} : rows->place;
    its_.set("per_device_eval_batch_size",
             product({given == nullptr ? usual : *given, std::max<std::int64_t>((prompt + length_ - 1) / length_, 1)}),
             place);
  }

  static constexpr std::int64_t most_tokens = std::int64_t{1} << 30;
  Rewritten its_;
  Draft& draft_;
  std::string bits_;
  std::int64_t length_ = 0;
};

}  // namespace

std::vector<TomlKey> qlora_arguments(std::vector<TomlKey> given, Draft& draft) {
  return Qlora(std::move(given), draft).arguments();
}

}  // namespace tidemark::scenarios
