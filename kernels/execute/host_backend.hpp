#pragma once

#include <string>

#include "kernels/execute/backend.hpp"
#include "kernels/execute/host_memory.hpp"
#include "kernels/execute/world/host_collectives.hpp"

namespace tidemark::execute {

/// Runs ops on host memory, each to its end before the next: streams and events have nothing left to order.
class HostBackend {
 public:
  HostBackend(World& world, std::int32_t buffers, PageScale scale, Narrator narrator);

  void allocate(BufferId buffer, Bytes size, StreamId stream, MemorySpace space = MemorySpace::Device) {
    memory_.allocate(buffer, size, stream, space);
  }
  void release(BufferId buffer) { memory_.release(buffer); }
  void cross_stream_use(BufferId, StreamId) {}
  void launch(StreamId stream, const Kernel& kernel, std::span<const Reading> readings,
              std::span<const Writing> writings);
  void check(StreamId stream, std::span<const Reading> readings);
  void collective(StreamId stream, CommSlot slot, const Group& group, CollectiveKind kind, BufferId in, BufferId out,
                  const Parts& parts, const std::string& doing);
  void exchange(StreamId stream, CommSlot slot, const Group& group, std::span<const Delivery> deliveries,
                const std::string& doing);
  void copy(StreamId stream, BufferId from, BufferId to, const Moved& moved);
  void record(EventId, StreamId) {}
  void wait(StreamId, EventId) {}
  void sync(EventId) {}
  void create(DriverResource) {}
  void create(CommSlot, const Group&) {}
  void finish() {}

  [[nodiscard]] Bytes allocated() const { return memory_.allocated(); }
  [[nodiscard]] Bytes reserved() const { return memory_.reserved(); }
  [[nodiscard]] const Findings& findings() const { return findings_; }

 private:
  World& world_;
  PageScale scale_;
  HostMemory memory_;
  HostCollectives collectives_;
  Narrator narrator_;
  Findings findings_;
};

static_assert(Backend<HostBackend>);

}  // namespace tidemark::execute
