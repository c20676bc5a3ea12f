#include "kernels/execute/detail/nccl.hpp"

#include <stdexcept>
#include <thread>
#include <vector>

#include <fmt/format.h>

namespace tidemark::execute {
namespace {

constexpr std::int32_t unique_id_tag = 3;

}  // namespace

void check_nccl(ncclResult_t code, const char* call) {
  if (code != ncclSuccess) throw std::runtime_error(fmt::format("{} failed: {}", call, ncclGetErrorString(code)));
}

ncclComm_t make_communicator(World& world, const Group& group) {
  ncclUniqueId id;
  std::vector<Message> messages;
  if (group.me == 0) {
    check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    for (std::int64_t place = 1; place < group.size(); ++place)
      messages.push_back({Direction::Send, group.at(place), unique_id_tag, &id, sizeof id});
  } else {
    messages.push_back({Direction::Receive, group.at(0), unique_id_tag, &id, sizeof id});
  }
  world.exchange(messages, "an NCCL id");
  ncclComm_t made = nullptr;
  check_nccl(ncclCommInitRank(&made, static_cast<int>(group.size()), id, static_cast<int>(group.me)),
             "ncclCommInitRank");
  return made;
}

void wait_for(World& world, cudaEvent_t event, std::chrono::seconds time_limit, const std::string& doing) {
  const auto until = std::chrono::steady_clock::now() + time_limit;
  for (;;) {
    const cudaError_t state = cudaEventQuery(event);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check_cuda(state, "cudaEventQuery");
    world.listen();
    if (std::chrono::steady_clock::now() > until)
      world.report_failure(fmt::format("waited {} s for {}", time_limit.count(), doing));
    std::this_thread::yield();
  }
}

}  // namespace tidemark::execute
