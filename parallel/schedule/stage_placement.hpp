#pragma once

#include <cstdint>
#include <optional>

#include "parallel/namespace.hpp"

namespace tidemark::parallel {

/// One of the chunks that a rank of the pipeline holds.
struct Place {
  std::int32_t rank = 0;
  std::int32_t chunk = 0;
  bool operator==(const Place&) const = default;
};

enum class PlacementShape : std::uint8_t { Loop, V, BothWays };

/// Which stage of the model each chunk of each rank is. Of 4 ranks with 2 chunks:
///
///             rank  0 1 2 3
///   Loop   chunk 0  0 1 2 3
///          chunk 1  4 5 6 7
///   V      chunk 0  0 1 2 3
///          chunk 1  7 6 5 4
///   BothWays     0  0 1 2 3   one replica of the model
///                1  3 2 1 0   another, which micro-batches of its own go through
struct StagePlacement {
  PlacementShape shape = PlacementShape::Loop;
  std::int32_t ranks = 1;
  std::int32_t chunks = 1;  ///< of each rank; both ways: 2

  [[nodiscard]] std::int32_t stages() const;  ///< of one replica of the model
  [[nodiscard]] std::int32_t stage_of(Place place) const;
  /// Where a stage of the model is; both ways: in the first replica.
  [[nodiscard]] Place place_of(std::int32_t stage) const;
  /// The stage after it in the same replica; none after the last.
  [[nodiscard]] std::optional<Place> next(Place place) const;
  [[nodiscard]] std::optional<Place> previous(Place place) const;

  bool operator==(const StagePlacement&) const = default;
};

}  // namespace tidemark::parallel
