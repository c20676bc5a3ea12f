#include "kernels/execute/detail/cuda_virtual_memory.hpp"

#include <iterator>
#include <stdexcept>
#include <utility>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace tidemark::execute {
namespace {

// The driver's own functions, by way of the runtime: nothing links to the driver, which build machines lack.
template <class Function>
Function driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t code = cudaGetDriverEntryPointByVersion(name, &found, 11030, cudaEnableDefault, &result);
#else
  const cudaError_t code = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &result);
#endif
  if (code != cudaSuccess || result != cudaDriverEntryPointSuccess || found == nullptr)
    throw std::runtime_error(fmt::format("the driver has no {}: it has no virtual memory management", name));
  return reinterpret_cast<Function>(found);
}

struct Driver {
  decltype(&cuMemAddressReserve) reserve = driver_function<decltype(&cuMemAddressReserve)>("cuMemAddressReserve");
  decltype(&cuMemAddressFree) free = driver_function<decltype(&cuMemAddressFree)>("cuMemAddressFree");
  decltype(&cuMemCreate) create = driver_function<decltype(&cuMemCreate)>("cuMemCreate");
  decltype(&cuMemRelease) release = driver_function<decltype(&cuMemRelease)>("cuMemRelease");
  decltype(&cuMemMap) map = driver_function<decltype(&cuMemMap)>("cuMemMap");
  decltype(&cuMemUnmap) unmap = driver_function<decltype(&cuMemUnmap)>("cuMemUnmap");
  decltype(&cuMemSetAccess) set_access = driver_function<decltype(&cuMemSetAccess)>("cuMemSetAccess");
  decltype(&cuGetErrorString) error_string = driver_function<decltype(&cuGetErrorString)>("cuGetErrorString");
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

void check_driver(CUresult code, const char* call) {
  if (code == CUDA_SUCCESS) return;
  const char* words = nullptr;
  driver().error_string(code, &words);
  throw std::runtime_error(fmt::format("{} failed: {}", call, words == nullptr ? "unknown error" : words));
}

CUmemAllocationProp pages_of(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

}  // namespace

CudaVirtualSegments::CudaVirtualSegments() {
  check_cuda(cudaFree(nullptr), "cudaFree");  // so that there is a context
  check_cuda(cudaGetDevice(&device_), "cudaGetDevice");
  static_cast<void>(driver());
}

CudaVirtualSegments::~CudaVirtualSegments() {
  for (auto& [address, space] : spaces_) {
    cudaDeviceSynchronize();
    for (std::size_t i = 0; i < space.pages.size(); ++i) {
      if (space.pages[i] == 0) continue;
      driver().unmap(space.memory + i * static_cast<std::size_t>(space.page.count()),
                     static_cast<std::size_t>(space.page.count()));
      driver().release(space.pages[i]);
    }
    driver().free(space.memory, static_cast<std::size_t>(space.size.count()));
  }
}

std::optional<Address> CudaVirtualSegments::reserve(Bytes size, Bytes page, StreamId stream) {
  CUdeviceptr memory = 0;
  if (driver().reserve(&memory, static_cast<std::size_t>(size.count()), 0, 0, 0) != CUDA_SUCCESS) return std::nullopt;
  const std::optional<Address> address = addresses_.reserve(size, page, stream);
  if (address)
    spaces_.emplace(*address, Space{memory, size, page,
                                    std::vector<CUmemGenericAllocationHandle>(static_cast<std::size_t>(size / page))});
  return address;
}

void CudaVirtualSegments::unreserve(Address address, Bytes size) {
  const auto space = spaces_.find(address);
  ensure(space != spaces_.end(), "address space is given back once");
  check_driver(driver().free(space->second.memory, static_cast<std::size_t>(size.count())), "cuMemAddressFree");
  spaces_.erase(space);
  addresses_.unreserve(address, size);
}

bool CudaVirtualSegments::map(Address address, Bytes size) {
  const auto found = space_at(address);
  Space& space = found->second;
  const auto page = static_cast<std::size_t>(space.page.count());
  const auto begin = static_cast<std::size_t>((address - found->first) / space.page);
  const std::size_t end = begin + static_cast<std::size_t>(size / space.page);
  const CUmemAllocationProp properties = pages_of(device_);
  for (std::size_t i = begin; i < end; ++i) {
    const CUresult code = driver().create(&space.pages[i], page, &properties, 0);
    if (code == CUDA_ERROR_OUT_OF_MEMORY) {
      space.pages[i] = 0;
      while (i > begin) check_driver(driver().release(std::exchange(space.pages[--i], 0)), "cuMemRelease");
      return false;
    }
    check_driver(code, "cuMemCreate");
  }
  for (std::size_t i = begin; i < end; ++i)
    check_driver(driver().map(space.memory + i * page, page, 0, space.pages[i], 0), "cuMemMap");
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check_driver(driver().set_access(space.memory + begin * page, (end - begin) * page, &access, 1), "cuMemSetAccess");
  return true;
}

void CudaVirtualSegments::unmap(Address address, Bytes size) {
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const auto found = space_at(address);
  const auto begin = static_cast<std::size_t>((address - found->first) / found->second.page);
  unmap_pages(found->second, begin, begin + static_cast<std::size_t>(size / found->second.page));
}

void CudaVirtualSegments::unmap_pages(Space& space, std::size_t begin, std::size_t end) {
  const auto page = static_cast<std::size_t>(space.page.count());
  for (std::size_t i = begin; i < end; ++i) {
    check_driver(driver().unmap(space.memory + i * page, page), "cuMemUnmap");
    check_driver(driver().release(std::exchange(space.pages[i], 0)), "cuMemRelease");
  }
}

std::uint64_t* CudaVirtualSegments::at(Address address) const {
  const auto above = spaces_.upper_bound(address);
  if (above == spaces_.begin() || !(address < std::prev(above)->first + std::prev(above)->second.size))
    return segments_.at(address);
  const auto& [start, space] = *std::prev(above);
  return reinterpret_cast<std::uint64_t*>(space.memory + static_cast<CUdeviceptr>((address - start).count()));
}

CudaVirtualSegments::Spaces::iterator CudaVirtualSegments::space_at(Address address) {
  const auto above = spaces_.upper_bound(address);
  ensure(above != spaces_.begin(), "pages lie in address space that was reserved");
  return std::prev(above);
}

}  // namespace tidemark::execute
