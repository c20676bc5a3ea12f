#pragma once

#include <cstdint>
#include <vector>

#include "parallel/layout.hpp"

namespace tidemark {

/// The layers [first, last) of one pipeline stage; the embedding belongs to the first stage, the head to the last.
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

/// Equal shares of `layers`, the embedding and the head each taking one layer's place where the layout counts them.
/// What is to be shared divides by the number of stages.
[[nodiscard]] std::vector<Stage> split_into_stages(std::int32_t layers, const Layout& layout);

}  // namespace tidemark
