#pragma once

#include <cstdint>

#include "parallel/job/layout.hpp"

namespace tidemark::parallel {

/// Ranks over which one copy of what is shared out is spread in all: `shards`, of each part of their sequences, which
/// hold the same parameters. What is of experts aside.
[[nodiscard]] inline std::int32_t sharing(const Layout& layout) { return layout.shards() * layout.context; }

/// The same of experts that ranks have parts of: those that hold the same ones, within an instance.
[[nodiscard]] inline std::int32_t experts_sharing(const Layout& layout) {
  return layout.experts_data() / layout.instances();
}

}  // namespace tidemark::parallel
