#include "parallel/schedule/stage_placement.hpp"

namespace tidemark::parallel {
namespace {

// Whether a chunk's stages run from the last rank to the first.
bool runs_back(PlacementShape shape, std::int32_t chunk) {
  switch (shape) {
    case PlacementShape::Loop:
      return false;
    case PlacementShape::V:
    case PlacementShape::BothWays:
      return chunk % 2 == 1;
  }
  return false;
}

// Whether each chunk of all ranks is the whole model, or all of them together are.
bool is_whole(PlacementShape shape) {
  switch (shape) {
    case PlacementShape::Loop:
    case PlacementShape::V:
      return false;
    case PlacementShape::BothWays:
      return true;
  }
  return false;
}

std::optional<Place> moved(const StagePlacement& placement, Place from, std::int32_t by) {
  const std::int32_t stage = placement.stage_of(from) + by;
  if (stage < 0 || stage >= placement.stages()) return std::nullopt;
  if (!is_whole(placement.shape)) return placement.place_of(stage);
  return Place{runs_back(placement.shape, from.chunk) ? from.rank - by : from.rank + by, from.chunk};
}

}  // namespace

std::int32_t StagePlacement::stages() const { return is_whole(shape) ? ranks : ranks * chunks; }

std::int32_t StagePlacement::stage_of(Place place) const {
  const std::int32_t before = is_whole(shape) ? 0 : place.chunk * ranks;
  return before + (runs_back(shape, place.chunk) ? ranks - 1 - place.rank : place.rank);
}

Place StagePlacement::place_of(std::int32_t stage) const {
  const std::int32_t chunk = stage / ranks, along = stage % ranks;
  return {runs_back(shape, chunk) ? ranks - 1 - along : along, chunk};
}

std::optional<Place> StagePlacement::next(Place place) const { return moved(*this, place, 1); }
std::optional<Place> StagePlacement::previous(Place place) const { return moved(*this, place, -1); }

}  // namespace tidemark::parallel
