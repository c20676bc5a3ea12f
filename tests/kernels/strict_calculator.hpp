#pragma once

#include "kernels/math/calculator.hpp"
#include "kernels/math/engine.hpp"
#include "tests/kernels/strict_engine.hpp"

namespace tidemark::tests {

/// Computes as strictly as a GPU would. Its memory is given back when all of it is.
class StrictCalculator final : public math::Calculator {
 public:
  [[nodiscard]] std::byte* allocate(std::size_t bytes, std::byte content) override {
    ++live_;
    return memory_.allocate(bytes, content);
  }
  void release(std::byte*) override {
    if (--live_ == 0) memory_.forget(0);
  }
  void copy(void* to, const void* from, std::size_t bytes) override { StrictEngine(memory_).copy(to, from, bytes); }
  void compute(Operation operation, const Attributes& attributes, std::span<const math::Array> inputs,
               std::span<const math::Array> outputs, const math::Setting& setting) override {
    StrictEngine engine(memory_);
    math::compute_on(engine, operation, attributes, inputs, outputs, setting);
    engine.done();
  }

 private:
  StrictMemory memory_;
  std::int64_t live_ = 0;
};

}  // namespace tidemark::tests
