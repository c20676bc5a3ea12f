// What the null device takes of CUDA's types, as driver_types.h of CUDA 12 and 13 has them, and what its files share.
#pragma once

#include <stddef.h>

typedef int cudaError_t;
enum {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
};

typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
typedef struct {
  unsigned x, y, z;
} dim3;
typedef struct cudaLaunchConfig_st cudaLaunchConfig_t;
struct cudaDeviceProp;  // null_cuda.c has where its members are
struct cudaMemLocation {
  int type, id;
};
struct cudaFuncAttributes {
  size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes,
      preferredShmemCarveout;
  int more[21];  // what CUDA 12 and 13 added, and room for more: 144 bytes
};
// CUDA 13 has 64 reserved bytes behind these, which nobody reads.
struct cudaPointerAttributes {
  int type, device;
  void *devicePointer, *hostPointer;
};
enum { cudaMemoryTypeUnregistered = 0, cudaMemoryTypeHost = 1, cudaMemoryTypeDevice = 2, cudaMemoryTypeManaged = 3 };
enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal = 0 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess = 0 };
// The driver's enumerators (CUdevice_attribute) have the same numbers.
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxGridDimX = 5,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMaxRegistersPerBlock = 12,
  cudaDevAttrClockRate = 13,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrMemoryClockRate = 36,
  cudaDevAttrGlobalMemoryBusWidth = 37,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};

// guard.c: functions of CUDA that are not here.

/// Whether calls of them are told (NULL_CUDA_GUARD).
__attribute__((visibility("hidden"))) int guarded(void);
/// Looks through libraries that were loaded since the last call, and lets calls of such functions be told.
__attribute__((visibility("hidden"))) void guard(void);
/// The function of this library that has the name; nothing where it has none.
__attribute__((visibility("hidden"))) void* own_function(const char* name);
/// A function that tells that the one of that name was called, and ends the process.
__attribute__((visibility("hidden"))) void* refusal(const char* name);
/// Who is told, by name; whoever it is ends the process. Without one it is said on standard error.
void null_cuda_tell(void (*told)(const char* name));

// compiled_for.c

/// The architecture (major x 10 + minor) of the code that a device of that capability runs for the kernel; 0 where it
/// was compiled for none of its kind, and the device's own where nothing is known of the kernel.
__attribute__((visibility("hidden"))) int compiled_for(const void* function, int capability);

/// What this thread's host code reads from the device next, where that is one number: how many elements a kernel would
/// have found, which who asks for it knows.
void null_cuda_answer(long long number);
