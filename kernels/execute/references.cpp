#include "kernels/execute/references.hpp"

namespace tidemark::execute {

References::References(const Program& program)
    : program_(program), counts_(static_cast<std::size_t>(program.buffers)), variables_(program.names.size()) {
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    for_each_operand(program, op, [&](BufferId b) { counts_[b.index()].last_use = i; });
    if (const auto* alloc = std::get_if<Alloc>(&op)) counts_[alloc->buffer.index()].last_use = i;
    if (const auto* bind = std::get_if<Bind>(&op)) counts_[bind->buffer.index()].last_use = i;
  }
}

void References::note(std::size_t index) {
  const Op& op = program_.ops[index];
  const auto drop = [&](NameId name) {
    BufferId& held = variables_[name.index()];
    if (!held.valid()) return;
    --counts_[held.index()].holders;
    touched_.push_back(held);
    held = {};
  };
  if (const auto* alloc = std::get_if<Alloc>(&op)) {
    counts_[alloc->buffer.index()].live = true;
    touched_.push_back(alloc->buffer);
  } else if (const auto* bind = std::get_if<Bind>(&op)) {
    ++counts_[bind->buffer.index()].holders;
    drop(bind->name);
    variables_[bind->name.index()] = bind->buffer;
    touched_.push_back(bind->buffer);
  } else if (const auto* unbind = std::get_if<Unbind>(&op)) {
    drop(unbind->name);
  } else {
    for_each_operand(program_, op, [&](BufferId b) { touched_.push_back(b); });
  }
}

}  // namespace tidemark::execute
