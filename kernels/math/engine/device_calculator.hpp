#pragma once

#include <memory>

#include "kernels/math/engine/calculator.hpp"

namespace tidemark::math {

/// A GPU, which becomes the current one. Throws std::runtime_error with CUDA's words where it cannot go on.
[[nodiscard]] std::unique_ptr<Calculator> device_calculator(int device);

}  // namespace tidemark::math
