#include "kernels/math/engine/device_calculator.hpp"

#include "kernels/math/detail/device_engine.hpp"
#include "kernels/math/elements.hpp"
#include "kernels/math/engine/engine.hpp"

namespace tidemark::math {
namespace {

using execute::check_cuda;

class DeviceCalculator final : public Calculator {
 public:
  [[nodiscard]] std::byte* allocate(std::size_t bytes, std::byte content) override {
    std::byte* memory = nullptr;
    check_cuda(cudaMalloc(reinterpret_cast<void**>(&memory), bytes > 0 ? bytes : 1), "cudaMalloc");
    engine_.fill(memory, content, bytes);
    engine_.finish();
    return memory;
  }
  // Waits for what uses it.
  void release(std::byte* memory) override { cudaFree(memory); }
  void copy(void* to, const void* from, std::size_t bytes) override { engine_.copy(to, from, bytes); }
  void compute(Operation operation, const Attributes& attributes, std::span<const Array> inputs,
               std::span<const Array> outputs, const Setting& setting) override {
    compute_on(engine_, operation, attributes, inputs, outputs, setting);
    engine_.finish();
  }
  [[nodiscard]] bool all_numbers(const Array& array, Storage storage) override {
    const bool all = math::all_numbers(engine_, array, storage);
    engine_.done();
    return all;
  }

 private:
  DeviceEngine engine_;
};

}  // namespace

std::unique_ptr<Calculator> device_calculator(int device) {
  check_cuda(cudaSetDevice(device), "cudaSetDevice");
  return std::make_unique<DeviceCalculator>();
}

}  // namespace tidemark::math
