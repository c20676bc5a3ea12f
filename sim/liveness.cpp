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

struct FreeAfter {
  std::size_t op = 0;
  BufferId buffer;
};

// From the end, within the ops' own memory: programs are as long as memory allows.
void put_in(std::vector<Op>& ops, const std::vector<FreeAfter>& frees) {
  std::size_t from = ops.size();
  ops.reserve(from + frees.size());  // where there is no room, as much as it takes and no more
  ops.resize(from + frees.size(), Op{Mark{}});
  std::size_t to = ops.size();
  for (std::size_t f = frees.size(); f-- > 0;) {
    while (from > frees[f].op + 1) ops[--to] = ops[--from];
    ops[--to] = Free{frees[f].buffer};
  }
}

}  // namespace

Program with_frees(Program program) {
  References references(program);
  std::vector<bool> freed(static_cast<std::size_t>(program.buffers), false);
  std::vector<FreeAfter> frees;
  frees.reserve(static_cast<std::size_t>(program.buffers));
  std::size_t at = 0;

  const auto free_if_dead = [&](BufferId buffer) {
    if (!buffer.valid() || freed[buffer.index()] || !references.dead(buffer)) return;
    freed[buffer.index()] = true;
    frees.push_back({at, buffer});
  };

  for (; at < program.ops.size(); ++at) {
    const Op& op = program.ops[at];
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
  put_in(program.ops, frees);
  return program;
}

Program without_frees(Program program) {
  std::erase_if(program.ops, [](const Op& op) { return std::holds_alternative<Free>(op); });
  return program;
}

}  // namespace tidemark
