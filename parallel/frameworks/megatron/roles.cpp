#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "parallel/frameworks/megatron/optimizer/buffers.hpp"
#include "parallel/frameworks/megatron/optimizer/layer_wise_optimizer.hpp"
#include "parallel/frameworks/megatron/training.hpp"
#include "parallel/job/sizes.hpp"
#include "parallel/job/stages.hpp"

namespace tidemark::parallel::megatron {
namespace {

// A chunk's parameters of one group, in their buffer.
struct Buffer {
  ParameterGroup group;
  BufferLayout layout;
};

// The buffers of a pipeline rank, chunk after chunk.
std::vector<Buffer> buffers_of(const LoweringInput& input, const Sizes& sizes, std::int32_t pipeline) {
  const auto layers = static_cast<std::int32_t>(input.built.model.layers.size());
  std::vector<Buffer> buffers;
  for (const Stage& chunk : chunks_of_rank(layers, input.layout, pipeline))
    for (const ParameterGroup group : buffer_groups(input.layout, input.runtime)) {
      const auto parameters = parameters_of(input.built, chunk, input.layout, input.runtime, group);
      if (parameters.empty()) continue;
      buffers.push_back({group, layout_of(input.built, parameters, sizes, input.runtime, chunk, input.layout, group)});
    }
  return buffers;
}

// What ranks of a stage have alike that run one program.
struct Held {
  std::vector<ShardPiece> pieces;  // that they keep optimizer state for; where nothing is sharded, all keep the same
  std::int32_t expert = 0;         // whose place among the experts' ranks gets as many tokens
  std::int32_t attention = 0;      // whose place in a ring decides which keys come when, or which neighbours there are
  std::int32_t tensor = 0;         // whose place in a ring decides which rows come when
  auto operator<=>(const Held&) const = default;
};

// What a piece takes, and in which of an optimizer's two lists it stands.
struct SizeHeld {
  std::int64_t elements = 0;
  bool matrix = false, of_experts = false;
  auto operator<=>(const SizeHeld&) const = default;
};
std::vector<SizeHeld> sizes_held(const BuiltModel& built, const std::vector<ShardPiece>& pieces) {
  std::vector<SizeHeld> sizes;
  for (const ShardPiece& piece : pieces) {
    const Parameter& parameter = built[piece.parameter];
    sizes.push_back({piece.elements, parameter.matrix(), parameter.of_expert()});
  }
  return sizes;
}

// By place in an expert group, the first that gets as many tokens of every expert in every layer of a pipeline rank.
std::vector<std::int32_t> places_alike(const LoweringInput& input, std::int32_t pipeline) {
  const Layout& layout = input.layout;
  const Model& model = input.built.model;
  std::vector<std::int32_t> first(static_cast<std::size_t>(layout.expert), 0);
  if (!model.experts() || layout.expert == 1) return first;
  const Sizes sizes = sizes_of(model, layout, input.train, input.runtime);
  const std::int64_t tokens = sizes.sequence_parallel ? sizes.tokens / sizes.tensor : sizes.tokens;
  std::map<std::vector<std::int64_t>, std::int32_t> known;
  std::vector<std::vector<std::int64_t>> rows(first.size());
  const bool one_shows_all = alike_in_all_layers(input.train.routing.loads);
  bool seen = false;
  for (const Stage& chunk : chunks_of_rank(static_cast<std::int32_t>(model.layers.size()), layout, pipeline))
    for (std::int32_t layer = chunk.first; layer < chunk.last + (chunk.head ? model.further.size() : 0); ++layer) {
      if (!model.has_experts(layer) || (seen && one_shows_all)) continue;
      seen = true;
      const LayerRouting routing(model, input.train.routing, layer, tokens, layout.expert);
      const TokensOfPlaces& once = routing.tokens();
      for (std::int32_t place = 0; place < layout.expert; ++place) {
        std::vector<std::int64_t>& its = rows[static_cast<std::size_t>(place)];
        std::ranges::copy(routing.received(place, 1), std::back_inserter(its));
        if (!once.ranks.empty()) its.push_back(routing.received_tokens(place, 1));
        const auto eights = static_cast<std::int32_t>(once.eights.size());
        if (eights > 0) its.push_back(routing.received_by_eight(place * eights / layout.expert, 1));
      }
    }
  for (std::int32_t place = 0; place < layout.expert; ++place) {
    const auto its = static_cast<std::size_t>(place);
    first[its] = known.try_emplace(std::move(rows[its]), place).first->second;
  }
  return first;
}

}  // namespace

std::vector<Role> roles(const LoweringInput& input) {
  const Layout& layout = input.layout;
  const Mesh experts = expert_mesh(layout);
  const Sizes sizes = sizes_of(input.built.model, layout, input.train, input.runtime);
  const StagePlacement placement = layout.placement();
  const std::int32_t last = placement.place_of(placement.stages() - 1).rank;
  const bool rings = input.runtime.tensor_overlap && input.runtime.tensor_overlap->each_place;
  std::vector<Role> found;
  for (std::int32_t p = 0; p < layout.pipeline; ++p) {
    const std::vector<Buffer> buffers = buffers_of(input, sizes, p);
    const std::vector<std::int32_t> alike = places_alike(input, p);
    const bool rolls = !input.built.model.further.empty() && p == last;  // over the ends of a rank's tokens
    // Pieces by place among the shards of either group.
    std::map<std::pair<std::int32_t, std::int32_t>, std::vector<ShardPiece>> pieces;
    const auto pieces_of = [&](const Coordinates& rank) -> const std::vector<ShardPiece>& {
      const auto place = [&](ParameterGroup group) { return shards_of(layout, rank, group).place; };
      const auto [entry, added] = pieces.try_emplace(
          {place(ParameterGroup::Dense), input.built.model.experts() ? place(ParameterGroup::Experts) : 0});
      if (!added || layout.sharding == Sharding::None) return entry->second;
      if (!shards_buffers(layout, input.runtime)) {
        for (const ParameterId id : updated_by(input.built, layout, sizes, rank))
          entry->second.push_back({id, sizes.elements(input.built[id])});
        return entry->second;
      }
      for (const Buffer& buffer : buffers) {
        const ReplicaPlace among = shards_of(layout, rank, buffer.group);
        for (const ShardPiece& piece : buffer.layout.pieces(among.place, among.count)) entry->second.push_back(piece);
      }
      return entry->second;
    };
    std::map<Held, std::size_t> known;  // role
    std::map<std::vector<SizeHeld>, std::int32_t> known_sizes;
    for (std::int32_t d = 0; d < layout.data; ++d)
      for (std::int32_t c = 0; c < layout.context; ++c)
        for (std::int32_t t = 0; t < layout.tensor; ++t) {
          const Coordinates place{.tensor = t, .context = c, .data = d, .pipeline = p};
          const Rank rank = rank_at(layout, place);
          const Held held{pieces_of(place), alike[static_cast<std::size_t>(experts.coordinate(rank, axis::ep))],
                          rolls ? c : attention_place(layout, c), rings ? t : 0};
          const auto [entry, added] = known.try_emplace(held, found.size());
          const std::int32_t of_pipeline = (p * layout.expert + held.expert) * layout.context + held.attention;
          const std::int32_t passes = of_pipeline * layout.tensor + held.tensor;
          if (added) {
            const auto next = static_cast<std::int32_t>(known_sizes.size());
            const std::int32_t its = known_sizes.try_emplace(sizes_held(input.built, held.pieces), next).first->second;
            found.push_back({place, {}, passes, its, held.expert});
          }
          found[entry->second].ranks.push_back(rank);
        }
  }
  for (Role& role : found) std::sort(role.ranks.begin(), role.ranks.end());
  std::ranges::stable_sort(found, {}, &Role::passes);
  return found;
}

}  // namespace tidemark::parallel::megatron
