// Host memory for null_cuda.c, preloaded before it: what is pinned, what PyTorch's tensors take that are not, what
// crosses between host and device, and where the host waits. Each of these is told to a callback, in the order in which
// it happens; who asked for it can be read of the caller's stack there.
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

extern void* __libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void* pointer);

enum What { kPageable, kPageableGone, kPinned, kPinnedGone, kRegistered, kRegisteredGone, kToDevice, kToHost, kWait };
typedef void (*Told)(int what, size_t address, size_t bytes, size_t stream, int pinned);

static Told told;
static __thread int telling;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void host_memory_tell(Told callback) { told = callback; }

static void tell(enum What what, const void* address, size_t bytes, const void* stream, int pinned) {
  if (!told || telling) return;
  telling = 1;
  told(what, (size_t)address, bytes, (size_t)stream, pinned);
  telling = 0;
}

// ---- tensors on pageable memory ------------------------------------------------------------------------------------
// c10 asks posix_memalign for every tensor on the host, in multiples of 64 bytes' alignment. Others (OpenMP, oneDNN) do
// too: only what comes from libc10 counts.

enum { kSlots = 1 << 18 };
static struct {
  uintptr_t address;  // 0: never used; 1: used once
  size_t bytes;
} slots[kSlots];
static volatile size_t tracked;

static size_t slot_of(uintptr_t address) { return (address >> 6) * 0x9E3779B97F4A7C15ull >> 46; }

static int from_c10(const void* caller) {
  static __thread const void* last;
  static __thread int answer;
  if (caller == last) return answer;
  Dl_info info;
  last = caller;
  return answer = dladdr(caller, &info) && info.dli_fname && strstr(info.dli_fname, "libc10.so");
}

int posix_memalign(void** pointer, size_t alignment, size_t bytes) {
  *pointer = __libc_memalign(alignment, bytes);
  if (!*pointer) return ENOMEM;
  if (!from_c10(__builtin_return_address(0))) return 0;
  pthread_mutex_lock(&mutex);
  size_t slot = slot_of((uintptr_t)*pointer);
  while (slots[slot].address > 1) slot = (slot + 1) % kSlots;
  slots[slot].address = (uintptr_t)*pointer;
  slots[slot].bytes = bytes;
  ++tracked;
  pthread_mutex_unlock(&mutex);
  tell(kPageable, *pointer, bytes, NULL, 0);
  return 0;
}

void free(void* pointer) {
  size_t bytes = 0;
  if (tracked && ((uintptr_t)pointer & 63) == 0 && pointer) {
    pthread_mutex_lock(&mutex);
    for (size_t slot = slot_of((uintptr_t)pointer); slots[slot].address; slot = (slot + 1) % kSlots)
      if (slots[slot].address == (uintptr_t)pointer) {
        slots[slot].address = 1;
        bytes = slots[slot].bytes;
        --tracked;
        break;
      }
    pthread_mutex_unlock(&mutex);
  }
  if (bytes) tell(kPageableGone, pointer, bytes, NULL, 0);
  __libc_free(pointer);
}

// ---- pinned memory -------------------------------------------------------------------------------------------------

enum { kMostPinned = 1 << 16 };
static struct {
  char* begin;
  size_t bytes;
} pinned[kMostPinned];
static int pinned_count;

static void add_pinned(void* address, size_t bytes) {
  pthread_mutex_lock(&mutex);
  pinned[pinned_count].begin = address;
  pinned[pinned_count++].bytes = bytes;
  pthread_mutex_unlock(&mutex);
}

static size_t drop_pinned(const void* address) {
  size_t bytes = 0;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < pinned_count; ++i)
    if (pinned[i].begin == address) {
      bytes = pinned[i].bytes;
      pinned[i] = pinned[--pinned_count];
      break;
    }
  pthread_mutex_unlock(&mutex);
  return bytes;
}

static int is_pinned(const void* address) {
  int found = 0;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < pinned_count && !found; ++i)
    found = pinned[i].begin <= (const char*)address && (const char*)address < pinned[i].begin + pinned[i].bytes;
  pthread_mutex_unlock(&mutex);
  return found;
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  enum { kPage = 4096 };
  *pointer = __libc_memalign(kPage, bytes ? bytes : 1);
  if (!*pointer) return cudaErrorMemoryAllocation;
  add_pinned(*pointer, bytes);
  tell(kPinned, *pointer, bytes, NULL, 1);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }
cudaError_t cudaFreeHost(void* pointer) {
  tell(kPinnedGone, pointer, drop_pinned(pointer), NULL, 1);
  __libc_free(pointer);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned flags) {
  add_pinned(pointer, bytes);
  tell(kRegistered, pointer, bytes, NULL, 1);
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* pointer) {
  tell(kRegisteredGone, pointer, drop_pinned(pointer), NULL, 1);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* attributes, const void* pointer) {
  memset(attributes, 0, sizeof *attributes);
  attributes->type = is_pinned(pointer) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
  attributes->hostPointer = (void*)pointer;
  return cudaSuccess;
}

// ---- what crosses, and where the host waits
// --------------------------------------------------------------------------

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind == cudaMemcpyHostToDevice) tell(kToDevice, from, bytes, stream, is_pinned(from));
  if (kind == cudaMemcpyDeviceToHost) tell(kToHost, to, bytes, stream, is_pinned(to));
  if (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToDevice) memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  tell(kWait, NULL, 0, stream, 0);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  tell(kWait, NULL, 0, NULL, 0);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
  tell(kWait, NULL, 0, NULL, 0);
  return cudaSuccess;
}

// ---- events that are not over yet
// ------------------------------------------------------------------------------------ Each stream's records are
// numbered from 1; a record is over when host_memory_done() has said so, or when nobody asked to hold any.

enum { kEvents = 1 << 16, kStreams = 64, kNotReady = 600 };
static const size_t kFirstEvent = 0x100000, kEventStep = 0x10;  // null_cuda.c's handles
static struct {
  size_t stream;
  long number;
} events[kEvents];
static struct {
  size_t stream;
  long recorded, done;
} streams[kStreams];
static int stream_count, holding;

static int index_of(size_t stream) {
  for (int i = 0; i < stream_count; ++i)
    if (streams[i].stream == stream) return i;
  streams[stream_count].stream = stream;
  return stream_count++;
}

void host_memory_hold_events(void) { holding = 1; }
// The stream has done all that was recorded so far.
void host_memory_done(size_t stream) {
  const int i = index_of(stream);
  streams[i].done = streams[i].recorded;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const size_t e = ((size_t)event - kFirstEvent) / kEventStep % kEvents;
  const int i = index_of((size_t)stream);
  events[e].stream = (size_t)stream;
  events[e].number = ++streams[i].recorded;
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const size_t e = ((size_t)event - kFirstEvent) / kEventStep % kEvents;
  if (!holding) return cudaSuccess;
  return events[e].number <= streams[index_of(events[e].stream)].done ? cudaSuccess : (cudaError_t)kNotReady;
}
