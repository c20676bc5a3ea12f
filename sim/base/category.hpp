#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "sim/base/units.hpp"

namespace tidemark::sim {

/// What a byte is for. The names are the contract of the prediction's JSON; the simulator only adds them up.
enum class Category : std::uint8_t {
  Parameters,
  Gradients,
  OptimizerMaster,
  OptimizerMoments,
  SavedActivations,
  Recompute,
  Temporaries,
  LogitsLoss,
  CommTp,
  CommCp,
  CommEp,
  CommDp,
  CommPp,
  OffloadStaging,
  Workspaces,
  Nccl,
  Context,
  KvCache,
  Adapters,
  Quantization,
  Fragmentation,
};

inline constexpr std::array<std::string_view, 21> category_names = {
    "parameters",   "gradients",   "optimizer_master", "optimizer_moments", "saved_activations",
    "recompute",    "temporaries", "logits_loss",      "comm_tp",           "comm_cp",
    "comm_ep",      "comm_dp",     "comm_pp",          "offload_staging",   "workspaces",
    "nccl",         "context",     "kv_cache",         "adapters",          "quantization",
    "fragmentation"};
inline constexpr std::size_t category_count = category_names.size();

constexpr std::string_view name(Category category) { return category_names[static_cast<std::size_t>(category)]; }

/// The category of that name, or nothing.
constexpr std::optional<Category> category_of(std::string_view text) {
  for (std::size_t i = 0; i < category_count; ++i)
    if (category_names[i] == text) return static_cast<Category>(i);
  return std::nullopt;
}

/// Bytes by category.
struct Composition {
  std::array<Bytes, category_count> bytes{};

  Bytes& operator[](Category category) { return bytes[static_cast<std::size_t>(category)]; }
  Bytes operator[](Category category) const { return bytes[static_cast<std::size_t>(category)]; }
  [[nodiscard]] constexpr Bytes total() const {
    Bytes sum;
    for (const Bytes b : bytes) sum += b;
    return sum;
  }
  bool operator==(const Composition&) const = default;
};

}  // namespace tidemark::sim
