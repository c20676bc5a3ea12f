#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/namespace.hpp"
#include "sim/base/units.hpp"
#include "sim/program/kernel.hpp"

// Where a rank's program holds what is trained: whoever runs it for real looks there. Frameworks say it while they are
// lowered, because nobody else knows which buffer is the gradient of which parameter.

namespace tidemark::parallel {

/// A parameter or its gradient in memory, or a piece of it.
struct StateTensor {
  std::string parameter;   ///< its name in the model
  std::int64_t first = 0;  ///< of the rank's elements of it, row by row, the first that is here
  BufferId buffer;
  Bytes offset;
  View view;
};

/// A moment when gradients are whole, or parameters updated.
struct StateMoment {
  enum class What : std::uint8_t { Gradients, Parameters };
  What what = What::Gradients;
  std::int32_t step = 0;
  std::size_t marks = 0;  ///< so many have been met; it lasts until the next one
  std::vector<StateTensor> tensors;
};

/// In the order of the program.
using TrainingState = std::vector<StateMoment>;

}  // namespace tidemark::parallel
