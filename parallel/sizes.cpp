#include "parallel/sizes.hpp"

#include <algorithm>
#include <numeric>

#include "sim/base/ensure.hpp"

namespace tidemark::parallel {

DType Sizes::dtype(Precision precision) const {
  switch (precision) {
    case Precision::Compute:
      return compute;
    case Precision::Fp32:
      return DType::FP32;
    case Precision::Int64:
      return DType::INT64;
    case Precision::Bool:
    case Precision::Byte:
      return DType::BOOL;
  }
  return compute;
}

std::int64_t Sizes::elements(const Value& value) const {
  const std::int64_t per_token = value.vocabulary ? vocabulary : value.per_token;
  const std::int64_t whole = tokens * per_token + value.fixed;
  switch (value.placement) {
    case Placement::Replicated:
      return whole;
    case Placement::Residual:
      return sequence_parallel ? whole / tensor : whole;
    case Placement::Tensor:
      return whole / tensor;
  }
  return whole;
}

Bytes Sizes::gathered_bytes(const Value& value) const {
  return (tokens * value.per_token + value.fixed) * size_of(dtype(value.precision));
}

std::int64_t Sizes::rows(const Parameter& parameter) const {
  const std::int64_t whole = parameter.vocabulary ? vocabulary : parameter.rows;
  return parameter.cut == WeightCut::Rows ? whole / tensor : whole;
}

std::int64_t Sizes::columns(const Parameter& parameter) const {
  return parameter.cut == WeightCut::Columns ? parameter.columns / tensor : parameter.columns;
}

Sizes sizes_of(const Model& model, const Layout& layout, const Train& train, const Runtime& runtime) {
  const std::int64_t multiple = model.vocabulary_multiple > 0 ? model.vocabulary_multiple : runtime.vocabulary_multiple;
  return {.tokens = train.tokens(),
          .micro_batch = train.micro_batch,
          .tensor = layout.tensor,
          .sequence_parallel = layout.sequence_parallel && layout.tensor > 1,
          .compute = train.precision,
          .vocabulary = round_up(model.vocabulary + model.vocabulary_extra, multiple * layout.tensor)};
}

std::vector<ParameterId> stage_parameters(const ModelGraph& graph, const Stage& stage, const Runtime& runtime) {
  const auto place_in_layer = [&](ParameterId id) {
    const std::string& name = graph[id].name;
    const auto& order = runtime.layer_parameter_order;
    return std::find_if(order.begin(), order.end(), [&](const std::string& end) { return name.ends_with(end); }) -
           order.begin();
  };
  std::vector<ParameterId> found;
  std::vector<bool> seen(graph.parameters.size(), false);
  std::size_t layer_begin = 0;
  std::int32_t layer = -1;
  const auto sort_layer = [&] {
    std::vector<std::pair<std::ptrdiff_t, ParameterId>> placed;
    for (std::size_t i = layer_begin; i < found.size(); ++i) placed.emplace_back(place_in_layer(found[i]), found[i]);
    std::stable_sort(placed.begin(), placed.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (std::size_t i = layer_begin; i < found.size(); ++i) found[i] = placed[i - layer_begin].second;
    layer_begin = found.size();
  };
  for (const OperatorId id : topological_order(graph)) {
    const Operator& op = graph[id];
    if (!stage.holds(op.layer, static_cast<std::int32_t>(graph.model.layers))) continue;
    if (op.layer != layer) sort_layer();
    layer = op.layer;
    for (const ParameterId p : op.parameters) {
      if (!seen[p.index()]) found.push_back(p);
      seen[p.index()] = true;
    }
  }
  sort_layer();
  return found;
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

BufferLayout buffer_layout(const ModelGraph& graph, const std::vector<ParameterId>& parameters, const Sizes& sizes,
                           const Runtime& runtime, const Stage& stage, Sharding sharding, std::int32_t shards) {
  const bool padded = sharding != Sharding::None;
  const std::int64_t full = std::max(runtime.bucket_elements, runtime.bucket_elements_per_rank * shards);
  const bool closing = runtime.bucket_elements > 0 && stage.first == 0;
  const auto alone = [&](ParameterId id) {
    const bool copied = graph.model.tied_embeddings && stage.embedding != stage.head;  // on first and last stage
    return padded && runtime.tied_embedding_bucket && copied && graph[id].vocabulary;
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
    layout.elements = begin + sizes.elements(graph[*id]);
    layout.places.push_back({*id, begin, layout.elements});
    if ((closing && layout.elements - bucket_begin >= full) || alone(*id)) close();
  }
  if (layout.elements > bucket_begin || layout.buckets.empty()) close();
  return layout;
}

}  // namespace tidemark::parallel
