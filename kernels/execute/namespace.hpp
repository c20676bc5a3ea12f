#pragma once

// What this library may include, it may name without its namespace.
namespace tidemark::sim {}
namespace tidemark::execute {
using namespace sim;
}  // namespace tidemark::execute
