#include "kernels/execute/detail/cuda_backend.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include <fmt/format.h>

namespace tidemark::execute {
namespace {

constexpr StreamId compute{0};

}  // namespace

CudaBackend::CudaBackend(World& world, int device, bool shared, const Program& program,
                         const std::vector<Group>& groups, Narrator narrator, std::chrono::seconds time_limit)
    : world_(world),
      memory_(program.buffers),
      narrator_(std::move(narrator)),
      time_limit_(time_limit),
      events_(static_cast<std::size_t>(program.events)) {
  make_contexts(device, shared);
  for (cudaEvent_t& event : events_)
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  const Bytes before = device_bytes_used();
  world_.barrier();
  check_cuda(cudaMalloc(reinterpret_cast<void**>(&on_device_), sizeof(DeviceFindings)), "cudaMalloc");
  check_cuda(cudaMemset(on_device_, 0, sizeof(DeviceFindings)), "cudaMemset");
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  check_words(reinterpret_cast<const std::uint64_t*>(on_device_), {}, 0, on_device_, stream(compute));
  wait_for_compute("the first kernel");
  world_.barrier();
  rows_.push_back({"streams, events and kernels", device_bytes_used() - before, shared ? world_.size() : 1});
  connect(program, groups);
}

// One rank after the other. Whoever asks how much of a device is used has a context on it: where ranks share one, the
// first sees those of the others come.
void CudaBackend::make_contexts(int device, bool shared) {
  Bytes before;
  for (Rank turn{0}; turn.value < world_.size(); ++turn.value) {
    world_.barrier();
    if (turn == world_.rank()) {
      check_cuda(cudaSetDevice(device), "cudaSetDevice");
      check_cuda(cudaFree(nullptr), "cudaFree");
    }
    world_.barrier();
    if (turn == world_.rank() && (!shared || turn.value == 0)) {
      before = device_bytes_used();
      rows_.push_back({"context, and what was there before", before});
    } else if (shared && world_.rank().value == 0) {
      const Bytes now = device_bytes_used();
      rows_.push_back({fmt::format("context of rank {}", turn.value), now - before});
      before = now;
    }
  }
  world_.barrier();
}

CudaBackend::~CudaBackend() {
  for (const ncclComm_t communicator : communicators_)
    if (communicator != nullptr) ncclCommAbort(communicator);
  for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  for (const cudaStream_t stream : streams_)
    if (stream != nullptr) cudaStreamDestroy(stream);
  cudaFree(on_device_);
}

void CudaBackend::call_once(CommSlot slot, const Group& group, CollectiveKind kind, const Parts& parts) {
  const std::int64_t words = std::max({parts.whole, parts.sends.end(), parts.receives.end()});
  const auto bytes = static_cast<std::size_t>(words) * sizeof(std::uint64_t);
  void *in = nullptr, *out = nullptr;
  check_cuda(cudaMalloc(&in, bytes), "cudaMalloc");
  check_cuda(cudaMalloc(&out, bytes), "cudaMalloc");
  run(compute, slot, group, kind, static_cast<std::uint64_t*>(in), static_cast<std::uint64_t*>(out), parts,
      "connecting");
  wait_for_compute("connecting");
  check_cuda(cudaFree(in), "cudaFree");
  check_cuda(cudaFree(out), "cudaFree");
}

void CudaBackend::connect(const Program& program, const std::vector<Group>& groups) {
  // The smallest and the largest call of each kind: NCCL's choice of algorithm goes by size. Of uneven ones the first:
  // members differ in what is large.
  std::map<std::pair<CommSlot, CollectiveKind>, std::pair<Collective, Collective>> calls;
  std::map<std::pair<CommSlot, CollectiveKind>, Collective> uneven;
  std::vector<bool> exchanges(groups.size(), false);
  for (const Op& op : program.ops) {
    if (const auto* call = std::get_if<Collective>(&op); call != nullptr && call->row.valid()) {
      uneven.try_emplace({call->comm, call->kind}, *call);
    } else if (call != nullptr) {
      auto& [least, most] = calls.try_emplace({call->comm, call->kind}, *call, *call).first->second;
      if (call->size < least.size) least = *call;
      if (call->size > most.size) most = *call;
    }
    if (const auto* exchange = std::get_if<Exchange>(&op)) exchanges[exchange->comm.index()] = true;
  }
  for (CommSlot slot{0}; slot.index() < groups.size(); ++slot.value) {
    const Group& group = groups[slot.index()];
    world_.barrier();
    const Bytes before = device_bytes_used();
    world_.barrier();
    communicators_.push_back(nullptr);
    if (group.size() > 1) {
      communicators_.back() = make_communicator(world_, group);
      const auto once = [&](const Collective& call) {
        if (call.comm == slot) call_once(slot, group, call.kind, parts_of(program, call, group.size(), device_scale));
      };
      for (const auto& [kind, ends] : calls) {
        once(ends.first);
        once(ends.second);
      }
      for (const auto& [kind, call] : uneven) once(call);
      if (exchanges[slot.index()]) meet_neighbours(slot, group);
    }
    world_.barrier();
    rows_.push_back({fmt::format("NCCL communicator {}", slot.value), device_bytes_used() - before, world_.size()});
  }
}

// A word to and from both neighbours; at the ends of a pipeline some of it stays unused later.
void CudaBackend::meet_neighbours(CommSlot slot, const Group& group) {
  std::uint64_t* words = nullptr;
  check_cuda(cudaMalloc(reinterpret_cast<void**>(&words), 4 * sizeof(std::uint64_t)), "cudaMalloc");
  const ncclComm_t communicator = communicators_[slot.index()];
  const auto n = static_cast<int>(group.size()), me = static_cast<int>(group.me);
  check_nccl(ncclGroupStart(), "ncclGroupStart");
  for (const int step : {1, n - 1}) {
    check_nccl(ncclSend(words, 1, ncclUint64, (me + step) % n, communicator, stream(compute)), "ncclSend");
    check_nccl(ncclRecv(words + step % 2 + 1, 1, ncclUint64, (me + n - step) % n, communicator, stream(compute)),
               "ncclRecv");
  }
  check_nccl(ncclGroupEnd(), "ncclGroupEnd");
  wait_for_compute("meeting neighbours");
  check_cuda(cudaFree(words), "cudaFree");
}

void CudaBackend::wait_for_compute(const std::string& doing) {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  check_cuda(cudaEventRecord(event, stream(compute)), "cudaEventRecord");
  wait_for(event, doing);
  cudaEventDestroy(event);
}

cudaStream_t CudaBackend::stream(StreamId id) {
  if (streams_.size() <= id.index()) streams_.resize(id.index() + 1, nullptr);
  cudaStream_t& found = streams_[id.index()];
  if (found == nullptr) check_cuda(cudaStreamCreateWithFlags(&found, cudaStreamNonBlocking), "cudaStreamCreate");
  return found;
}

void CudaBackend::allocate(BufferId buffer, Bytes size, StreamId its_stream, MemorySpace space) {
  give_back_what_is_done();
  memory_.allocate(buffer, size, its_stream, space);
}

void CudaBackend::give_back(BufferId buffer) {
  const CudaMemory::Held& held = memory_[buffer];
  if (held.space == MemorySpace::Device) fill_words(held.words, held.count, 0, 0, stream(held.stream));
  memory_.free(buffer);
}

void CudaBackend::release(BufferId buffer) {
  const auto cross_stream = cross_stream_.find(buffer);
  if (cross_stream == cross_stream_.end()) return give_back(buffer);
  Pending& waits = pending_.emplace_back(Pending{buffer, {}});
  for (const StreamId by : cross_stream->second) {
    cudaEvent_t& event = waits.events.emplace_back(nullptr);
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    check_cuda(cudaEventRecord(event, stream(by)), "cudaEventRecord");
  }
  cross_stream_.erase(cross_stream);
}

void CudaBackend::give_back_what_is_done() {
  std::erase_if(pending_, [&](Pending& waits) {
    for (const cudaEvent_t event : waits.events) {
      const cudaError_t state = cudaEventQuery(event);
      if (state == cudaErrorNotReady) return false;
      check_cuda(state, "cudaEventQuery");
    }
    for (const cudaEvent_t event : waits.events) cudaEventDestroy(event);
    give_back(waits.buffer);
    return true;
  });
}

void CudaBackend::cross_stream_use(BufferId buffer, StreamId by) { cross_stream_[buffer].push_back(by); }

void CudaBackend::check(StreamId on, std::span<const Reading> readings) {
  for (const Reading& reading : readings) {
    const CudaMemory::Held& held = memory_[reading.buffer];
    if (held.space == MemorySpace::Pageable || held.space == MemorySpace::Nvme) {
      check_pageable(on, reading, held);
      continue;
    }
    const std::uint64_t number = readings_.size();
    readings_.emplace_back(reading.op, reading.buffer);
    for (const ContentRun& run : reading.expected) {
      if (run.end > held.count) throw std::runtime_error(narrator_.reading(reading.op, reading.buffer) + ": too small");
      check_words(held.words, run, number, on_device_, stream(on));
    }
  }
}

// Kernels do not reach it.
void CudaBackend::check_pageable(StreamId on, const Reading& reading, const CudaMemory::Held& held) {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  check_cuda(cudaEventRecord(event, stream(on)), "cudaEventRecord");
  wait_for(event, narrator_.reading(reading.op, reading.buffer));
  cudaEventDestroy(event);
  check_on_host(reading, held);
}

void CudaBackend::check_on_host(const Reading& reading, const CudaMemory::Held& held) {
  for (const ContentRun& run : reading.expected)
    for (std::int64_t i = run.first(); i < run.end; i += run.grid)
      if (i >= held.count || held.words[i] != run.at(i)) {
        findings_.add(fmt::format("rank {}, {}: word {} in host memory is wrong", world_.rank().value,
                                  narrator_.reading(reading.op, reading.buffer), i));
        return;
      }
}

// What the host thread reads has come by now: its program has waited.
void CudaBackend::compute_on_host(std::span<const Reading> readings, std::span<const Writing> writings) {
  for (const Reading& reading : readings) check_on_host(reading, memory_[reading.buffer]);
  for (const Writing& writing : writings) {
    const CudaMemory::Held& held = memory_[writing.buffer];
    const ContentRun content = stamped(writing.stamp, held.count).front();
    for (std::int64_t i = 0; i < held.count; ++i) held.words[i] = content.at(i);
  }
}

void CudaBackend::launch(StreamId on, const Kernel&, std::span<const Reading> readings,
                         std::span<const Writing> writings) {
  if (!on.valid()) return compute_on_host(readings, writings);
  check(on, readings);
  for (const Writing& writing : writings) {
    const CudaMemory::Held& held = memory_[writing.buffer];
    // Every word, of which the expectation knows those on its grid.
    fill_words(held.words, held.count, writing.stamp, stamped(writing.stamp, held.count).front().slope, stream(on));
  }
  check_cuda(cudaGetLastError(), "a kernel");
}

void CudaBackend::collective(StreamId on, CommSlot slot, const Group& group, CollectiveKind kind, BufferId in,
                             BufferId out, const Parts& parts, const std::string& doing) {
  run(on, slot, group, kind, memory_[in].words, memory_[out].words, parts, doing);
}

// NCCL has no uneven gathers and scatters: they are broadcasts by, and reductions to, one member after the other, as
// PyTorch writes them (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp).
void CudaBackend::run(StreamId on, CommSlot slot, const Group& group, CollectiveKind kind, std::uint64_t* in,
                      std::uint64_t* out, const Parts& parts, const std::string& doing) {
  const ncclComm_t communicator = communicators_[slot.index()];
  const cudaStream_t queue = stream(on);
  const auto& [all, sends, receives] = parts;
  const auto whole = static_cast<std::size_t>(all);
  const std::int64_t me = group.me;
  const int members = static_cast<int>(group.size());
  const auto count = [](const Cut& cut, std::int64_t place) { return static_cast<std::size_t>(cut.size(place)); };
  const auto is_even = [&](const Cut& cut) { return cut.largest() * members == cut.end(); };
  const auto check = [&](ncclResult_t code) { check_nccl(code, doing.c_str()); };
  const auto together = [&](auto&& each) {
    check(ncclGroupStart());
    for (int peer = 0; peer < members; ++peer) each(peer);
    check(ncclGroupEnd());
  };
  switch (kind) {
    case CollectiveKind::AllReduce:
      return check(ncclAllReduce(in, out, whole, ncclUint64, ncclSum, communicator, queue));
    case CollectiveKind::ReduceScatter: {
      std::uint64_t* const mine = in == out ? out + sends.begin(me) : out;
      if (is_even(sends))
        return check(ncclReduceScatter(in, mine, count(sends, me), ncclUint64, ncclSum, communicator, queue));
      return together([&](int peer) {
        check(ncclReduce(in + sends.begin(peer), mine, count(sends, peer), ncclUint64, ncclSum, peer, communicator,
                         queue));
      });
    }
    case CollectiveKind::AllGather: {
      const std::uint64_t* const mine = in == out ? in + receives.begin(me) : in;
      if (is_even(receives))
        return check(ncclAllGather(mine, out, count(receives, me), ncclUint64, communicator, queue));
      return together([&](int peer) {
        check(ncclBroadcast(mine, out + receives.begin(peer), count(receives, peer), ncclUint64, peer, communicator,
                            queue));
      });
    }
    case CollectiveKind::Broadcast:
      return check(ncclBroadcast(in, out, whole, ncclUint64, 0, communicator, queue));
    case CollectiveKind::AllToAll:
      return together([&](int peer) {
        check(ncclSend(in + sends.begin(peer), count(sends, peer), ncclUint64, peer, communicator, queue));
        check(ncclRecv(out + receives.begin(peer), count(receives, peer), ncclUint64, peer, communicator, queue));
      });
  }
}

void CudaBackend::copy(StreamId on, BufferId from, BufferId to, const Moved& moved) {
  const CudaMemory::Held &source = memory_[from], &target = memory_[to];
  check_cuda(
      cudaMemcpyAsync(target.words + moved.to, source.words + moved.from,
                      static_cast<std::size_t>(moved.words) * sizeof(std::uint64_t), cudaMemcpyDefault, stream(on)),
      "cudaMemcpyAsync");
  // As PyTorch's pinned blocks: they come back when the copy is done.
  cross_stream_use(source.space == MemorySpace::Device ? to : from, on);
}

void CudaBackend::exchange(StreamId on, CommSlot slot, const Group& group, std::span<const Delivery> deliveries,
                           const std::string& doing) {
  const ncclComm_t communicator = communicators_[slot.index()];
  check_nccl(ncclGroupStart(), doing.c_str());
  for (const Delivery& delivery : deliveries) {
    const Transfer& t = delivery.transfer;
    const CudaMemory::Held& held = memory_[t.buffer];
    const auto count = static_cast<std::size_t>(part_words(held.count, t));
    std::uint64_t* const words = held.words + count * static_cast<std::size_t>(t.part);
    const auto peer =
        static_cast<int>(std::find(group.members.begin(), group.members.end(), delivery.peer) - group.members.begin());
    check_nccl(t.direction == Direction::Send ? ncclSend(words, count, ncclUint64, peer, communicator, stream(on))
                                              : ncclRecv(words, count, ncclUint64, peer, communicator, stream(on)),
               doing.c_str());
  }
  check_nccl(ncclGroupEnd(), doing.c_str());
}

void CudaBackend::record(EventId event, StreamId on) {
  check_cuda(cudaEventRecord(events_[event.index()], stream(on)), "cudaEventRecord");
}

void CudaBackend::wait(StreamId on, EventId event) {
  check_cuda(cudaStreamWaitEvent(stream(on), events_[event.index()], 0), "cudaStreamWaitEvent");
}

void CudaBackend::sync(EventId event) { wait_for(events_[event.index()], "the device"); }

void CudaBackend::wait_for(cudaEvent_t event, const std::string& doing) {
  execute::wait_for(world_, event, time_limit_, doing);
}

void CudaBackend::finish() {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  for (StreamId id{0}; id.index() < streams_.size(); ++id.value) {
    if (streams_[id.index()] == nullptr) continue;
    check_cuda(cudaEventRecord(event, streams_[id.index()]), "cudaEventRecord");
    wait_for(event, "the end of all streams");
  }
  cudaEventDestroy(event);
  give_back_what_is_done();
  DeviceFindings found;
  check_cuda(cudaMemcpy(&found, on_device_, sizeof found, cudaMemcpyDeviceToHost), "cudaMemcpy");
  const auto kept = std::min<unsigned long long>(found.count, DeviceFindings::most);
  std::sort(found.first, found.first + kept,
            [](const DeviceFinding& a, const DeviceFinding& b) { return a.reading < b.reading; });
  for (unsigned long long i = 0; i < kept; ++i) {
    const DeviceFinding& one = found.first[i];
    const auto& [op, buffer] = readings_[one.reading];
    findings_.add(fmt::format("rank {}, {}: word {} is {}; expected {}", world_.rank().value,
                              narrator_.reading(op, buffer), one.word, narrator_.author(one.found),
                              narrator_.author(one.expected)));
  }
  findings_.count = static_cast<std::int64_t>(found.count);
}

}  // namespace tidemark::execute
