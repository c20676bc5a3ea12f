#include "parallel/frameworks/deepspeed/stage3.hpp"

#include <algorithm>
#include <utility>

#include "parallel/frameworks/deepspeed/host_copies.hpp"

namespace tidemark::parallel::deepspeed {
namespace {

// A part of flat memory, as rows that begin so far from each other.
Tensor strided_rows(const Tensor& flat, std::int64_t begin, std::int64_t rows, std::int64_t width, std::int64_t apart) {
  Tensor made = flat.detached();
  made.sizes = {rows, width};
  made.strides = {apart, 1};
  made.offset += begin;
  return made;
}

}  // namespace

Stage3::Stage3(Session& session, const DataGroup& group, const DataGroup& neighbours, const ZeroBehavior& behavior,
               const EagerBehavior& eager, const Train& train, const Scaling& scaling, NamedParameters parameters,
               std::int64_t untied, CausalLM& model)
    : s_(session),
      group_(group),
      behavior_(behavior),
      scaling_(scaling),
      dtype_(train.precision),
      accumulation_(behavior.accumulation.value_or(train.precision)),
      parameters_(session, group, neighbours, behavior.overlaps ? gathering : Process::compute_stream,
                  std::move(parameters),
                  {behavior.offload_parameters, behavior.nvme.parameters ? &behavior.nvme : nullptr,
                   behavior.sub_group_size, untied}),
      host_behavior_(eager) {
  const NoGrad no_grad(s_);
  // mark_persistent_parameters.
  for (std::int64_t all = 0, p = 0; p < static_cast<std::int64_t>(parameters_.size()); ++p) {
    PartitionedParameter& its = parameters_[static_cast<std::size_t>(p)];
    if (its.elements > behavior_.persistence_threshold || its.elements > behavior_.model_persistence_threshold - all)
      continue;
    its.persists = true;
    persistent_.push_back(static_cast<std::size_t>(p));
    all += its.elements;
  }
  hook(model, train, eager);
  make_state(train, eager);
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    if (!parameters_[p].trained) continue;
    // create_reduce_and_remove_grad_hooks gathers each, and gives it up.
    parameters_.gather_now(std::span(&p, 1));
    parameters_.free(p);
    const auto has_it = [p](const std::vector<std::size_t>& of_module) {
      return std::ranges::find(of_module, p) != of_module.end();
    };
    if (std::ranges::none_of(reduced_together_, has_it))
      parameters_[p].leaf->accumulated = [this, p](const Leaf&) { add_to_bucket(p); };
  }
}

void Stage3::make_state(const Train& train, const EagerBehavior& eager) {
  const Session::Scope scope(s_, "zero");
  const MemorySpace host = behavior_.offload_optimizer.value_or(MemorySpace::Device);
  const MemorySpace unpinned = behavior_.offload_optimizer ? MemorySpace::Pageable : MemorySpace::Device;
  tracker_ = zeros(s_, unpinned, 1, DType::BOOL, "inf_or_nan_tracker", Category::Workspaces);
  std::int64_t all = 0;
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    begins_.push_back(all);
    if (!parameters_[p].trained) continue;
    all += parameters_[p].each;
    trained_.push_back(p);
  }
  make_groups();
  if (behavior_.offload_optimizer && behavior_.cpu_adam) host_behavior_.optimizer = OptimizerKernels::Fused;
  std::int64_t largest = 0;
  for (const SubGroup& group : groups_) largest = std::max(largest, group.elements);
  if (behavior_.nvme.optimizer) swapper_.emplace(s_, behavior_.nvme, largest);
  make_masters(train, eager);
  make_gradients(largest);
  if (behavior_.contiguous_gradients)
    ipg_buffer_ = s_.empty({behavior_.reduce_bucket}, dtype_, "ipg_buffer", Category::CommDp);
  gradients_ = pinned(s_, zeros(s_, unpinned, all, accumulation_, "grad_partitions", Category::Gradients), host,
                      "grad_partitions", Category::Gradients);
  norms_.resize(parameters_.size());
}

// _create_fp32_partitions.
void Stage3::make_masters(const Train& train, const EagerBehavior& eager) {
  Tensor converted, unpinned;
  std::vector<SwappedState*> to_files;
  std::vector<Tensor> from_memory;
  for (SubGroup& its : groups_) {
    const Tensor partition = flat(its);
    its.parameters_swapped = !partition.defined();
    const auto read = [&] {
      {
        OnPlace place;
        if (behavior_.offload_optimizer) go_to(place, s_, MemorySpace::Pageable);
        unpinned = s_.empty({its.elements}, DType::FP32, "fp32_partition", Category::OptimizerMaster);
      }
      parameters_.copy_to(its.parameters, unpinned);
    };
    Tensor master;
    if (swapper_ && swapper_->swaps(its.elements)) {
      its.swapped = std::make_unique<SwappedState>();
      its.swapped->elements = its.elements;
      its.swapped->files.push_back(swapper_->file_for(its.elements));
      if (!its.parameters_swapped) {
        to_files.push_back(its.swapped.get());
        from_memory.push_back(partition);
      } else if (!behavior_.nvme.fast_init) {
        read();
        swapper_->initialize({its.swapped.get()}, {unpinned});
      }
      master = narrowed(its.swapped->files.front(), 0, 0, its.elements);
    } else if (its.parameters_swapped) {
      read();
      master = unpinned;
    } else {
      // What is as it is to be, and where, is copied alone.
      const bool is_there =
          partition.dtype == DType::FP32 && is_on_host(s_, partition) == (its.space != MemorySpace::Device);
      converted = is_there ? partition
                           : moved(s_, partition, its.space, DType::FP32, "fp32_partition", Category::OptimizerMaster);
      master = moved(s_, converted, its.space, DType::FP32, "fp32_partition", Category::OptimizerMaster);
    }
    its.master = leaf(s_, master);
    its.optimizer = std::make_unique<pytorch::TorchOptimizer>(
        s_, train, its.space == MemorySpace::Device ? eager : host_behavior_, Parameters{its.master});
    if (its.swapped) {
      its.swapped->master = its.master;
      its.swapped->optimizer = its.optimizer.get();
    }
  }
  if (!to_files.empty()) swapper_->initialize(to_files, from_memory);
  if (!behavior_.nvme.fast_init) return;
  for (SubGroup& its : groups_)
    if (its.swapped && its.parameters_swapped)
      swapper_->initialize({its.swapped.get()}, {parameters_.in_a_buffer(its.parameters)});
}

// Of a part of them that is offloaded, the first stay on the device.
void Stage3::make_groups() {
  std::vector<std::int64_t> parts;
  for (const std::size_t p : trained_) parts.push_back(parameters_[p].each);
  std::size_t next = 0;
  std::int64_t begin = 0;
  for (const std::size_t count : sub_groups(parts, behavior_.sub_group_size)) {
    SubGroup& group = groups_.emplace_back();
    group.begin = begin;
    for (std::size_t i = 0; i < count; ++i, ++next) {
      group.parameters.push_back(trained_[next]);
      group.elements += parts[next];
    }
    begin += group.elements;
  }
  if (!behavior_.offload_optimizer) return;
  const auto stay = static_cast<std::size_t>((1 - behavior_.offload_ratio) * static_cast<double>(groups_.size()));
  for (std::size_t g = stay; g < groups_.size(); ++g) groups_[g].space = MemorySpace::Pageable;
}

// initialize_optimizer_states: a gradient of zeros for all, and where the optimizer is on the host one for each group,
// which stays.
void Stage3::make_gradients(std::int64_t largest) {
  if (!behavior_.offload_optimizer) {
    (void)s_.empty({largest}, DType::FP32, "zero_gradient", Category::Temporaries);
    for (const SubGroup& group : groups_)
      if (group.parameters_swapped) parameters_.update(group.parameters, group.master->value);
    return;
  }
  const auto zero_gradient = [&](std::int64_t elements) {
    return zeros(s_, MemorySpace::Pageable, elements, DType::FP32, "gradient", Category::Gradients);
  };
  const Tensor shared = zero_gradient(largest);
  Tensor made;
  for (SubGroup& group : groups_) {
    if (group.swapped) {
      swapper_->swap_in(*group.swapped, swapped_after(group));
    } else {
      made = zero_gradient(group.elements);
      made = pinned(s_, made, *behavior_.offload_optimizer, "gradient", Category::Gradients);
      group.master->gradient = group.space == MemorySpace::Device
                                   ? moved(s_, made, group.space, DType::FP32, "gradient", Category::Gradients)
                                   : made;
    }
    if (group.parameters_swapped) parameters_.update(group.parameters, group.master->value);
    if (group.swapped) swapper_->swap_out(*group.swapped, swapped_after(group) != nullptr);
  }
}

// next_swappable_fp32_partitioned_groups.
SwappedState* Stage3::swapped_after(const SubGroup& group) {
  for (std::size_t g = static_cast<std::size_t>(&group - groups_.data()) + 1; g < groups_.size(); ++g)
    if (groups_[g].swapped) return groups_[g].swapped.get();
  return nullptr;
}

// _reassign_or_swap_out_partitioned_parameters.
void Stage3::put_back(SubGroup& group) {
  if (group.parameters_swapped)
    parameters_.update(group.parameters, group.master->value);
  else
    copy_over(s_, group.master->value, flat(group));
}

// ---- modules -------------------------------------------------------------------------------------------------------

void Stage3::hook(CausalLM& model, const Train& train, const EagerBehavior& eager) {
  std::vector<ModuleSite> sites = model.modules();
  std::vector<std::vector<std::size_t>> owned;
  for (const ModuleSite& site : sites) {
    owned.emplace_back();
    reduced_together_.emplace_back();
    for (const std::shared_ptr<Leaf>& its : site.own)
      for (std::size_t p = 0; p < parameters_.size(); ++p) {
        if (parameters_[p].leaf != its) continue;
        owned.back().push_back(p);
        parameters_[p].viewed |= std::ranges::find(site.viewed, its) != site.viewed.end();
        if (site.whole && parameters_[p].trained) reduced_together_.back().push_back(p);
      }
  }
  using Checkpoints = ParameterCoordinator::Checkpoints;
  const bool saves_memory = train.recompute.kind != Recompute::None && !eager.reentrant_checkpoint;
  coordinator_ = std::make_unique<ParameterCoordinator>(
      s_, behavior_, saves_memory ? Checkpoints::SaveTheirMemory : Checkpoints::SaveParameters, parameters_,
      std::move(owned));
  for (std::size_t m = 0; m < sites.size(); ++m)
    *sites[m].hooks = {[this, m](const Tensor& input) { return before_forward(m, input); },
                       [this, m](const Tensor& output) { return after_forward(m, output); },
                       {}};
}

// Hooks before the forward pass; the last of them wraps what the module is handed, so that it is told when the gradient
// is there.
Tensor Stage3::before_forward(std::size_t module, const Tensor& input) {
  if (module == 0) {  // the model itself
    if (std::exchange(ran_backward_, false)) ++micro_step_;
    coordinator_->reset_step();
  }
  coordinator_->fetch(module, Direction::Forward);
  if (!input.defined()) return input;
  const Ref<Node> node = s_.node({input});
  if (!node) return input;
  node->apply = [this, module](Gradients& gradients) {
    for (const std::size_t p : reduced_together_[module]) add_to_bucket(p);  // reduce_leaf_module_grads
    coordinator_->release(module, Direction::Backward);
    return std::move(gradients);
  };
  Tensor wrapped = with(input.detached(), node);
  wrapped.view = true;
  return wrapped;
}

Tensor Stage3::after_forward(std::size_t module, const Tensor& output) {
  coordinator_->release(module, Direction::Forward);
  if (!output.defined()) return output;
  const Ref<Node> node = s_.node({output});
  if (!node) return output;
  node->apply = [this, module](Gradients& gradients) {
    coordinator_->fetch(module, Direction::Backward);
    return std::move(gradients);
  };
  Tensor wrapped = with(output.detached(), node);
  wrapped.view = true;
  return wrapped;
}

// ---- gradients -----------------------------------------------------------------------------------------------------

// reduce_independent_p_g_buckets_and_remove_grads, __add_grad_to_ipg_bucket.
void Stage3::add_to_bucket(std::size_t parameter) {
  Leaf& its = *parameters_[parameter].leaf;
  const std::int64_t elements = parameters_[parameter].elements;
  if (bucket_elements_ + elements > behavior_.reduce_bucket && bucket_elements_ > 0) reduce_bucket();
  if (behavior_.overlaps) s_.process.wait(reduction, s_.process.record(Process::compute_stream));
  if (behavior_.contiguous_gradients && bucket_elements_ + elements <= behavior_.reduce_bucket) {
    const OnStream copying(s_, reducing());
    const Tensor place = narrowed(ipg_buffer_, 0, bucket_elements_, elements);
    s_.launch(Operation::Copy, {flattened(its.gradient)}, {place});
    if (behavior_.overlaps) s_.record_stream(its.gradient, reduction);
    its.gradient = sized(place, its.value.sizes);
  }
  bucket_.push_back(parameter);
  bucket_elements_ += elements;
}

// __reduce_and_partition_ipg_grads.
void Stage3::reduce_bucket() {
  if (bucket_.empty()) return;
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, "reduce");
  reductions_.make_room(s_.process);
  const OnStream reducing_on(s_, reducing());
  std::vector<Tensor> reduced;
  if (behavior_.contiguous_gradients && bucket_elements_ <= behavior_.reduce_bucket && !behavior_.reduce_scatter) {
    // __avg_scatter_contiguous_grads.
    Tensor all = narrowed(ipg_buffer_, 0, 0, bucket_elements_);
    s_.launch({Operation::Scale, {1 / static_cast<double>(group_.ranks)}}, {all}, {all});
    s_.collective(group_.comm, CollectiveKind::AllReduce, all, all);
    all = to(s_, all, accumulation_);
    for (std::int64_t at = 0; const std::size_t p : bucket_) {
      const std::int64_t begin = std::min(parameters_[p].each * group_.rank, parameters_[p].elements);
      const Tensor part = narrowed(all, 0, at + begin, parameters_.held(p));
      if (part.elements() < parameters_[p].each) {
        const Tensor padded = s_.empty({parameters_[p].each}, accumulation_, "padded");
        s_.launch({Operation::Fill, {0}}, {}, {padded});
        if (part.elements() > 0) s_.launch(Operation::Copy, {part}, {narrowed(padded, 0, 0, part.elements())});
        reduced.push_back(padded);
      } else {
        reduced.push_back(part);
      }
      at += parameters_[p].elements;
    }
  } else {
    std::sort(bucket_.begin(), bucket_.end());
    reduced = scattered();
  }
  GoingGradients going;
  for (std::size_t i = 0; i < bucket_.size(); ++i) keep(bucket_[i], std::move(reduced[i]), going);
  for (auto& [group, parts] : going) swapper_->swap_out_gradients(*group, parts);
  bucket_.clear();
  bucket_elements_ = 0;
  reductions_.add(s_.process, reducing());
}

// comm/coalesced_collectives.py reduce_scatter_coalesced: each rank's parts of all gradients, padded, rank after rank.
// A single one that needs no padding is reduced where it is.
std::vector<Tensor> Stage3::scattered() {
  std::int64_t of_rank = 0;
  for (const std::size_t p : bucket_) of_rank += parameters_[p].each;
  const std::size_t only = bucket_.front();
  const bool in_place = bucket_.size() == 1 && parameters_[only].elements % group_.ranks == 0;
  std::vector<Tensor> padding;
  Tensor all;
  if (in_place) {
    all = flattened(parameters_[only].leaf->gradient);
  } else {
    std::vector<Tensor> from, places, empty_places;
    const auto each_piece = [&](const auto& piece) {
      for (std::int64_t rank = 0, at = 0; rank < group_.ranks; ++rank)
        for (const std::size_t p : bucket_) {
          const std::int64_t each = parameters_[p].each, begin = std::min(each * rank, parameters_[p].elements);
          piece(p, begin, std::min(each, parameters_[p].elements - begin), at);
          at += each;
        }
    };
    each_piece([&](std::size_t p, std::int64_t, std::int64_t size, std::int64_t) {
      if (size < parameters_[p].each)
        padding.push_back(s_.empty({parameters_[p].each - size}, dtype_, "padding", Category::CommDp));
    });
    all = s_.empty({of_rank * group_.ranks}, dtype_, "reduce_scatter", Category::CommDp);
    each_piece([&](std::size_t p, std::int64_t, std::int64_t size, std::int64_t at) {
      if (size < parameters_[p].each) empty_places.push_back(narrowed(all, 0, at + size, parameters_[p].each - size));
    });
    // Of a gradient the parts of all ranks that have a whole one are rows, so that there are no more operands with more
    // ranks.
    for (std::int64_t at = 0; const std::size_t p : bucket_) {
      const std::int64_t each = parameters_[p].each, whole = parameters_[p].elements / each;
      const std::int64_t rest = parameters_[p].elements % each;
      const Tensor gradient = flattened(parameters_[p].leaf->gradient);
      const auto copy = [&](std::int64_t first, std::int64_t ranks, std::int64_t width) {
        if (ranks == 0 || width == 0) return;
        from.push_back(strided_rows(gradient, first * each, ranks, width, each));
        places.push_back(strided_rows(all, first * of_rank + at, ranks, width, of_rank));
      };
      copy(0, whole, each);
      copy(whole, 1, rest);
      at += each;
    }
    s_.launch(Operation::Copy, from, places);
    if (!padding.empty()) {
      s_.launch({Operation::Fill, {0}}, {}, padding);
      s_.launch(Operation::Copy, padding, empty_places);
    }
  }
  s_.launch({Operation::Scale, {1 / static_cast<double>(group_.ranks)}}, {all}, {all});
  s_.collective(group_.comm, CollectiveKind::ReduceScatter, all, all);  // in place
  std::vector<Tensor> parts;
  for (std::int64_t at = of_rank * group_.rank; const std::size_t p : bucket_) {
    parts.push_back(narrowed(all, 0, at, parameters_.held(p)));
    at += parameters_[p].each;
  }
  if (accumulation_ == dtype_) return parts;
  std::vector<Tensor> wide;
  for (const Tensor& part : parts) wide.push_back(to(s_, part, accumulation_));
  return wide;
}

// partition_grads: the first pass's are copied to where they stay, others added.
void Stage3::keep(std::size_t parameter, Tensor reduced, GoingGradients& going) {
  Leaf& its = *parameters_[parameter].leaf;
  if (parameters_.held(parameter) > 0) {
    if (behavior_.offload_optimizer) {
      keep_on_host(parameter, reduced, going);
      if (behavior_.overlaps) s_.record_stream(its.gradient, reduction);
      its.gradient = {};
      return;
    }
    const Tensor place = narrowed(gradients_, 0, begins_[parameter], reduced.elements());
    if (micro_step_ == 0)
      s_.launch(Operation::Copy, {reduced}, {place});
    else
      s_.launch(Operation::Add, {place, reduced}, {place});
    if (behavior_.overlaps) s_.record_stream(its.gradient, reduction);
  }
  its.gradient = {};
}

// They are added up on the device, and come back to it.
void Stage3::keep_on_host(std::size_t parameter, const Tensor& reduced, GoingGradients& going) {
  const Tensor place = narrowed(gradients_, 0, begins_[parameter], reduced.elements());
  const Tensor here = s_.empty(reduced.sizes, reduced.dtype, "grad_buffer", Category::OffloadStaging);
  if (micro_step_ == 0) {
    copy_ahead(s_, reduced, place);
    copy_ahead(s_, place, here);
  } else {
    copy_ahead(s_, place, here);
    s_.launch(Operation::Add, {here, reduced}, {here});
    copy_ahead(s_, here, place);
  }
  if (!is_boundary_) return;
  norms_[parameter] = norm_in_fp64(s_, here);
  const SubGroup& group = group_of(parameter);
  if (group.swapped) {
    auto its = std::ranges::find(going, group.swapped.get(), [](const auto& entry) { return entry.first; });
    if (its == going.end()) its = going.insert(its, {group.swapped.get(), {}});
    its->second.emplace_back(begins_[parameter] - group.begin, to(s_, here, DType::FP32));
    return;
  }
  copy_ahead(s_, to(s_, here, DType::FP32),
             narrowed(group.master->gradient, 0, begins_[parameter] - group.begin, here.elements()));
}

Stage3::SubGroup& Stage3::group_of(std::size_t parameter) {
  return *std::ranges::find_if(groups_, [&](const SubGroup& group) { return group.parameters.back() >= parameter; });
}

void Stage3::finish_backward() {
  reduce_bucket();  // independent_gradient_partition_epilogue
  if (behavior_.overlaps) {
    s_.process.join(s_.process.record(reduction));
    s_.process.synchronize();
  }
  ran_backward_ = true;
  coordinator_->release_leftovers();
}

// ---- a step --------------------------------------------------------------------------------------------------------

Tensor Stage3::gradient_of(std::size_t parameter) const {
  return narrowed(gradients_, 0, begins_[parameter], parameters_[parameter].each);
}

void Stage3::step(const std::function<void()>& gradients_are_there) {
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, "zero");
  s_.mark(Phase::OptimizerStep, "grad_norm");
  micro_step_ = 0;
  ran_backward_ = false;
  coordinator_->release_all();
  if (behavior_.offload_optimizer) {
    const Tensor scaled_norm = norm_of_offloaded();
    {
      const OnHost host(s_);
      const Tensor last_norm = std::exchange(norm_, unscaled(s_, scaled_norm, scaling_.loss_scale, NormType::Narrow));
    }
    for (SubGroup& group : groups_) update_offloaded(group, scaled_norm, gradients_are_there);
    parameters_.gather_now(persistent_);  // _post_step
    parameters_.forget_secondary();
    return;
  }
  if (dtype_ == DType::FP16) agree_on_overflow(s_, group_, gradients_);
  // norm_groups: those of sub-groups outlive the step.
  std::vector<Tensor> of_groups;
  for (const SubGroup& group : groups_) {
    std::vector<Tensor> its;
    for (const std::size_t p : group.parameters) its.push_back(gradient_of(p));
    of_groups.push_back(global_norm(s_, group_, its, NormType::Wide));
  }
  const Tensor scaled_norm = combined_norm(s_, of_groups);
  const Tensor last_norm = std::exchange(norm_, unscaled(s_, scaled_norm, scaling_.loss_scale, NormType::Wide));
  for (SubGroup& group : groups_) update(group, scaled_norm, gradients_are_there);
  parameters_.gather_now(persistent_);  // _post_step
  parameters_.forget_secondary();
}

void Stage3::update(SubGroup& group, const Tensor& scaled_norm, const std::function<void()>& gradients_are_there) {
  Tensor gradient;
  {
    Tensor together = gradient_of(group.parameters.front());
    if (group.parameters.size() > 1) {
      together = s_.empty({group.elements}, accumulation_, "flat_gradients", Category::Gradients);
      s_.launch(Operation::Copy, {narrowed(gradients_, 0, group.begin, group.elements)}, {together});
    }
    gradient = to(s_, together, DType::FP32);
    s_.reclassify(gradient, Category::Gradients);
  }
  group.master->gradient = gradient;
  updating_ = &group;
  unscale_and_clip(s_, gradient, scaled_norm, scaling_, gradients_are_there);
  updating_ = nullptr;
  group.optimizer->step();
  put_back(group);
  gradient = {};
  group.master->gradient = {};
}

// Of each group by itself, then of all.
Tensor Stage3::norm_of_offloaded() {
  if (dtype_ == DType::FP16) agree_on_overflow(s_, group_, gradients_);
  std::vector<Tensor> totals;
  for (const SubGroup& group : groups_) {
    std::vector<Tensor> its;
    for (const std::size_t p : group.parameters)
      if (norms_[p].defined()) its.push_back(std::exchange(norms_[p], {}));
    totals.push_back(global_norm_on_host(s_, group_, its));
  }
  if (totals.size() == 1) return totals.front();
  const OnHost host(s_);
  const Tensor stacked = s_.empty({static_cast<std::int64_t>(totals.size())}, DType::FP32, "norms");
  std::vector<Tensor> places;
  for (std::size_t i = 0; i < totals.size(); ++i)
    places.push_back(narrowed(stacked, 0, static_cast<std::int64_t>(i), 1));
  s_.launch(Operation::Copy, totals, places);
  Tensor combined = s_.empty({}, DType::FP32, "total");
  s_.launch(Operation::Norm, {stacked}, {combined});
  return combined;
}

void Stage3::update_offloaded(SubGroup& group, const Tensor& scaled_norm,
                              const std::function<void()>& gradients_are_there) {
  const bool on_device = group.space == MemorySpace::Device;
  // A kernel of the device is handed the host's number.
  const Tensor norm = on_device && scaling_.largest > 0
                          ? moved(s_, scaled_norm, group.space, DType::FP32, "norm", Category::Temporaries)
                          : scaled_norm;
  if (group.swapped) swapper_->swap_in(*group.swapped, swapped_after(group));
  updating_ = &group;
  {
    OnPlace place;
    go_to(place, s_, group.space);
    const Tensor& gradient = group.master->gradient;
    // By 1, too.
    if (scaling_.loss_scale == 1 && scaling_.largest == 0) s_.launch({Operation::Scale, {1}}, {gradient}, {gradient});
    unscale_and_clip(s_, gradient, norm, scaling_, gradients_are_there);
    group.optimizer->step();
  }
  updating_ = nullptr;
  put_back(group);
  if (group.swapped) swapper_->swap_out(*group.swapped, swapped_after(group) != nullptr);
}

std::vector<StateTensor> Stage3::gradients() const {
  std::vector<StateTensor> made;
  for (const std::size_t p : updating_->parameters) {
    if (parameters_.held(p) == 0) continue;
    const Tensor its = narrowed(updating_->master->gradient, 0, begins_[p] - updating_->begin, parameters_.held(p));
    made.push_back(state_tensor(parameters_[p].name, its, parameters_[p].each * group_.rank));
  }
  return made;
}

std::vector<StateTensor> Stage3::parameters() const {
  std::vector<StateTensor> made;
  for (const std::size_t p : trained_)
    if (parameters_.held(p) > 0)
      made.push_back(state_tensor(parameters_[p].name, narrowed(parameters_[p].partition, 0, 0, parameters_.held(p)),
                                  parameters_[p].each * group_.rank));
  return made;
}

}  // namespace tidemark::parallel::deepspeed
