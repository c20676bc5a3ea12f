#include "parallel/frameworks/pytorch/data_parallel.hpp"

#include <algorithm>
#include <limits>

namespace tidemark::parallel::pytorch {

DistributedDataParallel::DistributedDataParallel(Session& session, CommSlot group, const EagerHabits& habits,
                                                 const Parameters& parameters)
    : s_(session), group_(group), habits_(habits), parameters_(parameters) {
  // Where every parameter takes part, all are in one until their order is known (distributed.py).
  constexpr Bytes everything{std::numeric_limits<std::int64_t>::max()};
  make_buckets(Parameters(parameters.rbegin(), parameters.rend()), everything, everything);
  for (const std::shared_ptr<Leaf>& p : parameters_) p->accumulated = [this](Leaf& leaf) { arrived(leaf); };
}

void DistributedDataParallel::make_buckets(const Parameters& order, Bytes first, Bytes others) {
  // compute_bucket_assignment_by_size: a bucket closes once it is full.
  const Session::Scope scope(s_, "reducer");
  std::vector<Bucket> made;
  Bucket open;
  Bytes size;
  const auto finish = [&] {
    if (!open.parameters.empty()) made.push_back(std::move(open));
    open = Bucket{};
    size = Bytes{};
  };
  for (const std::shared_ptr<Leaf>& p : order) {
    open.offsets.push_back(size.count() / size_of(p->value.dtype).count());
    open.parameters.push_back(p);
    size += p->value.bytes();
    if (size >= (made.empty() ? first : others)) finish();
  }
  finish();
  buckets_.clear();
  for (Bucket& bucket : made) {
    std::int64_t elements = 0;
    for (const std::shared_ptr<Leaf>& p : bucket.parameters) elements += p->value.elements();
    const Category category = habits_.gradients_view_buckets ? Category::Gradients : Category::CommDp;
    bucket.gradients = s_.empty({elements}, bucket.parameters.front()->value.dtype, "bucket", category);
    bucket.pending = bucket.parameters.size();
  }
  buckets_ = std::move(made);
}

void DistributedDataParallel::prepare_for_backward(bool synchronize) {
  synchronizing_ = synchronize;
  // rebuild_buckets: once, before the second forward pass, in the order in which gradients came.
  if (!rebuilt_ && arrival_.size() == parameters_.size()) {
    make_buckets(arrival_, habits_.first_bucket, habits_.bucket);
    rebuilt_ = true;
  }
  for (Bucket& bucket : buckets_) bucket.pending = bucket.parameters.size();
}

void DistributedDataParallel::arrived(Leaf& parameter) {
  if (!synchronizing_) return;
  for (Bucket& bucket : buckets_) {
    const auto at = std::find_if(bucket.parameters.begin(), bucket.parameters.end(),
                                 [&](const std::shared_ptr<Leaf>& p) { return p.get() == &parameter; });
    if (at == bucket.parameters.end()) continue;
    if (!rebuilt_) arrival_.push_back(*at);
    // mark_variable_ready_dense: divided by the number of ranks on the way.
    if (parameter.gradient.storage != bucket.gradients.storage) {
      s_.stream(Streaming::Copy, {parameter.gradient}, {bucket.gradients});
      if (habits_.gradients_view_buckets)
        parameter.gradient = {
            bucket.gradients.storage, parameter.value.sizes, parameter.value.strides, parameter.value.dtype, {}};
    }
    if (--bucket.pending == 0) close(bucket);
    return;
  }
}

void DistributedDataParallel::close(Bucket& bucket) {
  bucket.summed = s_.process.collective_aside(group_, CollectiveKind::AllReduce, bucket.gradients.buffer(),
                                              bucket.gradients.buffer(), bucket.gradients.bytes());
}

void DistributedDataParallel::finish_backward() {
  if (!synchronizing_) return;
  for (Bucket& bucket : buckets_) {
    s_.process.join(bucket.summed);
    if (habits_.gradients_view_buckets) continue;
    for (const std::shared_ptr<Leaf>& p : bucket.parameters)
      s_.stream(Streaming::Copy, {bucket.gradients}, {p->gradient});
  }
}

}  // namespace tidemark::parallel::pytorch
