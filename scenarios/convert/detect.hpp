#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "scenarios/formats/toml_value.hpp"

namespace tidemark::scenarios {

enum class FileKind : std::uint8_t {
  Scenario,
  ModelConfig,
  TorchTitan,
  Bridge,
  Accelerate,
  DeepSpeed,
  TrainingArguments,
  Shell,
  FlagScale,
  Nanotron,
  GptNeox,
  LlamaFactory,
  Axolotl,
  Torchtune,
  LitGpt,
  LlamaFactoryV1,
  LlmFoundry,
  Olmo,
  Lingua,
  AutoModel,
  Primus,
  PythonRecipe,
  Packages  ///< a requirements.txt, or what pip freeze prints
};

/// A file, and what it is by its ending and what it holds.
struct FileContent {
  FileKind kind{};
  std::string text;                    ///< of a script, a recipe, or a list of packages
  TomlTable document;                  ///< of anything else
  std::vector<TomlKey> repeated = {};  ///< keys that stand there twice, of which the last counts
};
/// Throws InputError where it cannot be read, and where nothing says what it is.
[[nodiscard]] FileContent classified(const std::filesystem::path& file);
[[nodiscard]] FileContent classified(const std::filesystem::path& file, std::string text);

}  // namespace tidemark::scenarios
