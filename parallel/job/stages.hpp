#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/job/layout.hpp"

namespace tidemark::parallel {

/// The layers [first, last) of one stage of the model, which a rank may hold several of; the embedding belongs to the
/// first stage, the head to the last.
struct Stage {
  std::int32_t first = 0;
  std::int32_t last = 0;
  bool embedding = false;
  bool head = false;

  [[nodiscard]] std::int32_t layers() const { return last - first; }
  /// Whether an operator of that layer (-1: before the first, `total`: after the last) runs here.
  [[nodiscard]] bool holds(std::int32_t layer, std::int32_t total) const {
    return layer < 0 ? embedding : layer >= total ? head : first <= layer && layer < last;
  }
  bool operator==(const Stage&) const = default;
};

/// Why layers cannot be split so, in words; empty where they can.
[[nodiscard]] std::string wrong_with_stages(std::int32_t layers, const Layout& layout);

/// Every stage in the order of the model: the layout's own list, or equal shares of `layers`, the
/// embedding and the head each taking one layer's place where the layout counts them, with another number on the first
/// or last rank where it says so. Nothing is wrong with it.
[[nodiscard]] std::vector<Stage> split_into_stages(std::int32_t layers, const Layout& layout);

/// The stages of a rank, chunk by chunk.
[[nodiscard]] std::vector<Stage> chunks_of_rank(std::int32_t layers, const Layout& layout, std::int32_t pipeline);

}  // namespace tidemark::parallel
