#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "kernels/math/compute.hpp"

namespace tidemark::math {

/// Memory of one kind, and who computes there: the host, or a GPU.
class Calculator {
 public:
  Calculator() = default;
  Calculator(const Calculator&) = delete;
  Calculator& operator=(const Calculator&) = delete;
  virtual ~Calculator() = default;

  /// So many bytes, each of them `content`.
  [[nodiscard]] virtual std::byte* allocate(std::size_t bytes, std::byte content) = 0;
  virtual void release(std::byte* memory) = 0;
  /// Within its memory, or from or to the host's; it is done on return.
  virtual void copy(void* to, const void* from, std::size_t bytes) = 0;
  /// math::compute, of operands in its memory.
  virtual void compute(Operation operation, const Attributes& attributes, std::span<const Array> inputs,
                       std::span<const Array> outputs, const Setting& setting) = 0;
  /// Whether no element of what lies in its memory is NaN.
  [[nodiscard]] virtual bool all_numbers(const Array& array, Storage storage) = 0;
};

/// Memory that goes back to the calculator it is of.
struct GiveBack {
  Calculator* to = nullptr;
  void operator()(std::byte* memory) const { to->release(memory); }
};
using Memory = std::unique_ptr<std::byte, GiveBack>;
[[nodiscard]] inline Memory memory_of(Calculator& calculator, std::size_t bytes, std::byte content = {}) {
  return {calculator.allocate(bytes, content), {&calculator}};
}

class HostCalculator final : public Calculator {
 public:
  [[nodiscard]] std::byte* allocate(std::size_t bytes, std::byte content) override;
  void release(std::byte* memory) override { delete[] memory; }
  void copy(void* to, const void* from, std::size_t bytes) override;
  void compute(Operation operation, const Attributes& attributes, std::span<const Array> inputs,
               std::span<const Array> outputs, const Setting& setting) override {
    math::compute(operation, attributes, inputs, outputs, setting);
  }
  [[nodiscard]] bool all_numbers(const Array& array, Storage storage) override;
};

}  // namespace tidemark::math
