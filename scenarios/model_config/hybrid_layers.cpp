#include "scenarios/model_config/hybrid_layers.hpp"

#include <cmath>

namespace tidemark::scenarios {
namespace {

// The letter of its branch; a layer of two has none.
char letter_of(const Layer& layer) {
  const auto letter = [](const auto& its) {
    if constexpr (requires { its.letter; }) return its.letter;
    return '\0';
  };
  const char mixer = std::visit(letter, layer.mixer), mlp = std::visit(letter, layer.mlp);
  return mixer != '\0' ? mixer : mlp;
}

// Python's round: halves go to the even number.
std::int64_t rounded(double value) { return static_cast<std::int64_t>(std::nearbyint(value)); }

}  // namespace

std::optional<Layer> layer_of_letter(char letter, const Mamba2& mamba) {
  if (letter == Mamba2::letter) return Layer{mamba, parallel::NoMlp{}};
  if (letter == parallel::Attention::letter) return Layer{parallel::Attention{}, parallel::NoMlp{}};
  if (letter == parallel::DenseMlp::letter) return Layer{parallel::NoMixer{}, parallel::DenseMlp{}};
  return std::nullopt;
}

std::string hybrid_pattern(const Model& model) {
  std::string pattern;
  if (!model.hybrid()) return pattern;
  for (std::int64_t i = 0; i < model.layers.size(); ++i) pattern += letter_of(model.layers[i]);
  return pattern;
}

// _allocate_auto: attention lies evenly between sections of Mamba, and MLPs take the places of Mamba layers, evenly
// too.
std::optional<std::string> spread_pattern(std::int64_t layers, double attention, double mlp) {
  const bool shares = attention >= 0 && mlp >= 0 && attention + mlp <= 1;
  if (layers < 1 || !shares) return std::nullopt;
  std::string pattern(static_cast<std::size_t>(layers), 'M');
  const auto place = [&](double section, char letter) {
    double left = section;
    for (char& its : pattern) {
      if (its != 'M') continue;
      if (left < 0.5)
        its = letter, left += section;
      else
        left -= 1;
    }
  };
  const std::int64_t attentions = rounded(static_cast<double>(layers) * attention);
  const std::int64_t others = layers - attentions;
  place(static_cast<double>(others) / static_cast<double>(attentions + 1), '*');
  const std::int64_t mlps = rounded(static_cast<double>(layers) * mlp);
  if (mlps > 0) place(static_cast<double>(others - mlps) / static_cast<double>(mlps), '-');
  return pattern;
}

}  // namespace tidemark::scenarios
