#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "scenarios/namespace.hpp"

// Towers that make vectors of images for models of text, as far as a bound on what they take needs them.

namespace tidemark::scenarios {

/// transformers 5.24: models/qwen2_vl, qwen2_5_vl, qwen3_vl, siglip, gemma3: configuration_*.py and modeling_*.py.
struct ImageTower {
  std::string_view name;
  std::int64_t layers = 0, hidden = 0, ffn = 0;
  bool gated = false;                ///< MLPs have three linears
  std::int64_t patch = 0;            ///< numbers of a patch: channels, frames, pixels
  std::int64_t patches_a_token = 0;  ///< of which a token of the text model's is made
  std::int64_t positions = 0;        ///< learned ones
  std::int64_t mergers = 0;          ///< of patches into tokens; later ones give to the text model's first layers
  bool biased_patches = false, norms_have_biases = true;
  bool projects = false;  ///< one product without a bias in place of mergers (Gemma 3)

  [[nodiscard]] std::int64_t parameters(std::int64_t text_hidden) const {
    const std::int64_t norm = (norms_have_biases ? 2 : 1) * hidden;
    const std::int64_t branches = gated ? 3 : 2, mlp_biases = (gated ? 2 : 1) * ffn + hidden;
    const std::int64_t layer = 4 * (hidden * hidden + hidden) + branches * hidden * ffn + mlp_biases + 2 * norm;
    const std::int64_t first = patch * hidden + (biased_patches ? hidden : 0) + positions * hidden;
    if (projects) return first + layers * layer + norm + hidden + hidden * text_hidden;
    const std::int64_t merged = patches_a_token * hidden;
    const std::int64_t merger = merged * merged + merged + merged * text_hidden + text_hidden;
    // The first normalizes patches, the others what is merged.
    return first + layers * layer + mergers * merger + norm + (mergers - 1) * patches_a_token * norm;
  }
};

inline constexpr std::array image_towers{ImageTower{.name = "qwen2-vl",
                                                    .layers = 32,
                                                    .hidden = 1280,
                                                    .ffn = 5120,
                                                    .patch = 1176,
                                                    .patches_a_token = 4,
                                                    .mergers = 1},
                                         ImageTower{.name = "qwen2.5-vl",
                                                    .layers = 32,
                                                    .hidden = 1280,
                                                    .ffn = 3420,
                                                    .gated = true,
                                                    .patch = 1176,
                                                    .patches_a_token = 4,
                                                    .mergers = 1,
                                                    .norms_have_biases = false},
                                         ImageTower{.name = "qwen2.5-vl-large",
                                                    .layers = 32,
                                                    .hidden = 1280,
                                                    .ffn = 3456,
                                                    .gated = true,
                                                    .patch = 1176,
                                                    .patches_a_token = 4,
                                                    .mergers = 1,
                                                    .norms_have_biases = false},
                                         ImageTower{.name = "qwen3-vl-small",
                                                    .layers = 24,
                                                    .hidden = 1024,
                                                    .ffn = 4096,
                                                    .patch = 1536,
                                                    .patches_a_token = 4,
                                                    .positions = 2304,
                                                    .mergers = 4,
                                                    .biased_patches = true},
                                         ImageTower{.name = "qwen3-vl",
                                                    .layers = 27,
                                                    .hidden = 1152,
                                                    .ffn = 4304,
                                                    .patch = 1536,
                                                    .patches_a_token = 4,
                                                    .positions = 2304,
                                                    .mergers = 4,
                                                    .biased_patches = true},
                                         ImageTower{.name = "gemma-3",
                                                    .layers = 27,
                                                    .hidden = 1152,
                                                    .ffn = 4304,
                                                    .patch = 588,
                                                    .patches_a_token = 16,
                                                    .positions = 4096,
                                                    .biased_patches = true,
                                                    .projects = true}};

}  // namespace tidemark::scenarios
