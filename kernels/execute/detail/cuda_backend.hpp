#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "kernels/execute/backend.hpp"
#include "kernels/execute/detail/cuda_memory.hpp"
#include "kernels/execute/detail/nccl.hpp"
#include "kernels/execute/detail/payload_kernels.hpp"
#include "kernels/execute/page_scale.hpp"
#include "kernels/execute/world/world.hpp"

namespace tidemark::execute {

/// What came to be on the device, in order, with what cudaMemGetInfo said of it.
struct DeviceRowMeasured {
  std::string name;
  Bytes bytes;
  std::int32_t ranks = 1;  ///< of this device that it is the sum of
};

/// Runs ops on a GPU: blocks from cudaMalloc, CUDA streams and events, collectives and grouped messages of NCCL, and
/// kernels that read and write every word of their operands. A block that is given back is overwritten first.
class CudaBackend {
 public:
  /// On that device, which other ranks may share. Communicators are made here, slot by slot, all ranks together, and
  /// run every kind of call once that the program makes, so that what NCCL takes is seen apart from what the program
  /// takes: it connects at first use.
  CudaBackend(World& world, int device, bool shared, const Program& program, const std::vector<Group>& groups,
              Narrator narrator, std::chrono::seconds time_limit);
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;
  ~CudaBackend();

  void allocate(BufferId buffer, Bytes size, StreamId stream, MemorySpace space);
  void release(BufferId buffer);
  void cross_stream_use(BufferId buffer, StreamId stream);
  void launch(StreamId stream, const Kernel& kernel, std::span<const Reading> readings,
              std::span<const Writing> writings);
  void check(StreamId stream, std::span<const Reading> readings);
  void collective(StreamId stream, CommSlot slot, const Group& group, CollectiveKind kind, BufferId in, BufferId out,
                  const Parts& parts, const std::string& doing);
  void exchange(StreamId stream, CommSlot slot, const Group& group, std::span<const Delivery> deliveries,
                const std::string& doing);
  void copy(StreamId stream, BufferId from, BufferId to, const Moved& moved);
  void record(EventId event, StreamId stream);
  void wait(StreamId stream, EventId event);
  void sync(EventId event);
  void create(DriverResource) {}
  void create(CommSlot, const Group&) {}
  void finish();

  [[nodiscard]] Bytes allocated() const { return memory_.allocated(); }
  [[nodiscard]] Bytes reserved() const { return memory_.reserved(); }
  [[nodiscard]] const Findings& findings() const { return findings_; }
  [[nodiscard]] CudaSegments& segments() { return memory_.segments(); }
  /// What was measured while the back end was made.
  [[nodiscard]] const std::vector<DeviceRowMeasured>& rows() const { return rows_; }

 private:
  // A block that another stream may still use: it is given back when that stream has done what it had been given.
  struct Pending {
    BufferId buffer;
    std::vector<cudaEvent_t> events;
  };

  [[nodiscard]] cudaStream_t stream(StreamId id);
  void make_contexts(int device, bool shared);
  void connect(const Program& program, const std::vector<Group>& groups);
  void call_once(CommSlot slot, const Group& group, CollectiveKind kind, const Parts& parts);
  void meet_neighbours(CommSlot slot, const Group& group);
  void run(StreamId on, CommSlot slot, const Group& group, CollectiveKind kind, std::uint64_t* in, std::uint64_t* out,
           const Parts& parts, const std::string& doing);
  void compute_on_host(std::span<const Reading> readings, std::span<const Writing> writings);
  void check_on_host(const Reading& reading, const CudaMemory::Held& held);
  void check_pageable(StreamId on, const Reading& reading, const CudaMemory::Held& held);
  void wait_for_compute(const std::string& doing);
  void give_back(BufferId buffer);
  void give_back_what_is_done();
  void wait_for(cudaEvent_t event, const std::string& doing);

  World& world_;
  CudaMemory memory_;
  Narrator narrator_;
  std::chrono::seconds time_limit_;
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> events_;
  std::vector<ncclComm_t> communicators_;  // by slot; null where this rank has none
  std::map<BufferId, std::vector<StreamId>> cross_stream_;
  std::vector<Pending> pending_;
  DeviceFindings* on_device_ = nullptr;
  std::vector<std::pair<std::size_t, BufferId>> readings_;  // by number of the check
  Findings findings_;
  std::vector<DeviceRowMeasured> rows_;
};

static_assert(Backend<CudaBackend>);

}  // namespace tidemark::execute
