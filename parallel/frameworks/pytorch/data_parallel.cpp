#include "parallel/frameworks/pytorch/data_parallel.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace tidemark::parallel::pytorch {

DistributedDataParallel::DistributedDataParallel(Session& session, CommSlot group, std::int64_t ranks,
                                                 const EagerBehavior& behavior, const Parameters& parameters)
    : s_(session),
      group_(group),
      ranks_(ranks),
      behavior_(behavior),
      parameters_(parameters),
      bucket_of_(parameters.size()),
      begin_of_(parameters.size()) {
  // Where every parameter takes part, all are in one until their order is known (distributed.py).
  constexpr Bytes everything{std::numeric_limits<std::int64_t>::max()};
  std::vector<std::size_t> order(parameters_.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  make_buckets(order, everything, everything);
  for (std::size_t p = 0; p < parameters_.size(); ++p) parameters_[p]->accumulated = [this, p](Leaf&) { arrived(p); };
}

void DistributedDataParallel::make_buckets(const std::vector<std::size_t>& order, Bytes first, Bytes others) {
  // compute_bucket_assignment_by_size: each type has buckets of its own, the first of them smaller. One closes once it
  // is full; those that are left come last, by the type that began first.
  const Session::Scope scope(s_, "reducer");
  struct Open {
    DType dtype{};
    Bytes limit, size;
    std::int64_t elements = 0;
    std::vector<std::size_t> parameters = {};
  };
  std::vector<Bucket> made;
  std::vector<Open> of_types;
  const Category category = behavior_.gradients_view_buckets ? Category::Gradients : Category::CommDp;
  const auto close_bucket = [&](Open& open) {
    if (open.parameters.empty()) return;
    for (const std::size_t p : open.parameters) bucket_of_[p] = made.size();
    const std::size_t count = open.parameters.size();
    Tensor gradients = s_.empty({open.elements}, open.dtype, "bucket", category);
    made.push_back({std::move(open.parameters), std::move(gradients), count, {}});
    open = {.dtype = open.dtype, .limit = others, .size = {}};
  };
  for (const std::size_t p : order) {
    const Tensor& value = parameters_[p]->value;
    auto its = std::ranges::find(of_types, value.dtype, &Open::dtype);
    if (its == of_types.end()) its = of_types.insert(its, {.dtype = value.dtype, .limit = first, .size = {}});
    begin_of_[p] = its->elements;
    its->parameters.push_back(p);
    its->elements += value.elements();
    its->size += value.bytes();
    if (its->size >= its->limit) close_bucket(*its);
  }
  std::ranges::for_each(of_types, close_bucket);
  buckets_ = std::move(made);
}

void DistributedDataParallel::prepare_for_backward(bool synchronize) {
  synchronizing_ = synchronize;
  // rebuild_buckets: once, before the second forward pass, in the order in which gradients came.
  if (!rebuilt_ && arrival_.size() == parameters_.size()) {
    buckets_.clear();
    make_buckets(arrival_, behavior_.first_bucket, behavior_.bucket);
    rebuilt_ = true;
  }
  for (Bucket& bucket : buckets_) bucket.pending = bucket.parameters.size();
}

Tensor DistributedDataParallel::place_of(std::size_t p) const {
  const Tensor& value = parameters_[p]->value;
  return {buckets_[bucket_of_[p]].gradients.storage, value.sizes, value.strides, begin_of_[p], value.dtype, {}};
}

void DistributedDataParallel::arrived(std::size_t p) {
  if (!synchronizing_) return;
  if (!rebuilt_) arrival_.push_back(p);
  Bucket& bucket = buckets_[bucket_of_[p]];
  Leaf& parameter = *parameters_[p];
  // mark_variable_ready_dense: divided by the number of ranks on the way.
  s_.launch({Operation::Scale, {1 / static_cast<double>(ranks_)}}, {parameter.gradient}, {place_of(p)});
  if (behavior_.gradients_view_buckets) parameter.gradient = place_of(p);
  if (--bucket.pending == 0) close(bucket);
}

void DistributedDataParallel::close(Bucket& bucket) {
  bucket.summed = s_.collective_aside(group_, CollectiveKind::AllReduce, bucket.gradients, bucket.gradients);
}

void DistributedDataParallel::finish_backward() {
  if (!synchronizing_) return;
  for (Bucket& bucket : buckets_) {
    s_.process.join(bucket.summed);
    if (behavior_.gradients_view_buckets) continue;
    for (const std::size_t p : bucket.parameters) s_.launch(Operation::Copy, {place_of(p)}, {parameters_[p]->gradient});
  }
}

}  // namespace tidemark::parallel::pytorch
