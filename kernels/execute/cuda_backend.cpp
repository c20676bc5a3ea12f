#include "kernels/execute/detail/cuda_backend.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <thread>

#include <fmt/format.h>

namespace tidemark {
namespace {

void check_nccl(ncclResult_t code, const char* call) {
  if (code != ncclSuccess) throw std::runtime_error(fmt::format("{} failed: {}", call, ncclGetErrorString(code)));
}

constexpr std::int32_t unique_id_tag = 3;
constexpr StreamId compute{0};

}  // namespace

CudaBackend::CudaBackend(World& world, const std::vector<Group>& groups, std::int32_t buffers, std::int32_t events,
                         Narrator narrator, std::chrono::seconds time_limit)
    : world_(world),
      memory_(buffers),
      narrator_(std::move(narrator)),
      time_limit_(time_limit),
      events_(static_cast<std::size_t>(events)) {
  // Contexts one rank after the other, so that each sees its own.
  for (std::int32_t turn = 0; turn < world_.size(); ++turn) {
    world_.barrier();
    if (turn != world_.rank().value) continue;
    const Bytes before = turn == 0 ? Bytes{} : device_bytes_used();
    check_cuda(cudaFree(nullptr), "cudaFree");
    rows_.push_back({turn == 0 ? "context, and what was there before" : "context", device_bytes_used() - before});
  }
  world_.barrier();
  for (cudaEvent_t& event : events_)
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  const Bytes before = device_bytes_used();
  check_cuda(cudaMalloc(reinterpret_cast<void**>(&on_device_), sizeof(DeviceFindings)), "cudaMalloc");
  check_cuda(cudaMemset(on_device_, 0, sizeof(DeviceFindings)), "cudaMemset");
  check_words(reinterpret_cast<const std::uint64_t*>(on_device_), {}, 0, on_device_, stream(compute));
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  world_.barrier();
  rows_.push_back({"streams, events and kernels", device_bytes_used() - before, world_.size()});
  connect(groups);
}

CudaBackend::~CudaBackend() {
  for (const ncclComm_t communicator : communicators_)
    if (communicator != nullptr) ncclCommAbort(communicator);
  for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  for (const cudaStream_t stream : streams_)
    if (stream != nullptr) cudaStreamDestroy(stream);
  cudaFree(on_device_);
}

void CudaBackend::connect(const std::vector<Group>& groups) {
  for (const Group& group : groups) {
    world_.barrier();
    const Bytes before = device_bytes_used();
    world_.barrier();
    ncclComm_t& communicator = communicators_.emplace_back(nullptr);
    if (group.size() > 1) {
      ncclUniqueId id;
      std::vector<Message> messages;
      if (group.me == 0) {
        check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
        for (std::int64_t place = 1; place < group.size(); ++place)
          messages.push_back({Direction::Send, group.at(place), unique_id_tag, &id, sizeof id});
      } else {
        messages.push_back({Direction::Receive, group.at(0), unique_id_tag, &id, sizeof id});
      }
      world_.exchange(messages, "an NCCL id");
      check_nccl(ncclCommInitRank(&communicator, static_cast<int>(group.size()), id, static_cast<int>(group.me)),
                 "ncclCommInitRank");
      // NCCL connects at the first use.
      auto* word = reinterpret_cast<std::uint64_t*>(&on_device_->first[DeviceFindings::most - 1]);
      check_nccl(ncclAllReduce(word, word, 1, ncclUint64, ncclSum, communicator, stream(compute)), "ncclAllReduce");
      check_cuda(cudaStreamSynchronize(stream(compute)), "cudaStreamSynchronize");
    }
    world_.barrier();
    rows_.push_back(
        {fmt::format("NCCL communicator {}", communicators_.size() - 1), device_bytes_used() - before, world_.size()});
  }
}

cudaStream_t CudaBackend::stream(StreamId id) {
  if (streams_.size() <= id.index()) streams_.resize(id.index() + 1, nullptr);
  cudaStream_t& found = streams_[id.index()];
  if (found == nullptr) check_cuda(cudaStreamCreateWithFlags(&found, cudaStreamNonBlocking), "cudaStreamCreate");
  return found;
}

void CudaBackend::allocate(BufferId buffer, Bytes size, StreamId its_stream) {
  give_back_what_is_done();
  memory_.allocate(buffer, size, its_stream);
}

void CudaBackend::give_back(BufferId buffer) {
  const CudaMemory::Held& held = memory_[buffer];
  fill_words(held.words, held.count, 0, 0, stream(held.stream));
  memory_.free(buffer);
}

void CudaBackend::release(BufferId buffer) {
  const auto borrowed = borrowed_.find(buffer);
  if (borrowed == borrowed_.end()) return give_back(buffer);
  Pending& waits = pending_.emplace_back(Pending{buffer, {}});
  for (const StreamId by : borrowed->second) {
    cudaEvent_t& event = waits.events.emplace_back(nullptr);
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    check_cuda(cudaEventRecord(event, stream(by)), "cudaEventRecord");
  }
  borrowed_.erase(borrowed);
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

void CudaBackend::borrow(BufferId buffer, StreamId by) { borrowed_[buffer].push_back(by); }

void CudaBackend::check(StreamId on, std::span<const Reading> readings) {
  for (const Reading& reading : readings) {
    const CudaMemory::Held& held = memory_[reading.buffer];
    const std::uint64_t number = readings_.size();
    readings_.emplace_back(reading.op, reading.buffer);
    for (const ContentRun& run : reading.expected) {
      if (run.end > held.count) throw std::runtime_error(narrator_.reading(reading.op, reading.buffer) + ": too small");
      check_words(held.words, run, number, on_device_, stream(on));
    }
  }
}

void CudaBackend::launch(StreamId on, const Kernel&, std::span<const Reading> readings,
                         std::span<const Writing> writings) {
  check(on, readings);
  for (const Writing& writing : writings) {
    const CudaMemory::Held& held = memory_[writing.buffer];
    // Every word, of which the expectation knows those on its grid.
    fill_words(held.words, held.count, writing.stamp, stamped(writing.stamp, held.count).front().slope, stream(on));
  }
  check_cuda(cudaGetLastError(), "a kernel");
}

void CudaBackend::collective(StreamId on, CommSlot slot, const Group& group, CollectiveKind kind, BufferId in_buffer,
                             BufferId out_buffer, Bytes size, const std::string& doing) {
  const ncclComm_t communicator = communicators_[slot.index()];
  const cudaStream_t queue = stream(on);
  std::uint64_t* in = memory_[in_buffer].words;
  std::uint64_t* out = memory_[out_buffer].words;
  const auto whole = static_cast<std::size_t>(device_scale.words(size));
  const auto part = static_cast<std::size_t>(shard_words(device_scale.words(size), group.size()));
  const auto me = static_cast<std::size_t>(group.me);
  const auto check = [&](ncclResult_t code) { check_nccl(code, doing.c_str()); };
  switch (kind) {
    case CollectiveKind::AllReduce:
      return check(ncclAllReduce(in, out, whole, ncclUint64, ncclSum, communicator, queue));
    case CollectiveKind::ReduceScatter:
      return check(
          ncclReduceScatter(in, in == out ? out + me * part : out, part, ncclUint64, ncclSum, communicator, queue));
    case CollectiveKind::AllGather:
      return check(ncclAllGather(in == out ? in + me * part : in, out, part, ncclUint64, communicator, queue));
    case CollectiveKind::Broadcast:
      return check(ncclBroadcast(in, out, whole, ncclUint64, 0, communicator, queue));
    case CollectiveKind::AllToAll:
      check(ncclGroupStart());
      for (int peer = 0; peer < static_cast<int>(group.size()); ++peer) {
        const std::size_t at = static_cast<std::size_t>(peer) * part;
        check(ncclSend(in + at, part, ncclUint64, peer, communicator, queue));
        check(ncclRecv(out + at, part, ncclUint64, peer, communicator, queue));
      }
      return check(ncclGroupEnd());
  }
}

void CudaBackend::exchange(StreamId on, CommSlot slot, const Group& group, std::span<const Delivery> deliveries,
                           const std::string& doing) {
  const ncclComm_t communicator = communicators_[slot.index()];
  check_nccl(ncclGroupStart(), doing.c_str());
  for (const Delivery& delivery : deliveries) {
    const CudaMemory::Held& held = memory_[delivery.buffer];
    const auto count = static_cast<std::size_t>(held.count);
    const auto peer =
        static_cast<int>(std::find(group.members.begin(), group.members.end(), delivery.peer) - group.members.begin());
    check_nccl(delivery.direction == Direction::Send
                   ? ncclSend(held.words, count, ncclUint64, peer, communicator, stream(on))
                   : ncclRecv(held.words, count, ncclUint64, peer, communicator, stream(on)),
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
  const auto until = std::chrono::steady_clock::now() + time_limit_;
  for (;;) {
    const cudaError_t state = cudaEventQuery(event);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check_cuda(state, "cudaEventQuery");
    world_.listen();
    if (std::chrono::steady_clock::now() > until)
      world_.report_failure(fmt::format("waited {} s for {}", time_limit_.count(), doing));
    std::this_thread::yield();
  }
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

}  // namespace tidemark
