#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "parallel/job/layout.hpp"
#include "parallel/job/train.hpp"
#include "parallel/model/model.hpp"
#include "parallel/runtime/runtime.hpp"
#include "parallel/runtime/versions.hpp"
#include "scenarios/namespace.hpp"
#include "sim/base/units.hpp"
#include "topology/cluster.hpp"

namespace tidemark::scenarios {

/// What variables of the environment say of CUDA's launch queue.
struct LaunchQueueSettings {
  std::optional<std::int32_t> connections;  ///< CUDA_DEVICE_MAX_CONNECTIONS
  double scale = 1;                         ///< CUDA_SCALE_LAUNCH_QUEUES
  bool operator==(const LaunchQueueSettings&) const = default;
};

/// What the user asks about how the framework runs; the runtime itself is looked up by name.
struct RuntimeChoice {
  std::string name = "megatron";
  Versions versions;                    ///< dated habits: framework versions that change what is allocated
  std::string allocator;                ///< the text of PYTORCH_CUDA_ALLOC_CONF, which the reader has checked
  std::string cublas_workspace_config;  ///< environment.CUBLAS_WORKSPACE_CONFIG, such as ":4096:8"
  NcclSettings nccl{};                  ///< by environment.NCCL_…; the release is that of `versions`
  std::map<std::string, std::string> nccl_environment{};  ///< those variables as they were given
  LaunchQueueSettings launch_queue{};
  bool attention_mask = true;  ///< Megatron's data loader makes one; switch no-create-attention-mask-in-dataloader
  // Megatron's own flags, by their meaning.
  bool gradient_accumulation_fusion = true;
  bool bias_dropout_fusion = true;
  bool bias_gelu_fusion = true;
  bool bias_swiglu_fusion = true;
  bool rope_fusion = true;
  bool masked_softmax_fusion = true;
  bool softmax_in_fp32 = false;
  bool query_key_scaling = false;  ///< apply-query-key-layer-scaling, which turns the former on (arguments.py)
  DataOverlap overlap{};           ///< overlap-grad-reduce and the like
  std::optional<TensorOverlap> tensor_overlap{};  ///< tp-comm-overlap
  bool distribute_saved = false;                  ///< distribute-saved-activations
  bool deterministic = false;                     ///< deterministic-mode
  ResultChecks checks{};  ///< of losses and gradients: scenarios/frameworks/megatron/result_checks.cpp
  /// defer-embedding-wgrad-compute: of how many micro-batches, as wgrad-deferral-limit says, or of all.
  std::int64_t deferred_head_gradients = 0;
  bool overlaps_flush = false;             ///< overlap-p2p-communication-warmup-flush
  ExpertBehavior experts{};                ///< moe-…
  OptimizerBehavior optimizer{};           ///< of its precision, and where it is
  std::int32_t offloaded_layers = 0;       ///< cpu-offloading-num-layers
  ModuleOffloadBehavior module_offload{};  ///< offload-modules
  EagerSettings eager{};                   ///< plain PyTorch's own arguments
  Bytes headroom;                          ///< memory that must stay free on every device

  bool operator==(const RuntimeChoice&) const = default;
};

/// How long the whole training is, of which `Train::steps` are simulated. 0: not said; one of them at most is.
struct RunLength {
  std::int64_t tokens = 0, steps = 0;

  [[nodiscard]] bool known() const { return tokens > 0 || steps > 0; }
  bool operator==(const RunLength&) const = default;
};

/// One question, with every default filled in.
struct Scenario {
  std::string name;  ///< of its file, without folder and ending
  Model model;
  Cluster cluster;
  std::int32_t gpus = 0;
  Layout layout;
  Train train;
  RuntimeChoice runtime;
  RunLength run = {};

  bool operator==(const Scenario&) const = default;
};

}  // namespace tidemark::scenarios
