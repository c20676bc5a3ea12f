#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "scenarios/convert/draft.hpp"

// What readers of transformers' arguments, accelerate's configuration and DeepSpeed's share.

namespace tidemark::scenarios::hugging_face {

[[nodiscard]] std::string lower(std::string text);
/// A table, a JSON text of one or the name of such a file (training_args.py): {"use_reentrant": false}, fsdp.json.
[[nodiscard]] TomlTable table_or_text(Given& given, std::string_view name);
/// The key's value as it is, at this path of the draft.
void copy(Given& given, std::string_view name, std::string_view path);

/// Whether a model is loaded in a type of this name ("bfloat16", "torch.bfloat16", "bf16"), and a scenario's name of
/// it.
[[nodiscard]] bool is_type(std::string type);
[[nodiscard]] std::string our_type(const std::string& type);
void set_held_type(Draft& draft, const std::string& held);

/// 0 where that is not known.
[[nodiscard]] std::int64_t devices_per_node(const Draft& draft, std::int64_t nodes);

/// What is said of FSDP outside of its configuration.
struct BesideFsdpConfig {
  bool mixed = false;  ///< precisions
  std::string precision;
  bool wraps = false;  ///< layers are units
  std::int64_t devices_per_node = 0;
};
void read_fsdp_config(Given config, const BesideFsdpConfig& beside);
/// transformers' `fsdp` and `fsdp_config`; and `deepspeed`: a table, a text of one or the name of a file.
void read_fsdp(Given& given);
void read_deepspeed_argument(Given& given);

void read_deepspeed_file(Given& given, std::string_view key, const std::string& name);

/// Whether these are arguments of one of TRL's scripts, PEFT's examples/sft among them.
[[nodiscard]] bool is_of_trl(const Given& given, const Draft& draft);
/// PEFT and bitsandbytes, as TRL's ModelConfig asks for them; TRL's own defaults.
void read_adapter(Given& given);
void read_trl(Given& given);

}  // namespace tidemark::scenarios::hugging_face
