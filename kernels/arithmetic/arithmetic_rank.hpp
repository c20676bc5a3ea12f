#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/execute/world/host_collectives.hpp"
#include "kernels/execute/world/world.hpp"
#include "kernels/math/engine/calculator.hpp"
#include "sim/program/program.hpp"

namespace tidemark::execute {

class ArithmeticRank;

/// What a run of real numbers asks whoever started it, and tells it; what is left out is what `math::Setting` says, and
/// nobody is told.
struct ArithmeticHooks {
  /// What `initialize` writes to an element of a tensor, here and now.
  std::function<double(const Mark& at, std::string_view tensor, std::int64_t element)> initial;
  /// Which expert of a layer a token of this rank takes with one of its choices; none: that of the largest scores.
  std::function<std::int64_t(std::int32_t layer, std::int64_t token, std::int64_t choice)> route = {};
  /// Says by what key, and as which part of which whole, a launch draws what it draws at random.
  std::function<void(const ArithmeticRank& rank, const Launch& launch, math::Setting& setting)> draws;
  /// Called before each mark and, with none, at the end.
  std::function<void(const ArithmeticRank& rank, const Mark* next)> before_mark;
  /// Called after each launch.
  std::function<void(const ArithmeticRank& rank, const Launch& launch)> after_launch;
  /// Called after each op, for whoever takes times.
  std::function<void(const ArithmeticRank& rank)> after_op = {};
};

/// Runs one rank's program, frees included, with real numbers: they lie where the calculator has its memory, which also
/// computes; the world carries them between ranks, from and to that memory. Ops run in host order, each to its end.
/// Memory is not a number until it is written, and gone when it is freed: a kernel that reads what is none is noted,
/// and goes on with it. Throws RunFailure where other ranks do not come.
class ArithmeticRank {
 public:
  ArithmeticRank(const Program& program, const std::vector<Group>& groups, World& world, math::Calculator& calculator,
                 math::Storage storage, ArithmeticHooks hooks);

  void run();

  [[nodiscard]] const Program& program() const { return program_; }
  /// The label of the last allocation of a buffer.
  [[nodiscard]] std::string_view label(BufferId buffer) const;
  /// The layer that a launch is of, by its mark or else by what it makes first; -1: none.
  [[nodiscard]] std::int32_t layer_of(const Launch& o) const;
  /// The last mark; before the first one, without a label.
  [[nodiscard]] const Mark& at() const { return at_; }
  /// What shows that the program cannot mean what it was written for: the first read of what nobody wrote, or of what
  /// is freed; what comes of it is none either. Empty: there was none.
  [[nodiscard]] const std::string& wrong() const { return wrong_; }
  /// The op that runs, by its place in the program.
  [[nodiscard]] std::size_t op() const { return op_; }
  /// Elements of a live buffer, row by row.
  [[nodiscard]] std::vector<double> values(BufferId buffer, Bytes from, const View& view) const;
  [[nodiscard]] std::vector<double> values(const Operand& operand, const View& view) const {
    return values(operand.buffer, program_[operand.offset], view);
  }

 private:
  struct Held {
    math::Memory memory;  // made when it is first asked for
    Bytes size;
    LabelId label;
    bool live = false;
  };

  void execute(const Op& op);
  void allocate(const Alloc& o);
  void launch(const Launch& o);
  void collective(const Collective& o);
  void exchange(const Exchange& o);
  void must_be_numbers(const Launch& o);
  void must_live(const Op& op);
  void note(const std::string& what);

  /// Memory that only scratches are for is never there: kernels here need none.
  [[nodiscard]] std::byte* memory(BufferId buffer, Bytes offset = {}) const;
  [[nodiscard]] std::size_t spread(Bytes size) const {
    return static_cast<std::size_t>(size.count() * math::spread(storage_));
  }
  [[nodiscard]] math::Array row(std::byte* first, DType dtype, Bytes size) const;

  const Program& program_;
  const std::vector<Group>& groups_;
  World& world_;
  math::Calculator& calculator_;
  math::Storage storage_;
  ArithmeticHooks hooks_;
  mutable std::vector<Held> held_;  // by buffer
  Mark at_;
  std::string wrong_;
  std::size_t op_ = 0;
};

}  // namespace tidemark::execute
