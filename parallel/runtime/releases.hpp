#pragma once

#include <array>
#include <span>
#include <string_view>

#include "parallel/model/target.hpp"
#include "parallel/runtime/versions.hpp"
#include "sim/base/units.hpp"

// Which releases a runtime's habits are known for. Outside of them nobody has looked: older ones are refused, newer
// ones taken as the last one that was read, and the answer says so.

namespace tidemark::parallel {

/// What has a release of its own.
struct Component {
  std::string_view key;  ///< in [runtime.versions]
  std::string_view name;
  Version Versions::*version;
  bool by_patch = false;  ///< patch releases change habits
};

inline constexpr std::array<Component, 11> components{{
    {"megatron", "Megatron-LM core", &Versions::megatron},
    {"transformer_engine", "TransformerEngine", &Versions::transformer_engine},
    {"torch", "PyTorch", &Versions::torch},
    {"cuda", "CUDA", &Versions::cuda},
    {"nccl", "NCCL", &Versions::nccl},
    {"transformers", "transformers", &Versions::transformers},
    {"torchtitan", "torchtitan", &Versions::torchtitan, true},
    {"deepspeed", "DeepSpeed", &Versions::deepspeed},
    {"bitsandbytes", "bitsandbytes", &Versions::bitsandbytes},
    {"liger_kernel", "Liger-Kernel", &Versions::liger},
    {"litgpt", "LitGPT", &Versions::litgpt, true},
}};

/// The releases of a component, `first` to `last`, of which a runtime knows what they change of what is modelled.
struct KnownReleases {
  std::string_view key;
  Version first, last;
};

[[nodiscard]] std::span<const KnownReleases> megatron_releases();
[[nodiscard]] std::span<const KnownReleases> pytorch_releases();
[[nodiscard]] std::span<const KnownReleases> torchtitan_releases();
[[nodiscard]] std::span<const KnownReleases> deepspeed_releases();

/// What that release of PyTorch gives one handle and stream of cuBLAS on the device, unless CUBLAS_WORKSPACE_CONFIG
/// says otherwise.
[[nodiscard]] Bytes default_blas_workspace(const Target& target, Version torch);

}  // namespace tidemark::parallel
