// Expandable segments: try_allocate_expandable_block, find_expandable_block and map_block of
// c10/cuda/CUDACachingAllocator.cpp.
#include <algorithm>

#include "sim/base/ensure.hpp"
#include "sim/memory/block_map.hpp"

namespace tidemark::sim {

BlockId BlockMap::find_expandable(const BlockRequest& request) const {
  const StreamBlocks* const home = find_blocks_of(request.pool, request.stream);
  if (home == nullptr) return {};
  for (const auto& [address, unmapped] : home->unmapped) {
    const BlockId before = block(unmapped).previous;
    const BlockId candidate = before.valid() && block(before).idle() ? before : unmapped;
    Bytes room;
    for (BlockId b = candidate; b.valid() && block(b).idle() && room < request.size; b = block(b).next)
      room += block(b).size;
    if (room >= request.size) return candidate;
  }
  return {};
}

BlockId BlockMap::add_address_space(Address address, Bytes size, const BlockRequest& request) {
  const auto idle = std::find_if(expansions_.begin(), expansions_.end(), [](const Expansion& e) { return !e.in_use; });
  const auto place = static_cast<std::int32_t>(idle - expansions_.begin());
  if (idle == expansions_.end()) expansions_.emplace_back();
  expansions_[static_cast<std::size_t>(place)] = {address, size, expandable_page(request.pool.kind(), options_)};
  plain_ = false;
  const BlockId id = new_block({.address = address,
                                .size = size,
                                .requested = {},
                                .previous = {},
                                .next = {},
                                .stream = request.stream,
                                .pool = request.pool,
                                .state = BlockState::Unmapped,
                                .expansion = place});
  blocks_of(request.pool, request.stream).unmapped[address] = id;
  return id;
}

// A candidate is unmapped itself, or free and before unmapped pages; behind those may be more of both.
std::optional<BlockMap::Range> BlockMap::next_pages(BlockId candidate, const BlockRequest& request) const {
  const Block& first = block(candidate);
  const bool mapped = first.state == BlockState::Free;
  if (mapped && first.size >= request.size) return std::nullopt;
  const Block& pages = mapped ? block(first.next) : first;
  const Bytes missing = mapped ? request.size - first.size : request.size;
  const Bytes page = expansions_[static_cast<std::size_t>(pages.expansion)].page;
  return Range{pages.address, round_up(std::min(missing, pages.size), page)};
}

BlockId BlockMap::map_next_pages(BlockId candidate, Bytes size) {
  const BlockId id = block(candidate).state == BlockState::Free ? block(candidate).next : candidate;
  ensure(block(id).state == BlockState::Unmapped && size <= block(id).size, "pages are mapped where there are none");
  StreamBlocks& home = blocks_of(block(id).pool, block(id).stream);
  home.unmapped.erase(block(id).address);
  if (size < block(id).size) {
    Block rest = block(id);
    rest.address = rest.address + size;
    rest.size -= size;
    const BlockId after = rest.next;
    const BlockId unmapped = new_block(rest);
    home.unmapped[rest.address] = unmapped;
    blocks_[id.index()].size = size;
    link(unmapped, after);
    link(id, unmapped);
  }
  Block& mapped = blocks_[id.index()];
  mapped.state = BlockState::Free;
  for (const BlockId neighbour : {mapped.previous, mapped.next})
    if (neighbour.valid() && block(neighbour).state == BlockState::Free) absorb(mapped, neighbour, home.free);
  link(mapped.previous, id);
  link(id, mapped.next);
  insert_free(home, id);
  stats_.each_group(mapped.pool.kind(), [&](PoolStats& group) { group.reserved.increase(size); });
  ++stats_.device_allocs;
  return id;
}

BlockId BlockMap::take_expanded(BlockId id, const BlockRequest& request) {
  StreamBlocks& home = blocks_of(request.pool, request.stream);
  home.free.erase(block(id).size, block(id).address);
  take(id, request, home);
  return id;
}

// Only pages that are free as a whole go; what is left of the block at either end stays.
void BlockMap::unmap_whole_pages(BlockId id, std::vector<Release>& released) {
  const Block whole = block(id);
  Expansion& expansion = expansions_[static_cast<std::size_t>(whole.expansion)];
  const Bytes begin = round_up(whole.address - expansion.address, expansion.page);
  const Bytes end = (whole.address + whole.size - expansion.address) / expansion.page * expansion.page;
  if (begin >= end) return;

  StreamBlocks& home = blocks_of(whole.pool, whole.stream);
  home.free.erase(whole.size, whole.address);
  const Address first = expansion.address + begin;
  const auto keep = [&](Address address, Bytes size) {
    if (size == Bytes{}) return BlockId{};
    Block part = whole;
    part.address = address;
    part.size = size;
    const BlockId kept = new_block(part);
    insert_free(home, kept);
    return kept;
  };
  const BlockId before = keep(whole.address, first - whole.address);
  const BlockId after = keep(expansion.address + end, whole.size - (first - whole.address) - (end - begin));
  if (before.valid()) {
    link(whole.previous, before);
    link(before, id);
  }
  if (after.valid()) {
    link(after, whole.next);
    link(id, after);
  }
  Block& unmapped = blocks_[id.index()];
  unmapped.address = first;
  unmapped.size = end - begin;
  unmapped.state = BlockState::Unmapped;
  stats_.each_group(unmapped.pool.kind(), [&](PoolStats& group) { group.reserved.decrease(end - begin); });
  ++stats_.device_frees;
  released.push_back({Release::Kind::Pages, first, end - begin});
  merge_unmapped(id, home);

  if (block(id).split()) return;
  released.push_back({Release::Kind::AddressSpace, expansion.address, expansion.size});
  expansion.in_use = false;
  home.unmapped.erase(block(id).address);
  recycle(id);
}

void BlockMap::merge_unmapped(BlockId id, StreamBlocks& home) {
  Block& grown = blocks_[id.index()];
  for (const BlockId neighbour : {grown.previous, grown.next}) {
    if (!neighbour.valid() || block(neighbour).state != BlockState::Unmapped) continue;
    const Block& gone = block(neighbour);
    home.unmapped.erase(gone.address);
    if (gone.address < grown.address) {
      grown.address = gone.address;
      grown.previous = gone.previous;
    } else {
      grown.next = gone.next;
    }
    grown.size += gone.size;
    recycle(neighbour);
  }
  link(grown.previous, id);
  link(id, grown.next);
  home.unmapped[grown.address] = id;
}

const BlockMap::StreamBlocks* BlockMap::find_blocks_of(PoolId id, StreamId stream) const {
  const std::vector<StreamBlocks>& streams = pools_[id.index].streams;
  const auto found =
      std::find_if(streams.begin(), streams.end(), [&](const StreamBlocks& s) { return s.stream == stream; });
  return found == streams.end() ? nullptr : &*found;
}

}  // namespace tidemark::sim
