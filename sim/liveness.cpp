#include "sim/liveness.hpp"

#include <utility>

#include "sim/ensure.hpp"

namespace tidemark {
namespace {

// References to each buffer: uses and bindings still to come, and names bound to it now.
class References {
 public:
  explicit References(const Program& program)
      : count_(static_cast<std::size_t>(program.buffers), 0), bound_(program.names.size()) {
    for (const Op& op : program.ops) {
      ensure(!std::holds_alternative<Free>(op), "frees are computed, not written");
      for_each_operand(program, op, [&](BufferId b) { ++count_[b.index()]; });
      if (const Bind* bind = std::get_if<Bind>(&op)) ++count_[bind->buffer.index()];
    }
  }

  /// A binding that was to come is now there: the count stays.
  void bind(NameId name, BufferId buffer) { bound_[name.index()] = buffer; }
  /// The buffer that the name gave up, or an invalid id.
  BufferId unbind(NameId name) {
    const BufferId dropped = std::exchange(bound_[name.index()], BufferId{});
    if (dropped.valid()) --count_[dropped.index()];
    return dropped;
  }
  void use(BufferId buffer) { --count_[buffer.index()]; }
  [[nodiscard]] bool dead(BufferId buffer) const { return count_[buffer.index()] == 0; }

 private:
  std::vector<std::int32_t> count_;
  std::vector<BufferId> bound_;
};

}  // namespace

Program with_frees(Program program) {
  References references(program);
  std::vector<bool> freed(static_cast<std::size_t>(program.buffers), false);
  std::vector<Op> ops;
  ops.reserve(program.ops.size() + static_cast<std::size_t>(program.buffers));

  const auto free_if_dead = [&](BufferId buffer) {
    if (!buffer.valid() || freed[buffer.index()] || !references.dead(buffer)) return;
    freed[buffer.index()] = true;
    ops.emplace_back(Free{buffer});
  };

  for (const Op& op : program.ops) {
    ops.push_back(op);
    if (const Bind* bind = std::get_if<Bind>(&op)) {
      const BufferId dropped = references.unbind(bind->name);
      references.bind(bind->name, bind->buffer);
      free_if_dead(dropped);
    } else if (const Unbind* unbind = std::get_if<Unbind>(&op)) {
      free_if_dead(references.unbind(unbind->name));
    } else if (const Alloc* alloc = std::get_if<Alloc>(&op)) {
      free_if_dead(alloc->buffer);
    } else {
      for_each_operand(program, op, [&](BufferId b) { references.use(b); });
      for_each_operand(program, op, free_if_dead);
    }
  }
  program.ops = std::move(ops);
  return program;
}

Program without_frees(Program program) {
  std::erase_if(program.ops, [](const Op& op) { return std::holds_alternative<Free>(op); });
  return program;
}

}  // namespace tidemark
