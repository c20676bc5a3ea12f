// CUDA without a device: preloaded, it makes a CUDA build of PyTorch believe in one GPU whose kernels do nothing.
// Needed only to record (see README.md). Fake tensors need it because PyTorch asks the runtime for the device's
// properties (autograd, the choice of an attention kernel); a plain run needs no more than that, since PyTorch's host
// code and its caching allocator run unchanged over memory that is only an address range. Nothing may touch that
// memory: whoever reads it on the host by mistake dies at once. The device has the compute capability in
// NULL_CUDA_CAPABILITY (80 unless told), 80 GiB, and otherwise an H100's figures; PyTorch chooses kernels by the
// capability.
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define OK(name, ...) \
  cudaError_t name(__VA_ARGS__) { return cudaSuccess; }

enum { kMiB = 1 << 20 };
static const size_t kDeviceMemory = 80ull << 30;

// What PyTorch's host code reads of a chip: the sizes of some reductions' buffers follow from it. From NVIDIA's A100
// and H100 (SXM) architecture white papers.
struct Chip {
  int multiprocessors, shared, l2;
};
static const struct Chip kA100 = {108, 164 << 10, 40 << 20}, kH100 = {132, 228 << 10, 50 << 20};

static int device_capability(void) {
  const char* const text = getenv("NULL_CUDA_CAPABILITY");
  return text ? atoi(text) : 80;
}

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
  const int capability = device_capability();
  const struct Chip chip = capability >= 90 ? kH100 : kA100;
  memset(p, 0, sizeof *p);
  strcpy(p->name, "no device");
  p->totalGlobalMem = kDeviceMemory;
  p->major = capability / 10;
  p->minor = capability % 10;
  p->multiProcessorCount = chip.multiprocessors;
  p->warpSize = 32;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = chip.shared - 1024;
  p->sharedMemPerMultiprocessor = chip.shared;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->l2CacheSize = chip.l2;
  p->memoryBusWidth = 5120;
  p->textureAlignment = 512;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attribute, int device) {
  struct cudaDeviceProp p;
  cudaGetDeviceProperties(&p, device);
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = p.multiProcessorCount;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = p.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = p.minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = p.sharedMemPerBlockOptin;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = p.sharedMemPerBlock;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *value = p.maxThreadsPerBlock;
      break;
    case cudaDevAttrMaxGridDimX:
      *value = p.maxGridSize[0];
      break;
    case cudaDevAttrWarpSize:
      *value = p.warpSize;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
      *value = p.regsPerBlock;
      break;
    case cudaDevAttrGlobalMemoryBusWidth:
      *value = p.memoryBusWidth;
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
  *free = *total = kDeviceMemory;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  *pointer = mmap(NULL, (bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return *pointer == MAP_FAILED ? cudaErrorMemoryAllocation : cudaSuccess;
}
OK(cudaFree, void* pointer)
// Host and device do exchange bytes, which some host code waits for (DistributedDataParallel sends its buckets' order
// through the device). What kernels would have written is zero.
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToDevice) memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind) {
  return cudaMemcpyAsync(to, from, bytes, kind, NULL);
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  *pointer = malloc(bytes);
  return *pointer ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void* pointer) {
  free(pointer);
  return cudaSuccess;
}
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
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  *milliseconds = 0;
  return cudaSuccess;
}
OK(cudaEventRecord, cudaEvent_t event, cudaStream_t stream)
OK(cudaEventRecordWithFlags, cudaEvent_t event, cudaStream_t stream, unsigned flags)
OK(cudaEventQuery, cudaEvent_t event)
OK(cudaEventSynchronize, cudaEvent_t event)
OK(cudaEventDestroy, cudaEvent_t event)
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes* a, const void* function) {
  memset(a, 0, sizeof *a);
  a->ptxVersion = a->binaryVersion = device_capability();
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 64;
  return cudaSuccess;
}
OK(cudaFuncSetAttribute, const void* function, enum cudaFuncAttribute attribute, int value)
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int threads,
                                                                   size_t shared, unsigned flags) {
  *blocks = 2048 / threads;
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads,
                                                          size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0);
}
OK(cudaLaunchKernel, const void* f, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream)
OK(cudaLaunchKernelExC, const cudaLaunchConfig_t* config, const void* f, void** args)

// What bitsandbytes' library asks for besides: kernels by way of handles, and managed memory, which is the host's here.
OK(__cudaGetKernel, void** kernel, const void* function)
OK(__cudaLaunchKernel, void* kernel, dim3 grid, dim3 block, void** args, size_t shared, cudaStream_t stream)
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned flags) {
  *pointer = malloc(bytes);
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
int cuDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return 0;
}
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
  void* const found = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *address = (unsigned long long)found;
  return found == MAP_FAILED ? 2 : 0;  // CUDA_ERROR_OUT_OF_MEMORY
}
int cuMemCreate(unsigned long long* handle, size_t bytes, const void* properties, unsigned long long flags) {
  *handle = 1;
  return 0;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                             unsigned long long flags, enum cudaDriverEntryPointQueryResult* result) {
  *function = (void*)success;
  if (strcmp(symbol, "cuDevicePrimaryCtxGetState") == 0) *function = (void*)cuDevicePrimaryCtxGetState;
  if (strcmp(symbol, "cuMemAddressReserve") == 0) *function = (void*)cuMemAddressReserve;
  if (strcmp(symbol, "cuMemCreate") == 0) *function = (void*)cuMemCreate;
  if (result) *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// cuBLAS as far as dense matrix products reach it: one handle, one algorithm that wants no workspace, products that
// do nothing.
static int object;
#define CREATE(name)      \
  int name(void** made) { \
    *made = &object;      \
    return 0;             \
  }
CREATE(cublasCreate_v2)
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
