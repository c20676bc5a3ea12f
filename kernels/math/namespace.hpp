#pragma once

// What this library may include, it may name without its namespace.
namespace tidemark::sim {}
namespace tidemark::math {
using namespace sim;
}  // namespace tidemark::math
