#pragma once

#include <memory>

#include "kernels/math/calculator.hpp"

namespace tidemark::math {

/// The current GPU. Throws std::runtime_error with CUDA's words where it cannot go on.
[[nodiscard]] std::unique_ptr<Calculator> device_calculator();

}  // namespace tidemark::math
