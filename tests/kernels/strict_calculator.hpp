#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "kernels/math/elements.hpp"
#include "kernels/math/engine/calculator.hpp"
#include "kernels/math/engine/engine.hpp"
#include "tests/kernels/strict_engine.hpp"

namespace tidemark::tests {

/// Computes as strictly as a GPU would.
class StrictCalculator final : public math::Calculator {
 public:
  explicit StrictCalculator(std::size_t most_bytes = std::size_t{1} << 26) : memory_(most_bytes) {}

  [[nodiscard]] std::byte* allocate(std::size_t bytes, std::byte content) override {
    std::vector<std::byte*>& alike = free_[bytes];
    std::byte* memory = nullptr;
    if (alike.empty()) {
      memory = memory_.allocate(bytes, content);
    } else {
      memory = alike.back();
      alike.pop_back();
      memory_.fill(memory, content, bytes);
    }
    sizes_[memory] = bytes;
    return memory;
  }
  void release(std::byte* memory) override { free_[sizes_.at(memory)].push_back(memory); }
  void copy(void* to, const void* from, std::size_t bytes) override { StrictEngine(memory_).copy(to, from, bytes); }
  void compute(Operation operation, const Attributes& attributes, std::span<const math::Array> inputs,
               std::span<const math::Array> outputs, const math::Setting& setting) override {
    StrictEngine engine(memory_);
    math::compute_on(engine, operation, attributes, inputs, outputs, setting);
    engine.done();
  }
  [[nodiscard]] bool all_numbers(const math::Array& array, math::Storage storage) override {
    StrictEngine engine(memory_);
    const bool all = math::all_numbers(engine, array, storage);
    engine.done();
    return all;
  }

 private:
  StrictMemory memory_;
  std::map<std::byte*, std::size_t> sizes_;
  std::map<std::size_t, std::vector<std::byte*>> free_;  // by size
};

}  // namespace tidemark::tests
