#pragma once

// What this library may include, it may name without its namespace.
namespace tidemark::sim {}
namespace tidemark::topology {}
namespace tidemark::kernels {
using namespace sim;
using namespace topology;
}  // namespace tidemark::kernels
