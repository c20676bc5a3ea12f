#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/namespace.hpp"

// Checkpoints by the names that people write ("Qwen/Qwen2.5-7B-Instruct"), and whose shape each has: model_names.json
// of the data root, which says its sources. It is read when a name is looked up.

namespace tidemark::scenarios {

/// A name that is known.
struct ModelName {
  std::string name;    ///< as the table writes it
  std::string shape;   ///< whose dimensions it has: "qwen2.5-7b", which is a name too
  std::string source;  ///< who says so
};

/// All of them: shape by shape, and for each its source by source.
[[nodiscard]] std::vector<ModelName> model_names(const std::filesystem::path& data_root);
/// Shapes that have no file of their own in models/.
[[nodiscard]] std::vector<std::string> named_shapes(const std::filesystem::path& data_root);

/// The config.json that a name stands for.
struct NamedConfig {
  std::string name;            ///< as the table writes it
  std::string shape;           ///< of `name`
  std::filesystem::path file;  ///< where it is read from: a model's file, or the table
  std::filesystem::path path;  ///< as if it lay in a folder of its name, which models are called by
  std::string text;
};
/// The one of a name or a shape of the table, in small or capital letters; nothing where there is no such name.
[[nodiscard]] std::optional<NamedConfig> named_config(std::string_view name, const std::filesystem::path& data_root);

/// The same of a checkpoint that lies in a folder of its name ("/data/Qwen2.5-7B-Instruct"): what is behind the last
/// slash, where all names that end in it have one shape.
[[nodiscard]] std::optional<NamedConfig> checkpoint_config(std::string_view checkpoint,
                                                           const std::filesystem::path& data_root);

/// A model with a tower for images. Its text model alone is called by its name with `of_text` behind it.
struct ImageModel {
  std::string name;    ///< as the table writes it
  std::string shape;   ///< of its text model
  std::string tower;   ///< of image_towers
  std::string source;  ///< who says so
};
inline constexpr std::string_view of_text = ":text";
[[nodiscard]] std::vector<ImageModel> image_models(const std::filesystem::path& data_root);
/// The one of a name, or of a folder that is called so, with `of_text` or without.
[[nodiscard]] std::optional<ImageModel> image_model(std::string_view checkpoint,
                                                    const std::filesystem::path& data_root);

/// Names that an unknown one may have meant, at most four of them.
[[nodiscard]] std::vector<std::string> near_model_names(std::string_view name, const std::filesystem::path& data_root);

}  // namespace tidemark::scenarios
