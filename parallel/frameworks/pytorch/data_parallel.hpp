#pragma once

#include <vector>

#include "parallel/frameworks/transformers/modules.hpp"

namespace tidemark::parallel::pytorch {

/// torch.nn.parallel.DistributedDataParallel: gradients gathered into buckets, each summed over the ranks once it is
/// full (torch/csrc/distributed/c10d/reducer.cpp).
class DistributedDataParallel {
 public:
  DistributedDataParallel(Session& session, CommSlot group, const EagerHabits& habits, const Parameters& parameters);

  /// Gradients of this backward pass are summed over the ranks; with accumulation, only those of the last one.
  void prepare_for_backward(bool synchronize);
  /// Waits for the sums.
  void finish_backward();

 private:
  struct Bucket {
    std::vector<std::shared_ptr<Leaf>> parameters;
    std::vector<std::int64_t> offsets;  ///< elements
    Tensor gradients;
    std::size_t pending = 0;
    EventId summed;
  };
  void make_buckets(const Parameters& order, Bytes first, Bytes others);
  void arrived(Leaf& parameter);
  void close(Bucket& bucket);

  Session& s_;
  CommSlot group_;
  const EagerHabits& habits_;
  std::vector<Bucket> buckets_;
  Parameters arrival_;  ///< the order of the first backward pass, in which buckets are made again
  Parameters parameters_;
  bool rebuilt_ = false;
  bool synchronizing_ = true;
};

}  // namespace tidemark::parallel::pytorch
