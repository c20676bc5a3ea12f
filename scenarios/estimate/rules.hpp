#pragma once

#include <cstdint>
#include <string_view>

#include "scenarios/namespace.hpp"

// The rules of two guides for people who have no simulator, each as it is written there, right or wrong: what a rule
// leaves out is said where its number stands beside the simulated one. All in bytes, but where a rule says otherwise.

namespace tidemark::scenarios::rules {

/// Where a rule is written. Training: "GPU memory training guide" ("Running out of GPU memory is the most common
/// blocker …"); Estimation: "A Practical Guide to LLM GPU Memory Estimation".
enum class Guide : std::uint8_t { Training, Estimation };
struct Source {
  Guide guide = Guide::Training;
  std::string_view section;
  bool operator==(const Source&) const = default;
};
[[nodiscard]] std::string_view name(Guide guide);

/// What a guide leaves open.
struct Range {
  double low = 0, high = 0;
  bool operator==(const Range&) const = default;
};

/// Of a format's name in the guides' tables; nothing of another.
inline constexpr Source format_tables{Guide::Estimation, "Precision Formats and Why They Matter"};
enum class Format : std::uint8_t { Fp32, Fp16, Int8, Int4 };
[[nodiscard]] double bytes_per_parameter(Format format);

/// Parameters times the bytes of each.
inline constexpr Source parameters_rule{Guide::Estimation, "The Memory Equation: Model Parameters"};
[[nodiscard]] double parameters(double count, double bytes_each);

/// The same: gradients have the parameters' shape and precision.
inline constexpr Source gradients_rule{Guide::Estimation, "The Memory Equation: Gradients"};
[[nodiscard]] double gradients(double count, double bytes_each);

/// Adam's two moments in fp32, SGD's momentum, or nothing. The training guide's 8-bit Adam: a byte for both.
inline constexpr Source optimizer_rule{Guide::Estimation, "The Optimizer State Trap"};
inline constexpr Source small_optimizer_rule{Guide::Training, "5. Optimizer State Optimization"};
enum class State : std::uint8_t { Adam, Momentum, None, Adam8bit };
[[nodiscard]] double bytes_of_state(State state);
[[nodiscard]] double optimizer_states(double count, State state);

/// What activations are counted by.
struct Activations {
  double batch = 1, sequence = 0, hidden = 0, layers = 0, bytes_each = 2;
};
/// One hidden state of each layer.
inline constexpr Source hidden_states_rule{Guide::Training, "4. Activations"};
[[nodiscard]] double hidden_states(const Activations& of);
/// k of them: "typically 2-10+".
inline constexpr Source activations_rule{Guide::Estimation, "Activation Memory - The Hard Part"};
inline constexpr Range usual_k{2, 10};
[[nodiscard]] double activations(const Activations& of, double k);
[[nodiscard]] double k_of(const Activations& of, double bytes);

/// Scores of one layer's attention.
inline constexpr Source attention_rule{Guide::Training, "4. Activations: Attention"};
[[nodiscard]] double attention_matrix(double batch, double heads, double sequence, double bytes_each);

/// What checkpointing every layer leaves of activations: the guides say that it saves 50 to 70 % (60 to 70 %), and
/// refer to Chen et al. (2016), who keep the square root of the layers.
inline constexpr Source checkpointing_rule{Guide::Estimation, "Activation Memory: checkpointing"};
inline constexpr Source training_checkpointing_rule{Guide::Training, "2. Gradient Checkpointing"};
inline constexpr Range saved_by_checkpointing{0.5, 0.7}, saved_by_training_guide{0.6, 0.7};
[[nodiscard]] Range left_by_checkpointing(double bytes, Range saved);
inline constexpr Source square_root_rule{Guide::Training, "References: Chen et al. (2016)"};
[[nodiscard]] double square_root_checkpointed(double bytes, double layers);

/// 2 x layers x hidden x sequence x batch x bytes: keys and values as wide as the residual stream.
inline constexpr Source kv_cache_rule{Guide::Estimation, "What Gave the Biggest Win"};
[[nodiscard]] double kv_cache(double layers, double hidden, double sequence, double batch, double bytes_each);

/// A device's part of parameters, gradients and optimizer states. Data parallelism divides nothing.
inline constexpr Source division_rule{Guide::Estimation, "Combined (3D Parallelism)"};
[[nodiscard]] double divided(double bytes, double tensor, double pipeline);
/// ZeRO (Rajbhandari et al., the training guide's first reference) divides by data-parallel ranks too.
inline constexpr Source zero_rule{Guide::Training, "References: Rajbhandari et al. (2020)"};
[[nodiscard]] double sharded(double bytes, double ranks);

/// 10 to 20 % on top of everything else.
inline constexpr Source overhead_rule{Guide::Estimation, "The Memory Equation: Overhead"};
inline constexpr Range usual_overhead{0.10, 0.20};
[[nodiscard]] Range overhead(double of_everything_else);

/// estimate_training_memory_gb, line by line, in GB of a model of so many billion parameters. Its comment says that it
/// prints 73.6 for 7: it prints 120.8.
inline constexpr Source shortcut_rule{Guide::Estimation, "Quick Estimation Shortcut"};
inline constexpr double shortcut_of_7_as_commented = 73.6;
[[nodiscard]] double shortcut_gb(double billions, double precision_bytes = 2, State optimizer = State::Adam);

}  // namespace tidemark::scenarios::rules
