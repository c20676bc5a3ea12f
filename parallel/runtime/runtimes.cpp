#include "parallel/runtime/runtimes.hpp"

#include <algorithm>
#include <array>

#include "sim/base/ensure.hpp"

namespace tidemark::parallel {
namespace {

constexpr std::array all{
    RuntimeKind{"megatron", megatron_runtime, megatron_releases},
    RuntimeKind{"pytorch", pytorch_runtime, pytorch_releases, true},
    RuntimeKind{"fsdp2", fsdp2_runtime, pytorch_releases, true, true},
    RuntimeKind{"fsdp", fsdp_runtime, pytorch_releases, true, true, true},
    RuntimeKind{"torchtitan", torchtitan_runtime, torchtitan_releases, true, true, false, true},
    RuntimeKind{"deepspeed", deepspeed_runtime, deepspeed_releases, true, false, false, false, true},
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
