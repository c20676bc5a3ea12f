#pragma once

#include <optional>
#include <string>

#include <tidemark/scenario.hpp>

namespace tidemark {

/// How far does it go? The largest value of an axis at which anything in the space fits: the longest sequence, the
/// biggest micro-batch. The study is a scenario with tables [space] and [capacity] (docs/planner.md).
struct Capacity {
  bool any = false;  ///< something fits
  std::string text;
  std::string json;  ///< "tidemark.capacity/1"
};
[[nodiscard]] std::optional<Capacity> capacity(const Scenario& study, const Options& options);

}  // namespace tidemark
