#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "parallel/torch/checkpoint.hpp"
#include "parallel/torch/session.hpp"

// torch.compile of a region, as a model of PyTorch 2.15's: AOTAutograd's joint graph, the partitioner's choice of what
// is kept, Inductor's fusion of what goes element by element or row by row, its frees at the last use and its results
// in place of what they are made of. What runs are the operations themselves: what a fused kernel holds between its
// steps lies in registers.

namespace tidemark::parallel::torch {

/// Which results selective checkpointing keeps; none: nothing is checkpointed.
struct CompileOptions {
  bool checkpointed = false;
  std::function<KeepsResult()> policy{};  ///< none: a checkpointed region keeps nothing
  std::size_t others = 1;                 ///< inputs before those that are always there
  LabelId marks{};                        ///< what its passes are called; none: as what it is a part of
};

struct CompilePlan;

/// A region and what it was compiled to when it ran first. Later runs may be handed other tensors of the same sizes.
class CompiledRegion {
 public:
  using Several = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
  /// `inputs`: what the region is run on, then what else it reads: parameters, and what is always there.
  [[nodiscard]] std::vector<Tensor> several(Session& s, const std::vector<Tensor>& inputs, const Several& region,
                                            const CompileOptions& options);
  /// The same of a region with one result.
  [[nodiscard]] Tensor operator()(Session& s, const std::vector<Tensor>& inputs,
                                  const std::function<Tensor(const std::vector<Tensor>&)>& region,
                                  const CompileOptions& options) {
    return several(
               s, inputs, [&](const std::vector<Tensor>& given) { return std::vector{region(given)}; }, options)
        .front();
  }

 private:
  std::shared_ptr<const CompilePlan> plan_;
};

}  // namespace tidemark::parallel::torch
