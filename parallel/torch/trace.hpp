#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "parallel/compile/partitioner.hpp"
#include "parallel/torch/session.hpp"

// What a region does, seen while it runs without writing a program: torch.compile's joint graph of its forward and
// backward pass, at the level of operations.

namespace tidemark::parallel::torch {

inline constexpr std::size_t no_value = static_cast<std::size_t>(-1);

struct TracedOperand {
  std::size_t value = no_value;  ///< none: the operation goes without
  Shape sizes, strides;
  std::int64_t offset = 0;
  DType dtype = DType::BF16;
};

struct TracedLaunch {
  Computation what;
  std::vector<TracedOperand> inputs, outputs;
};

/// A kernel, or several that write parts of one value after another.
struct TracedStep {
  std::vector<TracedLaunch> launches;
  std::vector<TracedOperand> inputs, outputs;  ///< of all of them; each value that is made once
  bool joins = false;                          ///< one kernel writes parts of one value: torch.cat
  std::vector<std::size_t> scratch;
  std::vector<BufferId> workspaces;  ///< that outlive the region

  [[nodiscard]] Operation operation() const { return launches.back().what.operation; }
  /// Each element is made of those in the same place.
  [[nodiscard]] bool in_one_piece() const { return launches.size() == 1 && !joins; }
};

struct TracedValue {
  Shape sizes, strides;
  DType dtype = DType::BF16;
  std::string what;  ///< within the region's scope
  compile::Policy policy = compile::Policy::None;
  bool given = false;
  bool fixed = false;  ///< … and there all the time: a parameter, or a buffer of a module
};

struct Trace {
  std::vector<TracedValue> values;  ///< inputs first
  std::vector<TracedStep> steps;    ///< forward, then backward
  std::size_t forward_steps = 0;
  std::vector<TracedOperand> outputs;
  std::vector<std::size_t> tangents;     ///< values: the gradient of each output; none of one that needs none
  std::vector<TracedOperand> gradients;  ///< by input; none of one that needs none
};

/// In place of a program while a session has one.
class Tracer {
 public:
  /// What the region is given: after so many others, what is there all the time.
  Tracer(Session& session, const std::vector<Tensor>& inputs, std::size_t others);
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  [[nodiscard]] BufferId alloc(const Shape& sizes, const Shape& strides, DType dtype, LabelId label);
  [[nodiscard]] static bool is_traced(BufferId buffer) { return buffer.value >= first; }
  void launched(const Computation& what, Operands inputs, Operands outputs, const Scratch& scratch);
  /// What a leaf would have gathered.
  void gathered(const Node& leaf, const Tensor& gradient);

  /// What is made from now on is run again for the backward pass, unless it is said to be kept.
  void recompute() { policy_ = compile::Policy::Recompute; }
  void keep(const Tensor& made);

  /// Runs forward and backward; inputs are leaves.
  [[nodiscard]] Trace of(const std::function<std::vector<Tensor>()>& region, const std::vector<Tensor>& inputs) &&;

 private:
  static constexpr std::int32_t first = 1 << 30;  // of buffers that no program has
  [[nodiscard]] TracedOperand operand(const Tensor& tensor, BufferId buffer) const;

  Session& session_;
  std::size_t prefix_;
  std::size_t first_of_pass_ = 0;  ///< step
  // Some may be parts of one buffer: of a flat parameter.
  struct Given {
    BufferId buffer;
    std::int64_t offset = 0;
  };
  std::vector<Given> given_;
  std::vector<std::pair<const Node*, Tensor>> gradients_;
  compile::Policy policy_ = compile::Policy::None;
  Trace trace_;
};

}  // namespace tidemark::parallel::torch
