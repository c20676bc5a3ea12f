#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/namespace.hpp"
#include "sim/base/units.hpp"

// What torch.compile keeps from a region's forward pass for its backward pass: the cheapest set of tensors that cuts
// the joint graph of both, by PyTorch 2.15's rules (torch/_functorch/partitioners.py). What is not kept and not an
// input is computed again.

namespace tidemark::parallel::compile {

/// What selective checkpointing says of an operation's results.
enum class Policy : std::uint8_t { None, Save, Recompute };

/// One operation of the joint graph, or what it is given. What it reads comes before it.
struct GraphNode {
  std::vector<std::size_t> inputs;  ///< nodes, each once
  Bytes bytes;                      ///< of its result, or of all of them
  Policy policy = Policy::None;
  bool input = false;         ///< of the forward pass
  bool fixed = false;         ///< an input that is there all the time: a parameter
  bool tangent = false;       ///< a gradient that the backward pass is given
  bool view = false;          ///< of the same memory
  bool fusible = false;       ///< a kernel can hold it together with what it reads
  bool recomputable = false;  ///< cheap enough to be computed twice
  bool intensive = false;     ///< a product or attention
  bool random = false;        ///< would come out otherwise
  bool joins = false;         ///< torch.cat, into which all that it reads can be fused
  bool several = false;       ///< results of which others take one: it cannot be kept itself
  bool part = false;          ///< such a result
  std::int64_t flops = 1;     ///< what it takes to compute it twice
};

struct JointGraph {
  std::vector<GraphNode> nodes;
  std::vector<std::size_t> outputs;    ///< of the forward pass
  std::vector<std::size_t> gradients;  ///< what the backward pass makes
};

/// The nodes whose results are kept, in the graph's order. `budget` is torch._functorch.config's
/// activation_memory_budget: of what is kept where it is 1, beyond what is given anyway, so much may be; what costs the
/// fewest FLOPs is computed again.
[[nodiscard]] std::vector<std::size_t> saved_values(const JointGraph& graph, double budget = 1);

}  // namespace tidemark::parallel::compile
