#include <optional>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"

// Configurations of DeepSpeed that tools ship, for files that name one of them and lie elsewhere.

namespace tidemark::scenarios {
namespace {

constexpr std::string_view either_half = R"("bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"})";
constexpr std::string_view always_bf16 = R"("bf16": {"enabled": true})";

// LLaMA-Factory's examples/deepspeed, of 2025: before, overlap_comm was true.
constexpr std::string_view factory_buckets =
    R"("allgather_bucket_size": 500000000, "reduce_bucket_size": 500000000, "contiguous_gradients": true,)"
    R"( "reduce_scatter": true, "overlap_comm": false, "round_robin_gradients": true)";
constexpr std::string_view factory_third =
    R"("stage": 3, "overlap_comm": false, "contiguous_gradients": true, "sub_group_size": 1000000000,)"
    R"( "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",)"
    R"( "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1000000000,)"
    R"( "stage3_max_reuse_distance": 1000000000)";
constexpr std::string_view optimizer_on_host = R"("offload_optimizer": {"device": "cpu", "pin_memory": true})";
constexpr std::string_view parameters_on_host = R"("offload_param": {"device": "cpu", "pin_memory": true})";

// axolotl's deepspeed_configs.
constexpr std::string_view axolotl_third =
    R"("stage": 3, "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 0,)"
    R"( "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",)"
    R"( "stage3_param_persistence_threshold": "auto", "max_live_parameters": 0, "max_reuse_distance": 0)";

std::string of_factory(std::string_view file) {
  const auto with = [](std::string_view stage, std::string_view more) {
    return more.empty() ? fmt::format(R"("stage": {}, {})", stage, factory_buckets)
                        : fmt::format(R"("stage": {}, {}, {})", stage, factory_buckets, more);
  };
  if (file == "ds_z0_config.json") return with("0", "");
  if (file == "ds_z2_config.json") return with("2", "");
  if (file == "ds_z2_offload_config.json") return with("2", optimizer_on_host);
  if (file == "ds_z3_config.json") return std::string(factory_third);
  if (file == "ds_z3_offload_config.json")
    return fmt::format("{}, {}, {}", factory_third, optimizer_on_host, parameters_on_host);
  return {};
}

std::string of_axolotl(std::string_view file) {
  if (file == "zero1.json") return R"("stage": 1, "overlap_comm": true)";
  if (file == "zero2.json")
    return R"("stage": 2, "offload_optimizer": {"device": "cpu"}, "contiguous_gradients": true, "overlap_comm": true)";
  if (file == "zero3.json" || file == "zero3_bf16.json") return std::string(axolotl_third);
  if (file == "zero3_bf16_cpuoffload_params.json") return fmt::format("{}, {}", axolotl_third, parameters_on_host);
  if (file == "zero3_bf16_cpuoffload_all.json")
    return fmt::format("{}, {}, {}", axolotl_third, optimizer_on_host, parameters_on_host);
  return {};
}

}  // namespace

std::optional<DeepspeedPreset> deepspeed_preset(std::string_view path) {
  const std::size_t slash = path.rfind('/');
  const std::string_view file = slash == std::string_view::npos ? path : path.substr(slash + 1);
  const bool axolotl = path.find("deepspeed_configs/") != std::string_view::npos;
  const std::string zero = axolotl ? of_axolotl(file) : of_factory(file);
  if (zero.empty()) return std::nullopt;
  const bool wide = axolotl && file.find("bf16") != std::string_view::npos;
  return DeepspeedPreset{axolotl ? "axolotl" : "LLaMA-Factory",
                         fmt::format(R"({{"gradient_accumulation_steps": "auto", "gradient_clipping": "auto",)"
                                     R"( "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",)"
                                     R"( "zero_allow_untested_optimizer": true, {}, "zero_optimization": {{{}}}}})",
                                     wide ? always_bf16 : either_half, zero)};
}

}  // namespace tidemark::scenarios
