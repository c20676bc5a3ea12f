#include "kernels/execute/executor.hpp"

#include <fmt/format.h>

namespace tidemark::execute {

std::string describe(const Program& program, std::size_t op) {
  Mark at;
  for (std::size_t i = std::min(op + 1, program.ops.size()); i-- > 0;) {
    const auto* mark = std::get_if<Mark>(&program.ops[i]);
    if (mark == nullptr) continue;
    at = *mark;
    break;
  }
  const std::string_view label = at.label.valid() ? std::string_view(program[at.label]) : "start";
  return fmt::format("{} at op {} (step {}, {}, micro-batch {})", label, op, at.step, name(at.phase), at.micro_batch);
}

std::string describe(const Program& program, BufferId buffer) {
  for (const Op& op : program.ops)
    if (const auto* alloc = std::get_if<Alloc>(&op); alloc != nullptr && alloc->buffer == buffer)
      return program[alloc->label];
  return fmt::format("b{}", buffer.value);
}

}  // namespace tidemark::execute
