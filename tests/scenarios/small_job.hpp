#pragma once

#include "tests/namespace.hpp"

namespace tidemark::tests {

/// Six layers of Llama-3.1 8B on a node: two stages of two data-parallel ranks of two tensor-parallel ones.
inline constexpr const char* small_job = R"(model = "models/llama-3.1-8b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 8
[model_override]
num_hidden_layers = 6
[layout]
tensor = 2
sequence_parallel = true
pipeline = 2
sharding = "zero1"
[train]
sequence_length = 4096
micro_batch = 1
global_batch = 8
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0
[runtime]
name = "megatron"
)";

}  // namespace tidemark::tests
