#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "parallel/runtime/releases.hpp"
#include "parallel/runtime/runtime.hpp"

namespace tidemark::parallel {

/// All but Megatron run a model's modules operation by operation: torchtitan its own, the others those of transformers.
enum class RuntimeId : std::uint8_t {
  Megatron,
  PyTorch,     ///< alone, or DistributedDataParallel
  Fsdp2,       ///< fully_shard
  Fsdp,        ///< FullyShardedDataParallel
  TorchTitan,  ///< fully_shard, in its loop
  DeepSpeed,   ///< ZeRO, as far as the layout says
};

/// A training framework as files name it.
struct RuntimeKind {
  RuntimeId id{};
  std::string_view name;
  Runtime (*runtime)(const Versions& versions, const RuntimeSettings& settings, const Target& target);
  std::span<const KnownReleases> (*releases)();

  [[nodiscard]] bool eager() const { return id != RuntimeId::Megatron; }
  /// Parameters are sharded over data-parallel ranks, unit by unit.
  [[nodiscard]] bool shards_units() const {
    return id == RuntimeId::Fsdp2 || id == RuntimeId::Fsdp || id == RuntimeId::TorchTitan;
  }
};

/// Those that are modelled; the first is what is meant where none is named.
[[nodiscard]] std::span<const RuntimeKind> runtimes();

/// Of that name, which is one of them.
[[nodiscard]] const RuntimeKind& runtime_kind(std::string_view name);
[[nodiscard]] Runtime runtime_named(std::string_view name, const Versions& versions, const RuntimeSettings& settings,
                                    const Target& target);
/// Of every component that selects habits of the runtime; the others select nothing. docs/versions.md says how each
/// range was read.
[[nodiscard]] std::span<const KnownReleases> known_releases(std::string_view name);

}  // namespace tidemark::parallel
