#include <algorithm>
#include <span>
#include <utility>

#include "parallel/frameworks/pytorch/fsdp/fully_shard.hpp"
#include "parallel/torch/operation.hpp"

// What one unit of fully_shard gathers, gives up and reduces, and what units share.

namespace tidemark::parallel::pytorch {
namespace {

// Memory of elements as so many bytes of another type from one of them on.
Tensor elements_at(const Tensor& memory, std::int64_t byte, std::int64_t elements, DType dtype) {
  Tensor made = memory.detached();
  made.offset = (memory.offset * size_of(memory.dtype).count() + byte) / size_of(dtype).count();
  made.sizes = {elements};
  made.strides = {1};
  made.dtype = dtype;
  return made;
}

// A part of flat memory, as rows that lie so far from each other.
Tensor rows_of(const Tensor& flat, std::int64_t begin, std::int64_t rows, std::int64_t width, std::int64_t stride) {
  Tensor made = flat.detached();
  made.sizes = {rows, width};
  made.strides = {stride, 1};
  made.offset += begin;
  return made;
}

// Places in flat memory for tensors of as many elements, one after the other.
std::vector<Tensor> side_by_side(const Tensor& flat, std::span<const Tensor> tensors) {
  std::vector<Tensor> places;
  std::int64_t begin = 0;
  for (const Tensor& tensor : tensors) {
    places.push_back(narrowed(flat, 0, begin, tensor.elements()));
    begin += tensor.elements();
  }
  return places;
}

bool casts(const ShardedParameter& p) { return p.unsharded->value.dtype != p.sharded->value.dtype; }

}  // namespace

UnitParameters::UnitParameters(Session& session, const ShardMesh& mesh, const FullyShardBehavior& behavior,
                               CommContext& comms, std::string name, AfterForward after_forward,
                               std::vector<ShardedParameter> parameters)
    : s_(session),
      mesh_(mesh),
      behavior_(behavior),
      comms_(comms),
      name_(std::move(name)),
      after_forward_(after_forward),
      parameters_(std::move(parameters)) {}

// _all_gather_process_group
UnitParameters::GatherGroup UnitParameters::gather_group() const {
  if (parts_.empty()) return {mesh_.shard, mesh_.ranks, mesh_.rank};
  return {mesh_.neighbours, mesh_.few, mesh_.rank % mesh_.few};
}

// _fsdp_collectives.py foreach_all_gather: shards are cast, and copied to the rank's place in what is gathered into, as
// bytes where they are of several types.
void UnitParameters::unshard(Gathers how) {
  if (gathered_.defined() || called_alone_ || unsharded_ || parameters_.empty()) return;
  if (mesh_.ranks == 1) {
    called_alone_ = true;
    return;
  }
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, s_.process.label(name_));
  if (resharded_.valid()) comms_.all_gather_streams_wait(s_, std::exchange(resharded_, {}));
  const GatherGroup group = gather_group();
  Bytes of_rank;
  for (const ShardedParameter& p : parameters_) of_rank += given_of(p) * size_of(p.unsharded->value.dtype);
  const bool alike = std::ranges::all_of(
      parameters_, [this](const ShardedParameter& p) { return p.unsharded->value.dtype == computed(); });
  const DType type = alike ? computed() : DType::BOOL;
  const std::int64_t elements = of_rank.count() / size_of(type).count();
  const StreamId copies = how == Gathers::Asynchronously ? s_.stream() : comms_.copy_in;
  const OnStream copying(s_, copies);
  const std::vector<Tensor> inputs = all_gather_inputs();
  gathered_ = s_.empty({elements * group.ranks}, type, "all_gather_output", Category::CommDp);
  std::vector<Tensor> places;
  std::int64_t begin = of_rank.count() * group.rank;
  for (const Tensor& input : inputs)
    places.push_back(
        elements_at(gathered_, std::exchange(begin, begin + input.bytes().count()), input.elements(), input.dtype));
  s_.launch(Operation::Copy, inputs, places);
  s_.process.wait(comms_.all_gather, s_.process.record(copies));
  {
    const OnStream gathering(s_, comms_.all_gather);
    s_.collective(group.comm, CollectiveKind::AllGather, gathered_, gathered_);  // in place
  }
  gathered_event_ = s_.process.record(comms_.all_gather);
}

Tensor UnitParameters::from_host(const ShardedParameter& p) {
  Tensor moved = s_.empty(p.padded.sizes, p.padded.dtype, "from_host", Category::OffloadStaging);
  s_.copy(p.padded, moved);
  if (!casts(p)) return moved;
  Tensor cast = s_.empty(moved.sizes, p.unsharded->value.dtype, "all_gather_input", Category::OffloadStaging);
  s_.launch(Operation::Copy, {moved}, {cast});
  return cast;
}

// _get_param_all_gather_inputs: all at once into one flat tensor where they are cast; one by one where they come from
// the host, as they are kept, and are cast here.
std::vector<Tensor> UnitParameters::all_gather_inputs() {
  std::vector<Tensor> inputs = parts_;
  if (inputs.empty())
    for (const ShardedParameter& p : parameters_) inputs.push_back(p.padded);
  if (behavior_.offload) {
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i] = from_host(parameters_[i]);
    // cudaMemcpyAsync returns once it has what is pageable.
    if (behavior_.offload == MemorySpace::Pageable) s_.process.synchronize(s_.process.record(s_.stream()));
    return inputs;
  }
  std::vector<Tensor> to_cast;
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (casts(parameters_[i])) to_cast.push_back(inputs[i]), elements += inputs[i].elements();
  if (to_cast.empty()) return inputs;
  const Tensor flat = s_.empty({elements}, computed(), "all_gather_input", Category::CommDp);
  const std::vector<Tensor> places = side_by_side(flat, to_cast);
  s_.launch(Operation::Copy, to_cast, places);
  std::size_t next = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (casts(parameters_[i])) inputs[i] = places[next++];
  return inputs;
}

// init_all_gather_outputs, alloc_all_gather_outputs.
void UnitParameters::make_whole(ShardedParameter& p, std::int64_t elements) {
  Tensor& value = p.unsharded->value;
  Tensor made = s_.empty({elements}, value.dtype, s_.process.label(p.name), Category::Temporaries);
  s_.reclassify(made, Category::Parameters);
  if (value.defined())
    s_.replace(value, std::move(made));
  else
    value.storage = made.storage;
}

// foreach_all_gather_copy_out: from one piece of each rank to one of each parameter, whose memory is made here.
void UnitParameters::copy_out(const Tensor& gathered) {
  s_.process.join(gathered_event_);
  const std::int64_t ranks = gather_group().ranks, of_rank = gathered.bytes().count() / ranks;
  std::vector<Tensor> pieces, whole;
  std::int64_t begin = 0;
  for (ShardedParameter& p : parameters_) {
    Tensor& value = p.unsharded->value;
    const std::int64_t its = given_of(p);
    make_whole(p, its * ranks);
    const Tensor from = elements_at(gathered, begin, its, value.dtype);
    pieces.push_back(rows_of(from, 0, ranks, its, of_rank / size_of(value.dtype).count()));
    whole.push_back(rows_of(value, 0, ranks, its, its));
    begin += its * size_of(value.dtype).count();
  }
  s_.launch(Operation::Copy, pieces, whole);
  pieces.clear(), whole.clear();
  parts_.clear();  // to_unsharded
}

// wait_for_unshard, where nobody else has parts: each is cast, and copied to where it is read.
void UnitParameters::cast_own() {
  for (ShardedParameter& p : parameters_) {
    Tensor& value = p.unsharded->value;
    Tensor cast = p.padded;
    if (behavior_.offload) {
      cast = from_host(p);
      if (behavior_.offload == MemorySpace::Pageable) s_.process.synchronize(s_.process.record(s_.stream()));
    } else if (casts(p)) {
      cast = s_.empty(p.padded.sizes, value.dtype, "all_gather_input", Category::CommDp);
      s_.launch(Operation::Copy, {p.padded}, {cast});
    }
    make_whole(p, p.padded.elements());
    s_.launch(Operation::Copy, {cast}, {rows_of(value, 0, 1, p.padded.elements(), p.padded.elements())});
  }
}

// wait_for_unshard: in the forward pass what was gathered into stays until the next unit has been copied out, so that
// its copying in may begin meanwhile.
void UnitParameters::wait_for_unshard() {
  if (!gathered_.defined() && !called_alone_) return;
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, s_.process.label(name_));
  if (state_ == TrainingState::Forward) comms_.release_all_gather_output(s_);
  if (std::exchange(called_alone_, false)) {
    cast_own();
    unsharded_ = true;
    comms_.all_gather_streams_wait(s_, s_.process.record(Process::compute_stream));
    return;
  }
  copy_out(gathered_);
  unsharded_ = true;
  const EventId copied_out = s_.process.record(Process::compute_stream);
  if (state_ == TrainingState::Forward) {
    comms_.all_gather_output = std::move(gathered_);
    comms_.copied_out = copied_out;
  } else {
    comms_.all_gather_streams_wait(s_, copied_out);
  }
  gathered_ = {};
}

void UnitParameters::reshard() {
  if (!unsharded_) return;
  for (const ShardedParameter& p : parameters_) s_.discard(p.unsharded->value);
  unsharded_ = false;
}

// to_sharded_post_forward: of each parameter in turn a part is copied before the rest goes.
void UnitParameters::reshard_to_fewer() {
  if (!unsharded_) return;
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, s_.process.label(name_));
  const std::int64_t place = mesh_.rank % mesh_.few;
  std::vector<Tensor> parts;
  for (const ShardedParameter& p : parameters_) {
    const std::int64_t its = p.padded.elements() * mesh_.ranks / mesh_.few;
    const Tensor& whole = p.unsharded->value;
    parts.push_back(s_.empty({its}, whole.dtype, "after_forward", Category::Parameters));
    s_.launch(Operation::Copy, {elements_at(whole, (place * its * size_of(whole.dtype)).count(), its, whole.dtype)},
              {parts.back()});
    s_.discard(whole);
  }
  parts_ = std::move(parts);
  unsharded_ = false;
  resharded_ = s_.process.record(Process::compute_stream);
}

Tensor UnitParameters::pre_forward(const Tensor& input) {
  if (state_ == TrainingState::PreBackward) {  // a region that is run again
    unshard();
    wait_for_unshard();
    return input;
  }
  state_ = TrainingState::Forward;
  if (comms_.forward_root == nullptr) {  // _root_pre_forward: what is gathered may have been updated a moment ago
    comms_.forward_root = this;
    comms_.all_gather_streams_wait(s_, s_.process.record(Process::compute_stream));
  }
  unshard();
  wait_for_unshard();
  const auto prefetched = [this](Tensor handed) {
    for (UnitParameters* const next : after_forward_units_) next->unshard();
    return handed;
  };
  if (!input.defined()) return prefetched(input);
  // RegisterPostBackwardFunction: when the input's gradient is there, the unit's backward pass is over.
  const Ref<Node> node = s_.node({input});
  if (!node) return prefetched(input);
  node->apply = [this](Gradients& gradients) {
    post_backward();
    return std::move(gradients);
  };
  Tensor out = with(input.detached(), node);
  out.view = true;
  return prefetched(std::move(out));
}

Tensor UnitParameters::post_forward(const Tensor& output) {
  if (state_ == TrainingState::PreBackward) return output;
  if (s_.engine == nullptr && !parameters_.empty()) {
    if (after_forward_ == AfterForward::Reshards) reshard();
    if (after_forward_ == AfterForward::ReshardsToFewer) reshard_to_fewer();
    post_forward_indices_.push_back(comms_.post_forward_order.size());
    comms_.post_forward_order.push_back(this);
  }
  if (output.requires_grad()) register_hook(output, [this] { pre_backward(); });
  state_ = TrainingState::Idle;
  if (comms_.forward_root == this) {
    comms_.forward_root = nullptr;
    comms_.release_all_gather_output(s_);
  }
  return output;
}

void UnitParameters::pre_backward() {
  if (state_ == TrainingState::PreBackward) return;
  state_ = TrainingState::PreBackward;
  unshard();
  wait_for_unshard();
  set_gradient_dtypes();
  backward_prefetch();
  for (UnitParameters* const next : after_backward_units_) next->unshard();
}

// _set_unsharded_grad_dtypes: gradients that wait for those of later micro-batches wait in the type of the reduction.
void UnitParameters::set_gradient_dtypes() {
  for (ShardedParameter& p : parameters_) {
    const bool waits = !comms_.reduces_gradients && !p.unsharded->gradient.defined();
    p.unsharded->gradient_dtype = waits || p.widened ? std::optional(behavior_.reduce_dtype) : std::nullopt;
  }
}

void UnitParameters::backward_prefetch() {
  if (post_forward_indices_.empty()) return;
  const std::size_t at = post_forward_indices_.back();
  post_forward_indices_.pop_back();
  if (at == 0 || !after_backward_units_.empty()) return;
  comms_.post_forward_order[at - 1]->unshard();
}

void UnitParameters::post_backward() {
  state_ = TrainingState::PostBackward;
  if (!comms_.reduces_gradients) {
    for (ShardedParameter& p : parameters_) p.unsharded->gradient_dtype = behavior_.reduce_dtype;
    if (comms_.reshards_after_backward) reshard();
    return;
  }
  std::vector<ShardedParameter*> reduced;
  std::vector<Tensor> gradients;
  for (ShardedParameter& p : parameters_) {
    if (!p.trained) continue;
    gradients.push_back(placed(p, std::exchange(p.unsharded->gradient, {})));
    reduced.push_back(&p);
  }
  if (comms_.reshards_after_backward) reshard();
  if (reduced.empty()) return;
  comms_.release_reduce_scatter_inputs(s_);
  wait_for_post_backward();
  reduce(reduced, std::move(gradients));
}

// _get_grad_inner_tensor: placed as the parameter is.
Tensor UnitParameters::placed(const ShardedParameter& p, Tensor gradient) {
  const NoGrad no_grad(s_);
  if (p.part_of_gradient) {
    const Shape& sizes = p.unsharded->value.sizes;
    const Tensor own = s_.empty(sizes, gradient.dtype, "weight_gradient", Category::Gradients);
    const std::int64_t columns = gradient.elements() / gradient.sizes.front();
    s_.launch(Operation::Copy, {narrowed(gradient, 0, *p.part_of_gradient / columns, sizes.front())}, {own});
    return own;
  }
  if (!p.partial.valid()) return gradient;
  const Tensor whole = s_.empty(gradient.sizes, gradient.dtype, "all_reduce", Category::Gradients);
  s_.launch(Operation::Copy, {gradient}, {whole});
  gradient = {};
  s_.collective(p.partial, CollectiveKind::AllReduce, whole, whole);
  return whole;
}

void UnitParameters::wait_for_post_backward() {
  s_.process.join(std::exchange(reduced_, {}));
  s_.process.join(all_reduced_event_);
  release_all_reduced();
}

// What was all-reduced lies in memory of the stream that scattered it. That stream waits for the compute stream before
// it makes anything again; here it waits where the memory goes.
void UnitParameters::release_all_reduced() {
  if (all_reduced_.defined()) s_.process.wait(comms_.reduce_scatter, s_.process.record(comms_.all_reduce));
  all_reduced_event_ = {};
  all_reduced_ = {};
}

// _get_gradient_divide_factors: of a factor of 1 nothing is divided.
Reduction UnitParameters::reduction() const { return behavior_.sums_gradients ? Reduction::Sum : Reduction::Average; }

// aten/native/cuda/TensorShape.cu get_chunk_cat_metadata, of as many bytes as a rank gets of each gradient: where these
// are and go, and which of them each block of the kernel copies, in 64 bits each. It goes before the kernel runs. Of
// gradients of two types (fsdp::chunk_cat_mixed_dtype) PyTorch 2.15 was recorded to take two numbers less.
void UnitParameters::look_up(const std::vector<std::int64_t>& bytes, bool alike) {
  constexpr std::int64_t of_block = 2048, of_tensor = 6;
  std::int64_t entries = of_tensor * std::ssize(bytes) + (alike ? 2 : 0);
  for (const std::int64_t its : bytes) entries += (its + of_block - 1) / of_block;
  const Tensor table = s_.empty({entries}, DType::INT64, "chunk_cat_table", Category::Temporaries);
}

// foreach_reduce: gradients are cast on their way to where they are reduced from, rank after rank.
void UnitParameters::reduce(const std::vector<ShardedParameter*>& reduced, std::vector<Tensor> gradients) {
  const NoGrad no_grad(s_);
  const Session::Scope scope(s_, s_.process.label(name_));
  std::int64_t of_rank = 0;
  for (const ShardedParameter* const p : reduced) of_rank += p->padded.elements();
  const Tensor input =
      s_.empty({of_rank * mesh_.ranks}, behavior_.reduce_dtype, "reduce_scatter_input", Category::CommDp);
  std::vector<Tensor> from, to, padding;
  std::vector<std::int64_t> of_gradients;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Tensor& gradient = gradients[i];
    const std::int64_t each = reduced[i]->padded.elements(), all = gradient.elements();
    of_gradients.push_back((each * size_of(behavior_.reduce_dtype)).count());
    const std::int64_t full = all / each, rest = all % each;
    const Tensor flat = sized(gradient, {all});
    const auto copy = [&](std::int64_t first, std::int64_t ranks, std::int64_t width) {
      if (ranks == 0 || width == 0) return;
      from.push_back(rows_of(flat, first * each, ranks, width, each));
      to.push_back(rows_of(input, first * of_rank + begin, ranks, width, of_rank));
    };
    const auto pad = [&](std::int64_t first, std::int64_t ranks, std::int64_t at) {
      if (ranks > 0 && at < each)
        padding.push_back(rows_of(input, first * of_rank + begin + at, ranks, each - at, of_rank));
    };
    copy(0, full, each);
    copy(full, rest > 0 ? 1 : 0, rest);
    if (rest > 0) pad(full, 1, rest);
    const std::int64_t reached = full + (rest > 0 ? 1 : 0);
    pad(reached, mesh_.ranks - reached, 0);
    begin += each;
  }
  const auto of_type = [&](DType type) {
    return std::ranges::count_if(gradients, [type](const Tensor& gradient) { return gradient.dtype == type; });
  };
  const std::int64_t same = of_type(behavior_.reduce_dtype),
                     widened = behavior_.reduce_dtype == DType::FP32 ? of_type(DType::BF16) : 0;
  if (same + widened == std::ssize(gradients)) look_up(of_gradients, same == 0 || widened == 0);
  s_.launch(Operation::Copy, from, to);
  if (!padding.empty()) s_.launch({Operation::Fill, {0}}, {}, padding);  // by the kernel that copies
  from.clear(), gradients.clear();
  s_.process.wait(comms_.reduce_scatter, s_.process.record(Process::compute_stream));

  StreamId after = comms_.reduce_scatter;
  Tensor output;
  {
    const OnStream reducing(s_, after);
    output = s_.empty({of_rank}, behavior_.reduce_dtype, "reduce_scatter_output", Category::Gradients);
    if (mesh_.ranks > 1)
      s_.collective(mesh_.shard, CollectiveKind::ReduceScatter, input, output, reduction());
    else
      s_.launch(Operation::Copy, {input}, {output});
  }
  comms_.reduce_scatter_states.push_back({input, s_.process.record(after)});
  if (mesh_.replicas > 1) {
    after = comms_.all_reduce;
    s_.process.wait(after, s_.process.record(comms_.reduce_scatter));
    const OnStream reducing(s_, after);
    s_.collective(mesh_.replicate, CollectiveKind::AllReduce, output, output, reduction());
    all_reduced_ = output;
    all_reduced_event_ = s_.process.record(after);
  }
  const OnStream keeping(s_, after);
  keep_reduced(reduced, output);
  reduced_ = s_.process.record(after);
}

// _cast_and_view_sharded_grads: gradients of shards are views of what was reduced.
void UnitParameters::keep_reduced(const std::vector<ShardedParameter*>& reduced, const Tensor& output) {
  const DType kept = reduced.front()->sharded->value.dtype;
  Tensor all = output;
  if (kept != output.dtype) {
    all = s_.empty(output.sizes, kept, "sharded_gradients", Category::Gradients);
    s_.launch(Operation::Copy, {output}, {all});
  }
  std::int64_t begin = 0;
  for (ShardedParameter* const each : reduced) {
    ShardedParameter& p = *each;
    const Tensor& value = p.sharded->value;
    const std::int64_t elements = value.elements(), at = std::exchange(begin, begin + p.padded.elements());
    if (elements == 0) continue;
    Tensor made = sized(narrowed(all, 0, at, elements), value.sizes);
    if (behavior_.offload)
      keep_on_host(p, made);
    else if (p.sharded->gradient.defined())
      s_.launch(Operation::Add, {p.sharded->gradient, made}, {p.sharded->gradient});
    else
      p.sharded->gradient = std::move(made);
  }
}

// foreach_reduce: the host goes on where it can be told when the gradient has come, and nothing is to be added to it.
void UnitParameters::keep_on_host(ShardedParameter& parameter, const Tensor& gradient) {
  Tensor& kept = parameter.sharded->gradient;
  const bool goes_on = behavior_.offload == MemorySpace::Pinned && !kept.defined();
  const auto made_on = [&] {
    const OnHost host(s_, goes_on ? MemorySpace::Pinned : MemorySpace::Pageable);
    return s_.empty(gradient.sizes, gradient.dtype, parameter.name + ".gradient", Category::Gradients);
  };
  Tensor moved = made_on();
  s_.copy(gradient, moved);
  const EventId copied = s_.process.record(s_.stream());
  if (goes_on) {
    parameter.gradient_copied = copied;
    kept = std::move(moved);
    return;
  }
  s_.process.synchronize(copied);
  if (!kept.defined()) {
    kept = std::move(moved);
    return;
  }
  const OnHost host(s_);
  s_.launch(Operation::Add, {kept, moved}, {kept});
}

void UnitParameters::finalize_backward() {
  for (ShardedParameter& p : parameters_)
    if (p.gradient_copied.valid()) s_.process.synchronize(std::exchange(p.gradient_copied, {}));
  reduced_ = {};
  release_all_reduced();
  post_forward_indices_.clear();
}

void CommContext::all_gather_streams_wait(Session& s, EventId event) const {
  s.process.wait(copy_in, event);
  s.process.wait(all_gather, event);
}

void CommContext::release_all_gather_output(Session& s) {
  if (!all_gather_output.defined()) return;
  all_gather_streams_wait(s, copied_out);
  all_gather_output = {};
}

void CommContext::release_reduce_scatter_inputs(Session& s) {
  for (const ReduceScatterState& state : reduce_scatter_states) s.process.join(state.event);
  reduce_scatter_states.clear();
}

}  // namespace tidemark::parallel::pytorch
