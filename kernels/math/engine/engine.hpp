#pragma once

#include <span>

#include "kernels/math/call.hpp"

// The kernels are compiled once for each engine: by g++ for the host's, by nvcc for a GPU's, and for one that tests
// bring, which forgives no more than a GPU. nvcc takes C++20, but not fmt, nor std::ranges over std::vector<bool>.

#ifndef TIDEMARK_MATH_ENGINE
#define TIDEMARK_MATH_ENGINE tidemark::math::HostEngine
#define TIDEMARK_MATH_ENGINE_HEADER "kernels/math/engine/host_engine.hpp"
#endif
#include TIDEMARK_MATH_ENGINE_HEADER

namespace tidemark::math {

/// `compute` by an engine.
template <class Engine>
void compute_on(Engine& engine, Operation operation, const Attributes& attributes, std::span<const Array> inputs,
                std::span<const Array> outputs, const Setting& setting);

using ThisEngine = TIDEMARK_MATH_ENGINE;
using FloatCall = KernelCall<ThisEngine, float>;
using DoubleCall = KernelCall<ThisEngine, double>;

}  // namespace tidemark::math
