// Which architectures a kernel was compiled for. A card runs the newest code that it can, and host code asks which that
// is: CUB compares it with the architectures that it was itself compiled for, and fails for any other one.
//
// Compilers register each file's code (__cudaRegisterFatBinary) and then its kernels, as libraries are loaded. How code
// is laid out is not documented by CUDA; it was read from libraries, and agrees with cpu/cubin.h of Cricket
// (RWTH-ACS/cricket). What does not look so is taken for code that every device runs.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/null_device/null_cuda.h"

enum { kWrapperMagic = 0x466243b1, kPtx = 1, kMachineCode = 2 };
static const uint32_t kBinaryMagic = 0xba55ed50;

struct Wrapper {
  uint32_t magic, version;
  const char* code;
};
struct Binary {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  // behind the header
};
struct Piece {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t bytes;  // behind the header
  uint32_t more[3], architecture;
};

struct Code {
  void** handle;
  const struct Wrapper* wrapper;
};
struct Kernel {
  const void* function;
  size_t code;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct Code* codes;
static size_t code_count, code_room;
static struct Kernel* kernels;
static size_t kernel_count, kernel_room, sorted_count;

// Room for one more; not there where memory has run out.
static int grow(void** begin, size_t count, size_t* room, size_t bytes) {
  if (count < *room) return 1;
  const size_t more = *room ? 2 * *room : 4096;
  void* const made = realloc(*begin, more * bytes);
  if (!made) return 0;
  *begin = made;
  *room = more;
  return 1;
}

void** __cudaRegisterFatBinary(void* wrapper) {
  static void* none;
  static void** (*real)(void*);
  if (!real) real = (void** (*)(void*))dlsym(RTLD_NEXT, "__cudaRegisterFatBinary");
  void** const handle = real ? real(wrapper) : &none;
  pthread_mutex_lock(&lock);
  if (grow((void**)&codes, code_count, &code_room, sizeof *codes)) codes[code_count++] = (struct Code){handle, wrapper};
  pthread_mutex_unlock(&lock);
  return handle;
}
void __cudaRegisterFunction(void** handle, const char* function, char* device_function, const char* name, int threads,
                            void* thread, void* block, void* block_size, void* grid_size, int* warp) {
  typedef void Real(void**, const char*, char*, const char*, int, void*, void*, void*, void*, int*);
  static Real* real;
  if (!real) real = (Real*)dlsym(RTLD_NEXT, "__cudaRegisterFunction");
  if (real) real(handle, function, device_function, name, threads, thread, block, block_size, grid_size, warp);
  pthread_mutex_lock(&lock);
  // A file's kernels follow its code.
  if (code_count && codes[code_count - 1].handle == handle &&
      grow((void**)&kernels, kernel_count, &kernel_room, sizeof *kernels))
    kernels[kernel_count++] = (struct Kernel){function, code_count - 1};
  pthread_mutex_unlock(&lock);
}

static int by_function(const void* a, const void* b) {
  const struct Kernel *const x = a, *const y = b;
  if (x->function != y->function) return x->function < y->function ? -1 : 1;
  return x->code < y->code ? -1 : x->code > y->code;
}
// The code that the kernel was registered with; where several files have it, the last one's.
static const struct Wrapper* code_of(const void* function) {
  const struct Wrapper* found = NULL;
  pthread_mutex_lock(&lock);
  if (sorted_count != kernel_count) qsort(kernels, kernel_count, sizeof *kernels, by_function);
  sorted_count = kernel_count;
  size_t begin = 0, end = kernel_count;
  while (begin < end) {
    const size_t middle = begin + (end - begin) / 2;
    if (kernels[middle].function <= function)
      begin = middle + 1;
    else
      end = middle;
  }
  if (begin > 0 && kernels[begin - 1].function == function) found = codes[kernels[begin - 1].code].wrapper;
  pthread_mutex_unlock(&lock);
  return found;
}

int compiled_for(const void* function, int capability) {
  const struct Wrapper* const wrapper = code_of(function);
  if (!wrapper || wrapper->magic != kWrapperMagic || !wrapper->code) return capability;
  struct Binary binary;
  memcpy(&binary, wrapper->code, sizeof binary);
  if (binary.magic != kBinaryMagic || binary.header_bytes < sizeof binary) return capability;
  int machine_code = 0, ptx = 0, pieces = 0;
  for (uint64_t at = 0; at + sizeof(struct Piece) <= binary.bytes; ++pieces) {
    struct Piece its;
    memcpy(&its, wrapper->code + binary.header_bytes + at, sizeof its);
    const int architecture = (int)its.architecture;
    if (its.header_bytes < sizeof its || its.bytes > binary.bytes || architecture <= 0) return capability;
    if (its.kind != kPtx && its.kind != kMachineCode) return capability;
    if (architecture <= capability) {
      // Machine code runs on later cards of its generation, PTX on all later ones.
      if (its.kind == kMachineCode && architecture / 10 == capability / 10 && architecture > machine_code)
        machine_code = architecture;
      if (its.kind == kPtx && architecture > ptx) ptx = architecture;
    }
    at += its.header_bytes + its.bytes;
  }
  return !pieces ? capability : machine_code ? machine_code : ptx;
}
