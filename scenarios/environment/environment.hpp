#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/job/train.hpp"
#include "scenarios/formats/toml_reader.hpp"
#include "scenarios/scenario/scenario.hpp"
#include "topology/nccl_settings.hpp"

namespace tidemark::scenarios {

/// What the variables of `[runtime.environment]` settle.
struct Environment {
  std::string cublas_workspace_config;
  NcclSettings nccl;
  std::map<std::string, std::string> nccl_variables;  ///< as they were given
  LaunchQueueSettings launch_queue;
  std::optional<std::string> allocator;  ///< PYTORCH_ALLOC_CONF, or PYTORCH_CUDA_ALLOC_CONF as it was called before 2.9
  std::optional<bool> older_offload;     ///< NVTE_CPU_OFFLOAD_V1
  bool deterministic = false;            ///< NVTE_ALLOW_NONDETERMINISTIC_ALGO=0
};

/// Reads the variables. One without an effect on memory passes; any other that is not understood is a problem.
Environment read_environment(TomlReader table);

/// Whether a variable leaves memory as it is, whatever it says.
[[nodiscard]] bool is_harmless_variable(std::string_view name);

/// Those that are known here, NCCL's aside.
[[nodiscard]] std::vector<std::string> known_variables();

/// Of a job of Megatron-LM with that attention: NVTE_FLASH_ATTN, NVTE_FUSED_ATTN and NVTE_UNFUSED_ATTN have the values
/// that it gives them, or are problems.
void check_attention_variables(TomlReader environment, AttentionKernel requested);

/// NVTE_FLASH_ATTN, NVTE_FUSED_ATTN, NVTE_UNFUSED_ATTN.
[[nodiscard]] bool is_attention_variable(std::string_view name);
/// What these three leave Transformer Engine to choose; nothing where they leave none.
[[nodiscard]] std::optional<AttentionKernel> attention_of_variables(
    const std::map<std::string, std::string>& variables);

/// The grammar of CUBLAS_WORKSPACE_CONFIG: one or more ":SIZE:COUNT", SIZE in KiB, such as ":4096:2:16:8".
bool is_cublas_workspace_config(std::string_view text);

}  // namespace tidemark::scenarios
