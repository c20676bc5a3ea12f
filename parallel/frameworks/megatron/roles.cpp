#include <algorithm>
#include <map>

#include "parallel/frameworks/megatron/training.hpp"
#include "parallel/sizes.hpp"
#include "parallel/stages.hpp"

namespace tidemark::parallel::megatron {
namespace {

// The buffers of a pipeline rank, chunk after chunk.
std::vector<BufferLayout> buffers_of(const LoweringInput& input, const Sizes& sizes, std::int32_t pipeline) {
  const auto layers = static_cast<std::int32_t>(input.built.model.layers);
  std::vector<BufferLayout> buffers;
  for (const Stage& chunk : chunks_of_rank(layers, input.layout, pipeline))
    buffers.push_back(buffer_layout(input.built, stage_parameters(input.built, chunk), sizes, input.runtime, chunk,
                                    input.layout.sharding, input.layout.data));
  return buffers;
}

// What a data-parallel rank keeps optimizer state for; where nothing is sharded, all keep the same.
std::vector<ShardPiece> pieces_of(const std::vector<BufferLayout>& buffers, const Layout& layout, std::int32_t data) {
  std::vector<ShardPiece> all;
  if (layout.sharding == Sharding::None) return all;
  for (const BufferLayout& buffer : buffers)
    for (const ShardPiece& piece : buffer.pieces(data, layout.data)) all.push_back(piece);
  return all;
}

}  // namespace

std::vector<Role> roles(const LoweringInput& input) {
  const Layout& layout = input.layout;
  const Mesh mesh = dense_mesh(layout);
  const Sizes sizes = sizes_of(input.built.model, layout, input.train, input.runtime);
  std::vector<Role> found;
  for (std::int32_t p = 0; p < layout.pipeline; ++p) {
    const std::vector<BufferLayout> buffers = buffers_of(input, sizes, p);
    std::map<std::vector<ShardPiece>, std::size_t> known;  // pieces -> role
    for (std::int32_t d = 0; d < layout.data; ++d) {
      const auto [entry, added] = known.try_emplace(pieces_of(buffers, layout, d), found.size());
      if (added) found.push_back({{.data = d, .pipeline = p}, {}, p});
      for (std::int32_t t = 0; t < layout.tensor; ++t)
        found[entry->second].ranks.push_back(mesh.rank_at({{axis::tp, t}, {axis::dp, d}, {axis::pp, p}}));
    }
  }
  for (Role& role : found) std::sort(role.ranks.begin(), role.ranks.end());
  return found;
}

}  // namespace tidemark::parallel::megatron
