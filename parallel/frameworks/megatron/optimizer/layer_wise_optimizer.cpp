#include "parallel/frameworks/megatron/optimizer/layer_wise_optimizer.hpp"

#include <utility>

#include "parallel/frameworks/megatron/optimizer/layer_wise.hpp"

namespace tidemark::parallel::megatron {
namespace {

std::vector<ParameterId> parameters_of_rank(const BuiltModel& built, const Layout& layout, std::int32_t pipeline,
                                            ParameterGroup group) {
  std::vector<ParameterId> all;
  for (const Stage& chunk : chunks_of_rank(static_cast<std::int32_t>(built.model.layers.size()), layout, pipeline))
    for (const ParameterId id : of_group(built, stage_parameters(built, chunk, layout), group, false))
      all.push_back(id);
  return all;
}

// Parameters of all ranks of a group, those of one after those of another, in one tensor.
void gather(Worker& w, CommSlot comm, ParameterGroup group) {
  const ReplicaPlace own = replicas_of(w.layout, w.place, group);
  if (own.count == 1) return;
  const std::vector<ParameterId> all = parameters_of_rank(w.built, w.layout, w.place.pipeline, group);
  if (all.empty()) return;
  std::vector<std::vector<ParameterId>> dealt;
  MatrixRow row{MatrixId{0}, {}, {}};
  std::int64_t elements = 0;
  for (std::int32_t place = 0; place < own.count; ++place) {
    std::int64_t its = 0;
    for (const ParameterId id : dealt.emplace_back(ping_pong_rank(w.built, all, w.sizes, {place, own.count})))
      its += w.weight(id).elements();
    row.receives.push_back(its * size_of(w.train.precision));
    elements += its;
  }
  row.sends.assign(dealt.size(), row.receives[static_cast<std::size_t>(own.place)]);
  const Tensor gathered =
      w.make(w.process.label("gathered_parameters"), {elements}, w.train.precision, Category::CommDp);
  std::vector<Tensor> own_parts, own_values, other_parts, other_values;
  std::int64_t begin = 0;
  for (std::size_t place = 0; place < dealt.size(); ++place)
    for (const ParameterId id : dealt[place]) {
      const Weight& weight = w.weight(id);
      const bool mine = place == static_cast<std::size_t>(own.place);
      (mine ? own_parts : other_parts)
          .push_back(sized(narrowed(gathered, 0, begin, weight.elements()), weight.shape()));
      (mine ? own_values : other_values).push_back(weight.value.detached());
      begin += weight.elements();
    }
  if (!own_parts.empty()) w.launch(Operation::Copy, own_values, own_parts);
  w.session.collective(comm, CollectiveKind::AllGather, gathered, gathered, row);
  if (!other_parts.empty()) w.launch(Operation::Copy, other_parts, other_values);
}

}  // namespace

std::vector<ParameterId> updated_by(const BuiltModel& built, const Layout& layout, const Sizes& sizes,
                                    const Coordinates& rank) {
  std::vector<ParameterId> own;
  for (const ParameterGroup group : {ParameterGroup::Dense, ParameterGroup::Experts})
    for (const ParameterId id : ping_pong_rank(built, parameters_of_rank(built, layout, rank.pipeline, group), sizes,
                                               replicas_of(layout, rank, group)))
      own.push_back(id);
  return own;
}

void gather_ping_pong_parameters(Worker& w) {
  gather(w, w.comms.data, ParameterGroup::Dense);
  gather(w, w.comms.expert_data, ParameterGroup::Experts);
}

}  // namespace tidemark::parallel::megatron
