// What this machine's compiler and static libraries ask of glibc, and glibc 2.28 does not have, by means of what it
// has. Hidden, so that libraries which the program loads get their own glibc's.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// Of every glibc, though its headers have stopped to name some.
typedef int Main(int, char**, char**);
int __real___libc_start_main(Main*, int, char**, int (*)(int, char**, char**), void (*)(void), void (*)(void), void*);
int __xstat(int version, const char*, struct stat*);
int __lxstat(int version, const char*, struct stat*);
int __fxstat(int version, int, struct stat*);
int __fxstatat(int version, int, const char*, struct stat*, int);

#pragma GCC visibility push(hidden)

// ---- since 2.34, __libc_start_main runs constructors by itself, and the compiler's start file gives it none to call.
// An older one calls those it is given and no other; a newer one calls them, too, and then leaves them alone.

typedef void Constructor(int, char**, char**);
extern Constructor* const __preinit_array_start[];
extern Constructor* const __preinit_array_end[];
extern Constructor* const __init_array_start[];
extern Constructor* const __init_array_end[];
extern void _init(void);

static int construct(int count, char** words, char** environment) {
  for (Constructor* const* c = __preinit_array_start; c != __preinit_array_end; ++c) (*c)(count, words, environment);
  _init();
  for (Constructor* const* c = __init_array_start; c != __init_array_end; ++c) (*c)(count, words, environment);
  return 0;
}

int __wrap___libc_start_main(Main* program, int count, char** words, int (*none)(int, char**, char**),
                             void (*end)(void), void (*end_of_loader)(void), void* stack);
int __wrap___libc_start_main(Main* program, int count, char** words, int (*none)(int, char**, char**),
                             void (*end)(void), void (*end_of_loader)(void), void* stack) {
  (void)none;
  return __real___libc_start_main(program, count, words, construct, end, end_of_loader, stack);
}

// ---- 2.32: whether there is one thread alone, which lets the C++ library leave out locked instructions. "No" is right
// for any program.

char __libc_single_threaded = 0;

// ---- 2.33: before, these were inline functions over others that take the version of the structure: 1 on x86-64.

int stat(const char* path, struct stat* found) { return __xstat(1, path, found); }
int lstat(const char* path, struct stat* found) { return __lxstat(1, path, found); }
int fstat(int file, struct stat* found) { return __fxstat(1, file, found); }
int fstatat(int folder, const char* path, struct stat* found, int flags) {
  return __fxstatat(1, folder, path, found, flags);
}

// 64-bit machines have one structure by both names.
int stat64(const char* path, struct stat64* found) { return __xstat(1, path, (struct stat*)found); }
int lstat64(const char* path, struct stat64* found) { return __lxstat(1, path, (struct stat*)found); }
int fstat64(int file, struct stat64* found) { return __fxstat(1, file, (struct stat*)found); }

// ---- 2.30: waits until an instant of the steady clock. Before, a condition waits by the calendar's clock alone, which
// may be set meanwhile: who waits in C++ looks at its own clock again, and waits on.

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  static const long second = 1000000000;
  struct timespec now, calendar;
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &calendar) != 0) return EINVAL;
  calendar.tv_sec += until->tv_sec - now.tv_sec;
  calendar.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (calendar.tv_nsec < 0) {
    calendar.tv_nsec += second;
    --calendar.tv_sec;
  } else if (calendar.tv_nsec >= second) {
    calendar.tv_nsec -= second;
    ++calendar.tv_sec;
  }
  if (calendar.tv_sec < 0) return ETIMEDOUT;
  return pthread_cond_timedwait(condition, mutex, &calendar);
}

// ---- 2.35: the object that an address of code lies in, of which the unwinder takes the table of frames alone. Before,
// it went through all objects for each frame, as this does.

struct Sought {
  const char* address;
  struct dl_find_object* found;
};

static int lies_in(struct dl_phdr_info* object, size_t size, void* data) {
  (void)size;
  struct Sought* const sought = data;
  const char* const base = (const char*)object->dlpi_addr;
  int inside = 0;
  const char* frames = NULL;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* const part = &object->dlpi_phdr[i];
    const char* const start = base + part->p_vaddr;
    if (part->p_type == PT_GNU_EH_FRAME) frames = start;
    if (part->p_type != PT_LOAD || sought->address < start || sought->address >= start + part->p_memsz) continue;
    inside = 1;
    sought->found->dlfo_map_start = (void*)start;
    sought->found->dlfo_map_end = (void*)(start + part->p_memsz);
  }
  if (!inside || frames == NULL) return 0;
  sought->found->dlfo_eh_frame = (void*)frames;
  return 1;
}

int _dl_find_object(void* address, struct dl_find_object* found) {
  memset(found, 0, sizeof *found);
  struct Sought sought = {address, found};
  return dl_iterate_phdr(lies_in, &sought) == 1 ? 0 : -1;
}

// ---- 2.36: random bits that never fail, for std::random_device.

unsigned int arc4random(void) {
  unsigned int bits = 0;
  // Since Linux 3.17 it fails for no request of so few bytes, but waits early in a machine's start.
  while (getrandom(&bits, sizeof bits, 0) != (ssize_t)sizeof bits) {
  }
  return bits;
}

#pragma GCC visibility pop
