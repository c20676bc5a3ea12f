#include "kernels/execute/gpu/nccl_world.hpp"

#include "kernels/execute/detail/nccl.hpp"

namespace tidemark::execute {
namespace {

class NcclWorld final : public World {
 public:
  NcclWorld(World& world, std::chrono::seconds time_limit) : world_(world), time_limit_(time_limit) {
    Group all{.members = {}, .me = world.rank().value};
    for (Rank rank{0}; rank.value < world.size(); ++rank.value) all.members.push_back(rank);
    communicator_ = make_communicator(world, all);
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  }
  ~NcclWorld() override {
    ncclCommAbort(communicator_);
    cudaEventDestroy(event_);
    cudaStreamDestroy(stream_);
  }

  [[nodiscard]] Rank rank() const override { return world_.rank(); }
  [[nodiscard]] std::int32_t size() const override { return world_.size(); }
  void listen() override { world_.listen(); }
  void report_failure(const std::string& why) override { world_.report_failure(why); }

  void exchange(std::span<const Message> messages, const std::string& doing) override {
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check_nccl(ncclGroupStart(), doing.c_str());
    for (const Message& m : messages)
      check_nccl(m.direction == Direction::Send
                     ? ncclSend(m.data, m.bytes, ncclUint8, m.peer.value, communicator_, stream_)
                     : ncclRecv(m.data, m.bytes, ncclUint8, m.peer.value, communicator_, stream_),
                 doing.c_str());
    check_nccl(ncclGroupEnd(), doing.c_str());
    check_cuda(cudaEventRecord(event_, stream_), "cudaEventRecord");
    wait_for(world_, event_, time_limit_, doing);
  }

 private:
  World& world_;
  std::chrono::seconds time_limit_;
  ncclComm_t communicator_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

}  // namespace

std::unique_ptr<World> nccl_world(World& world, std::chrono::seconds time_limit) {
  return std::make_unique<NcclWorld>(world, time_limit);
}

}  // namespace tidemark::execute
