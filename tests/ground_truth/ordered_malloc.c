// cudaMalloc for null_cuda.c, preloaded before it: addresses that rise, or fall if ADDRESSES=fall, and are never used
// again, on a device of DEVICE_BYTES. Which of free blocks of equal size PyTorch's allocator takes depends on that, or
// does not.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { kMost = 1 << 16 };
static const size_t kSpace = 1ull << 42, kMiB = 1 << 20;
static char* next;
static int falls;
static size_t used, capacity;
static struct {
  void* address;
  size_t bytes;
} given[kMost];
static int count;

static void begin(void) {
  if (next) return;
  const char* const bytes = getenv("DEVICE_BYTES");
  capacity = bytes ? strtoull(bytes, NULL, 10) : 80ull << 30;
  const char* const addresses = getenv("ADDRESSES");
  falls = addresses && strcmp(addresses, "fall") == 0;
  next = mmap(NULL, kSpace, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (falls) next += kSpace;
}

int cudaMalloc(void** address, size_t bytes) {
  enum { kOutOfMemory = 2 };
  begin();
  if (used + bytes > capacity || count == kMost) return kOutOfMemory;
  const size_t taken = (bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
  if (falls) next -= taken;
  *address = next;
  if (!falls) next += taken;
  given[count].address = *address;
  given[count++].bytes = bytes;
  used += bytes;
  return 0;
}
int cudaFree(void* address) {
  for (int i = 0; i < count; ++i)
    if (given[i].address == address) {
      used -= given[i].bytes;
      given[i] = given[--count];
      break;
    }
  return 0;
}
int cudaMemGetInfo(size_t* free, size_t* total) {
  begin();
  *total = capacity;
  *free = capacity - used;
  return 0;
}
