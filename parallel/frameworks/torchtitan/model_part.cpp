#include "parallel/frameworks/torchtitan/model_part.hpp"

#include <string>
#include <utility>

#include "parallel/job/sizes.hpp"

namespace tidemark::parallel::torchtitan {
namespace {

using pytorch::AfterForward;
using pytorch::ShardUnit;
using pytorch::UnitParameters;

// llama4/infra/parallelize.py apply_fsdp: what comes next is told, since the host waits for counts; at the ends without
// its experts.
struct Units {
  bool is_end = false;
  std::vector<UnitParameters*> all;
};
void prefetch(const std::vector<Units>& parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto seen_from_here = [&](const Units& next) {
      return parts[i].is_end ? std::vector{next.all.front()} : next.all;
    };
    std::vector<UnitParameters*> in_forward, in_backward;
    if (i + 1 < parts.size()) in_forward = seen_from_here(parts[i + 1]);
    if (i > 0) in_backward = seen_from_here(parts[i - 1]);
    parts[i].all.front()->prefetch(std::move(in_forward), std::move(in_backward));
  }
}

}  // namespace

ModelPart::ModelPart(Session& session, const LoweringInput& input, const RankOfModel& rank, const Place& place)
    : s_(session),
      input_(input),
      behavior_(*input.runtime.eager),
      titan_(*behavior_.titan),
      rank_(rank),
      stage_(place.stage) {
  const Train& train = input_.train;
  const Model& model = input_.built.model;
  const std::int64_t vocabulary = sizes_of(model, input_.layout, train, input_.runtime).vocabulary;
  const auto make = [&](DType dtype, MakeParameter made_by) {
    model_.emplace(s_, model, stage_, vocabulary, train, behavior_, rank_.tensor, rank_.context, rank_.experts, dtype,
                   std::move(made_by));
    model_->come_after(place.layers_before);
  };
  if (!rank_.mesh) {
    make(train.master_dtype, {});
    return;
  }
  shards_.emplace(s_, *rank_.mesh, *behavior_.fully_shard, train.master_dtype, place.number);
  make(train.precision, [this](const std::string& name, const Shape& sizes, DType type) {
    return shards_->parameter(name, sizes, type);
  });
  shard_model();
}

void ModelPart::make_optimizer() { optimizer_.emplace(s_, input_.train, behavior_, parameters()); }

// apply_fsdp. Up to 0.1.0 the root has both ends, and the last layer is what the backward pass begins with.
void ModelPart::shard_model() {
  std::vector<Decoder::Part>& parts = model_->parts();
  const bool by_default = titan_.requested.reshard == ReshardPolicy::Default,
             reshards =
                 titan_.requested.reshard == ReshardPolicy::Always || (by_default && !titan_.requested.pipelined);
  const auto after = [](bool its) { return its ? AfterForward::Reshards : AfterForward::Keeps; };
  std::vector<ShardUnit> units{{"root", after(titan_.reshards_root), {}}};
  std::vector<Decoder::Part*> hooked;
  const std::size_t last_unit = parts.size() - (titan_.ends_are_units ? 1 : 2);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool own = titan_.ends_are_units || !parts[i].is_end;
    if (own) {
      const bool is_last = by_default && i == last_unit && stage_.head;
      units.push_back({parts[i].name, after(reshards && !is_last), {}});
      hooked.push_back(&parts[i]);
    }
    std::vector<std::size_t>& its = (own ? units.back() : units.front()).parameters;
    const bool apart = rank_.experts.ranks > 1 && parts[i].moe != nullptr;
    for (std::size_t p = parts[i].begin; p < parts[i].end; ++p)
      if (!apart || p < parts[i].experts_begin || p >= parts[i].experts_end) its.push_back(p);
    if (apart) units.push_back(experts_of(parts[i], after(reshards)));
  }
  if (rank_.tensor.ranks > 1) {
    for (const std::size_t parameter : model_->partial()) shards_->sum_over(rank_.tensor.comm, parameter);
    for (const std::size_t parameter : model_->alike()) shards_->widen_gradient(parameter);
    if (stage_.embedding) shards_->cut_gradient(rank_.tensor.rank * model_->parameters().front()->value.elements(), 0);
  }
  const std::vector<UnitParameters*> made = shards_->shard(units);
  const auto hooks_of = [](UnitParameters* its) {
    return ForwardHooks{[its](const Tensor& input) { return its->pre_forward(input); },
                        [its](const Tensor& output) { return its->post_forward(output); }};
  };
  std::vector<Units> of_parts;
  std::size_t next = 1;
  for (Decoder::Part* const part : hooked) {
    of_parts.push_back({part->is_end, {made[next++]}});
    std::vector<UnitParameters*>& its = of_parts.back().all;
    part->hooks = hooks_of(its.front());
    if (rank_.experts.ranks == 1 || part->moe == nullptr) continue;
    its.push_back(made[next++]);
    part->moe->hook(hooks_of(its.back()));
  }
  if (rank_.experts.ranks > 1) prefetch(of_parts);
}

// llama4/infra/parallelize.py apply_fsdp: experts are cut over the ranks that hold the same ones.
ShardUnit ModelPart::experts_of(const Decoder::Part& part, AfterForward after_forward) {
  ShardUnit unit{part.name + ".moe.experts", after_forward, {}};
  for (std::size_t p = part.experts_begin; p < part.experts_end; ++p) {
    shards_->cut_over(rank_.expert_mesh, rank_.experts.rank * model_->parameters()[p]->value.elements(), p);
    unit.parameters.push_back(p);
  }
  return unit;
}

Tensor ModelPart::forward(const Tensor& tokens, const Tensor& positions) {
  if (shards_) shards_->root_pre_forward();
  const Tensor made = (*model_)(tokens, positions);
  return shards_ ? shards_->root_post_forward(made) : made;
}

void ModelPart::zero_grad() {
  if (shards_) shards_->before_zero_grad();
  optimizer_->zero_grad();
}

}  // namespace tidemark::parallel::torchtitan
