#include <cstdlib>
#include <limits>
#include <new>

#include <malloc.h>
#include <sys/mman.h>

// Programs are vectors of hundreds of megabytes that come and go: half the time of making one went to faults of 4 KiB
// pages. Large allocations are aligned to pages of 2 MiB, and the kernel is asked for these. What was given up is kept
// for what comes next: glibc gives memory back to the kernel as soon as 128 KiB lie free at the end of its heap.

namespace {

constexpr std::size_t large_page = std::size_t{2} << 20U, large = 4 * large_page;

#ifdef __GLIBC__
constexpr int largest_threshold = 32 << 20;  // of mmap that glibc takes
[[maybe_unused]] const bool keeps = mallopt(M_MMAP_THRESHOLD, largest_threshold) != 0 &&
                                    mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max()) != 0;
#endif

}  // namespace

void* operator new(std::size_t size) {
  void* const memory = size < large ? std::malloc(size)
                                    : std::aligned_alloc(large_page, (size + large_page - 1) / large_page * large_page);
  if (memory == nullptr && size > 0) throw std::bad_alloc();
  if (size >= large) madvise(memory, size, MADV_HUGEPAGE);  // where there are none, it stays as it is
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }
