// A CUDA runtime without a device: preloaded, it makes a CUDA build of PyTorch believe in one GPU whose kernels do
// nothing. Needed only to record (see README.md): PyTorch asks the runtime for the device's properties (autograd, the
// choice of an attention kernel) even where every tensor is fake. Compute capability 9.0, 132 multiprocessors, 80 GiB:
// an H100's figures, from which PyTorch 2.15 reads the capability to choose kernels. Memory is a reserved address
// range that nothing may touch, so that whoever reads it by mistake dies at once.
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define OK(name, ...) \
  cudaError_t name(__VA_ARGS__) { return cudaSuccess; }

enum { kMiB = 1 << 20 };
static const size_t kDeviceMemory = 80ull << 30;

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
OK(cudaSetDevice, int device)
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
OK(cudaGetLastError, void)
OK(cudaPeekAtLastError, void)
OK(cudaDeviceSynchronize, void)

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp* p, int device) {
  const char* const text = getenv("NULL_CUDA_CAPABILITY");
  const int capability = text ? atoi(text) : 80;
  memset(p, 0, sizeof *p);
  strcpy(p->name, "no device, H100-shaped");
  p->totalGlobalMem = kDeviceMemory;
  p->major = capability / 10;
  p->minor = capability % 10;
  p->multiProcessorCount = 132;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = 227 << 10;
  p->sharedMemPerMultiprocessor = 228 << 10;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->l2CacheSize = 50 * kMiB;
  p->memoryBusWidth = 5120;
  p->textureAlignment = 512;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attribute, int device) {
  *value = 0;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = kDeviceMemory;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  *pointer = mmap(NULL, (bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB), PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return *pointer == MAP_FAILED ? cudaErrorMemoryAllocation : cudaSuccess;
}
OK(cudaFree, void* pointer)
OK(cudaMemcpyAsync, void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
OK(cudaMemcpy, void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind)
OK(cudaMemsetAsync, void* to, int value, size_t bytes, cudaStream_t stream)

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  static size_t next = 0x1000;
  *stream = (cudaStream_t)(next += 0x10);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
OK(cudaStreamSynchronize, cudaStream_t stream)
OK(cudaStreamQuery, cudaStream_t stream)
OK(cudaStreamWaitEvent, cudaStream_t stream, cudaEvent_t event, unsigned flags)
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
OK(cudaThreadExchangeStreamCaptureMode, enum cudaStreamCaptureMode* mode)
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  static size_t next = 0x100000;
  *event = (cudaEvent_t)(next += 0x10);
  return cudaSuccess;
}
OK(cudaEventRecord, cudaEvent_t event, cudaStream_t stream)
OK(cudaEventRecordWithFlags, cudaEvent_t event, cudaStream_t stream, unsigned flags)
OK(cudaEventQuery, cudaEvent_t event)
OK(cudaEventSynchronize, cudaEvent_t event)
OK(cudaEventDestroy, cudaEvent_t event)
OK(cudaLaunchKernel, const void* f, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream)

// The driver, as far as PyTorch reaches it: the context exists, the rest succeeds and does nothing.
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return 0;
}
static int success(void) { return 0; }
#define DRIVER(name) \
  int name(void) { return success(); }
DRIVER(cuCtxGetCurrent)
DRIVER(cuCtxSetCurrent)
DRIVER(cuDeviceGet)
DRIVER(cuDeviceGetAttribute)
DRIVER(cuDevicePrimaryCtxRetain)
DRIVER(cuFuncGetAttribute)
DRIVER(cuFuncSetAttribute)
DRIVER(cuFuncSetCacheConfig)
DRIVER(cuGetErrorString)
DRIVER(cuLaunchCooperativeKernel)
DRIVER(cuLaunchKernel)
DRIVER(cuLinkAddData_v2)
DRIVER(cuLinkComplete)
DRIVER(cuLinkCreate_v2)
DRIVER(cuModuleGetFunction)
DRIVER(cuModuleLoad)
DRIVER(cuModuleLoadData)
DRIVER(cuModuleLoadDataEx)
DRIVER(cuModuleUnload)
DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessor)
DRIVER(cuPointerGetAttribute)
DRIVER(cuTensorMapEncodeTiled)

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult* result) {
  *function = strcmp(symbol, "cuDevicePrimaryCtxGetState") == 0 ? (void*)cuDevicePrimaryCtxGetState : (void*)success;
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
