#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include <sys/mman.h>

#include "kernels/math/engine/blas.hpp"
#include "tests/namespace.hpp"

// What a GPU would not stand, on a machine without one: memory that only what runs there may touch, threads that take
// elements in an order of their own.

namespace tidemark::tests {

/// Memory that ends the process when somebody touches it while it is not open.
class StrictMemory {
 public:
  explicit StrictMemory(std::size_t bytes) : bytes_(bytes) {
    void* const mapped = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) throw std::runtime_error("no memory to keep strict about");
    first_ = static_cast<std::byte*>(mapped);
  }
  StrictMemory(const StrictMemory&) = delete;
  StrictMemory& operator=(const StrictMemory&) = delete;
  ~StrictMemory() { munmap(first_, bytes_); }

  template <class Work>
  void open_for(const Work& work) {
    protect(PROT_READ | PROT_WRITE);
    for (const Fill& fill : std::exchange(fills_, {}))
      std::memset(fill.first, static_cast<int>(fill.content), fill.bytes);
    work();
    protect(PROT_NONE);
  }
  [[nodiscard]] std::byte* allocate(std::size_t bytes, std::byte content) {
    constexpr std::size_t line = 64;
    std::byte* const memory = first_ + used_;
    used_ += (bytes + line) / line * line;
    if (used_ > bytes_) throw std::runtime_error("out of strict memory");
    fill(memory, content, bytes);
    return memory;
  }
  void fill(std::byte* memory, std::byte content, std::size_t bytes) { fills_.push_back({memory, content, bytes}); }
  [[nodiscard]] std::size_t used() const { return used_; }
  /// All that was allocated since `used` said so.
  void forget(std::size_t since) { used_ = since; }

 private:
  void protect(int how) {
    if (mprotect(first_, bytes_, how) != 0) throw std::runtime_error("memory cannot be protected");
  }

  struct Fill {
    std::byte* first;
    std::byte content;
    std::size_t bytes;
  };

  std::byte* first_ = nullptr;
  std::size_t bytes_, used_ = 0;
  std::vector<Fill> fills_;  // that wait until it is open
};

/// Elements one by one, the last first. What is not written is not a number.
class StrictEngine {
 public:
  explicit StrictEngine(StrictMemory& memory) : memory_(memory), before_(memory.used()) {}

  template <class Body>
  void ranges(std::int64_t count, const Body& body) {
    memory_.open_for([&] {
      for (std::int64_t i = count; i-- > 0;) body(i, i + 1);
    });
  }
  [[nodiscard]] std::byte* room(std::size_t bytes) { return memory_.allocate(bytes, std::byte{0xff}); }
  void copy(void* to, const void* from, std::size_t bytes) {
    memory_.open_for([&] {
      if (bytes > 0) std::memcpy(to, from, bytes);
    });
  }
  template <class Real>
  void multiply(double scale, const math::Matrix<Real>& a, const math::Matrix<Real>& b, double kept, Real* c,
                std::int64_t apart) {
    memory_.open_for([&] { math::multiply(scale, a, b, kept, c, apart); });
  }
  void done() { memory_.forget(before_); }

 private:
  StrictMemory& memory_;
  std::size_t before_;
};

}  // namespace tidemark::tests
