#include <numeric>
#include <utility>

#include "parallel/frameworks/megatron/experts/moe.hpp"
#include "parallel/frameworks/megatron/mappings.hpp"
#include "parallel/torch/ops/aten.hpp"
#include "parallel/torch/ops/indexing.hpp"

namespace tidemark::parallel::megatron {
namespace {

/// token_dispatcher.py MoEAllGatherTokenDispatcher: all who hold a layer's experts see all their tokens, and each
/// picks those of its own experts.
class AllGatherDispatcher final : public TokenDispatcher {
 public:
  AllGatherDispatcher(Worker& worker, const std::string& path, std::int32_t layer);

  [[nodiscard]] Rows preprocess(const Tensor& hidden, const Router::Choice& choice) override;
  [[nodiscard]] Rows dispatch(const Rows& own) override;
  [[nodiscard]] Rows postprocess(Rows gathered) override;
  [[nodiscard]] const std::vector<std::int64_t>& rows_of_experts() const override { return rows_; }
  [[nodiscard]] Tensor combine_preprocess(Tensor rows) override;
  [[nodiscard]] Tensor combine(const Tensor& rows) override;
  [[nodiscard]] Tensor combine_postprocess(const Tensor& rows) override { return rows; }

 private:
  Worker& w_;
  Name name_;
  RankGroup group_;
  std::int64_t first_;                                    ///< expert of this rank
  std::vector<std::int64_t> rows_;                        ///< that its experts get
  Tensor map_, local_map_, local_probabilities_, order_;  ///< attributes
};

AllGatherDispatcher::AllGatherDispatcher(Worker& w, const std::string& path, std::int32_t layer)
    : w_(w),
      name_(w.name(path + ".dispatcher")),
      group_{w.comms.expert_model, std::int64_t{w.layout.expert} * w.layout.expert_tensor_parallel()},
      first_(w.first_expert()) {
  const LayerRouting routing(w.model, w.train.routing, layer, w.residual(1)[0], w.layout.expert);
  rows_ = routing.received(expert_mesh(w.layout).coordinate(rank_at(w.layout, w.place), axis::ep), group_.size);
}

Rows AllGatherDispatcher::preprocess(const Tensor& hidden, const Router::Choice& choice) {
  map_ = choice.map;
  return {hidden, choice.probabilities};
}

Rows AllGatherDispatcher::dispatch(const Rows& own) {
  w_.mark(Phase::Forward, name_);
  map_ = gather_rows(w_, name_, "gathered_map", group_, map_);
  Tensor probabilities = gather_rows(w_, name_, "gathered_probs", group_, own.probabilities);
  return {gather_rows(w_, name_, "gathered", group_, own.tokens, Into::GlobalBuffer), std::move(probabilities)};
}

Rows AllGatherDispatcher::postprocess(Rows gathered) {
  w_.mark(Phase::Forward, name_);
  Session& s = w_.session;
  const Session::Scope scope(s, name_());
  const auto held = static_cast<std::int64_t>(rows_.size());
  const auto own = [&](const Tensor& x) { return torch::contiguous(s, torch::slice(s, x, 1, first_, first_ + held)); };
  local_map_ = own(map_);
  local_probabilities_ = own(gathered.probabilities);
  const std::int64_t rows = std::accumulate(rows_.begin(), rows_.end(), std::int64_t{0});
  const Tensor counts = torch::sum(s, local_map_, 0);  // the host waits for them
  w_.process.synchronize();
  Permuted permuted = permute(w_, gathered.tokens, local_map_, {}, rows);
  order_ = std::move(permuted.order);
  const Tensor by_expert = torch::contiguous(s, torch::transpose(s, local_probabilities_, 0, 1));
  const Tensor map_by_expert = torch::contiguous(s, swapped(local_map_, 0, 1));
  local_probabilities_ = torch::masked_select(s, by_expert, map_by_expert, rows);
  map_ = {};
  return {std::move(permuted.rows.tokens), local_probabilities_};
}

Tensor AllGatherDispatcher::combine_preprocess(Tensor rows) {
  w_.mark(Phase::Forward, name_);
  const Session::Scope scope(w_.session, name_());
  return unpermute(w_, rows, order_, local_map_.size(0));
}

Tensor AllGatherDispatcher::combine(const Tensor& rows) {
  if (group_.size == 1) return rows;
  w_.mark(Phase::Forward, name_);
  Session& s = w_.session;
  const Session::Scope scope(s, name_());
  const Tensor sum = reduce_scatter_rows(w_, name_, "combined", group_, torch::to(s, rows, local_probabilities_.dtype));
  return torch::to(s, sum, rows.dtype);
}

}  // namespace

std::unique_ptr<TokenDispatcher> all_gather_dispatcher(Worker& w, const std::string& path, std::int32_t layer) {
  return std::make_unique<AllGatherDispatcher>(w, path, layer);
}

}  // namespace tidemark::parallel::megatron
