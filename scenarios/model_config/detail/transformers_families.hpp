#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "scenarios/model_config/detail/config_format.hpp"

// Families whose layers transformers alone builds here (Model::transformers_alone), and what its modelling code makes
// of them. transformers 5.24: models/*/configuration_*.py and modeling_*.py.

namespace tidemark::scenarios::config_format {

/// Which of their linears have biases.
enum class AloneBiases : std::uint8_t {
  None,
  All,
  AttentionAndMlp,  ///< attention_bias and mlp_bias (GraniteConfig, SmolLM3Config)
  Attention,        ///< attention_bias, of all four (OlmoConfig, CohereConfig)
  Qkv,              ///< attention_bias of three, true where it is left out (GlmConfig)
  QkvAndOutput,     ///< the same, and attention_out_bias of the fourth (SeedOssConfig)
  QkvKey,           ///< use_qkv_bias (StableLmConfig)
  UseBias,          ///< use_bias of all, true where it is left out (Starcoder2Config)
};

/// A probability by its key, and what it is where that is left out.
struct DropoutKey {
  std::string_view key;
  double usual = 0;
};

struct AloneFamily {
  Family family;
  AloneBiases alone_biases = AloneBiases::None;
  Normalization normalization = Normalization::Rms;
  NormPlacement norms = NormPlacement::Before;
  QkNorm qk_norm = QkNorm::None;
  double rotary_fraction = 1;
  bool gate = true;
  bool parallel = false;         ///< attention and MLP read the same norm's output
  bool may_be_parallel = false;  ///< the same where use_parallel_residual says so
  bool window_rotary = false;
  bool some_without_rotary = false;  ///< every fourth layer does not turn: no_rope_layers (SmolLM3Config)
  DropoutKey hidden_dropout = {}, attention_dropout = {"attention_dropout"};
};

inline constexpr std::array alone_families{
    AloneFamily{.family = {.name = "starcoder2",
                           .kv_heads = 2,
                           .max_positions = 4096,
                           .activation = tanh_gelu,
                           .tied = true,
                           .vocabulary = 49152,
                           .window = Window::Key},
                .alone_biases = AloneBiases::UseBias,
                .normalization = Normalization::Layer,
                .gate = false,
                .hidden_dropout = {"residual_dropout"}},
    AloneFamily{.family = {.name = "olmo", .kv_heads = 0, .max_positions = 2048, .vocabulary = 50304},
                .alone_biases = AloneBiases::Attention,
                .normalization = Normalization::Layer},
    AloneFamily{.family = {.name = "olmo3",
                           .kv_heads = 0,
                           .max_positions = 2048,
                           .vocabulary = 50304,
                           .window = Window::Key,
                           .usual_window = 4096,
                           .window_pattern = 4},
                .norms = NormPlacement::After,
                .qk_norm = QkNorm::AllHeads,
                .window_rotary = true},
    AloneFamily{.family = {.name = "granite", .kv_heads = 0, .max_positions = 2048, .vocabulary = 32000},
                .alone_biases = AloneBiases::AttentionAndMlp},
    AloneFamily{.family = {.name = "cohere", .kv_heads = 0, .max_positions = 8192, .tied = true, .vocabulary = 256000},
                .alone_biases = AloneBiases::Attention,
                .normalization = Normalization::Layer,
                .parallel = true},
    AloneFamily{.family = {.name = "cohere2",
                           .kv_heads = 0,
                           .max_positions = 8192,
                           .tied = true,
                           .vocabulary = 256000,
                           .window = Window::Key,
                           .usual_window = 4096,
                           .window_pattern = 4},
                .alone_biases = AloneBiases::Attention,
                .normalization = Normalization::Layer,
                .parallel = true},
    AloneFamily{.family = {.name = "stablelm", .kv_heads = 32, .max_positions = 4096, .vocabulary = 50304},
                .alone_biases = AloneBiases::QkvKey,
                .normalization = Normalization::Layer,
                .rotary_fraction = 0.25,
                .may_be_parallel = true,
                .hidden_dropout = {"hidden_dropout"}},
    AloneFamily{
        .family = {.name = "phi", .kv_heads = 0, .max_positions = 2048, .activation = "gelu_new", .vocabulary = 51200},
        .alone_biases = AloneBiases::All,
        .normalization = Normalization::Layer,
        .rotary_fraction = 0.5,
        .gate = false,
        .parallel = true,
        .hidden_dropout = {"resid_pdrop"}},
    AloneFamily{
        .family = {.name = "glm", .kv_heads = 2, .max_positions = 131072, .head_dim = 128, .vocabulary = 151552},
        .alone_biases = AloneBiases::Qkv,
        .rotary_fraction = 0.5},
    AloneFamily{
        .family = {.name = "glm4", .kv_heads = 2, .max_positions = 131072, .head_dim = 128, .vocabulary = 151552},
        .alone_biases = AloneBiases::Qkv,
        .norms = NormPlacement::Around,
        .rotary_fraction = 0.5},
    AloneFamily{.family = {.name = "smollm3",
                           .kv_heads = 4,
                           .max_positions = 32768,
                           .tied = true,
                           .vocabulary = 128256,
                           .window = Window::FlagRefused},
                .alone_biases = AloneBiases::AttentionAndMlp,
                .some_without_rotary = true},
    AloneFamily{
        .family = {.name = "seed_oss", .kv_heads = 8, .max_positions = 524288, .head_dim = 128, .vocabulary = 155136},
        .alone_biases = AloneBiases::QkvAndOutput,
        .hidden_dropout = {"residual_dropout", 0.1},
        .attention_dropout = {"attention_dropout", 0.1}},
    AloneFamily{.family = {.name = "exaone4",
                           .kv_heads = 32,
                           .max_positions = 2048,
                           .vocabulary = 102400,
                           .window = Window::Key,
                           .usual_window = 4096,
                           .window_pattern = 4},
                .norms = NormPlacement::After,
                .qk_norm = QkNorm::PerHead},
    AloneFamily{.family = {.name = "ministral",
                           .kv_heads = 8,
                           .max_positions = 131072,
                           .vocabulary = 32000,
                           .window = Window::Key,
                           .usual_window = 4096}},
    AloneFamily{.family = {.name = "ministral3",
                           .kv_heads = 8,
                           .max_positions = 262144,
                           .head_dim = 128,
                           .vocabulary = 131072,
                           .window = Window::Key}}};

inline constexpr std::string_view use_bias = "use_bias", use_qkv_bias = "use_qkv_bias",
                                  attention_out_bias = "attention_out_bias", clip_of_qkv = "clip_qkv",
                                  layers_without_rotary = "no_rope_layers",
                                  interval_without_rotary = "no_rope_layer_interval";

[[nodiscard]] const AloneFamily* alone_family(std::string_view name);

}  // namespace tidemark::scenarios::config_format

namespace tidemark::scenarios {

/// What the layers of such a family are made of, after its sizes. `layers`: how many there are.
void read_alone_traits(ConfigValues& config, const config_format::AloneFamily& family, std::int64_t layers,
                       Model& model);

}  // namespace tidemark::scenarios
