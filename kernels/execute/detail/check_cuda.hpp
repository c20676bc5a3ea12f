#pragma once

#include <cuda_runtime_api.h>

#include "kernels/execute/namespace.hpp"

namespace tidemark::execute {

/// Throws std::runtime_error with CUDA's words for what went wrong.
void check_cuda(cudaError_t code, const char* call);

}  // namespace tidemark::execute
