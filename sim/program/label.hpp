#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tidemark::sim {

/// What a tensor or a place of the step is called: "layers.3.mlp.fc1", "optimizer". Labels of one layer begin with its
/// number, which is read here and nowhere else.
struct Label {
  explicit Label(std::string_view its_text);

  std::string text;         ///< no white space inside
  std::int32_t layer = -1;  ///< of the model, from 0; -1: of no layer

  /// "layers.3"; empty where it is of no layer.
  [[nodiscard]] std::string_view layer_text() const { return std::string_view(text).substr(0, layer_length_); }
  /// ".mlp.fc1"; all of it where it is of no layer.
  [[nodiscard]] std::string_view within_layer() const { return std::string_view(text).substr(layer_length_); }

  bool operator==(const Label&) const = default;
  bool operator==(std::string_view other) const { return text == other; }

 private:
  std::size_t layer_length_ = 0;
};

}  // namespace tidemark::sim
