#include "scenarios/cli/threads.hpp"

#include <algorithm>
#include <cstdint>
#include <fstream>

#include <sys/resource.h>
#include <unistd.h>

#include "sim/base/in_parallel.hpp"

namespace tidemark::cli {
namespace {

// A stack (8 MiB is Linux' default, oneTBB's workers take 4), and the 64 MiB of addresses that glibc's malloc reserves
// for a thread's heap (HEAP_MAX_SIZE in malloc/arena.c).
constexpr std::uint64_t of_thread = std::uint64_t{72} << 20U;

std::uint64_t address_space_used() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

// Half of what is left is for what the threads work on.
std::size_t working_threads() {
  const std::size_t cores = sim::cores();
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return cores;
  const std::uint64_t used = address_space_used(), all = limit.rlim_cur;
  const std::uint64_t room = all > used ? (all - used) / 2 / of_thread : 0;
  return std::clamp<std::size_t>(room, 1, cores);
}

}  // namespace tidemark::cli
