#include "kernels/execute/gpu/device_place.hpp"

#include <cstdlib>
#include <string>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "kernels/execute/detail/check_cuda.hpp"

namespace tidemark::execute {
namespace {

std::int32_t said(const char* variable, std::int32_t otherwise) {
  const char* given = std::getenv(variable);
  return given == nullptr ? otherwise : std::atoi(given);
}

// NCCL refuses two ranks on one device unless it takes them for two machines; those then talk over loopback sockets.
// (NCCL 2.28: init.cc compares host hashes, which NCCL_HOSTID replaces.)
void let_ranks_share(Rank rank) {
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 0); };
  set("NCCL_HOSTID", fmt::format("tidemark-{}", rank.value));
  set("NCCL_SOCKET_IFNAME", "lo");
  set("NCCL_SOCKET_FAMILY", "AF_INET");
  set("NCCL_NET", "Socket");
  set("NCCL_IB_DISABLE", "1");
  set("NCCL_MNNVL_ENABLE", "0");
  set("NCCL_NVLS_ENABLE", "0");
  set("NCCL_RAS_ENABLE", "0");
  set("NCCL_MAX_CTAS", "2");
  set("NCCL_ALGO", "Ring");
}

}  // namespace

Place take_place(const World& world) {
  Place place;
  check_cuda(cudaGetDeviceCount(&place.devices), "cudaGetDeviceCount");
  place.ranks_on_machine = said("OMPI_COMM_WORLD_LOCAL_SIZE", world.size());
  place.device = said("OMPI_COMM_WORLD_LOCAL_RANK", world.rank().value) % place.devices;
  if (place.shared()) let_ranks_share(world.rank());
  return place;
}

}  // namespace tidemark::execute
