// Calls of CUDA's functions that the null device lacks: they would reach the real libraries, which have no device, and
// fail far from their cause or crash. Under NULL_CUDA_GUARD every library's table of functions is looked through as it
// is loaded; a function of CUDA's libraries that is not this one's, and needs a device, becomes one that tells its
// name.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernels/null_device/null_cuda.h"

static void (*teller)(const char*);
void null_cuda_tell(void (*told)(const char* name)) { teller = told; }

int guarded(void) {
  static int known = -1;
  if (known < 0) known = getenv("NULL_CUDA_GUARD") != NULL;
  return known;
}

// ---- one function for each name ----

enum { kRefusals = 1024 };
static char* refused[kRefusals];
static int refused_count;

static int refuse(int which) {
  const char* const name = refused[which];
  if (teller) teller(name);
  fprintf(stderr, "null device: there is no %s\n", name);
  abort();
}
// clang-format off
#define R1(n) static int refuse_##n(void) { return refuse(0x##n); }
#define R16(n) \
  R1(n##0) R1(n##1) R1(n##2) R1(n##3) R1(n##4) R1(n##5) R1(n##6) R1(n##7) \
  R1(n##8) R1(n##9) R1(n##a) R1(n##b) R1(n##c) R1(n##d) R1(n##e) R1(n##f)
#define R256(n) \
  R16(n##0) R16(n##1) R16(n##2) R16(n##3) R16(n##4) R16(n##5) R16(n##6) R16(n##7) \
  R16(n##8) R16(n##9) R16(n##a) R16(n##b) R16(n##c) R16(n##d) R16(n##e) R16(n##f)
R256(0) R256(1) R256(2) R256(3)
#define A1(n) refuse_##n,
#define A16(n) \
  A1(n##0) A1(n##1) A1(n##2) A1(n##3) A1(n##4) A1(n##5) A1(n##6) A1(n##7) \
  A1(n##8) A1(n##9) A1(n##a) A1(n##b) A1(n##c) A1(n##d) A1(n##e) A1(n##f)
#define A256(n) \
  A16(n##0) A16(n##1) A16(n##2) A16(n##3) A16(n##4) A16(n##5) A16(n##6) A16(n##7) \
  A16(n##8) A16(n##9) A16(n##a) A16(n##b) A16(n##c) A16(n##d) A16(n##e) A16(n##f)
static int (*const refusals[kRefusals])(void) = {A256(0) A256(1) A256(2) A256(3)};
// clang-format on

void* refusal(const char* name) {
  for (int i = 0; i < refused_count; ++i)
    if (strcmp(refused[i], name) == 0) return (void*)refusals[i];
  if (refused_count == kRefusals) return NULL;
  refused[refused_count] = strdup(name);
  return (void*)refusals[refused_count++];
}

// ---- which functions ----

void* own_function(const char* name) {
  static void* self;
  static Dl_info own;
  if (!self && dladdr((void*)&own_function, &own)) self = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  void* const found = self ? dlsym(self, name) : NULL;
  Dl_info its;
  return found && dladdr(found, &its) && its.dli_fbase == own.dli_fbase ? found : NULL;
}

static int begins(const char* text, const char* with) { return strncmp(text, with, strlen(with)) == 0; }
static int ends(const char* text, const char* with) {
  const size_t all = strlen(text), part = strlen(with);
  return all >= part && strcmp(text + all - part, with) == 0;
}

static int is_of_cuda(const char* name) {
  static const char* const kFamilies[] = {"cuda", "cublas", "cusolver", "cusparse", "cufft", "cudnn", "curand", "nccl"};
  for (size_t i = 0; i < sizeof kFamilies / sizeof *kFamilies; ++i)
    if (begins(name, kFamilies[i])) return 1;
  return begins(name, "cu") && name[2] >= 'A' && name[2] <= 'Z';  // the driver's
}
// What libraries answer by themselves: versions and texts; and what is never reached, because nothing was made.
static int needs_no_device(const char* name) {
  return strstr(name, "Version") || strstr(name, "ErrorString") || strstr(name, "ErrorName") ||
         strstr(name, "LastError") || strstr(name, "StatusString") || strstr(name, "StatusName") ||
         strstr(name, "Destroy") || ends(name, "GetProperty");
}

// What a relocation of that kind fills is a pointer to a function.
static int is_of_function(unsigned long type) {
#if defined(__x86_64__)
  return type == R_X86_64_JUMP_SLOT || type == R_X86_64_GLOB_DAT;
#elif defined(__aarch64__)
  return type == R_AARCH64_JUMP_SLOT || type == R_AARCH64_GLOB_DAT;
#else
  return 0;
#endif
}

struct Tables {
  const ElfW(Sym) * symbols;
  const char* names;
  const ElfW(Rela) * relocations[2];
  size_t counts[2];
};

static void write_pointer(void** place, void* value) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)place / page * page;
  if (*place == value) return;
  if (mprotect((void*)begin, page, PROT_READ | PROT_WRITE) == 0)
    *place = value;  // some are read-only once they are filled
}

static int look_through(struct dl_phdr_info* info, size_t size, void* own_base) {
  (void)size;
  const char* const slash = strrchr(info->dlpi_name, '/');
  const char* const file = slash ? slash + 1 : info->dlpi_name;
  // CUDA's own libraries call each other, and are never asked.
  static const char* const kTheirs[] = {"libcu", "libnv", "libnccl", "ld-linux", "libc.so", "linux-vdso"};
  for (size_t i = 0; i < sizeof kTheirs / sizeof *kTheirs; ++i)
    if (begins(file, kTheirs[i])) return 0;
  if ((void*)info->dlpi_addr == own_base) return 0;
  const ElfW(Dyn)* dynamic = NULL;
  for (int i = 0; i < info->dlpi_phnum; ++i)
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
      dynamic = (const ElfW(Dyn)*)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
  struct Tables tables = {NULL, NULL, {NULL, NULL}, {0, 0}};
  for (; dynamic && dynamic->d_tag != DT_NULL; ++dynamic) {
    const ElfW(Addr) at = dynamic->d_un.d_ptr;  // glibc has added the library's address where it is one
    if (dynamic->d_tag == DT_SYMTAB) tables.symbols = (const ElfW(Sym)*)at;
    if (dynamic->d_tag == DT_STRTAB) tables.names = (const char*)at;
    if (dynamic->d_tag == DT_JMPREL) tables.relocations[0] = (const ElfW(Rela)*)at;
    if (dynamic->d_tag == DT_PLTRELSZ) tables.counts[0] = dynamic->d_un.d_val / sizeof(ElfW(Rela));
    if (dynamic->d_tag == DT_RELA) tables.relocations[1] = (const ElfW(Rela)*)at;
    if (dynamic->d_tag == DT_RELASZ) tables.counts[1] = dynamic->d_un.d_val / sizeof(ElfW(Rela));
  }
  if (!tables.symbols || !tables.names) return 0;
  for (int t = 0; t < 2; ++t)
    for (size_t i = 0; tables.relocations[t] && i < tables.counts[t]; ++i) {
      const ElfW(Rela)* const its = &tables.relocations[t][i];
      if (!is_of_function(ELF64_R_TYPE(its->r_info))) continue;
      const ElfW(Sym)* const symbol = &tables.symbols[ELF64_R_SYM(its->r_info)];
      const char* const name = tables.names + symbol->st_name;
      if (symbol->st_shndx != SHN_UNDEF || !is_of_cuda(name) || needs_no_device(name)) continue;
      if (ELF64_ST_TYPE(symbol->st_info) == STT_OBJECT || own_function(name)) continue;
      void* const instead = refusal(name);
      if (instead) write_pointer((void**)(info->dlpi_addr + its->r_offset), instead);
    }
  return 0;
}

// How many libraries were ever loaded.
static int count_loaded(struct dl_phdr_info* info, size_t size, void* count) {
  (void)size;
  *(unsigned long long*)count = info->dlpi_adds;
  return 1;
}

void guard(void) {
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  static unsigned long long seen;
  if (!guarded()) return;
  unsigned long long loaded = 0;
  dl_iterate_phdr(count_loaded, &loaded);
  pthread_mutex_lock(&lock);
  if (loaded != seen) {
    Dl_info own;
    dladdr((void*)&guard, &own);
    seen = loaded;
    dl_iterate_phdr(look_through, own.dli_fbase);
  }
  pthread_mutex_unlock(&lock);
}
