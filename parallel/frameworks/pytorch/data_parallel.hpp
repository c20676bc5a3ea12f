#pragma once

#include <cstdint>
#include <vector>

#include "parallel/frameworks/transformers/modules.hpp"

namespace tidemark::parallel::pytorch {

/// torch.nn.parallel.DistributedDataParallel: gradients gathered into buckets, each summed over the ranks once it is
/// full (torch/csrc/distributed/c10d/reducer.cpp).
class DistributedDataParallel {
 public:
  DistributedDataParallel(Session& session, CommSlot group, std::int64_t ranks, const EagerBehavior& behavior,
                          const Parameters& parameters);

  /// Gradients of this backward pass are summed over the ranks; with accumulation, only those of the last one.
  void prepare_for_backward(bool synchronize);
  /// Waits for the sums.
  void finish_backward();

 private:
  struct Bucket {
    std::vector<std::size_t> parameters;  ///< places in the list of all
    Tensor gradients;
    std::size_t pending = 0;
    EventId summed;
  };
  void make_buckets(const std::vector<std::size_t>& order, Bytes first, Bytes others);
  /// Of a parameter's gradient in its bucket.
  [[nodiscard]] Tensor place_of(std::size_t parameter) const;
  void arrived(std::size_t parameter);
  void close(Bucket& bucket);

  Session& s_;
  CommSlot group_;
  std::int64_t ranks_;  ///< of the group
  const EagerBehavior& behavior_;
  std::vector<Bucket> buckets_;
  Parameters parameters_;
  std::vector<std::size_t> bucket_of_;  ///< by parameter
  std::vector<std::int64_t> begin_of_;  ///< in its bucket, in elements; by parameter
  std::vector<std::size_t> arrival_;    ///< the order of the first backward pass, in which buckets are made again
  bool rebuilt_ = false;
  bool synchronizing_ = true;
};

}  // namespace tidemark::parallel::pytorch
