#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "parallel/namespace.hpp"
#include "sim/program/data_flow.hpp"

namespace tidemark::parallel {

/// Whose programs. What is known of Megatron's is known of those that offload layers or modules too, and more.
/// Of a job that generates before it trains, more, whoever runs it.
enum class FlowsOf : std::uint8_t { Megatron, OffloadedLayers, ModuleOffload, PyTorch, Rollouts };

/// What a framework does that its arithmetic has no use for: a tensor, where it was written or used last, and until
/// when nobody reads it or something holds it, as "phase label". A star stands for anything.
struct KnownFlow {
  FlowKind kind;
  std::string_view tensor, at, until;
  std::string_view reason;  ///< and where its source shows it
};

[[nodiscard]] std::span<const KnownFlow> known_flows(FlowsOf framework);
/// The first that the finding is one of; null: nobody knows, and the lowering is likely to be wrong.
[[nodiscard]] const KnownFlow* known_flow(const FlowFinding& finding, FlowsOf framework);

}  // namespace tidemark::parallel
