#include "parallel/frameworks/deepspeed/training.hpp"
#include "parallel/runtime/releases.hpp"
#include "parallel/runtime/runtime.hpp"

// DeepSpeed's engine around the modules of transformers, read in DeepSpeed 0.19.8 with torch 2.15.

namespace tidemark::parallel {

std::span<const KnownReleases> deepspeed_releases() {
  static constexpr std::array<KnownReleases, 4> known{{
      {"torch", {2, 4}, {2, 15}},
      {"transformers", {4, 45}, {5, 23}},
      {"nccl", {2, 17}, {2, 28}},
      {"deepspeed", {0, 19}, {0, 19}},
  }};
  return known;
}

Runtime deepspeed_runtime(const Versions& versions, const RuntimeSettings& settings, const Target& target) {
  Runtime runtime = pytorch_runtime(versions, settings, target);
  runtime.framework = &deepspeed::framework;
  runtime.eager->zero = settings.eager.zero;
  return runtime;
}

}  // namespace tidemark::parallel
