#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include "kernels/execute/detail/nccl.hpp"
#include "kernels/execute/gpu/device_place.hpp"
#include "kernels/execute/gpu/device_ranks.hpp"
#include "kernels/execute/process_memory.hpp"
#include "kernels/execute/world/mpi_world.hpp"
#include "kernels/math/half.hpp"

// tidemark_gpu_points FILE [--ranks N] [--repeats N] [--time-limit SECONDS]: measures products, copies and collectives
// of the GPUs of this machine, and what contexts and NCCL take of their memory, into a file of points, which `tidemark
// calibrate --from FILE` makes a cluster's file of. Under mpirun its ranks are mpirun's; otherwise it forks them.

namespace tidemark::execute {
namespace {

constexpr int yes = 0, bad_input = 2, machine_failed = 3;

struct Arguments {
  std::string file;
  std::int32_t ranks = 1;
  std::int64_t repeats = 15, time_limit = 600;
};

void check_cublas(cublasStatus_t code, const char* call) {
  if (code != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(fmt::format("{} failed: {}", call, cublasGetStatusString(code)));
}

/// Memory of the device, given back at the end.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(std::size_t bytes) {
    check_cuda(cudaMalloc(&data_, bytes), "cudaMalloc");
    check_cuda(cudaMemset(data_, 0, bytes), "cudaMemset");
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { cudaFree(data_); }
  [[nodiscard]] void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// What factors of a product hold: `count` numbers between -1 and 1, the same in every run. A device keeps its clock
/// where it multiplies zeros: an H100 made 8192 x 8192 x 8192 of them at 891 TFLOP/s, and makes no more than 720 to 800
/// of others.
std::vector<std::byte> random_numbers(cudaDataType type, std::size_t count) {
  std::mt19937 bits(1);
  std::vector<std::byte> made(count * (type == CUDA_R_32F ? sizeof(float) : sizeof(std::uint16_t)));
  std::byte* next = made.data();
  const auto put = [&](auto number) {
    std::memcpy(next, &number, sizeof number);
    next += sizeof number;
  };
  for (std::size_t i = 0; i < count; ++i) {
    const float number = static_cast<float>(bits() >> 8) * 0x1p-23F - 1;
    if (type == CUDA_R_32F) put(number);
    if (type == CUDA_R_16F) put(math::to_fp16(number));
    if (type == CUDA_R_16BF) put(math::to_bf16(number));
  }
  return made;
}

std::int64_t bytes_used() {
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<std::int64_t>(total - free);
}

class Bench {
 public:
  Bench(World& world, const Arguments& requested, const Place& place)
      : world_(world), requested_(requested), place_(place) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    for (cudaEvent_t* event : {&began_, &ended_}) check_cuda(cudaEventCreate(event), "cudaEventCreate");
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() {
    cudaEventDestroy(began_);
    cudaEventDestroy(ended_);
    cudaStreamDestroy(stream_);
  }

  // One line a point: picoseconds in the median, a quarter and three quarters, how often, and of what.
  [[nodiscard]] const std::string& points() const { return points_; }

  void facts() {
    cudaDeviceProp its{};
    check_cuda(cudaGetDeviceProperties(&its, place_.device), "cudaGetDeviceProperties");
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    int nccl = 0, driver = 0, memory_khz = 0;
    check_nccl(ncclGetVersion(&nccl), "ncclGetVersion");
    check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    static_cast<void>(cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, place_.device));
    fact("device", its.name);
    fact("compute_capability", fmt::format("{}.{}", its.major, its.minor));
    fact("capacity", fmt::format("{}", total));
    fact("multiprocessors", fmt::format("{}", its.multiProcessorCount));
    // Two transfers a clock.
    fact("memory_bandwidth", fmt::format("{}", 2000LL * memory_khz * (its.memoryBusWidth / 8)));
    fact("devices", fmt::format("{}", std::min(place_.devices, place_.ranks_on_machine)));
    fact("versions", fmt::format("CUDA driver {}, NCCL {}", driver, nccl));
  }
  void bytes(const std::string& what, std::int64_t count) { fact("bytes " + what, fmt::format("{}", count)); }

  void products() {
    cublasHandle_t handle = nullptr;
    const std::int64_t before = bytes_used();
    check_cublas(cublasCreate(&handle), "cublasCreate");
    check_cublas(cublasSetStream(handle, stream_), "cublasSetStream");
    constexpr std::array<int, 5> sizes{256, 1024, 2048, 4096, 8192};
    constexpr std::size_t most = std::size_t{8192} * 8192;
    const std::size_t largest = most * sizeof(float);
    const DeviceBuffer a(largest), b(largest), c(largest);
    const float alpha = 1, beta = 0;
    for (const auto& [name, type] :
         {std::pair("bf16", CUDA_R_16BF), std::pair("fp16", CUDA_R_16F), std::pair("fp32", CUDA_R_32F)}) {
      const std::vector<std::byte> numbers = random_numbers(type, most);
      for (const DeviceBuffer* factor : {&a, &b})
        check_cuda(cudaMemcpy(factor->get(), numbers.data(), numbers.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
      for (const int m : sizes)
        for (const int n : sizes)
          for (const int k : sizes)
            time(fmt::format("kernel matmul {} 1 {} {} {}", name, m, n, k), [&] {
              check_cublas(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &alpha, b.get(), type, n, a.get(),
                                        type, k, &beta, c.get(), type, n, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                           "cublasGemmEx");
            });
    }
    bytes("blas_handle", bytes_used() - before - 3 * static_cast<std::int64_t>(largest));
    check_cublas(cublasDestroy(handle), "cublasDestroy");
  }

  void copies() {
    constexpr std::size_t largest = std::size_t{1} << 28;
    const DeviceBuffer here(largest), there(largest);
    void* pinned = nullptr;
    check_cuda(cudaMallocHost(&pinned, largest), "cudaMallocHost");
    for (std::size_t size = 1 << 12; size <= largest; size *= 4) {
      time(fmt::format("kernel copy bf16 {}", 2 * size), [&] {
        check_cuda(cudaMemcpyAsync(there.get(), here.get(), size, cudaMemcpyDeviceToDevice, stream_),
                   "cudaMemcpyAsync");
      });
      time(fmt::format("copy 1 {}", size), [&] {
        check_cuda(cudaMemcpyAsync(here.get(), pinned, size, cudaMemcpyHostToDevice, stream_), "cudaMemcpyAsync");
      });
      time(fmt::format("copy 0 {}", size), [&] {
        check_cuda(cudaMemcpyAsync(pinned, here.get(), size, cudaMemcpyDeviceToHost, stream_), "cudaMemcpyAsync");
      });
    }
    cudaFreeHost(pinned);
    // What the host thread takes to hand something over.
    std::vector<std::int64_t> times;
    for (std::int64_t i = 0; i < 100 * requested_.repeats; ++i) {
      const auto began = std::chrono::steady_clock::now();
      check_cuda(cudaMemsetAsync(here.get(), 0, 4, stream_), "cudaMemsetAsync");
      times.push_back(
          std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - began).count() *
          1000);
      if (i % 100 == 99) check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    }
    add("op", std::move(times));
  }

  // Of groups side by side, of as many ranks as divide all.
  void collectives(std::int32_t members, std::int32_t nodes) {
    Group group{.members = {}, .me = world_.rank().value % members};
    for (std::int32_t i = 0; i < members; ++i) group.members.push_back({world_.rank().value / members * members + i});
    world_.barrier();
    const std::int64_t before = bytes_used();
    const ncclComm_t comm = make_communicator(world_, group);
    constexpr std::size_t largest = std::size_t{1} << 28;
    const DeviceBuffer in(largest), out(largest);
    const int me = static_cast<int>(group.me), next = (me + 1) % members, last = (me + members - 1) % members;
    for (std::size_t size = 1 << 12; size <= largest; size *= 4) {
      const std::size_t part = size / static_cast<std::size_t>(members);
      const auto named = [&](const char* kind) {
        return fmt::format("collective {} {} {} {}", kind, members, nodes, size);
      };
      const auto call = [&](const std::string& what, const std::function<ncclResult_t()>& work) {
        world_.barrier();
        time(what, [&] { check_nccl(work(), what.c_str()); });
      };
      call(named("all_reduce"),
           [&] { return ncclAllReduce(in.get(), out.get(), size / 2, ncclBfloat16, ncclSum, comm, stream_); });
      call(named("all_gather"),
           [&] { return ncclAllGather(in.get(), out.get(), part / 2, ncclBfloat16, comm, stream_); });
      call(named("reduce_scatter"),
           [&] { return ncclReduceScatter(in.get(), out.get(), part / 2, ncclBfloat16, ncclSum, comm, stream_); });
      call(named("broadcast"),
           [&] { return ncclBroadcast(in.get(), out.get(), size / 2, ncclBfloat16, 0, comm, stream_); });
      call(named("all_to_all"), [&] {
        check_nccl(ncclGroupStart(), "ncclGroupStart");
        for (int peer = 0; peer < members; ++peer) {
          const auto offset = static_cast<std::size_t>(peer) * part;
          check_nccl(ncclSend(static_cast<char*>(in.get()) + offset, part, ncclUint8, peer, comm, stream_), "ncclSend");
          check_nccl(ncclRecv(static_cast<char*>(out.get()) + offset, part, ncclUint8, peer, comm, stream_),
                     "ncclRecv");
        }
        return ncclGroupEnd();
      });
      if (members == 2)
        call(fmt::format("message {} {}", nodes > 1 ? 1 : 0, size), [&] {
          check_nccl(ncclGroupStart(), "ncclGroupStart");
          check_nccl(ncclSend(in.get(), size, ncclUint8, next, comm, stream_), "ncclSend");
          check_nccl(ncclRecv(out.get(), size, ncclUint8, last, comm, stream_), "ncclRecv");
          return ncclGroupEnd();
        });
    }
    bytes(fmt::format("communicator {} {}", members, nodes),
          bytes_used() - before - 2 * static_cast<std::int64_t>(largest));
    check_nccl(ncclCommDestroy(comm), "ncclCommDestroy");
  }

 private:
  void fact(const std::string& what, const std::string& value) { points_ += fmt::format("fact {}: {}\n", what, value); }

  void add(const std::string& what, std::vector<std::int64_t> times) {
    std::sort(times.begin(), times.end());
    const auto quarter = [&](std::size_t n) { return times[(times.size() - 1) * n / 4]; };
    points_ += fmt::format("{} {} {} {} {}\n", quarter(2), quarter(1), quarter(3), times.size(), what);
  }

  // Each time alone, after a first that does not count.
  void time(const std::string& what, const std::function<void()>& work) {
    std::vector<std::int64_t> times;
    for (std::int64_t i = 0; i <= requested_.repeats; ++i) {
      check_cuda(cudaEventRecord(began_, stream_), "cudaEventRecord");
      work();
      check_cuda(cudaEventRecord(ended_, stream_), "cudaEventRecord");
      wait_for(world_, ended_, std::chrono::seconds(requested_.time_limit), what);
      float milliseconds = 0;
      check_cuda(cudaEventElapsedTime(&milliseconds, began_, ended_), "cudaEventElapsedTime");
      if (i > 0) times.push_back(static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e9));
    }
    add(what, std::move(times));
  }

  World& world_;
  const Arguments& requested_;
  const Place& place_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t began_ = nullptr, ended_ = nullptr;
  std::string points_;
};

int run_rank(World& world, const Arguments& requested) {
  int devices = 0;
  const bool has_device = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
  if (!world.first_said(has_device ? "" : "no GPU").empty()) {
    if (world.rank().value == 0) fmt::print(stderr, "tidemark_gpu_points: skipped: this machine has no GPU\n");
    return machine_failed;
  }
  const Place place = take_place(world);
  check_cuda(cudaSetDevice(place.device), "cudaSetDevice");
  world.barrier();
  Bench bench(world, requested, place);
  bench.facts();
  bench.bytes("context", bytes_used());  // of this process, and of whoever else is on the device
  bench.products();
  bench.copies();
  for (std::int32_t members = 2; members <= world.size(); ++members)
    if (world.size() % members == 0)
      bench.collectives(members, (members + place.ranks_on_machine - 1) / place.ranks_on_machine);
  const std::vector<std::string> everyone = world.gather(bench.points());
  if (world.rank().value == 0) {
    std::ofstream file(requested.file);
    file << fmt::format("fact machine: {}\nfact ranks: {}\nfact ranks_per_host: {}\n", machine_description(),
                        world.size(), place.ranks_on_machine);
    for (const std::string& one : everyone) file << one;
    if (!file.flush()) throw std::runtime_error("cannot write " + requested.file);
    fmt::print("points of {} ranks are in {}; next: tidemark calibrate --from {}\n", world.size(), requested.file,
               requested.file);
  }
  return yes;
}

std::optional<Arguments> arguments_of(int argc, char** argv) {
  Arguments arguments;
  const auto number = [&](int i) { return i < argc ? std::atoll(argv[i]) : 0; };
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--ranks")
      arguments.ranks = static_cast<std::int32_t>(number(++i));
    else if (word == "--repeats")
      arguments.repeats = number(++i);
    else if (word == "--time-limit")
      arguments.time_limit = number(++i);
    else if (arguments.file.empty() && !word.starts_with('-'))
      arguments.file = word;
    else
      return std::nullopt;
  }
  if (arguments.file.empty() || arguments.ranks < 1 || arguments.repeats < 1 || arguments.time_limit < 1)
    return std::nullopt;
  return arguments;
}

}  // namespace
}  // namespace tidemark::execute

int main(int argc, char** argv) {
  using namespace tidemark::execute;
  const std::optional<Arguments> arguments = arguments_of(argc, argv);
  if (!arguments) {
    fmt::print(stderr, "usage: tidemark_gpu_points FILE [--ranks N] [--repeats N] [--time-limit SECONDS]\n");
    return bad_input;
  }
  try {
    return run_device_ranks("tidemark_gpu_points", arguments->ranks, std::chrono::seconds(arguments->time_limit),
                            [&](World& world) { return run_rank(world, *arguments); });
  } catch (const std::exception& error) {
    fmt::print(stderr, "tidemark_gpu_points: {}\n", error.what());
    return machine_failed;
  }
}
