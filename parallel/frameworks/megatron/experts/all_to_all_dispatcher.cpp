#include <algorithm>
#include <numeric>
#include <utility>

#include "parallel/frameworks/megatron/experts/moe.hpp"
#include "parallel/frameworks/megatron/experts/token_traffic.hpp"
#include "parallel/frameworks/megatron/mappings.hpp"
#include "parallel/torch/ops/aten.hpp"
#include "parallel/torch/ops/indexing.hpp"

namespace tidemark::parallel::megatron {

using torch::with;

namespace {

std::int64_t total(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// token_dispatcher.py MoEAlltoAllTokenDispatcher.
class AllToAllDispatcher final : public TokenDispatcher {
 public:
  AllToAllDispatcher(Worker& worker, const std::string& path, std::int32_t layer);

  [[nodiscard]] Rows preprocess(const Tensor& hidden, const Router::Choice& choice) override;
  [[nodiscard]] Rows dispatch(const Rows& permuted) override;
  [[nodiscard]] Rows postprocess(Rows dispatched) override;
  [[nodiscard]] const std::vector<std::int64_t>& rows_of_experts() const override { return rows_of_own_; }
  [[nodiscard]] Tensor combine_preprocess(Tensor rows) override;
  [[nodiscard]] Tensor combine(const Tensor& rows) override;
  [[nodiscard]] Tensor combine_postprocess(const Tensor& rows) override;

 private:
  [[nodiscard]] Rows exchanged(const Rows& rows, bool back);
  [[nodiscard]] Rows sorted(const Rows& rows, bool back);

  Worker& w_;
  Name name_;
  std::int32_t layer_;
  RankGroup within_;                              ///< an expert
  std::int32_t ranks_, rank_;                     ///< of the expert group
  std::int64_t tokens_;                           ///< of this rank
  std::vector<std::int64_t> rows_, rows_of_own_;  ///< that this rank sends to each expert; that its own get
  Tensor probabilities_, map_, order_;            ///< attributes
};

AllToAllDispatcher::AllToAllDispatcher(Worker& w, const std::string& path, std::int32_t layer)
    : w_(w),
      name_(w.name(path + ".dispatcher")),
      layer_(layer),
      within_{w.comms.expert_tensor, w.layout.expert_tensor_parallel()},
      ranks_(w.layout.expert),
      rank_(expert_mesh(w.layout).coordinate(rank_at(w.layout, w.place), axis::ep)),
      tokens_(w.residual(1)[0]) {
  const LayerRouting routing(w.model, w.train.routing, layer, tokens_, ranks_);
  rows_ = routing.rows();
  rows_of_own_ = routing.received(rank_, std::int64_t{ranks_} * w.layout.expert_tensor_parallel());
  // Those who share an expert hand each other as many rows, whatever upper ends come to.
  for (std::int64_t& rows : rows_of_own_) rows = round_up(rows, within_.size);
}

// token_dispatcher.py MoEAlltoAllTokenDispatcher.dispatch_preprocess.
Rows AllToAllDispatcher::preprocess(const Tensor& hidden, const Router::Choice& choice) {
  w_.mark(Phase::Forward, name_);
  Session& s = w_.session;
  const Session::Scope scope(s, name_());
  probabilities_ = choice.probabilities.detached();
  map_ = choice.map;
  const bool pads = w_.train.routing.capacity_factor > 0 && w_.train.routing.pads_to_capacity;
  if (!pads) {  // how many rows go where: the host waits for it
    const Tensor counts = torch::sum(s, choice.map, 0);
    const std::int64_t ranks = std::int64_t{ranks_} * w_.layout.expert_tensor_parallel();
    const Tensor all = s.empty({ranks, counts.size(0)}, DType::INT64, "tokens_per_expert");
    s.collective(w_.comms.expert_model, CollectiveKind::AllGather, counts, all);
    w_.process.synchronize();
  }
  Permuted permuted = permute(w_, hidden, choice.map, choice.probabilities, total(rows_));
  order_ = std::move(permuted.order);
  return std::move(permuted.rows);
}

Tensor AllToAllDispatcher::combine_postprocess(const Tensor& rows) {
  w_.mark(Phase::Forward, name_);
  const Session::Scope scope(w_.session, name_());
  return unpermute(w_, rows, order_, tokens_);
}

// ---- between ranks -------------------------------------------------------------------------------------------------

// core/tensor_parallel/mappings.py _AllToAll, of rows of a tensor.
Tensor all_to_all(Worker& w, LabelId label, CommSlot comm, MatrixId matrix, const Traffic& traffic, const Tensor& x) {
  Shape sizes = x.sizes;
  sizes[0] = total(traffic.receives);
  Tensor out = w.make(label, sizes, x.dtype, Category::CommEp);
  exchange_rows(w, comm, matrix, traffic, x, out);
  return out;
}

// `back`: from experts to the ranks whose tokens they are.
Rows AllToAllDispatcher::exchanged(const Rows& rows, bool back) {
  if (ranks_ == 1) return rows;
  const std::int64_t held = w_.model.layer(layer_).experts()->count / ranks_;
  Traffic traffic;
  const std::int64_t own = total(rows_of_own_) / within_.size;
  for (std::int64_t r = 0; r < ranks_; ++r) {
    const auto first = rows_.begin() + r * held;
    traffic.sends.push_back(std::accumulate(first, first + held, std::int64_t{0}));
    traffic.receives.push_back(part_of(own, r, ranks_));
  }
  if (back) traffic = traffic.back();
  const auto over = [&](const Tensor& x, const char* label, std::int32_t which) {
    if (!x.defined()) return Tensor{};
    // A matrix for each layer, direction and kind of row.
    const auto matrix = [&](bool reverse) { return MatrixId{4 * layer_ + 2 * which + (reverse ? 1 : 0)}; };
    const auto node = w_.node(name_(), {&x});
    Tensor out = all_to_all(w_, name_(label), w_.comms.expert, matrix(back), traffic,
                            x.contiguous() ? x : torch::contiguous(w_.session, x));
    if (!node) return out;
    node->apply = [this, traffic, reversed = matrix(!back), label](Gradients& g) {
      return Gradients{all_to_all(w_, name_(label), w_.comms.expert, reversed, traffic.back(), g.front())};
    };
    return with(std::move(out), node);
  };
  return {over(rows.tokens, "exchanged", 0), over(rows.probabilities, "exchanged_probs", 1)};
}

Rows AllToAllDispatcher::dispatch(const Rows& permuted) {
  w_.mark(Phase::Forward, name_);
  return exchanged(permuted, false);
}

Tensor AllToAllDispatcher::combine(const Tensor& rows) {
  w_.mark(Phase::Forward, name_);
  return exchanged({rows, {}}, true).tokens;
}

// ---- rows of one expert together ------------------------------------------------------------------------------------

// The rows of one expert: as many from each source, which lie source by source or one after the other.
struct ExpertRows {
  std::int64_t among_sources, together;  // where the first begins, in either order
  std::int64_t each;                     // of a source
};

// One source's rows after the other, [sources, rows, …].
Tensor by_source(const Tensor& x, std::int64_t first, std::int64_t rows, std::int64_t apart, std::int64_t sources) {
  Tensor part = narrowed(x, 0, first, rows);
  Shape sizes{sources}, strides{apart * x.strides[0]};
  for (const std::int64_t size : part.sizes) sizes.push_back(size);
  for (const std::int64_t stride : part.strides) strides.push_back(stride);
  part.sizes = sizes;
  part.strides = strides;
  return part;
}

void copy_rows(Worker& w, const std::vector<ExpertRows>& experts, std::int64_t sources, const Tensor& x,
               const Tensor& out, bool back) {
  const std::int64_t of_source = x.size(0) / sources;
  std::vector<Tensor> from, to;
  for (const ExpertRows& rows : experts) {
    if (rows.each == 0) continue;
    Tensor among = by_source(back ? out : x, rows.among_sources, rows.each, of_source, sources);
    Tensor together = by_source(back ? x : out, rows.together, rows.each, rows.each, sources);
    from.push_back(back ? together : among);
    to.push_back(back ? among : together);
  }
  w.launch(Operation::Copy, from, to);
}

// moe_utils.py sort_chunks_by_idxs: what came source by source lies expert by expert, or `back`.
Rows AllToAllDispatcher::sorted(const Rows& rows, bool back) {
  const std::size_t held = rows_of_own_.size();
  if (held == 1) return rows;
  const std::int64_t sources = std::int64_t{ranks_} * w_.layout.expert_tensor_parallel();
  std::vector<ExpertRows> experts;
  std::int64_t before = 0;  // of a source
  for (const std::int64_t all : rows_of_own_) {
    const std::int64_t each = all / sources;
    experts.push_back({before, sources * before, each});
    before += each;
  }
  const auto moved = [&](const Tensor& x, const char* label) {
    if (!x.defined()) return Tensor{};
    const auto node = w_.node(name_(), {&x});
    Tensor out = w_.like(name_(label), x);
    copy_rows(w_, experts, sources, x, out, back);
    if (!node) return out;
    node->apply = [this, experts, sources, back, label](Gradients& g) {
      Tensor made = w_.like(name_(label), g.front());
      copy_rows(w_, experts, sources, g.front(), made, !back);
      return Gradients{std::move(made)};
    };
    return with(std::move(out), node);
  };
  return {moved(rows.tokens, "sorted"), moved(rows.probabilities, "sorted_probs")};
}

Rows AllToAllDispatcher::postprocess(Rows dispatched) {
  w_.mark(Phase::Forward, name_);
  dispatched.tokens = gather_rows(w_, name_, "gathered", within_, dispatched.tokens);
  dispatched.probabilities = gather_rows(w_, name_, "gathered_probs", within_, dispatched.probabilities);
  return sorted(dispatched, false);
}

Tensor AllToAllDispatcher::combine_preprocess(Tensor rows) {
  w_.mark(Phase::Forward, name_);
  const Tensor sorted_back = sorted({std::move(rows), {}}, true).tokens;
  if (within_.size == 1) return sorted_back;
  Session& s = w_.session;
  const Session::Scope scope(s, name_());
  const Tensor sum =
      reduce_scatter_rows(w_, name_, "reduced", within_, torch::to(s, sorted_back, probabilities_.dtype));
  return torch::to(s, sum, sorted_back.dtype);
}

}  // namespace

std::unique_ptr<TokenDispatcher> all_to_all_dispatcher(Worker& w, const std::string& path, std::int32_t layer) {
  return std::make_unique<AllToAllDispatcher>(w, path, layer);
}

}  // namespace tidemark::parallel::megatron
