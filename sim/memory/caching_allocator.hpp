#pragma once

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "sim/base/address.hpp"
#include "sim/base/ensure.hpp"
#include "sim/base/units.hpp"
#include "sim/memory/allocator_options.hpp"
#include "sim/memory/allocator_stats.hpp"
#include "sim/memory/block_map.hpp"
#include "sim/memory/pending_frees.hpp"
#include "sim/memory/segment_source.hpp"
#include "sim/memory/stream_events.hpp"

namespace tidemark::sim {

/// Why an allocation failed even after every cached segment was given back.
struct OutOfMemory {
  Bytes requested;  ///< by the caller
  Bytes segment;    ///< asked of the device: what PyTorch's message calls "tried to allocate"
  Bytes available;  ///< what the device still had
  Bytes reserved;   ///< held by the allocator
  Bytes allocated;  ///< of which in use; the rest is in pieces that did not fit

  friend bool operator==(const OutOfMemory&, const OutOfMemory&) = default;
};

/// What the streams of a captured graph or a torch.cuda.MemPool allocate while it is active.
struct MempoolOptions {
  std::optional<StreamId> stream = {};  ///< only what this stream allocates; absent: all of it
  bool use_on_oom = false;              ///< when the device is full, others may take its free blocks
  bool no_split = false;                ///< its blocks are never cut
};

/// Address space that an expandable segment had in another allocator.
struct AddressSpace {
  Address address;
  Bytes size;
  StreamId stream;
  PoolKind pool = PoolKind::Small;
  MempoolId mempool = {};
};

/// PyTorch's native CUDA caching allocator: the same blocks, splits and cudaMallocs for the same requests.
///
/// Requests round up to 512 B, take the best fit among the free blocks of their stream and pool, and otherwise a new
/// segment from `Source`. Freed blocks merge with free neighbours and stay cached. Only empty_cache, a source that has
/// nothing left, or options give segments back. Copies are independent of each other if copies of the source are.
///
/// The rules are those of DeviceCachingAllocator in c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.1 to 2.11; where they
/// changed, those of 2.10. One thread calls; there are no callbacks that free memory.
template <SegmentSource Source, StreamEvents Events = StreamProgress>
class CachingAllocator {
 public:
  explicit CachingAllocator(Source source = {}, AllocatorOptions options = {}, Events events = {},
                            Counted counted = Counted::Everything)
      : source_(std::move(source)),
        options_(options),
        limit_(options.memory_limit()),
        rounds_by_divisions_(options.rounds_by_divisions()),
        map_(options, counted),
        frees_(std::move(events)) {
    ensure(ExpandableSegmentSource<Source> || !options.expandable_segments,
           "expandable segments need a source of address space");
  }

  /// A block of at least `requested` > 0 bytes for `stream`. The id holds until free; ids are reused.
  [[nodiscard]] std::variant<BlockId, OutOfMemory> malloc(Bytes requested, StreamId stream) {
    ensure(requested > Bytes{0}, "requests for nothing never reach the allocator");
    if (requested >= AllocatorOptions::request_limit) return out_of_memory(requested, requested);
    if (frees_.any() && active_.empty()) process_events();
    const BlockRequest request = request_for(requested, stream);
    if (const BlockId cached = map_.take_best_fit(request); cached.valid()) return cached;
    if (const BlockId fresh = malloc_uncached(request); fresh.valid()) return fresh;
    ++map_.stats().ooms;
    return out_of_memory(requested, segment_size(request.size, options_));
  }

  /// Whether malloc would be served from the cache, as it stands.
  [[nodiscard]] bool has_cached(Bytes requested, StreamId stream) const {
    return requested < AllocatorOptions::request_limit && map_.has_fit(request_for(requested, stream));
  }

  /// Returns an allocated block to the cache: at once, or if other streams use it, once they are done with it.
  void free(BlockId block) {
    if (!frees_.uses(block)) return map_.give_back(block);
    map_.begin_free(block);
    frees_.free(block, !active_.empty());
  }

  /// Tensor.record_stream: a stream uses an allocated block that may not be its own.
  void record_stream(BlockId block, StreamId stream) {
    if (stream != this->stream(block)) frees_.use(block, stream, !active_.empty());
  }
  /// Completes the frees whose streams are done. Every malloc does so first.
  void process_events() {
    frees_.process([&](BlockId block) { map_.finish_free(block); });
  }
  [[nodiscard]] Events& events() { return frees_.events(); }

  /// torch.cuda.empty_cache(): waits for frees that are pending, and gives every segment without an allocated block and
  /// every free page of expandable ones back to the source, the large pool first, then by stream, size and address.
  /// Returns their bytes. While a private pool is active, only the memory of other private pools goes.
  Bytes empty_cache() {
    Bytes released;
    if (active_.empty()) {
      ++map_.stats().sync_all_streams;
      frees_.synchronize([&](BlockId block) { map_.finish_free(block); });
      released += give_to_source(map_.release_unused());
    }
    return released + give_to_source(map_.release_unused_private());
  }

  /// From now on, allocations come from the pool of this id: a graph is captured, or torch.cuda.use_mem_pool begins.
  /// Of several that are active and fit, the last one counts.
  void begin_allocate_to_pool(MempoolId id, const MempoolOptions& options = {}) {
    ensure(id != MempoolId{}, "the default pools are nobody's");
    const std::size_t place = map_.mempool(id);
    BlockMap::Mempool& pool = map_.mempool_at(place);
    ++pool.users;
    pool.use_on_oom = options.use_on_oom;
    pool.no_split = options.no_split;
    active_.push_back({place, options.stream});
  }
  /// The capture, or the context, ends. Its memory stays in the pool.
  void end_allocate_to_pool(MempoolId id) {
    const std::size_t place = map_.mempool(id);
    const auto found =
        std::find_if(active_.rbegin(), active_.rend(), [&](const Active& a) { return a.mempool == place; });
    ensure(found != active_.rend(), "a pool is ended once, after it began");
    active_.erase(std::next(found).base());
  }
  /// One that began is gone for good: when the last one is, unused memory of the pool may be given back.
  void release_pool(MempoolId id) {
    std::int64_t& users = map_.mempool_at(map_.mempool(id)).users;
    ensure(users > 0, "a pool is released as often as it began");
    --users;
  }

  /// Continues from segments that another process, or another allocator, had. Returns the allocated blocks in the order
  /// of the segments and blocks given. The source is not asked for these segments, but gets them when they are
  /// released. Mapped ranges of expandable segments lie in `spaces`.
  std::vector<BlockId> restore(const std::vector<SegmentLayout>& segments,
                               const std::vector<AddressSpace>& spaces = {}) {
    for (const AddressSpace& space : spaces) {
      const PoolId pool = BlockMap::pool(map_.mempool(space.mempool), space.pool);
      map_.add_address_space(space.address, space.size, {{}, {}, pool, space.stream});
    }
    for (const SegmentLayout& segment : segments) {
      BlockMap::Mempool& pool = map_.mempool_at(map_.mempool(segment.mempool));
      pool.users = std::max<std::int64_t>(pool.users, 1);  // until release_pool
    }
    return map_.restore(segments);
  }
  /// Every segment, by address, with its blocks.
  [[nodiscard]] std::vector<SegmentLayout> layout() const { return map_.layout(); }
  /// What later requests depend on besides the source, where no garbage is collected and no private pool is active.
  void write(StateWords& state) const {
    for (const SegmentLayout& segment : layout()) {
      state.add(segment.address, segment.stream, segment.blocks.size());
      for (const BlockLayout& its : segment.blocks) state.add(its.size, its.state);
    }
    frees_.write([&](BlockId block) { return address(block); }, state);
  }

  [[nodiscard]] Address address(BlockId block) const { return map_.block(block).address; }
  [[nodiscard]] Bytes size(BlockId block) const { return map_.block(block).size; }
  [[nodiscard]] Bytes requested(BlockId block) const { return map_.block(block).requested; }
  [[nodiscard]] StreamId stream(BlockId block) const { return map_.block(block).stream; }
  [[nodiscard]] MempoolId mempool(BlockId block) const { return map_.mempools()[map_.block(block).pool.mempool()].id; }

  [[nodiscard]] Bytes reserved() const { return stats().all.reserved.current; }
  [[nodiscard]] Bytes allocated() const { return stats().all.allocated.current; }
  /// Of which as much is true as is counted.
  [[nodiscard]] const AllocatorStats& stats() const { return map_.stats(); }
  /// As torch.cuda.reset_peak_memory_stats.
  void reset_peaks() { map_.stats().reset_peaks(); }

  [[nodiscard]] const Source& source() const { return source_; }
  [[nodiscard]] Source& source() { return source_; }
  [[nodiscard]] const AllocatorOptions& options() const { return options_; }

 private:
  struct Active {
    std::size_t mempool = 0;
    std::optional<StreamId> stream;
  };

  [[nodiscard]] BlockRequest request_for(Bytes requested, StreamId stream) const {
    const Bytes size = rounds_by_divisions_ ? block_size(requested, options_) : block_size(requested);
    return {requested, size, pool_for(size, stream), stream, options_.expandable_segments};
  }

  [[nodiscard]] PoolId pool_for(Bytes size, StreamId stream) const {
    for (auto active = active_.rbegin(); active != active_.rend(); ++active)
      if (!active->stream || *active->stream == stream) return BlockMap::pool(active->mempool, pool_of(size));
    return BlockMap::pool(0, pool_of(size));
  }

  // Nothing cached fits: the device is asked, again after each thing that may make room, in PyTorch's order. Invalid
  // where nothing helps.
  BlockId malloc_uncached(const BlockRequest& request) {
    if (options_.collects_garbage()) collect_garbage();
    if (const BlockId block = take_from_device(request); block.valid()) return block;
    if (const BlockId block = take_from_other_pool(request); block.valid()) return block;
    bool enough = false;
    give_to_source(map_.release_oversize(request, enough));
    if (enough)
      if (const BlockId block = take_from_device(request); block.valid()) return block;
    if (!active_.empty()) return {};
    empty_cache();
    ++map_.stats().alloc_retries;  // counted whether or not this attempt succeeds
    return take_from_device(request);
  }

  BlockId take_from_device(const BlockRequest& request) {
    const Bytes segment = segment_size(request.size, options_);
    if (limit_ && reserved() + segment > *limit_) return {};  // also where pages would do with less
    if (request.expandable) return take_from_pages(request);
    const std::optional<Address> address = source_.allocate(segment, request.stream);
    if (!address) return {};
    ++map_.stats().device_allocs;
    return map_.take_from_segment(*address, segment, request);
  }

  // Pages that were mapped stay mapped, and free, when there are none for the rest.
  BlockId take_from_pages(const BlockRequest& request) {
    if constexpr (ExpandableSegmentSource<Source>) {
      BlockId candidate = map_.find_expandable(request);
      if (!candidate.valid()) {
        const PoolKind kind = request.pool.kind();
        const Bytes size = expandable_address_space(kind, options_);
        const std::optional<Address> address = source_.reserve(size, expandable_page(kind, options_), request.stream);
        if (!address || size < request.size) return {};
        candidate = map_.add_address_space(*address, size, request);
      }
      while (const std::optional<BlockMap::Range> pages = map_.next_pages(candidate, request)) {
        if (!source_.map(pages->address, pages->size)) return {};
        candidate = map_.map_next_pages(candidate, pages->size);
      }
      return map_.take_expanded(candidate, request);
    }
    return {};
  }

  // try_mempool_fallback
  BlockId take_from_other_pool(const BlockRequest& request) {
    if (request.pool.mempool() != 0) return {};
    BlockRequest elsewhere = request;
    elsewhere.expandable = false;
    for (std::size_t i = 1; i < map_.mempools().size(); ++i) {
      if (!map_.mempools()[i].use_on_oom) continue;
      elsewhere.pool = BlockMap::pool(i, request.pool.kind());
      if (const BlockId block = map_.take_best_fit(elsewhere); block.valid()) return block;
    }
    return {};
  }

  void collect_garbage() {
    const Bytes threshold{
        static_cast<std::int64_t>(options_.garbage_collection_threshold * static_cast<double>(limit_->count()))};
    if (reserved() > threshold) give_to_source(map_.release_old(reserved() - threshold));
  }

  Bytes give_to_source(const std::vector<Release>& released) {
    Bytes sum;
    for (const Release& piece : released) {
      if (piece.kind == Release::Kind::Segment) source_.release(piece.address, piece.size);
      if constexpr (ExpandableSegmentSource<Source>) {
        if (piece.kind == Release::Kind::Pages) source_.unmap(piece.address, piece.size);
        if (piece.kind == Release::Kind::AddressSpace) source_.unreserve(piece.address, piece.size);
      }
      if (piece.kind != Release::Kind::AddressSpace) sum += piece.size;
    }
    return sum;
  }

  [[nodiscard]] OutOfMemory out_of_memory(Bytes requested, Bytes segment) const {
    return {requested, segment, source_.available(), reserved(), allocated()};
  }

  Source source_;
  AllocatorOptions options_;
  std::optional<Bytes> limit_;
  bool rounds_by_divisions_;
  BlockMap map_;
  PendingFrees<Events> frees_;
  std::vector<Active> active_;  // private pools, in the order in which they began
};

}  // namespace tidemark::sim
