#include "parallel/frameworks/deepspeed/stage_1_and_2.hpp"

#include <algorithm>
#include <utility>

#include "parallel/frameworks/deepspeed/flat_parameters.hpp"
#include "parallel/frameworks/deepspeed/host_copies.hpp"

namespace tidemark::parallel::deepspeed {
Stage1And2::Stage1And2(Session& session, const DataGroup& group, const ZeroBehavior& behavior,
                       const EagerBehavior& eager, const Train& train, Sharding stage, const Scaling& scaling,
                       NamedParameters parameters)
    : s_(session),
      group_(group),
      behavior_(behavior),
      stage_(stage),
      scaling_(scaling),
      parameters_(std::move(parameters)),
      dtype_(train.precision),
      accumulation_(behavior.accumulation.value_or(train.precision)),
      update_behavior_(eager) {
  std::vector<std::int64_t> sizes;
  for (const NamedParameter& p : parameters_) sizes.push_back(p.leaf->value.elements());
  layout_ = flat_layout(std::move(sizes), group.ranks,
                        behavior.round_robin ? FlatOrder::RoundRobin : FlatOrder::AsRegistered);
  slices_ = layout_.slices_of(group.rank);
  of_parameter_.resize(parameters_.size());
  for (const FlatSlice& slice : slices_) of_parameter_[slice.parameter] = slice;
  if (behavior_.overlaps) s_.process.order_frees(reduction);
  s_.process.empty_cache();  // before the one group is flattened
  flat_ = flatten(s_, layout_, parameters_, dtype_);
  if (behavior_.offload_optimizer)
    make_host_state();
  else
    make_state();
  optimizer_.emplace(s_, train, update_behavior_, Parameters{master_});
  if (!partitions_gradients() && !behavior_.overlaps && !is_contiguous()) return;
  for (std::size_t p = 0; p < parameters_.size(); ++p)
    parameters_[p].leaf->accumulated = [this, p](const Leaf&) { process_gradients(p); };
}

Tensor Stage1And2::own_part() const { return narrowed(flat_, 0, layout_.partition * group_.rank, layout_.partition); }

void Stage1And2::make_state() {
  master_ = wide_copy(s_, own_part());
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, "flat");
  // initialize_optimizer_states: nothing comes of it but that it was there.
  (void)s_.empty({layout_.partition}, DType::FP32, "zero_gradient", Category::Temporaries);
}

// What is pinned is copied there from pageable memory; Python's variables keep one such copy until the constructor is
// over.
void Stage1And2::make_host_state() {
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, "flat");
  const MemorySpace space = *behavior_.offload_optimizer;
  if (behavior_.cpu_adam) update_behavior_.optimizer = OptimizerKernels::Fused;
  {
    const Tensor part = s_.empty({layout_.partition}, dtype_, "partition", Category::OffloadStaging);
    s_.launch(Operation::Copy, {own_part()}, {part});
    const Tensor wide = moved(s_, part, MemorySpace::Pageable, DType::FP32, "partition", Category::OptimizerMaster);
    master_ = leaf(s_, pinned(s_, wide, space, "partition", Category::OptimizerMaster));
  }
  const Tensor variable =
      zeros(s_, MemorySpace::Pageable, layout_.partition, dtype_, "bit16_buffer", Category::OffloadStaging);
  staging_ = pinned(s_, variable, space, "bit16_buffer", Category::OffloadStaging);
  const std::int64_t largest = *std::ranges::max_element(layout_.sizes);
  host_buffer_ =
      pinned(s_, zeros(s_, MemorySpace::Pageable, largest, dtype_, "gradient_buffer", Category::OffloadStaging), space,
             "gradient_buffer", Category::OffloadStaging);
  device_buffer_ = zeros(s_, MemorySpace::Device, largest, dtype_, "gradient_buffer", Category::OffloadStaging);
  norms_.resize(parameters_.size());
  // initialize_optimizer_states
  const Tensor gradient =
      zeros(s_, MemorySpace::Pageable, layout_.partition, DType::FP32, "gradient", Category::Gradients);
  master_->gradient = pinned(s_, gradient, space, "gradient", Category::Gradients);
}

// ---- gradients, one by one -----------------------------------------------------------------------------------------

void Stage1And2::process_gradients(std::size_t parameter) {
  setup_buckets();
  if (partitions_gradients() || (behavior_.overlaps && is_boundary_)) reduce_when_full(parameter);
}

void Stage1And2::setup_buckets() {
  if (has_buckets_) return;
  has_buckets_ = true;
  ++micro_step_;
  const auto buffer = [&] {
    bucket_.buffers.push_back(s_.empty({behavior_.reduce_bucket}, dtype_, "ipg_buffer", Category::CommDp));
  };
  if (is_contiguous()) {
    bucket_.buffers.clear();
    buffer();
    bucket_.filling = 0;
  }
  if (behavior_.overlaps) buffer();  // where gradients are not contiguous, nobody lets go of it
}

// reduce_independent_p_g_buckets_and_remove_grads.
void Stage1And2::reduce_when_full(std::size_t parameter) {
  Leaf& its = *parameters_[parameter].leaf;
  const std::int64_t elements = its.value.elements();
  if (bucket_.elements + elements > behavior_.reduce_bucket) {
    reduce_bucket();
    if (is_contiguous() && behavior_.overlaps) bucket_.filling = 1 - bucket_.filling;
  }
  if (is_contiguous()) {
    if (elements > behavior_.reduce_bucket) {
      too_large_ = parameter;
    } else {
      if (const auto gone = bucket_.reuse.find(bucket_.filling); gone != bucket_.reuse.end())
        s_.process.wait(s_.stream(), gone->second);
      const Tensor place = narrowed(bucket_.buffers[bucket_.filling], 0, bucket_.elements, elements);
      s_.launch(Operation::Copy, {flattened(its.gradient)}, {place});
      its.gradient = sized(place, its.value.sizes);
    }
  }
  bucket_.elements += elements;
  bucket_.gradients.push_back(its.gradient);
  bucket_.parameters.push_back(parameter);
}

// reduce_ipg_grads.
void Stage1And2::reduce_bucket() {
  const Session::Scope scope(s_, "reduce");
  if (!is_contiguous()) {
    std::vector<Piece> whole;
    for (const Tensor& gradient : bucket_.gradients) whole.push_back({flattened(gradient), group_.rank, {}});
    if (behavior_.overlaps) {
      s_.process.synchronize();
      for (const std::size_t p : std::exchange(reduced_, {})) parameters_[p].leaf->gradient = {};
    }
    const OnStream reducing_on(s_, reducing());
    if (!whole.empty()) allreduce_and_copy(whole);
  } else if (too_large_) {
    average(flattened(parameters_[*std::exchange(too_large_, {})].leaf->gradient));
  } else {
    average(narrowed(bucket_.buffers[bucket_.filling], 0, 0, bucket_.elements));
  }
  const OnStream reducing_on(s_, reducing());
  for (const std::size_t p : bucket_.parameters) {
    if (is_mine(p)) {
      if (is_contiguous()) copy_to_partition(p);
    } else if (partitions_gradients()) {
      if (behavior_.overlaps && !is_contiguous())
        reduced_.push_back(p);
      else
        parameters_[p].leaf->gradient = {};
    }
  }
  if (behavior_.offload_optimizer && behavior_.overlaps && bucket_.elements > 0 &&
      bucket_.elements <= behavior_.reduce_bucket)
    bucket_.reuse[bucket_.filling] = s_.process.record(reduction);
  bucket_.parameters.clear();
  bucket_.gradients.clear();
  bucket_.elements = 0;
}

// average_tensor.
void Stage1And2::average(const Tensor& tensor) {
  if (tensor.elements() == 0) return;
  if (behavior_.overlaps) {
    s_.process.wait(reduction, s_.process.record(Process::compute_stream));
    s_.process.join(s_.process.record(reduction));
  }
  const OnStream reducing_on(s_, reducing());
  const double share = 1 / static_cast<double>(group_.ranks);
  if (behavior_.reduce_scatter) {
    s_.launch({Operation::Scale, {share}}, {tensor}, {tensor});
    allreduce_and_scatter(pieces_of_bucket(tensor));
    return;
  }
  s_.collective(group_.comm, CollectiveKind::AllReduce, tensor, tensor);
  s_.launch({Operation::Scale, {share}}, {tensor}, {tensor});
  if (!is_compact()) return;
  for (std::int64_t at = 0; const std::size_t p : bucket_.parameters) {
    if (const std::optional<FlatSlice>& slice = of_parameter_[p]) {
      const Tensor wide = to(s_, narrowed(tensor, 0, at + slice->begin, slice->elements), accumulation_);
      const Tensor sum = summed_slice(*slice);
      s_.launch(Operation::Add, {sum, wide}, {sum});
    }
    at += layout_.sizes[p];
  }
}

// What goes to one rank in a row is one piece, but for what is added up in another type.
std::vector<Stage1And2::Piece> Stage1And2::pieces_of_bucket(const Tensor& tensor) {
  std::vector<Piece> pieces;
  std::int64_t at = 0;
  for (const std::size_t p : bucket_.parameters)
    for (const FlatLayout::Piece& its : layout_.pieces_of(p)) {
      const bool summed = is_compact() && its.rank == group_.rank;
      const bool joins = !summed && !pieces.empty() && pieces.back().rank == its.rank && !pieces.back().sum.defined();
      const std::int64_t before = joins ? pieces.back().tensor.elements() : 0;
      Piece made{narrowed(tensor, 0, at - before, before + its.elements), its.rank, {}};
      if (summed) made.sum = summed_slice(*of_parameter_[p]);
      if (joins)
        pieces.back() = std::move(made);
      else
        pieces.push_back(std::move(made));
      at += its.elements;
    }
  return pieces;
}

void Stage1And2::allreduce_and_scatter(std::vector<Piece> pieces) {
  std::vector<Piece> some;
  std::int64_t elements = 0;
  for (Piece& piece : pieces) {
    elements += piece.tensor.elements();
    some.push_back(std::move(piece));
    if (elements <= behavior_.reduce_bucket) continue;
    allreduce_and_copy(some);
    some.clear();
    elements = 0;
  }
  if (!some.empty()) allreduce_and_copy(some);
}

// Pieces are put together, summed over all ranks, and those that are this rank's are copied back. One alone is summed
// where it is.
void Stage1And2::allreduce_and_copy(const std::vector<Piece>& pieces) {
  std::int64_t elements = 0;
  for (const Piece& piece : pieces) elements += piece.tensor.elements();
  const bool alone = pieces.size() == 1;
  const Tensor together =
      alone ? pieces.front().tensor : s_.empty({elements}, dtype_, "allreduce_bucket", Category::CommDp);
  std::vector<Tensor> from, to_places;
  for (std::int64_t at = 0; const Piece& piece : pieces) {
    from.push_back(piece.tensor);
    to_places.push_back(narrowed(together, 0, at, piece.tensor.elements()));
    at += piece.tensor.elements();
  }
  if (!alone) s_.launch(Operation::Copy, from, to_places);
  if (!is_contiguous()) s_.launch({Operation::Scale, {1 / static_cast<double>(group_.ranks)}}, {together}, {together});
  s_.collective(group_.comm, CollectiveKind::AllReduce, together, together);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (pieces[i].rank != group_.rank) continue;
    if (pieces[i].sum.defined()) {
      const Tensor wide = to(s_, to_places[i], accumulation_);
      s_.launch(Operation::Add, {pieces[i].sum, wide}, {pieces[i].sum});
    }
    if (!alone) s_.launch(Operation::Copy, {to_places[i]}, {from[i]});
  }
  // DeepSpeed says so of what is this rank's, and of what is summed where it is.
  for (const Tensor& piece : from)
    if (behavior_.overlaps && s_.process.allocation(piece.buffer()).stream != reduction)
      s_.record_stream(piece, reduction);
}

// copy_grads_in_partition: the bucket will be filled again.
void Stage1And2::copy_to_partition(std::size_t parameter) {
  if (behavior_.offload_optimizer) return keep_on_host(parameter);
  if (is_compact()) return;
  if (!partition_gradients_.defined()) {
    std::int64_t all = 0;
    for (const FlatSlice& slice : slices_) all += layout_.sizes[slice.parameter];
    partition_gradients_ = s_.empty({all}, dtype_, "grads_in_partition", Category::Gradients);
    partition_filled_ = 0;
  }
  Leaf& its = *parameters_[parameter].leaf;
  const std::int64_t elements = its.value.elements();
  const Tensor place = narrowed(partition_gradients_, 0, partition_filled_, elements);
  s_.launch(Operation::Copy, {flattened(its.gradient)}, {place});
  its.gradient = sized(place, its.value.sizes);
  partition_filled_ += elements;
}

// async_accumulate_grad_in_cpu_via_gpu: whole gradients, though the rank updates a part.
void Stage1And2::accumulate_on_host(std::size_t parameter) {
  wait_for(s_, reducing());
  const Tensor gradient = flattened(parameters_[parameter].leaf->gradient);
  Tensor& kept = host_gradients_[parameter];
  if (!kept.defined())
    kept = pinned(s_, zeros(s_, MemorySpace::Pageable, gradient.elements(), dtype_, "accumulated", Category::Gradients),
                  *behavior_.offload_optimizer, "accumulated", Category::Gradients);
  if (micro_step_ > 0) {
    const Tensor before = narrowed(device_buffer_, 0, 0, gradient.elements());
    copy_ahead(s_, kept, before);
    s_.launch(Operation::Add, {gradient, before}, {gradient});
  }
  copy_ahead(s_, gradient, kept);
}

void Stage1And2::keep_on_host(std::size_t parameter) {
  const FlatSlice& slice = *of_parameter_[parameter];
  Leaf& its = *parameters_[parameter].leaf;
  if (!is_compact() && (micro_step_ > 0 || !is_boundary_)) accumulate_on_host(parameter);
  if (!is_boundary_) return;
  const Tensor part =
      is_compact() ? summed_slice(slice) : narrowed(flattened(its.gradient), 0, slice.begin, slice.elements);
  norms_[parameter] = norm_in_fp64(s_, part);
  wait_for(s_, reducing());  // update_offload_overflow_tracker asks whether one is infinite
  copy_ahead(s_, to(s_, part, DType::FP32), narrowed(master_->gradient, 0, slice.at, slice.elements));
  its.gradient = {};
}

// _get_compact_grad_partition_slice.
Tensor Stage1And2::summed_slice(const FlatSlice& slice) {
  if (!summed_.defined()) {
    const OnStream where(s_, reducing());
    summed_ = s_.empty({layout_.partition}, accumulation_, "grad_partition", Category::Gradients);
    s_.launch({Operation::Fill, {0}}, {}, {summed_});
  }
  return narrowed(summed_, 0, slice.at, slice.elements);
}

// ---- a pass is over ------------------------------------------------------------------------------------------------

void Stage1And2::finish_backward() {
  if (!partitions_gradients()) {
    if (!is_boundary_) return;
    if (!behavior_.overlaps)  // reduce_gradients
      for (std::size_t p = 0; p < parameters_.size(); ++p) reduce_when_full(p);
  }
  epilogue();
}

// independent_gradient_partition_epilogue.
void Stage1And2::epilogue() {
  const NoGrad no_grad(s_);
  reduce_bucket();
  if (behavior_.overlaps) {
    s_.process.join(s_.process.record(reduction));
    s_.process.synchronize();
    for (const std::size_t p : std::exchange(reduced_, {})) parameters_[p].leaf->gradient = {};
  }
  std::vector<Tensor> latest;
  if (behavior_.offload_optimizer) {
    // What is the rank's own is there already.
  } else if (!is_compact()) {
    for (const FlatSlice& slice : slices_) latest.push_back(parameters_[slice.parameter].leaf->gradient);
    if (accumulated_.empty())
      accumulated_ = latest;
    else
      for (std::size_t i = 0; i < latest.size(); ++i)
        s_.launch(Operation::Add, {accumulated_[i], latest[i]}, {accumulated_[i]});
    if (is_boundary_) averaged_ = flat_partition();
  } else if (is_boundary_ && !summed_.defined()) {
    (void)summed_slice({});
  }
  if (is_contiguous()) bucket_.buffers.clear(), bucket_.reuse.clear(), partition_gradients_ = {};
  has_buckets_ = false;
  clear_gradients();
}

// _get_flat_partition_unpadded: of what was accumulated, the rank's slices, and zeros where no parameter is.
std::vector<Tensor> Stage1And2::flat_partition() {
  std::vector<Tensor> pieces;
  std::int64_t filled = 0;
  for (std::size_t i = 0; i < slices_.size(); ++i) {
    pieces.push_back(narrowed(flattened(accumulated_[i]), 0, slices_[i].begin, slices_[i].elements));
    filled += slices_[i].elements;
  }
  if (filled < layout_.partition) {
    pieces.push_back(s_.empty({layout_.partition - filled}, accumulation_, "padding", Category::Gradients));
    s_.launch({Operation::Fill, {0}}, {}, {pieces.back()});
  }
  accumulated_.clear();
  return pieces;
}

void Stage1And2::clear_gradients() {
  for (const NamedParameter& p : parameters_) p.leaf->gradient = {};
}

// ---- a step --------------------------------------------------------------------------------------------------------

void Stage1And2::step(const std::function<void()>& gradients_are_there) {
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, "zero");
  if (behavior_.offload_optimizer) {
    step_on_host(gradients_are_there);
    return gather_updated();
  }
  s_.mark(Phase::OptimizerStep, "grad_norm");
  if (dtype_ != DType::FP32) agree_on_overflow(s_, group_, {});
  std::vector<Tensor> of_parameters;
  if (is_compact())
    for (const FlatSlice& slice : slices_) of_parameters.push_back(narrowed(summed_, 0, slice.at, slice.elements));
  else
    of_parameters.assign(averaged_.begin(), averaged_.begin() + static_cast<std::ptrdiff_t>(slices_.size()));
  const Tensor scaled_norm = global_norm(s_, group_, of_parameters, NormType::Narrow);
  // The engine lets go of the last one once the step is over.
  const Tensor last_norm = std::exchange(norm_, unscaled(s_, scaled_norm, scaling_.loss_scale, NormType::Narrow));
  of_parameters.clear();

  Tensor gradient;
  if (is_compact()) {
    gradient = std::exchange(summed_, {});
  } else {
    Tensor together = averaged_.front();
    if (averaged_.size() > 1) {
      together = s_.empty({layout_.partition}, dtype_, "flat_grad_partition", Category::Gradients);
      std::vector<Tensor> places;
      for (std::int64_t at = 0; const Tensor& piece : averaged_) {
        places.push_back(narrowed(together, 0, at, piece.elements()));
        at += piece.elements();
      }
      s_.launch(Operation::Copy, averaged_, places);
    }
    gradient = to(s_, together, DType::FP32);
    s_.reclassify(gradient, Category::Gradients);
  }
  averaged_.clear();
  master_->gradient = gradient;
  unscale_and_clip(s_, gradient, scaled_norm, scaling_, gradients_are_there);
  optimizer_->step();
  master_->gradient = {};
  gradient = {};

  s_.launch(Operation::Copy, {master_->value}, {own_part()});
  gather_updated();
}

void Stage1And2::step_on_host(const std::function<void()>& gradients_are_there) {
  s_.mark(Phase::OptimizerStep, "grad_norm");
  micro_step_ = before_first_pass;
  wait_for(s_, reducing());  // _wait_for_offload_copies
  if (dtype_ != DType::FP32) agree_on_overflow(s_, group_, {});
  std::erase_if(norms_, [](const Tensor& norm) { return !norm.defined(); });
  const Tensor scaled_norm = global_norm_on_host(s_, group_, norms_);
  norms_.assign(parameters_.size(), {});
  {
    const OnHost host(s_);
    const Tensor last_norm = std::exchange(norm_, unscaled(s_, scaled_norm, scaling_.loss_scale, NormType::Narrow));
    unscale_and_clip(s_, master_->gradient, scaled_norm, scaling_, gradients_are_there);
    optimizer_->step();
  }
  copy_over(s_, master_->value, staging_);
  copy_ahead(s_, staging_, own_part());
  summed_ = {};
}

void Stage1And2::gather_updated() {
  s_.mark(Phase::OptimizerStep, "all_gather");
  s_.collective(group_.comm, CollectiveKind::AllGather, flat_, flat_);  // in place
  clear_gradients();
}

std::vector<StateTensor> Stage1And2::gradients() const {
  std::vector<StateTensor> made;
  for (const FlatSlice& slice : slices_)
    made.push_back(state_tensor(parameters_[slice.parameter].name,
                                narrowed(master_->gradient, 0, slice.at, slice.elements), slice.begin));
  return made;
}

std::vector<StateTensor> Stage1And2::parameters() const {
  std::vector<StateTensor> made;
  for (const NamedParameter& p : parameters_) made.push_back(state_tensor(p.name, p.leaf->value));
  return made;
}

}  // namespace tidemark::parallel::deepspeed
