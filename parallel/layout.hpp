#pragma once

#include <array>
#include <cstdint>

namespace tidemark {

/// The axes of a job along which ranks differ.
enum class MeshAxis : std::uint8_t { Tensor, Data, Pipeline };

/// What data-parallel ranks share out: nothing, or optimizer state (ZeRO stage 1, Megatron's distributed optimizer).
enum class Sharding : std::uint8_t { None, Zero1 };

/// How a model is spread over the ranks of a job. Degrees count ranks.
struct Layout {
  std::int32_t tensor = 1;
  bool sequence_parallel = false;
  std::int32_t pipeline = 1;
  std::int32_t data = 1;  ///< derived from the number of devices where a scenario leaves it out
  Sharding sharding = Sharding::None;
  /// Fastest-running axis first: consecutive ranks, and so devices of a node, differ along it. Megatron's default.
  std::array<MeshAxis, 3> order{MeshAxis::Tensor, MeshAxis::Data, MeshAxis::Pipeline};
  bool count_embedding = false;  ///< the embedding takes one layer's place when layers are split over stages
  bool count_loss = false;       ///< the LM head and loss take one layer's place

  [[nodiscard]] std::int32_t degree(MeshAxis axis) const {
    return axis == MeshAxis::Tensor ? tensor : axis == MeshAxis::Data ? data : pipeline;
  }
  [[nodiscard]] std::int32_t world_size() const { return tensor * pipeline * data; }
  bool operator==(const Layout&) const = default;
};

}  // namespace tidemark
