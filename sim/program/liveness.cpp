#include "sim/program/liveness.hpp"

#include <limits>
#include <utility>

#include "sim/base/ensure.hpp"

namespace tidemark::sim {
namespace {

// Which op refers to each buffer last: it uses the buffer, or takes away the last name bound to it.
class LastReferences {
 public:
  explicit LastReferences(const Program& program)
      : op_(static_cast<std::size_t>(program.buffers), none), bound_(program.names.size()) {
    for (std::size_t at = 0; at < program.ops.size(); ++at) {
      const Op& op = program.ops[at];
      ensure(!std::holds_alternative<Free>(op), "frees are computed, not written");
      if (const Alloc* alloc = std::get_if<Alloc>(&op))
        op_[alloc->buffer.index()] = at;
      else if (const Bind* bind = std::get_if<Bind>(&op))
        rebind(bind->name, bind->buffer, at);
      else if (const Unbind* unbind = std::get_if<Unbind>(&op))
        rebind(unbind->name, {}, at);
      else
        for_each_operand(program, op, [&](BufferId b) { op_[b.index()] = at; });
    }
    for (const BufferId held : bound_)
      if (held.valid()) op_[held.index()] = none;
    for (const std::size_t op : op_) count_ += op == none ? 0 : 1;
  }

  /// How many are still to be taken.
  [[nodiscard]] std::size_t left() const { return count_; }

  /// Takes those of an op, the first first. Ops are asked for from the last to the first.
  void take(const Program& program, const Op& op, std::size_t at, std::vector<BufferId>& taken) {
    const auto take_one = [&](BufferId buffer) {
      if (!buffer.valid() || op_[buffer.index()] != at) return;
      op_[buffer.index()] = none;
      --count_;
      taken.push_back(buffer);
    };
    if (const Alloc* alloc = std::get_if<Alloc>(&op)) {
      take_one(alloc->buffer);
    } else if (std::holds_alternative<Bind>(op) || std::holds_alternative<Unbind>(op)) {
      take_one(dropped_.back());
      dropped_.pop_back();
    } else {
      for_each_operand(program, op, take_one);
    }
  }

 private:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  void rebind(NameId name, BufferId buffer, std::size_t at) {
    const BufferId dropped = std::exchange(bound_[name.index()], buffer);
    if (dropped.valid()) op_[dropped.index()] = at;
    dropped_.push_back(dropped);
  }

  std::vector<std::size_t> op_;    // by buffer; none where a name holds it at the end
  std::vector<BufferId> bound_;    // by name, now
  std::vector<BufferId> dropped_;  // by each op that binds or unbinds: what its name gave up, if anything
  std::size_t count_ = 0;
};

}  // namespace

// From the end, within the ops' own memory: programs are as long as memory allows.
Program with_frees(Program program) {
  LastReferences last(program);
  std::vector<Op>& ops = program.ops;
  std::size_t from = ops.size();
  ops.reserve(from + last.left());  // where there is no room, as much as it takes and no more
  ops.resize(from + last.left(), Op{Mark{}});
  std::size_t to = ops.size();
  std::vector<BufferId> dead;
  while (last.left() > 0) {
    const Op op = ops[--from];
    dead.clear();
    last.take(program, op, from, dead);
    for (auto buffer = dead.rbegin(); buffer != dead.rend(); ++buffer) ops[--to] = Free{*buffer};
    ops[--to] = op;
  }
  return program;
}

Program without_frees(Program program) {
  std::erase_if(program.ops, [](const Op& op) { return std::holds_alternative<Free>(op); });
  return program;
}

}  // namespace tidemark::sim
