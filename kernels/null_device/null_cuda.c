// CUDA without a device: preloaded, it makes a CUDA build of PyTorch believe in GPUs whose kernels do nothing.
// PyTorch's host code and its caching allocator run unchanged over memory that is only an address range. `tidemark
// dry-run` starts trainings on it (docs/dry-run.md), and tests/ground_truth records with it.
//
// No header of CUDA is needed to build it: what it takes and gives is declared here, as CUDA 12 and 13 have it. Where
// the two differ, the name of the function says which one asks: CUDA 12's calls are cudaGetDeviceProperties_v2,
// cudaStreamGetCaptureInfo_v2 and _v3.
//
// What device memory holds was copied there from the host, or is zero: kernels write nothing. What it is told:
//   NULL_CUDA_CAPABILITY       major x 10 + minor (80)
//   NULL_CUDA_MULTIPROCESSORS  (those of an A100, or from 90 on of an H100)
//   NULL_CUDA_NAME             of the device ("no device")
//   NULL_CUDA_DEVICES          how many there are (1)
//   NULL_CUDA_MEMORY           what cudaMemGetInfo calls total (80 GiB)
//   NULL_CUDA_LIMIT            bytes of each device that can be allocated (no limit)
//   NULL_CUDA_KEEP             copies to the device of more bytes than that are forgotten (none)
//   NULL_CUDA_GUARD            a call of a function that is not here is told and ends the process (guard.c)
#define _GNU_SOURCE
#include "kernels/null_device/null_cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define OK(name, ...) \
  cudaError_t name(__VA_ARGS__) { return cudaSuccess; }

enum { kMiB = 1 << 20 };

// What PyTorch's host code reads of a chip: the sizes of some reductions' buffers follow from it. From NVIDIA's A100,
// H100 (SXM) and Blackwell architecture white papers; 8.6 and 8.9 from the CUDA C programming guide, table of
// capabilities, and Ada's white paper.
struct Chip {
  int capability, multiprocessors, shared, l2, threads;
};
static const struct Chip kChips[] = {
    {80, 108, 164 << 10, 40 << 20, 2048}, {86, 82, 100 << 10, 6 << 20, 1536},     {89, 128, 100 << 10, 72 << 20, 1536},
    {90, 132, 228 << 10, 50 << 20, 2048}, {100, 148, 228 << 10, 126 << 20, 2048},
};

static long long told(const char* name, long long otherwise) {
  const char* const text = getenv(name);
  return text && *text ? atoll(text) : otherwise;
}
static int device_capability(void) { return (int)told("NULL_CUDA_CAPABILITY", 80); }
static int device_count(void) { return (int)told("NULL_CUDA_DEVICES", 1); }
static size_t device_memory(void) { return (size_t)told("NULL_CUDA_MEMORY", 80ll << 30); }

// The nearest one that is no newer.
static struct Chip chip(void) {
  struct Chip found = kChips[0];
  for (size_t i = 0; i < sizeof kChips / sizeof *kChips; ++i)
    if (kChips[i].capability <= device_capability()) found = kChips[i];
  found.multiprocessors = (int)told("NULL_CUDA_MULTIPROCESSORS", found.multiprocessors);
  return found;
}

// ---- what is allocated ----

enum Kind { kHost = 1, kDevice = 2, kReserved = 3, kManaged = 4 };
struct Range {
  char* begin;
  size_t bytes;
  enum Kind kind;
  int device;
};
enum { kDevices = 64 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct Range* ranges;
static size_t range_count, range_room;
static size_t used[kDevices];
static __thread int current_device;

static size_t limit(void) {
  static size_t known;
  if (!known) known = (size_t)told("NULL_CUDA_LIMIT", -1);
  return known;
}
// Whether the device has them: they are its from now on.
static int take(int device, size_t bytes) {
  pthread_mutex_lock(&lock);
  const int fits = bytes <= limit() && used[device] <= limit() - bytes;
  if (fits) used[device] += bytes;
  pthread_mutex_unlock(&lock);
  return fits;
}
static void give(int device, size_t bytes) {
  pthread_mutex_lock(&lock);
  used[device] -= bytes;
  pthread_mutex_unlock(&lock);
}
static int remember(void* begin, size_t bytes, enum Kind kind, int device) {
  pthread_mutex_lock(&lock);
  if (range_count == range_room) {
    const size_t room = range_room ? 2 * range_room : 1024;
    struct Range* const more = realloc(ranges, room * sizeof *ranges);
    if (!more) {
      pthread_mutex_unlock(&lock);
      return 0;
    }
    ranges = more;
    range_room = room;
  }
  ranges[range_count++] = (struct Range){begin, bytes, kind, device};
  pthread_mutex_unlock(&lock);
  return 1;
}
// The range that begins there, which is known no more; one without bytes where there is none.
static struct Range forget(void* begin) {
  struct Range found = {NULL, 0, kHost, 0};
  pthread_mutex_lock(&lock);
  for (size_t i = range_count; i-- > 0 && !found.begin;)
    if (ranges[i].begin == begin) {
      found = ranges[i];
      ranges[i] = ranges[--range_count];
    }
  pthread_mutex_unlock(&lock);
  return found;
}
static struct Range range_of(const void* pointer) {
  struct Range found = {NULL, 0, kHost, 0};
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < range_count && !found.begin; ++i)
    if ((const char*)pointer >= ranges[i].begin && (const char*)pointer < ranges[i].begin + ranges[i].bytes)
      found = ranges[i];
  pthread_mutex_unlock(&lock);
  return found;
}

static void* address_range(size_t bytes) {
  void* const found = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return found == MAP_FAILED ? NULL : found;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count() || device >= kDevices) return cudaErrorInvalidDevice;
  current_device = device;
  return cudaSuccess;
}
// The runtime that is loaded says which it is: a constant of its own, for which it asks no device.
cudaError_t cudaRuntimeGetVersion(int* version) {
  cudaError_t (*const real)(int*) = (cudaError_t(*)(int*))dlsym(RTLD_NEXT, "cudaRuntimeGetVersion");
  *version = 13000;
  return real ? real(version) : cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }
// What the last launch that failed told, which host code asks for behind it.
static _Thread_local cudaError_t last_error;
cudaError_t cudaPeekAtLastError(void) { return last_error; }
cudaError_t cudaGetLastError(void) {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
OK(cudaDeviceSynchronize, void)

// Where struct cudaDeviceProp has what is asked of it (driver_types.h of CUDA 12.4 and 13.2).
struct Layout {
  size_t bytes, multiprocessors, bus_width, l2, threads_per_multiprocessor, shared_per_multiprocessor,
      registers_per_multiprocessor, shared_opt_in, unified_addressing, concurrent_kernels, map_host_memory;
};
static const struct Layout kCuda12 = {1032, 388, 612, 616, 624, 640, 648, 696, 604, 576, 400};
static const struct Layout kCuda13 = {1008, 384, 592, 596, 604, 624, 632, 672, 588, 560, 392};

static void put(char* p, size_t at, int value) { memcpy(p + at, &value, sizeof value); }
static void put_size(char* p, size_t at, size_t value) { memcpy(p + at, &value, sizeof value); }

static cudaError_t properties(char* p, const struct Layout* of, int device) {
  if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
  const int capability = device_capability();
  const struct Chip its = chip();
  const char* const name = getenv("NULL_CUDA_NAME");
  memset(p, 0, of->bytes);
  snprintf(p, 256, "%s", name ? name : "no device");
  put(p, 256, device + 1);  // uuid
  put_size(p, 288, device_memory());
  put_size(p, 296, 48 << 10);  // shared memory per block
  put(p, 304, 65536);          // registers per block
  put(p, 308, 32);             // threads of a warp
  put(p, 320, 1024);           // threads per block, and in each dimension
  put(p, 324, 1024);
  put(p, 328, 1024);
  put(p, 332, 64);
  put(p, 336, 2147483647);  // blocks of a grid in each dimension
  put(p, 340, 65535);
  put(p, 344, 65535);
  put_size(p, 352, 64 << 10);  // constant memory
  put(p, 360, capability / 10);
  put(p, 364, capability % 10);
  put_size(p, 368, 512);  // alignment of textures
  put(p, of->multiprocessors, its.multiprocessors);
  put(p, of->bus_width, 5120);
  put(p, of->l2, its.l2);
  put(p, of->threads_per_multiprocessor, its.threads);
  put_size(p, of->shared_per_multiprocessor, (size_t)its.shared);
  put(p, of->registers_per_multiprocessor, 65536);
  put_size(p, of->shared_opt_in, (size_t)its.shared - 1024);
  put(p, of->unified_addressing, 1);
  put(p, of->concurrent_kernels, 1);
  put(p, of->map_host_memory, 1);
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* p, int device) {
  return properties((char*)p, &kCuda13, device);
}
cudaError_t cudaGetDeviceProperties_v2(struct cudaDeviceProp* p, int device) {
  return properties((char*)p, &kCuda12, device);
}
cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attribute, int device) {
  const int capability = device_capability();
  const struct Chip its = chip();
  (void)device;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = its.multiprocessors;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = capability / 10;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = capability % 10;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = its.shared - 1024;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = 48 << 10;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = 1024;
      break;
    case cudaDevAttrMaxGridDimX:
      *value = 2147483647;
      break;
    case cudaDevAttrWarpSize:
      *value = 32;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
      *value = 65536;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = 5120;
      break;
    case cudaDevAttrClockRate:
    case cudaDevAttrMemoryClockRate:
      *value = 1000000;  // kHz; Triton divides by it
      break;
    default:
      *value = 0;
  }
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = device_memory();
  if (limit() != (size_t)-1) *free = limit() - used[current_device];
  return cudaSuccess;
}

// Addresses are not given twice, so that what an allocator does depends on nothing but its requests.
cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  const size_t pages = (bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
  guard();
  if (!take(current_device, pages)) return cudaErrorMemoryAllocation;
  *pointer = address_range(pages);
  if (*pointer && remember(*pointer, pages, kDevice, current_device)) return cudaSuccess;
  give(current_device, pages);
  return cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* pointer) {
  const struct Range range = forget(pointer);
  if (range.begin && range.kind == kDevice) {
    give(range.device, range.bytes);
    madvise(range.begin, range.bytes, MADV_DONTNEED);
  } else if (range.kind == kManaged) {
    free(range.begin);
  }
  return cudaSuccess;
}
// Host and device do exchange bytes, which some host code waits for (DistributedDataParallel sends its buckets' order
// through the device). What kernels would have written is zero.
static int on_device(const void* pointer) {
  const enum Kind kind = range_of(pointer).kind;
  return kind == kDevice || kind == kReserved;
}
static _Thread_local int answers;
static _Thread_local long long answer;
void null_cuda_answer(long long number) {
  answer = number;
  answers = 1;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  (void)stream;
  if (kind == cudaMemcpyDefault)
    kind = on_device(to) ? (on_device(from) ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice)
                         : (on_device(from) ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost);
  if (kind == cudaMemcpyHostToDevice && bytes > (size_t)told("NULL_CUDA_KEEP", -1)) return cudaSuccess;
  if (kind != cudaMemcpyDeviceToDevice) memcpy(to, from, bytes);
  if (kind == cudaMemcpyDeviceToHost && answers && (bytes == 4 || bytes == 8)) {
    memcpy(to, &answer, bytes);
    answers = 0;
  }
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, NULL);
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  (void)flags;
  *pointer = malloc(bytes);
  if (!*pointer) return cudaErrorMemoryAllocation;
  remember(*pointer, bytes, kHost, 0);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }
cudaError_t cudaFreeHost(void* pointer) {
  forget(pointer);
  free(pointer);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned flags) {
  (void)flags;
  remember(pointer, bytes, kHost, 0);
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* pointer) {
  forget(pointer);
  return cudaSuccess;
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned flags) {
  (void)flags;
  *device = host;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes* attributes, const void* pointer) {
  const struct Range range = range_of(pointer);
  const int known = range.begin != NULL;
  attributes->type = !known                   ? cudaMemoryTypeUnregistered
                     : range.kind == kHost    ? cudaMemoryTypeHost
                     : range.kind == kManaged ? cudaMemoryTypeManaged
                                              : cudaMemoryTypeDevice;
  attributes->device = known ? range.device : -2;
  attributes->devicePointer = known ? (void*)pointer : NULL;
  attributes->hostPointer = range.kind == kHost || range.kind == kManaged ? (void*)pointer : NULL;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer;
  return cudaSuccess;
}
OK(cudaDeviceEnablePeerAccess, int peer, unsigned flags)
OK(cudaMemcpyPeerAsync, void* to, int to_device, const void* from, int from_device, size_t bytes, cudaStream_t stream)
OK(cudaMemset, void* to, int value, size_t bytes)
OK(cudaProfilerStart, void)
OK(cudaProfilerStop, void)
cudaError_t cudaDeviceGetPCIBusId(char* text, int room, int device) {
  snprintf(text, (size_t)room, "0000:%02X:00.0", device + 1);
  return cudaSuccess;
}
OK(cudaMemsetAsync, void* to, int value, size_t bytes, cudaStream_t stream)

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  static size_t next = 0x1000;
  (void)flags, (void)priority;
  *stream = (cudaStream_t)(next += 0x10);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamAddCallback(cudaStream_t stream, void (*callback)(cudaStream_t, cudaError_t, void*), void* data,
                                  unsigned flags) {
  (void)flags;
  callback(stream, cudaSuccess, data);
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* data) {
  (void)stream;
  function(data);
  return cudaSuccess;
}
OK(cudaStreamDestroy, cudaStream_t stream)
OK(cudaStreamSynchronize, cudaStream_t stream)
OK(cudaStreamQuery, cudaStream_t stream)
OK(cudaStreamWaitEvent, cudaStream_t stream, cudaEvent_t event, unsigned flags)
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
// Three signatures, of which the status is the second argument of each: nothing is captured, so nobody looks further.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus* status) {
  return cudaStreamIsCapturing(stream, status);
}
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, enum cudaStreamCaptureStatus* status) {
  return cudaStreamIsCapturing(stream, status);
}
cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream, enum cudaStreamCaptureStatus* status) {
  return cudaStreamIsCapturing(stream, status);
}
OK(cudaThreadExchangeStreamCaptureMode, enum cudaStreamCaptureMode* mode)
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  static size_t next = 0x100000;
  *event = (cudaEvent_t)(next += 0x10);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  (void)start, (void)end;
  *milliseconds = 0;
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime_v2(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return cudaEventElapsedTime(milliseconds, start, end);
}
OK(cudaEventRecord, cudaEvent_t event, cudaStream_t stream)
OK(cudaEventRecordWithFlags, cudaEvent_t event, cudaStream_t stream, unsigned flags)
OK(cudaEventQuery, cudaEvent_t event)
OK(cudaEventSynchronize, cudaEvent_t event)
OK(cudaEventDestroy, cudaEvent_t event)
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes* a, const void* function) {
  const int compiled = compiled_for(function, device_capability());
  memset(a, 0, sizeof *a);
  if (!compiled) return cudaErrorNoKernelImageForDevice;
  a->ptxVersion = a->binaryVersion = compiled;
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 64;
  return cudaSuccess;
}
OK(cudaFuncSetAttribute, const void* function, enum cudaFuncAttribute attribute, int value)
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int threads,
                                                                   size_t shared, unsigned flags) {
  (void)function, (void)shared, (void)flags;
  *blocks = threads > 0 ? chip().threads / threads : 0;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads,
                                                          size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}
static cudaError_t launch(const void* f) {
  if (compiled_for(f, device_capability())) return cudaSuccess;
  return last_error = cudaErrorNoKernelImageForDevice;
}
cudaError_t cudaLaunchKernel(const void* f, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream) {
  return launch(f);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* f, void** args) { return launch(f); }

// What bitsandbytes' library asks for besides: kernels by way of handles, which are their functions here, and managed
// memory, which is the host's.
cudaError_t __cudaGetKernel(void** kernel, const void* function) {
  *kernel = (void*)function;
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(void* kernel, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream) {
  return launch(kernel);
}
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned flags) {
  (void)flags;
  *pointer = malloc(bytes);
  remember(*pointer, bytes, kManaged, current_device);
  return cudaSuccess;
}
OK(cudaMemPrefetchAsync, const void* pointer, size_t bytes, struct cudaMemLocation where, unsigned flags,
   cudaStream_t stream)

// The driver, as far as PyTorch reaches it: the context exists, the rest succeeds and does nothing.
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return 0;
}
static int success(void) { return 0; }
#define SUCCEED(name) \
  int name(void) { return success(); }
SUCCEED(cuCtxSetCurrent)
SUCCEED(cuCtxGetLimit)
SUCCEED(cuCtxSetLimit)
SUCCEED(cuFuncSetAttribute)
SUCCEED(cuFuncSetCacheConfig)
SUCCEED(cuGetErrorString)
SUCCEED(cuLaunchCooperativeKernel)
SUCCEED(cuLaunchKernel)
SUCCEED(cuLaunchKernelEx)
SUCCEED(cuLogsRegisterCallback)
SUCCEED(cuLinkAddData_v2)
SUCCEED(cuLinkComplete)
SUCCEED(cuLinkCreate_v2)
SUCCEED(cuModuleLoad)
SUCCEED(cuModuleLoadDataEx)
SUCCEED(cuModuleUnload)
SUCCEED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
SUCCEED(cuOccupancyMaxActiveClusters)
SUCCEED(cuTensorMapEncodeIm2col)
SUCCEED(cuTensorMapEncodeTiled)

// What the launchers of Triton's kernels ask for: one context, kernels that loaded, pointers that are the device's.
static int thing;
int cuDriverGetVersion(int* version) { return cudaDriverGetVersion(version); }
int cuCtxGetCurrent(void** context) {
  *context = &thing;
  return 0;
}
int cuCtxGetDevice(int* device) { return *device = 0; }
int cuDeviceGet(int* device, int ordinal) { return *device = 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) { return cuCtxGetCurrent(context); }
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  return cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)attribute, device);  // the enumerators are the same
}
int cuModuleLoadData(void** module, const void* image) { return cuCtxGetCurrent(module); }
int cuModuleGetFunction(void** function, void* module, const char* name) { return cuCtxGetCurrent(function); }
int cuFuncGetAttribute(int* value, int attribute, void* function) {
  enum { kMaxThreadsPerBlock = 0, kNumRegs = 4 };
  *value = attribute == kMaxThreadsPerBlock ? 1024 : attribute == kNumRegs ? 64 : 0;
  return 0;
}
int cuPointerGetAttribute(void* value, int attribute, unsigned long long pointer) {
  enum { kDevicePointer = 3 };
  if (attribute == kDevicePointer) *(unsigned long long*)value = pointer;
  return 0;
}
int cuStreamIsCapturing(void* stream, int* status) { return *status = 0; }

// Expandable segments: addresses that are reserved once, and memory behind them that comes and goes. Here only the
// addresses are real, and they stay readable.
int cuMemAddressReserve(unsigned long long* address, size_t bytes, size_t alignment, unsigned long long wanted,
                        unsigned long long flags) {
  (void)alignment, (void)wanted, (void)flags;
  void* const found = address_range(bytes);
  *address = (unsigned long long)found;
  return found && remember(found, bytes, kReserved, current_device) ? 0 : 2;  // CUDA_ERROR_OUT_OF_MEMORY
}
int cuMemAddressFree(unsigned long long address, size_t bytes) {
  if (forget((void*)address).begin) munmap((void*)address, bytes);
  return 0;
}
struct Physical {
  size_t bytes;
  int device;
};
// Of CUmemAllocationProp: type, kinds of handles, type of the place, its number.
int cuMemCreate(unsigned long long* handle, size_t bytes, const int* properties, unsigned long long flags) {
  (void)flags;
  guard();
  struct Physical* const made = malloc(sizeof *made);
  if (!made) return 2;
  *made = (struct Physical){bytes, properties ? properties[3] : current_device};
  if (made->device < 0 || made->device >= kDevices || !take(made->device, bytes)) {
    free(made);
    return 2;
  }
  *handle = (unsigned long long)made;
  return 0;
}
int cuMemRelease(unsigned long long handle) {
  struct Physical* const its = (struct Physical*)handle;
  give(its->device, its->bytes);
  free(its);
  return 0;
}
int cuMemUnmap(unsigned long long address, size_t bytes) {
  madvise((void*)address, bytes, MADV_DONTNEED);
  return 0;
}
int cuMemGetAllocationGranularity(size_t* granularity, const int* properties, int option) {
  (void)properties, (void)option;
  *granularity = 2 * kMiB;
  return 0;
}
SUCCEED(cuMemMap)
SUCCEED(cuMemSetAccess)

// A driver's function by name: this file's, else one that succeeds, or under the guard one that tells its name.
static void* entry_point(const char* symbol) {
  void* const ours = own_function(symbol);
  if (ours) return ours;
  return guarded() ? refusal(symbol) : (void*)success;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult* result) {
  (void)version, (void)flags;
  *function = entry_point(symbol);
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                    enum cudaDriverEntryPointQueryResult* result) {
  return cudaGetDriverEntryPointByVersion(symbol, function, 0, flags, result);
}

// cuBLAS as far as dense matrix products reach it: one algorithm that wants no workspace, products that
// do nothing.
static int object;
#define CREATE(name)      \
  int name(void** made) { \
    *made = &object;      \
    return 0;             \
  }
// PyTorch keeps a workspace for each handle and stream.
int cublasCreate_v2(void** made) {
  static size_t next = 0x200000;
  *made = (void*)(next += 0x10);
  return 0;
}
CREATE(cublasLtCreate)
CREATE(cublasLtMatmulDescCreate)
CREATE(cublasLtMatmulPreferenceCreate)
CREATE(cublasLtMatrixLayoutCreate)
int cublasGetMathMode(void* handle, int* mode) { return *mode = 0; }
int cublasGetPointerMode_v2(void* handle, int* mode) { return *mode = 0; }
int cublasLtMatmulAlgoGetHeuristic(void* handle, void* product, void* a, void* b, void* c, void* d, void* preference,
                                   int wanted, void* results, int* count) {
  enum { kBytesOfResult = 96 };  // sizeof(cublasLtMatmulHeuristicResult_t)
  memset(results, 0, kBytesOfResult);
  *count = 1;
  return 0;
}
SUCCEED(cublasDestroy_v2)
SUCCEED(cublasSetStream_v2)
SUCCEED(cublasSetWorkspace_v2)
SUCCEED(cublasSetMathMode)
SUCCEED(cublasSetPointerMode_v2)
SUCCEED(cublasSetSmCountTarget)
SUCCEED(cublasSgemm_v2)
SUCCEED(cublasSgemmEx)
SUCCEED(cublasSgemmStridedBatched)
SUCCEED(cublasGemmEx)
SUCCEED(cublasGemmStridedBatchedEx)
SUCCEED(cublasSgemv_v2)
SUCCEED(cublasSdot_v2)
SUCCEED(cublasLtMatmul)
SUCCEED(cublasLtMatmulAlgoCheck)
SUCCEED(cublasLtMatmulAlgoConfigGetAttribute)
SUCCEED(cublasLtMatmulAlgoConfigSetAttribute)
SUCCEED(cublasLtMatmulAlgoInit)
SUCCEED(cublasLtMatmulDescDestroy)
SUCCEED(cublasLtMatmulDescSetAttribute)
SUCCEED(cublasLtMatmulPreferenceDestroy)
SUCCEED(cublasLtMatmulPreferenceSetAttribute)
SUCCEED(cublasLtMatrixLayoutDestroy)
SUCCEED(cublasLtMatrixLayoutSetAttribute)

// ---- cuSOLVER's singular value decomposition, which asks for no work space here ----

CREATE(cusolverDnCreate)
CREATE(cusolverDnCreateGesvdjInfo)
SUCCEED(cusolverDnDestroy)
SUCCEED(cusolverDnSetStream)
SUCCEED(cusolverDnSetDeterministicMode)
SUCCEED(cusolverDnDestroyGesvdjInfo)
SUCCEED(cusolverDnXgesvdjSetTolerance)
SUCCEED(cusolverDnXgesvdjSetMaxSweeps)
SUCCEED(cusolverDnXgesvdjSetSortEig)
SUCCEED(cusolverDnSgesvdj)
int cusolverDnSgesvdj_bufferSize(void* handle, int vectors, int thin, int m, int n, void* a, int lda, void* s, void* u,
                                 int ldu, void* v, int ldv, int* elements, void* parameters) {
  return *elements = 0;
}
