#include "parallel/runtime/runtimes.hpp"

#include <algorithm>
#include <array>

#include "sim/base/ensure.hpp"

namespace tidemark::parallel {
namespace {

constexpr std::array all{
    RuntimeKind{RuntimeId::Megatron, "megatron", megatron_runtime, megatron_releases},
    RuntimeKind{RuntimeId::PyTorch, "pytorch", pytorch_runtime, pytorch_releases},
    RuntimeKind{RuntimeId::Fsdp2, "fsdp2", fsdp2_runtime, pytorch_releases},
    RuntimeKind{RuntimeId::Fsdp, "fsdp", fsdp_runtime, pytorch_releases},
    RuntimeKind{RuntimeId::TorchTitan, "torchtitan", torchtitan_runtime, torchtitan_releases},
    RuntimeKind{RuntimeId::DeepSpeed, "deepspeed", deepspeed_runtime, deepspeed_releases},
};

}  // namespace

const RuntimeKind& runtime_kind(std::string_view name) {
  const auto* const found = std::ranges::find(all, name, &RuntimeKind::name);
  ensure(found != all.end(), "the scenario reader lets only modelled runtimes through");
  return *found;
}

std::span<const RuntimeKind> runtimes() { return all; }

Runtime runtime_named(std::string_view name, const Versions& versions, const RuntimeSettings& settings,
                      const Target& target) {
  return runtime_kind(name).runtime(versions, settings, target);
}

std::span<const KnownReleases> known_releases(std::string_view name) { return runtime_kind(name).releases(); }

}  // namespace tidemark::parallel
