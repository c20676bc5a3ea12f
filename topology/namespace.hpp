#pragma once

// What this library may include, it may name without its namespace.
namespace tidemark::sim {}
namespace tidemark::topology {
using namespace sim;
}  // namespace tidemark::topology
