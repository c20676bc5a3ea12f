#include "scenarios/environment/environment.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "parallel/runtime/runtime.hpp"
#include "scenarios/environment/allocator_conf.hpp"
#include "scenarios/environment/nccl_environment.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

/// Variables that leave memory as it is, whatever their value. NVTE_…_SM_MARGIN: so many multiprocessors Transformer
/// Engine's norms leave to others (pytorch/module/layernorm_linear.py, common/normalization/), which are bound by
/// memory. TORCH_NCCL_…: how PyTorch watches communicators (torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp); four
/// were called NCCL_… before 2.2, and are none of NCCL's. TORCH_NCCL_AVOID_RECORD_STREAMS is of collectives, whose
/// tensors outlive them here; messages between stages are marked all the same (ProcessGroupNCCL.cpp pointToPoint).
constexpr auto harmless = std::to_array<std::string_view>({"CUDA_DEVICE_ORDER",
                                                           "CUDA_VISIBLE_DEVICES",
                                                           "GLOO_SOCKET_IFNAME",
                                                           "HF_HOME",
                                                           "LOGLEVEL",
                                                           "MASTER_ADDR",
                                                           "MASTER_PORT",
                                                           "MKL_NUM_THREADS",
                                                           "NCCL_ASYNC_ERROR_HANDLING",
                                                           "NCCL_BLOCKING_WAIT",
                                                           "NCCL_DESYNC_DEBUG",
                                                           "NCCL_ENABLE_TIMING",
                                                           "NVTE_BUILD_THREADS_PER_JOB",
                                                           "NVTE_BWD_LAYERNORM_SM_MARGIN",
                                                           "NVTE_CUDA_ARCHS",
                                                           "NVTE_DEBUG",
                                                           "NVTE_DEBUG_LEVEL",
                                                           "NVTE_FRAMEWORK",
                                                           "NVTE_FWD_LAYERNORM_SM_MARGIN",
                                                           "NVTE_INF_LAYERNORM_SM_MARGIN",
                                                           "OMP_NUM_THREADS",
                                                           "PYTHONPATH",
                                                           "PYTHONUNBUFFERED",
                                                           "TOKENIZERS_PARALLELISM",
                                                           "TORCH_CPP_LOG_LEVEL",
                                                           "TORCH_CUDA_ARCH_LIST",
                                                           "TORCH_DISTRIBUTED_DEBUG",
                                                           "TORCH_EXTENSIONS_DIR",
                                                           "TORCH_FR_BUFFER_SIZE",
                                                           "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD",
                                                           "TORCH_HOME",
                                                           "TORCH_LOGS",
                                                           "TORCH_LOGS_OUT",
                                                           "TORCH_NCCL_ASYNC_ERROR_HANDLING",
                                                           "TORCH_NCCL_AVOID_RECORD_STREAMS",
                                                           "TORCH_NCCL_BLOCKING_WAIT",
                                                           "TORCH_NCCL_COORD_CHECK_MILSEC",
                                                           "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
                                                           "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
                                                           "TORCH_NCCL_DESYNC_DEBUG",
                                                           "TORCH_NCCL_DUMP_ON_TIMEOUT",
                                                           "TORCH_NCCL_ENABLE_MONITORING",
                                                           "TORCH_NCCL_ENABLE_TIMING",
                                                           "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
                                                           "TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN",
                                                           "TORCH_NCCL_NAN_CHECK",
                                                           "TORCH_NCCL_PROPAGATE_ERROR",
                                                           "TORCH_NCCL_RETHROW_CUDA_ERRORS",
                                                           "TORCH_NCCL_TRACE_BUFFER_SIZE",
                                                           "TORCH_NCCL_TRACE_CPP_STACK",
                                                           "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC",
                                                           "TORCH_SHOW_CPP_STACKTRACES",
                                                           "TORCH_TRACE",
                                                           "UB_SKIPMC"});

/// Variables at the value that is their default, or means the same.
struct Neutral {
  std::string_view name;
  std::string_view value;
};
constexpr std::array neutral{Neutral{"CUDA_MODULE_LOADING", "LAZY"}, Neutral{"CUDA_LAUNCH_BLOCKING", "0"}};

/// Which kernels Transformer Engine may choose from (pytorch/attention/dot_product_attention/utils.py).
constexpr auto attention_variables =
    std::to_array<std::string_view>({"NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN"});

/// Megatron-LM sets all three by --attention-backend, and stops where one has another value
/// (core/models/common/language_module/language_module.py _set_attention_backend).
struct AttentionVariables {
  AttentionKernel kernel;
  std::array<std::string_view, attention_variables.size()> values;
};
constexpr std::array attention_kernels{AttentionVariables{AttentionKernel::Auto, {"1", "1", "1"}},
                                       AttentionVariables{AttentionKernel::Flash, {"1", "0", "0"}},
                                       AttentionVariables{AttentionKernel::Fused, {"0", "1", "0"}},
                                       AttentionVariables{AttentionKernel::Unfused, {"0", "0", "1"}},
                                       AttentionVariables{AttentionKernel::Local, {"0", "0", "0"}}};

constexpr auto allocators = std::to_array<std::string_view>({"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"});
// How far the host thread runs ahead of its device (sim/program/launch_queue.hpp). The values of the second are those
// of the CUDA programming guide, 5.2, and the default.
constexpr std::string_view connections = "CUDA_DEVICE_MAX_CONNECTIONS", queue_scale = "CUDA_SCALE_LAUNCH_QUEUES";
struct QueueScale {
  std::string_view text;
  double value;
};
constexpr std::array queue_scales{QueueScale{"0.25x", 0.25}, QueueScale{"0.5x", 0.5}, QueueScale{"1x", 1},
                                  QueueScale{"2x", 2}, QueueScale{"4x", 4}};
constexpr std::string_view cublas = "CUBLAS_WORKSPACE_CONFIG";
constexpr std::string_view nondeterministic = "NVTE_ALLOW_NONDETERMINISTIC_ALGO";
constexpr std::string_view older_offload = "NVTE_CPU_OFFLOAD_V1";
constexpr std::int64_t most_kib = std::int64_t{1} << 30;  // 1 TiB: more than any device

std::optional<std::string> value_of(const TomlValue& value) {
  if (const auto* string = std::get_if<std::string>(&value.value)) return *string;
  if (std::holds_alternative<std::int64_t>(value.value)) return text(value);
  return std::nullopt;
}

/// A run of digits from `at` on; moves `at` behind it. Nothing when there is none or it is absurd.
std::optional<std::int64_t> number(std::string_view text, std::size_t& at) {
  const std::size_t begin = at;
  std::int64_t value = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    value = value * 10 + (text[at] - '0');
    if (value > most_kib) return std::nullopt;
  }
  return at == begin ? std::nullopt : std::optional(value);
}

void refuse(TomlReader& table, const TomlKey& variable, const std::string& value) {
  const auto* const known =
      std::find_if(neutral.begin(), neutral.end(), [&](const Neutral& n) { return n.name == variable.name; });
  if (known != neutral.end()) {
    if (value == known->value) return;
    table.problem(variable.name,
                  not_modelled(fmt::format("{} = {} is not modelled yet", variable.name, in_quotes(value))),
                  fmt::format("leave it out, or set {}", in_quotes(known->value)));
    return;
  }
  const std::string meant = nearest(variable.name, known_variables());
  table.problem(variable.name, not_modelled(fmt::format("{} is not modelled yet", in_quotes(variable.name))),
                meant.empty() ? "leave it out, if it does not change memory" : fmt::format("did you mean {}?", meant));
}

// 1 to 32, by the CUDA programming guide.
void read_connections(TomlReader& table, const std::string& value, LaunchQueueSettings& queue) {
  std::size_t at = 0;
  const std::optional<std::int64_t> requested = number(value, at);
  if (requested && at == value.size() && *requested >= 1 && *requested <= 32)
    queue.connections = static_cast<std::int32_t>(*requested);
  else
    table.problem(connections, fmt::format("{} = {} is not a number from 1 to 32", connections, in_quotes(value)),
                  "\"1\" is what Megatron-LM asks for before Blackwell, \"8\" CUDA's default");
}

void read_queue_scale(TomlReader& table, const std::string& value, LaunchQueueSettings& queue) {
  const auto* const known = std::ranges::find(queue_scales, value, &QueueScale::text);
  if (known != queue_scales.end())
    queue.scale = known->value;
  else
    table.problem(queue_scale, fmt::format("{} = {} is not a scale of CUDA's", queue_scale, in_quotes(value)),
                  "\"0.25x\", \"0.5x\", \"2x\" or \"4x\" is");
}

}  // namespace

// As at::cuda::parseChosenWorkspaceSize reads it (PyTorch, aten/src/ATen/cuda/CublasHandlePool.cpp), which takes every
// ":SIZE:COUNT" it finds and skips the rest: what it would skip is refused here.
bool is_cublas_workspace_config(std::string_view text) {
  std::int64_t total = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    if (text[at++] != ':') return false;
    const std::optional<std::int64_t> size = number(text, at);
    if (!size || at == text.size() || text[at++] != ':') return false;
    const std::optional<std::int64_t> count = number(text, at);
    if (!count) return false;
    total += *size * *count;  // each at most 2^30, and the sum is checked at every step
    if (total > most_kib) return false;
  }
  return !text.empty();
}

std::vector<std::string> known_variables() {
  std::vector<std::string> names{std::string(cublas), std::string(nondeterministic), std::string(older_offload),
                                 std::string(connections), std::string(queue_scale)};
  names.insert(names.end(), harmless.begin(), harmless.end());
  names.insert(names.end(), allocators.begin(), allocators.end());
  names.insert(names.end(), attention_variables.begin(), attention_variables.end());
  for (const Neutral& n : neutral) names.emplace_back(n.name);
  return names;
}

bool is_harmless_variable(std::string_view name) {
  return is_harmless_nccl_variable(name) || std::find(harmless.begin(), harmless.end(), name) != harmless.end();
}

Environment read_environment(TomlReader table) {
  Environment environment;
  for (const TomlKey& variable : table.keys()) {
    const std::optional<std::string> value = value_of(variable.value);
    if (!value) {
      table.problem(variable.name, fmt::format("{} takes a text, not {}", variable.name, text(variable.value)));
    } else if (std::ranges::find(harmless, variable.name) != harmless.end()) {
      continue;
    } else if (is_nccl_variable(variable.name)) {
      read_nccl_variable(table, variable.name, *value, environment.nccl);
      environment.nccl_variables[variable.name] = *value;
    } else if (variable.name == nondeterministic) {
      // TransformerEngine reads it as a number; 0 rules kernels out that are not deterministic.
      if (*value != "0" && *value != "1")
        table.problem(variable.name, fmt::format("{} = {} is neither 0 nor 1", nondeterministic, in_quotes(*value)));
      environment.deterministic = *value == "0";
    } else if (variable.name == connections) {
      read_connections(table, *value, environment.launch_queue);
    } else if (variable.name == queue_scale) {
      read_queue_scale(table, *value, environment.launch_queue);
    } else if (variable.name == older_offload) {
      if (*value != "0" && *value != "1")
        table.problem(variable.name, fmt::format("{} = {} is neither 0 nor 1", older_offload, in_quotes(*value)));
      environment.older_offload = *value == "1";
    } else if (std::ranges::count(attention_variables, variable.name) > 0) {
      if (*value != "0" && *value != "1")
        table.problem(variable.name, fmt::format("{} = {} is neither 0 nor 1", variable.name, in_quotes(*value)));
    } else if (std::find(allocators.begin(), allocators.end(), variable.name) != allocators.end()) {
      if (environment.allocator && *environment.allocator != *value)
        table.problem(variable.name, "and its other name have different values", "leave one of them out");
      environment.allocator = read_allocator_text(table, variable.name);
    } else if (variable.name != cublas) {
      if (!is_harmless_variable(variable.name)) refuse(table, variable, *value);
    } else if (is_cublas_workspace_config(*value)) {
      environment.cublas_workspace_config = *value;
      if (cublas_workspace(*value, {}) == Bytes{})
        table.problem(variable.name,
                      not_modelled(fmt::format("{} = {}: cuBLAS without a workspace is not modelled yet", cublas,
                                               in_quotes(*value))),
                      "leave it out, or set \":4096:8\"");
    } else if (!value->empty()) {
      table.problem(
          variable.name,
          fmt::format("{} = {} is not :SIZE:COUNT, once or more often, SIZE in KiB", cublas, in_quotes(*value)),
          "such as \":4096:8\" or \":4096:2:16:8\"");
    }
  }
  return environment;
}

std::optional<AttentionKernel> attention_of_variables(const std::map<std::string, std::string>& variables) {
  const auto off = [&](std::string_view name) {
    const auto found = variables.find(std::string(name));
    return found != variables.end() && found->second == "0";
  };
  const bool flash = !off(attention_variables[0]), fused = !off(attention_variables[1]),
             unfused = !off(attention_variables[2]);
  // Where both are left, Transformer Engine chooses between them by device, as it does where nothing is said.
  if (flash && fused) return AttentionKernel::Auto;
  if (flash) return AttentionKernel::Flash;
  if (fused) return AttentionKernel::Fused;
  return unfused ? std::optional(AttentionKernel::Unfused) : std::nullopt;
}

bool is_attention_variable(std::string_view name) {
  return std::ranges::find(attention_variables, name) != attention_variables.end();
}

void check_attention_variables(TomlReader table, AttentionKernel requested) {
  std::array<std::optional<std::string>, attention_variables.size()> given;
  for (std::size_t i = 0; i < given.size(); ++i)
    if (const TomlValue* value = table.raw(attention_variables[i]); value != nullptr) given[i] = value_of(*value);
  const auto disagrees = [&](const AttentionVariables& its, std::size_t i) {
    return given[i] && *given[i] != its.values[i];
  };
  const auto name_of = [](AttentionKernel kernel) { return in_quotes(word(attention_names, kernel)); };
  const auto& expected = *std::ranges::find(attention_kernels, requested, &AttentionVariables::kernel);
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!disagrees(expected, i) || !table.sound(attention_variables[i])) continue;
    const auto meant = std::ranges::find_if(attention_kernels, [&](const AttentionVariables& its) {
      for (std::size_t j = 0; j < given.size(); ++j)
        if (disagrees(its, j)) return false;
      return true;
    });
    std::string hint = "leave these variables out, and choose the kernel by attention in [train]";
    if (meant != attention_kernels.end())
      hint = fmt::format("leave it out, or set attention = {} in [train]", name_of(meant->kernel));
    return table.problem(
        attention_variables[i],
        fmt::format("{} = {}: Megatron-LM sets it to {} for attention = {}, and rejects other values",
                    attention_variables[i], in_quotes(*given[i]), expected.values[i], name_of(requested)),
        std::move(hint));
  }
}

}  // namespace tidemark::scenarios
