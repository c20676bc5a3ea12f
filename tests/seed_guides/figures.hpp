#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include <fmt/format.h>

#include "scenarios/estimate/envelope.hpp"
#include "scenarios/formats/format.hpp"
#include "tests/seed_guides/lab.hpp"

// Figures of predictions as the page writes them.

namespace tidemark::tests::seeds {

inline constexpr const char *fp32 = "llama-2-7b-fp32", *bf16 = "llama-2-7b-bf16", *autocast = "llama-2-7b-autocast",
                            *megatron = "llama-2-7b-megatron", *eight = "qwen2.5-7b-8xh100-rollout",
                            *four = "qwen2.5-7b-4xh100-rollout", *qlora = "llama-2-7b-qlora", *int8 = "llama-2-7b-int8";

// Changes that several sections make.
inline constexpr const char *small = "train.micro_batch = 1\ntrain.global_batch = 1",
                            *checkpointed = "train.recompute = \"full\"", *scores = "train.attention = \"unfused\"",
                            *h100 = "cluster = \"clusters/h100-sxm-80g.toml\"";
[[nodiscard]] inline std::string with(const std::string& one, const std::string& other) { return one + "\n" + other; }
/// A file of scenarios/clusters, by its name.
[[nodiscard]] Cluster cluster_file(const std::string& name);
/// LoRA of rank 16 on attention's projections, as in the training guide, over the scenario's base, with checkpointed
/// layers.
[[nodiscard]] std::string lora(std::int64_t micro_batch = 1, std::int64_t global_batch = 1);
/// One sequence of that model on that cluster.
[[nodiscard]] std::string one_of(const std::string& model, const std::string& cluster);

[[nodiscard]] inline double number(Bytes bytes) { return static_cast<double>(bytes.count()); }
[[nodiscard]] inline std::string gb(double bytes) {
  const double shown = std::abs(bytes) < 5e6 ? 0 : bytes;  // no -0.00
  return fmt::format("{:.2f} GB", shown / 1e9);
}
[[nodiscard]] inline std::string gb(Bytes bytes) { return gb(number(bytes)); }
[[nodiscard]] inline std::string mb(Bytes bytes) { return fmt::format("{:.1f} MB", number(bytes) / 1e6); }
[[nodiscard]] inline std::string percent(double part) { return fmt::format("{:.1f} %", 100 * part); }
[[nodiscard]] inline std::string tb_per_s(Bandwidth rate) {
  return fmt::format("{:.2f} TB/s", static_cast<double>(rate.count()) / 1e12);
}
[[nodiscard]] inline std::string times(double factor) { return fmt::format("{:.2f} x", factor); }

[[nodiscard]] inline Bytes saved(const Composition& c) { return c[Category::SavedActivations]; }
/// Of the fullest rank when its tensors are most.
[[nodiscard]] inline Buckets buckets(const Prediction& p) { return buckets_of(memory(p)); }
[[nodiscard]] inline Bytes activations(const Prediction& p) { return buckets(p).activations; }
[[nodiscard]] inline Bytes states(const Prediction& p) {
  const Composition& c = in(p, Phase::OptimizerStep);
  return c[Category::OptimizerMaster] + c[Category::OptimizerMoments];
}
[[nodiscard]] inline Bytes gradients(const Prediction& p) { return in(p, Phase::OptimizerStep)[Category::Gradients]; }
[[nodiscard]] inline Bytes parameters(const Prediction& p) { return in(p, Phase::OptimizerStep)[Category::Parameters]; }
/// Of a base whose linears are quantized, all that it is stored in.
[[nodiscard]] inline Bytes base(const Prediction& p) {
  return parameters(p) + in(p, Phase::OptimizerStep)[Category::Quantization];
}
[[nodiscard]] inline Bytes kv_cache(const Prediction& p) { return in(p, Phase::Rollout)[Category::KvCache]; }
[[nodiscard]] inline Bytes device(const Prediction& p) { return memory(p).device.bytes; }
[[nodiscard]] inline Bytes allocated(const Prediction& p) { return memory(p).allocated.bytes; }
[[nodiscard]] inline double ratio(Bytes a, Bytes b) { return number(a) / number(b); }
[[nodiscard]] inline double slower(const Prediction& a, const Prediction& b) {
  return static_cast<double>(a.step.step.count()) / static_cast<double>(b.step.step.count());
}
[[nodiscard]] inline std::string tokens_per_s(const Prediction& p) {
  return fmt::format("{:.0f}", p.step.tokens_per_s_per_device);
}
/// Parameters, gradients and optimizer state, while the optimizer steps.
[[nodiscard]] inline Bytes model_state(const Prediction& p) { return parameters(p) + gradients(p) + states(p); }
/// "yes, 3.20 GB to spare", or "no, lacks 3.20 GB"; "cannot say, lacks 0.20 GB" between the ends of estimates.
[[nodiscard]] inline std::string fits(const Prediction& p) {
  const Bytes room = p.scenario.cluster.device.capacity - memory(p).peak_device_upper;
  if (p.fits)
    return fmt::format("yes, {} to spare", gb(std::max(room, Bytes{})));  // an allocator that fills it may fit
  return fmt::format("{}, lacks {}", p.open ? "cannot say" : "no", gb(-room));
}

}  // namespace tidemark::tests::seeds
