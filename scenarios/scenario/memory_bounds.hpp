#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/namespace.hpp"
#include "sim/base/units.hpp"
#include "topology/cluster.hpp"

// What a launch file asks for, is not simulated, and is known to take no more than so many bytes.

namespace tidemark::scenarios {

struct Scenario;

struct MemoryBound {
  std::string file;
  int line = 0;  ///< 0: none
  std::string what, why;
  Bytes more;                        ///< on any device, which the upper ends have
  bool may_be_less = false;          ///< it may also take less than what is simulated in its place
  std::vector<Bytes> by_stage = {};  ///< the same on ranks of each pipeline stage; empty: `more` on all
  [[nodiscard]] Bytes on(std::int32_t stage) const {
    return by_stage.empty() ? more : by_stage.at(static_cast<std::size_t>(stage));
  }
};

/// How much more what is called so takes on any device of a job at most. A name may carry a number, as in
/// "deferred-head:22".
[[nodiscard]] bool has_memory_bound(std::string_view name);
[[nodiscard]] Bytes most_more(std::string_view name, const Scenario& scenario);
/// The same on the ranks of each pipeline stage.
[[nodiscard]] std::vector<Bytes> more_by_stage(std::string_view name, const Scenario& scenario);
[[nodiscard]] bool may_take_less(std::string_view name);
/// What a device lacks for it, in words; empty: nothing.
[[nodiscard]] std::string lacking_on(std::string_view name, const Device& device);
/// Of all of them together.
[[nodiscard]] Bytes most_more(const std::vector<MemoryBound>& bounds);
/// All that there are.
[[nodiscard]] std::vector<std::string> memory_bounds();

}  // namespace tidemark::scenarios
