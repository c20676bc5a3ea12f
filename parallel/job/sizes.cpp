#include "parallel/job/sizes.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "sim/base/ensure.hpp"

namespace tidemark::parallel {

std::int64_t Sizes::rows(const Parameter& parameter) const {
  const std::int64_t whole = parameter.vocabulary ? vocabulary : parameter.rows;
  return parameter.cut == WeightCut::Rows ? whole / parts_of(parameter) : whole;
}

std::int64_t Sizes::columns(const Parameter& parameter) const {
  if (!parameter.matrix()) return 1;
  return parameter.cut == WeightCut::Columns ? parameter.columns / parts_of(parameter) : parameter.columns;
}

Sizes sizes_of(const Model& model, const Layout& layout, const Train& train, const Runtime& runtime) {
  const std::int64_t multiple = model.vocabulary_multiple > 0 ? model.vocabulary_multiple : runtime.vocabulary_multiple;
  const std::int64_t sequence = train.sequence_length / layout.context;
  return {.sequence = sequence,
          .tokens = sequence * train.micro_batch,
          .micro_batch = train.micro_batch,
          .tensor = layout.tensor,
          .expert_tensor_parallel = layout.expert_tensor_parallel(),
          .sequence_parallel = layout.sequence_parallel && layout.tensor > 1,
          .compute = train.precision,
          .vocabulary = round_up(model.vocabulary + model.vocabulary_extra, multiple * layout.tensor)};
}

std::vector<ParameterId> stage_parameters(const BuiltModel& built, const Stage& stage, const Layout& layout) {
  const Model& model = built.model;
  const auto layers = static_cast<std::int32_t>(model.layers.size());
  std::vector<ParameterId> found;
  // They come layer by layer; of many experts there are many.
  const auto layer_of = [&](const Parameter& p) { return std::min(p.layer, layers); };
  const auto held = [&](const Parameter& p) {
    return !p.of_expert() || p.expert < model.layer(p.layer).experts()->count / layout.expert;
  };
  const auto add = [&](std::int32_t first, std::int32_t last) {
    const auto& all = built.parameters;
    for (auto p = std::ranges::lower_bound(all, first, {}, layer_of); p != all.end() && layer_of(*p) < last; ++p)
      if (held(*p) && !(p->spare && stage.embedding)) found.push_back({static_cast<std::int32_t>(p - all.begin())});
  };
  if (stage.embedding) add(-1, 0);
  add(stage.first, stage.last);
  if (stage.head) add(layers, layers + 1);
  // As a head's weight it is the last one; modules that predict further tokens look tokens up first of all.
  if (stage.head && !stage.embedding && model.embeds_at_both_ends())
    found.insert(!model.further.empty() ? found.begin() : found.end(), ParameterId{0});
  return found;
}

bool shards_buffers(const Layout& layout, const Runtime& runtime) {
  const std::optional<MuonBehavior>& muon = runtime.optimizer.muon;
  return layout.sharding == Sharding::Zero1 && (!muon || muon->layer_wise_layout);
}

std::vector<ParameterGroup> buffer_groups(const Layout& layout, const Runtime& runtime) {
  if (runtime.optimizer.muon && shards_buffers(layout, runtime))
    return {ParameterGroup::Dense, ParameterGroup::DenseMatrices, ParameterGroup::Experts,
            ParameterGroup::ExpertMatrices};
  return {ParameterGroup::Dense, ParameterGroup::Experts};
}

std::vector<ParameterId> of_group(const BuiltModel& built, std::vector<ParameterId> parameters, ParameterGroup group,
                                  bool matrices_apart) {
  std::erase_if(parameters, [&](ParameterId p) {
    return built[p].of_expert() != of_experts(group) ||
           (matrices_apart && made_orthogonal(built[p]) != of_matrices(group));
  });
  return parameters;
}

std::string name_in_model(const Parameter& parameter, std::int64_t first_expert) {
  if (!parameter.of_expert() || first_expert == 0) return parameter.name;
  const std::string its = fmt::format(".{}.", parameter.expert);
  const std::size_t at = parameter.name.find(its, parameter.name.find(".experts."));
  ensure(at != std::string::npos, "an expert's parameter is called by its number");
  std::string whole = parameter.name;
  return whole.replace(at, its.size(), fmt::format(".{}.", first_expert + parameter.expert));
}

std::int64_t first_expert(const Model& model, const Layout& layout, const Coordinates& rank) {
  if (!model.experts()) return 0;
  const std::int64_t place = expert_mesh(layout).coordinate(rank_at(layout, rank), axis::ep);
  return place * (model.experts()->count / layout.expert);
}

ReplicaPlace replicas_of(const Layout& layout, const Coordinates& rank, ParameterGroup group) {
  if (!of_experts(group)) return {replica(layout, rank), layout.replicas()};
  return {expert_mesh(layout).coordinate(rank_at(layout, rank), axis::edp), layout.experts_data()};
}

ReplicaPlace shards_of(const Layout& layout, const Coordinates& rank, ParameterGroup group) {
  const auto [place, count] = replicas_of(layout, rank, group);
  const std::int32_t shards = count / layout.instances();
  return {place % shards, shards};
}

std::size_t BufferLayout::bucket_of(std::int64_t element) const {
  const auto after = std::ranges::upper_bound(buckets, element, {}, &Bucket::begin);
  return static_cast<std::size_t>(after - buckets.begin()) - 1;
}

std::vector<BufferLayout::Place> BufferLayout::places_in(std::int32_t shard, std::int32_t shards) const {
  std::vector<Place> found;
  for (const Bucket& bucket : buckets) {
    const std::int64_t share = (bucket.end - bucket.begin) / shards, first = bucket.begin + share * shard;
    for (const Place& place : places) {
      const std::int64_t begin = std::max(place.begin, first), end = std::min(place.end, first + share);
      if (begin < end) found.push_back({place.parameter, begin, end});
    }
  }
  return found;
}

std::vector<ShardPiece> BufferLayout::pieces(std::int32_t shard, std::int32_t shards) const {
  std::vector<ShardPiece> found;
  for (const Place& place : places_in(shard, shards)) found.push_back({place.parameter, place.end - place.begin});
  return found;
}

std::int64_t bucket_size(const Runtime& runtime, const Layout& layout) {
  return std::max(runtime.bucket_elements, runtime.bucket_elements_per_rank * layout.replicas());
}

BufferLayout buffer_layout(const BuiltModel& built, const std::vector<ParameterId>& parameters, const Sizes& sizes,
                           const Runtime& runtime, const Stage& stage, const Layout& of, std::int32_t shards) {
  const bool padded = shards_buffers(of, runtime);
  const std::int64_t full = bucket_size(runtime, of);
  const bool closing = runtime.bucket_elements > 0 && stage.first == 0;
  const auto alone = [&](ParameterId id) {
    const bool copied = built.model.embeds_at_both_ends() && stage.embedding != stage.head;  // on first and last stage
    return padded && runtime.tied_embedding_bucket && copied && id == ParameterId{0};
  };
  BufferLayout layout;
  std::int64_t bucket_begin = 0;
  const auto close = [&] {
    if (padded) layout.elements = round_up(layout.elements, std::lcm(runtime.bucket_alignment, std::int64_t{shards}));
    layout.buckets.push_back({bucket_begin, layout.elements});
    bucket_begin = layout.elements;
  };
  for (auto id = parameters.rbegin(); id != parameters.rend(); ++id) {
    if (padded) layout.elements = round_up(layout.elements, runtime.parameter_alignment);
    if (alone(*id) && layout.elements > bucket_begin) close();
    const std::int64_t begin = layout.elements;
    layout.elements = begin + sizes.elements(built[*id]);
    layout.places.push_back({*id, begin, layout.elements});
    if ((closing && layout.elements - bucket_begin >= full) || alone(*id)) close();
  }
  if (layout.elements > bucket_begin || layout.buckets.empty()) close();
  return layout;
}

}  // namespace tidemark::parallel
