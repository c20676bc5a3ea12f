#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "parallel/job/stages.hpp"
#include "scenarios/scenario/scenario.hpp"

// What formulas of bounds are made of. They are of the fullest rank of a pipeline stage, and rounded up: tensors that
// sequence parallelism cuts are counted whole.

namespace tidemark::scenarios {

inline std::int64_t over(std::int64_t all, std::int64_t parts) {
  return (all + parts - 1) / std::max<std::int64_t>(parts, 1);
}

/// Sizes that bounds are made of.
struct BoundSizes {
  BoundSizes(const Scenario& scenario, std::int64_t said, std::int32_t of_stage)
      : s(scenario), number(said), stage(of_stage) {
    for (const parallel::Stage& its :
         parallel::chunks_of_rank(static_cast<std::int32_t>(s.model.layers.size()), s.layout, stage))
      its_layers += its.layers(), embedding |= its.embedding, head |= its.head;
  }

  const Scenario& s;
  std::int64_t number;  ///< that the bound's name carries
  std::int32_t stage;   ///< pipeline rank
  std::int64_t its_layers = 0;
  bool embedding = false, head = false;

  [[nodiscard]] std::int64_t tokens() const { return over(s.train.tokens(), s.layout.context); }
  [[nodiscard]] std::int64_t heads() const { return over(s.model.heads, s.layout.tensor); }
  [[nodiscard]] std::int64_t kv_heads() const { return over(s.model.kv_heads, s.layout.tensor); }
  [[nodiscard]] std::int64_t vocabulary() const {
    constexpr std::int64_t padding = 1024;  // more than any runtime pads to by itself
    return over(s.model.vocabulary + padding, s.layout.tensor);
  }
  [[nodiscard]] std::int64_t micro_batches() const {
    return over(s.train.global_batch, std::max<std::int64_t>(s.train.micro_batch * s.layout.data, 1));
  }
  [[nodiscard]] std::int64_t layers() const { return its_layers; }
  /// Micro-batches whose passes forward a rank has done, and not those backward, in passes of all its layers.
  [[nodiscard]] std::int64_t in_flight() const {
    const Layout& l = s.layout;
    if (l.schedule == parallel::ScheduleKind::GPipe) return micro_batches();
    if (l.schedule == parallel::ScheduleKind::OneFOneB && l.chunks == 1)
      return std::min<std::int64_t>(micro_batches(), l.pipeline - stage);
    const std::int64_t passes = l.chunks == 1 ? l.pipeline : 2 * (l.pipeline - 1) + (l.chunks - 1) * l.group() + 1;
    return std::min(micro_batches(), over(passes, l.chunks));
  }
  /// How wide MLPs are that a token goes through, with gates: of experts as many as are chosen.
  [[nodiscard]] std::int64_t ffn() const {
    const Model& m = s.model;
    const std::int64_t branches = parallel::gated(m.activation) ? 2 : 1;
    const std::int64_t of_experts =
        m.experts() ? m.experts()->chosen * over(m.experts()->ffn, s.layout.expert_tensor_parallel()) +
                          over(m.experts()->shared_ffn, s.layout.tensor)
                    : 0;
    return branches * std::max(over(m.widest_mlp(), s.layout.tensor), of_experts);
  }
  /// Passes of a layer that are saved at a time.
  [[nodiscard]] std::int64_t saved_layers() const {
    return s.train.recompute.kind == parallel::Recompute::Full ? 1 : layers() * in_flight();
  }
  /// Parameters of a rank, without what sequence parallelism or padding changes.
  [[nodiscard]] std::int64_t parameters() const {
    const Model& m = s.model;
    const std::int64_t query = m.latent() ? m.latent()->query_head() : m.head_dim, value = m.value_dim();
    const std::int64_t attention =
        m.hidden * (m.heads * (query + value) + m.kv_heads * (query + value)) +
        (m.latent() ? (m.latent()->kv_rank + m.latent()->query_rank) * (m.hidden + m.heads * (query + value)) : 0);
    const std::int64_t branches = parallel::gated(m.activation) ? 3 : 2;
    std::int64_t layer = over(attention, s.layout.tensor) + 8 * m.hidden;
    if (m.experts())
      layer += over(branches * m.hidden * m.experts()->ffn * m.experts()->count,
                    std::int64_t{s.layout.expert} * s.layout.expert_tensor_parallel()) +
               over(branches * m.hidden * m.experts()->shared_ffn, s.layout.tensor) + m.hidden * m.experts()->count;
    const auto is_dense = [](const parallel::Layer& its) { return its.experts() == nullptr; };
    if (std::ranges::any_of(m.layers.kinds(), is_dense))
      layer += over(branches * m.hidden * m.widest_mlp(), s.layout.tensor);
    const std::int64_t positions =
        embedding && m.positions == parallel::Positions::Learned ? m.max_positions * m.hidden : 0;
    const std::int64_t ends = embedding && head && m.tied_embeddings ? 1 : (embedding ? 1 : 0) + (head ? 1 : 0);
    return layer * layers() + ends * vocabulary() * m.hidden + positions;
  }
};

struct BoundFormula {
  std::string_view name;
  std::int64_t (*more)(const BoundSizes&);
  std::int64_t (*less)(const BoundSizes&) = nullptr;  // null: nothing
  /// What a device must have, by the name's number, as Device::compute_capability; null: any does.
  std::int32_t (*least_capability)(std::int64_t number) = nullptr;
};

inline constexpr std::int64_t half = 2, whole = 4;  // bytes of bf16 and fp16, and of fp32

/// Of Megatron-LM, its forks and their like; of tools around transformers.
[[nodiscard]] std::span<const BoundFormula> formulas_of_megatron();
[[nodiscard]] std::span<const BoundFormula> formulas_of_tools();
[[nodiscard]] std::span<const BoundFormula> formulas_of_pretrainers();

}  // namespace tidemark::scenarios
