#include "sim/memory/flat.hpp"

#include "sim/memory/allocator_options.hpp"

namespace tidemark::sim {

std::vector<std::int64_t> flat_changes(const Program& program) {
  std::vector<std::int64_t> size(static_cast<std::size_t>(program.buffers), 0);
  std::vector<std::int64_t> changes(program.ops.size(), 0);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    if (const Alloc* alloc = std::get_if<Alloc>(&program.ops[i]);
        alloc != nullptr && alloc->space == MemorySpace::Device)
      changes[i] = size[alloc->buffer.index()] = block_size(alloc->size).count();
    else if (const Free* free = std::get_if<Free>(&program.ops[i]))
      changes[i] = -size[free->buffer.index()];
  }
  return changes;
}

Effect effect_of(std::span<const std::int64_t> changes) {
  std::int64_t level = 0, highest = 0;
  for (const std::int64_t change : changes) {
    level += change;
    highest = std::max(highest, level);
  }
  return {Bytes{level}, Bytes{highest}};
}

}  // namespace tidemark::sim
