#pragma once

#include "parallel/namespace.hpp"

namespace tidemark::parallel::torch {}
namespace tidemark::parallel::generation {
using namespace torch;
}  // namespace tidemark::parallel::generation
