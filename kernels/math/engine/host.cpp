#include <cstring>

#include <fmt/format.h>

#include "kernels/math/elements.hpp"
#include "kernels/math/engine/calculator.hpp"
#include "kernels/math/engine/engine.hpp"

namespace tidemark::math {

void report_index(std::int64_t id, std::int64_t count, const char* of) {
  throw WrongIndex(fmt::format("{} {}, where there are {}", of, id, count));
}

PartOfWhole part_of_whole(const Shape& sizes, std::initializer_list<Cut> cuts) {
  Shape whole = sizes;
  for (const Cut& cut : cuts) whole[cut.dimension] *= cut.parts;
  const Shape strides = contiguous_strides(whole);
  PartOfWhole part{{sizes, strides}};
  for (const Cut& cut : cuts) part.first += cut.part * sizes[cut.dimension] * strides[cut.dimension];
  return part;
}

void compute(Operation operation, const Attributes& attributes, std::span<const Array> inputs,
             std::span<const Array> outputs, const Setting& setting) {
  HostEngine engine;
  compute_on(engine, operation, attributes, inputs, outputs, setting);
}

Operands operands_of(const Program& program, const Launch& launch, const std::function<std::byte*(BufferId)>& memory,
                     Storage storage) {
  const auto arrays = [&](const std::vector<ViewId>& views, OperandList list) {
    const std::span<const Operand> operands = program[list];
    std::vector<Array> all;
    std::size_t next = 0;
    for (const ViewId view : views) {
      if (!view.valid()) {
        all.emplace_back();
        continue;
      }
      const Operand& operand = operands[next++];
      all.push_back({memory(operand.buffer) + program[operand.offset].count() * spread(storage), program[view]});
    }
    return all;
  };
  const Kernel& kernel = program[launch.kernel];
  return {arrays(kernel.inputs, launch.inputs), arrays(kernel.outputs, launch.outputs)};
}

std::byte* HostCalculator::allocate(std::size_t bytes, std::byte content) {
  auto* const memory = new std::byte[bytes];
  std::memset(memory, static_cast<int>(content), bytes);
  return memory;
}

bool HostCalculator::all_numbers(const Array& array, Storage storage) {
  HostEngine engine;
  return math::all_numbers(engine, array, storage);
}

void HostCalculator::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

}  // namespace tidemark::math
