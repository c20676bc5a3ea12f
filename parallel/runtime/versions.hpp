#pragma once

#include <cstdint>

#include "parallel/namespace.hpp"

namespace tidemark::parallel {

/// A release number; compares as releases do.
struct Version {
  std::int32_t major = 0;
  std::int32_t minor = 0;
  std::int32_t patch = 0;  ///< of components whose patch releases change habits, else 0

  friend constexpr auto operator<=>(Version, Version) = default;
};

/// Releases that select dated habits. Defaults: Megatron-LM core 0.14 with TransformerEngine 2.11, PyTorch 2.10;
/// transformers 5.23; torchtitan 0.2.2, DeepSpeed 0.19; bitsandbytes 0.50,
/// Liger-Kernel 0.8; LitGPT 0.4.11.
struct Versions {
  Version megatron{0, 14};
  Version transformer_engine{2, 11};
  Version torch{2, 10};
  Version cuda{13, 1};
  Version nccl{2, 28};
  Version transformers{5, 23};
  Version torchtitan{0, 2, 2};
  Version deepspeed{0, 19};
  Version bitsandbytes{0, 50};
  Version liger{0, 8};
  Version litgpt{0, 4, 11};

  bool operator==(const Versions&) const = default;
};

}  // namespace tidemark::parallel
