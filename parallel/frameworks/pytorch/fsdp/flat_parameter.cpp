#include "parallel/frameworks/pytorch/fsdp/flat_parameter.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "parallel/frameworks/transformers/adapters.hpp"
#include "parallel/torch/operation.hpp"

namespace tidemark::parallel::pytorch {
namespace {

Category category_of(const std::vector<FlattenedParameter>& parameters) {
  return transformers::is_adapter(parameters.front().name) ? Category::Adapters : Category::Parameters;
}

std::vector<std::int64_t> elements_of_each(const std::vector<FlattenedParameter>& parameters) {
  std::vector<std::int64_t> all;
  for (const FlattenedParameter& p : parameters) all.push_back(p.elements);
  return all;
}

// The same memory, as one row.
Tensor flat_view(const Tensor& x) {
  Tensor made = x.detached();
  made.sizes = {x.elements()};
  made.strides = {1};
  return made;
}

Tensor part_of(const Tensor& flat, std::int64_t begin, std::int64_t elements) {
  return narrowed(flat.detached(), 0, begin, elements);
}

}  // namespace

// ---- where parameters lie ------------------------------------------------------------------------------------------

FlatLayout::FlatLayout(const std::vector<std::int64_t>& elements, const FlatAlignment& to, std::int64_t ranks)
    : ranks_(ranks) {
  std::int64_t next = 0;
  const auto add = [&](std::int64_t count, bool padding) {
    if (count > 0) parts_.push_back({std::exchange(next, next + count), count, padding});
  };
  const auto pad_to = [&](std::int64_t multiple) { add((multiple - next % multiple) % multiple, true); };
  for (const std::int64_t its : elements) {
    pad_to(to.each);
    add(its, false);
  }
  pad_to(to.all);
}

FlatLayout::Overlap FlatLayout::in_shard(const Part& part, std::int64_t rank) const {
  const std::int64_t shard = of_rank() * rank;
  const std::int64_t begin = std::max(part.begin, shard), end = std::min(part.begin + part.elements, shard + of_rank());
  return {begin - part.begin, begin - shard, std::max<std::int64_t>(0, end - begin)};
}

FlatLayout flat_layout(const FlatParameterBehavior& behavior, const std::vector<std::int64_t>& elements, DType computed,
                       const ShardMesh& mesh) {
  constexpr Bytes alignment{16};  // _get_aligned_numel
  const FlatAlignment to = behavior.original_parameters ? FlatAlignment{alignment.count() / size_of(computed).count(),
                                                                        behavior.whole ? mesh.replicas : mesh.ranks}
                                                        : FlatAlignment{};
  return {elements, to, mesh.ranks};
}

// ---- made once -----------------------------------------------------------------------------------------------------

FlatParameter::FlatParameter(Session& session, const ShardMesh& mesh, const FlatParameterBehavior& behavior,
                             const std::string& name, std::vector<FlattenedParameter> parameters, DType kept)
    : s_(session),
      mesh_(mesh),
      behavior_(behavior),
      name_(session.process.label(name)),
      parameters_(std::move(parameters)),
      kept_(kept),
      computed_(parameters_.front().module->value.dtype),
      layout_(flat_layout(behavior, elements_of_each(parameters_), computed_, mesh)) {
  std::vector<Tensor> moved = moved_to_device();  // there until the shard is
  const Session::Scope scope(s_, name_);
  if (behavior_.sync_module_states && mesh_.replicas > 1) broadcast(moved, mesh_.replicate);
  if (behavior_.sync_module_states && mesh_.ranks > 1) broadcast(moved, mesh_.shard);
  make_shard(flattened(moved));
  if (behavior_.offload) move_to_host();
  hold_parameters();
}

// _init_utils.py _move_module_to_device: those of modules that are nested less come first.
std::vector<Tensor> FlatParameter::moved_to_device() {
  std::vector<std::size_t> order(parameters_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto depth = [this](std::size_t i) { return parameters_[i].depth; };
  std::ranges::stable_sort(order, {}, depth);
  std::vector<Tensor> moved(parameters_.size());
  for (const std::size_t i : order) {
    const Session::Scope scope(s_, s_.process.label(parameters_[i].name));
    moved[i] = s_.empty(parameters_[i].module->value.sizes, kept_, trained_parameter, category_of(parameters_));
    const Tensor made = std::exchange(parameters_[i].on_host, {});
    if (!made.defined()) {
      s_.launch(Operation::Initialize, {}, {moved[i]});
      continue;
    }
    s_.copy(made, moved[i]);
    s_.process.synchronize();
  }
  return moved;
}

// _sync_params_and_buffers: coalesced (torch/csrc/distributed/c10d/comm.cpp), two buckets at a time.
void FlatParameter::broadcast(const std::vector<Tensor>& states, CommSlot among) const {
  constexpr Bytes bucket{250 * 1024 * 1024};
  constexpr std::size_t at_once = 2;
  struct Bucket {
    std::vector<Tensor> states, places;
    Tensor all;
  };
  std::vector<Bucket> in_flight;
  const auto finish = [&] {
    s_.launch(Operation::Copy, in_flight.front().places, in_flight.front().states);
    in_flight.erase(in_flight.begin());
  };
  const auto send = [&](std::vector<Tensor> its) {
    std::int64_t elements = 0;
    for (const Tensor& t : its) elements += t.elements();
    Bucket made{{}, {}, s_.empty({elements}, kept_, "broadcast", Category::CommDp)};
    std::int64_t begin = 0;
    for (const Tensor& t : its) {
      made.states.push_back(flat_view(t));
      made.places.push_back(part_of(made.all, std::exchange(begin, begin + t.elements()), t.elements()));
    }
    s_.launch(Operation::Copy, made.states, made.places);
    s_.collective(among, CollectiveKind::Broadcast, made.all, made.all);
    in_flight.push_back(std::move(made));
    if (in_flight.size() == at_once) finish();
  };
  std::vector<Tensor> open;
  Bytes size;
  for (const Tensor& t : states) {
    if (!open.empty() && size + t.bytes() > bucket) send(std::exchange(open, {})), size = {};
    open.push_back(t);
    size += t.bytes();
  }
  send(std::move(open));
  while (!in_flight.empty()) finish();
}

// _init_flat_param_and_metadata: padding has a value that nobody asks for.
Tensor FlatParameter::flattened(const std::vector<Tensor>& parameters) const {
  std::vector<Tensor> pieces, places;
  std::size_t next = 0;
  for (const FlatLayout::Part& part : layout_.parts()) {
    pieces.push_back(part.padding ? s_.empty({part.elements}, kept_, "padding") : flat_view(parameters[next++]));
    if (part.padding) s_.launch({Operation::Fill, {0}}, {}, {pieces.back()});
  }
  Tensor whole = s_.empty({layout_.elements()}, kept_, "flat_param", Category::Temporaries);
  for (const FlatLayout::Part& part : layout_.parts()) places.push_back(part_of(whole, part.begin, part.elements));
  s_.launch(Operation::Copy, pieces, places);
  return whole;
}

// _get_shard: a copy of the rank's part, and another one where that is padded.
void FlatParameter::make_shard(Tensor whole) {
  if (!sharded()) {
    shard_ = std::move(whole);
    s_.reclassify(shard_, category_of(parameters_));
    s_.process.keep(shard_.buffer());
    return;
  }
  const std::int64_t each = of_rank(), begin = std::min(elements(), each * mesh_.rank);
  const std::int64_t its = std::min(each, elements() - begin);
  Tensor chunk;
  if (its > 0) {
    chunk = s_.empty({its}, kept_, "flat_param_shard", its == each ? category_of(parameters_) : Category::Temporaries);
    s_.launch(Operation::Copy, {part_of(whole, begin, its)}, {chunk});
  }
  shard_ = chunk;
  if (its == each) return;
  shard_ = s_.empty({each}, kept_, "flat_param_shard", category_of(parameters_));
  s_.launch({Operation::Fill, {0}}, {}, {part_of(shard_, its, each - its)});
  if (its > 0) s_.launch(Operation::Copy, {chunk}, {part_of(shard_, 0, its)});
}

// flat_param_to
void FlatParameter::move_to_host() {
  const Tensor made = std::exchange(shard_, [&] {
    const OnHost host(s_);
    return s_.empty(shard_.sizes, kept_, "flat_param_shard", category_of(parameters_));
  }());
  s_.copy(made, shard_);
  s_.process.synchronize();
}

// Parameters of their own for the optimizer (_use_sharded_views), or the flat one. Whole parameters keep their sizes.
void FlatParameter::hold_parameters() {
  std::size_t next = 0;
  for (const FlatLayout::Part& part : layout_.parts()) {
    if (part.padding) continue;
    const std::size_t parameter = next++;
    const FlatLayout::Overlap its = layout_.in_shard(part, sharded() ? mesh_.rank : 0);
    if (its.elements == 0) continue;
    held_.push_back({parameter, its, nullptr});
    if (!behavior_.original_parameters || !trained()) continue;
    held_.back().leaf = leaf(s_, shaped(held_.back(), shard_));
    held_.back().leaf->parameter = true;
    held_.back().leaf->role = parameters_[held_.back().parameter].module->role;
  }
  if (behavior_.original_parameters || !trained()) return;
  optimized_ = leaf(s_, shard_);
  optimized_->parameter = true;
}

Tensor FlatParameter::shaped(const Held& held, const Tensor& shard) const {
  Tensor made = part_of(shard, held.at.in_shard, held.at.elements);
  return sharded() ? made : sized(made, parameters_[held.parameter].module->value.sizes);
}

// init_flat_param_attributes: views are of what was there before until the unit is sharded again.
void FlatParameter::pin() {
  const auto pinned = [&](const Tensor& from, std::string_view what, Category category) {
    const OnHost host(s_, MemorySpace::Pinned);
    Tensor made = s_.empty(from.sizes, from.dtype, what, category);
    s_.launch(Operation::Copy, {from}, {made});
    return made;
  };
  unpinned_ = std::exchange(shard_, pinned(shard_, "flat_param_shard", category_of(parameters_)));
  const OnHost host(s_);  // frozen ones have a gradient there too
  const Tensor zeros = s_.empty(shard_.sizes, kept_, "zeros", Category::Gradients);
  s_.launch({Operation::Fill, {0}}, {}, {zeros});
  pinned_gradient_ = pinned(zeros, "pinned_gradient", Category::Gradients);
  for (const Held& held : held_)
    if (held.leaf) held.leaf->value.storage = shard_.storage;
  if (optimized_) optimized_->value.storage = shard_.storage;
}

// Of each, memory is asked for and given back at once (init_flat_param_attributes).
void FlatParameter::init_attributes() {
  const Session::Scope scope(s_, name_);
  if (behavior_.offload) pin();
  const auto without_memory = [&](std::int64_t size, DType dtype, std::string_view what) {
    Tensor made = s_.empty({size}, dtype, what, Category::Temporaries);
    s_.discard(made);
    return made;
  };
  const std::int64_t all = of_rank() * mesh_.ranks;
  if (mixed()) low_precision_shard_ = without_memory(of_rank(), computed_, "low_precision_shard");
  if (sharded()) whole_ = without_memory(all, computed_, "unsharded");
  if (sharded() && mixed()) (void)without_memory(all, kept_, "full_precision_unsharded");
  const Tensor& memory = sharded() ? whole_ : mixed() ? low_precision_shard_ : shard_;
  // What autograd knows of it is made where it is unsharded first, and its gradient comes there.
  const OnStream unsharding(s_, FlatStreams::unshard);
  flat_ = leaf(s_, part_of(memory, 0, elements()));
  flat_->parameter = true;
  if (!trained()) flat_->freeze();
}

// ---- unsharded and sharded again -----------------------------------------------------------------------------------

// From the host the shard comes whether or not it is gathered then.
bool FlatParameter::pre_unshard() {
  if (!behavior_.offload && (unsharded_ || !mixed())) return false;
  const Session::Scope scope(s_, name_);
  if (mixed())
    s_.replace(low_precision_shard_, s_.empty({of_rank()}, computed_, "low_precision_shard", Category::CommDp));
  Tensor shard = shard_;
  if (behavior_.offload) {
    shard = s_.empty({of_rank()}, kept_, "from_host", Category::OffloadStaging);
    s_.copy(shard_, shard);
    if (!behavior_.original_parameters) unpinned_ = {};
  }
  if (mixed())
    s_.launch(Operation::Copy, {shard}, {low_precision_shard_});
  else
    moved_ = shard;
  return true;
}

void FlatParameter::unshard() {
  if (unsharded_) return;
  unsharded_ = true;
  if (!sharded()) return;
  const Session::Scope scope(s_, name_);
  Tensor made = s_.empty({of_rank() * mesh_.ranks}, computed_, "unsharded", Category::Temporaries);
  s_.reclassify(made, Category::Parameters);
  s_.replace(whole_, std::move(made));
  const Tensor& shard = mixed() ? low_precision_shard_ : behavior_.offload ? moved_ : shard_;
  s_.collective(mesh_.shard, CollectiveKind::AllGather, shard, whole_);
  if (moved_.defined()) s_.record_stream(moved_, FlatStreams::unshard);
}

void FlatParameter::post_unshard() {
  if (!behavior_.original_parameters) moved_ = {};
  if (!sharded() || !mixed() || !low_precision_shard_.buffer().valid()) return;
  s_.record_stream(low_precision_shard_, FlatStreams::unshard);
  s_.discard(low_precision_shard_);
}

// torch.split, and a view of each piece. Pieces without a gradient get one of zeros.
void FlatParameter::use_unsharded_views() {
  const Session::Scope scope(s_, name_);
  const OnStream unsharding(s_, FlatStreams::unshard);
  const Ref<Node> node = s_.node({flat_->value});
  const std::vector<FlatLayout::Part>& parts = layout_.parts();
  if (node) {
    node->outputs = parts.size();
    node->apply = [this](Gradients& gradients) {
      std::vector<Tensor> pieces, places;
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        Tensor& its = gradients[i];
        if (!its.defined()) {
          its = s_.empty({layout_.parts()[i].elements}, computed_, "padding_gradient");
          s_.launch({Operation::Fill, {0}}, {}, {its});
        }
        pieces.push_back(its);
      }
      const Tensor whole = s_.empty({elements()}, pieces.back().dtype, "flat_param_gradient", Category::Temporaries);
      for (const FlatLayout::Part& part : layout_.parts()) places.push_back(part_of(whole, part.begin, part.elements));
      s_.launch(Operation::Copy, pieces, places);
      return Gradients{whole};
    };
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].padding) continue;
    Tensor& value = parameters_[next++].module->value;
    Tensor piece = part_of(flat_->value, parts[i].begin, parts[i].elements);
    piece.view = true;
    if (node) piece.gradient = {node, i};
    value = view(s_, piece, value.sizes);
  }
}

void FlatParameter::use_sharded_views() { unpinned_ = moved_ = {}; }

void FlatParameter::reshard(Unsharded whole) {
  if (!unsharded_) return;
  if (sharded() && whole == Unsharded::Kept) return;
  unsharded_ = false;
  if (!sharded() && !mixed()) return;
  const Tensor& memory = sharded() ? whole_ : low_precision_shard_;
  s_.record_stream(memory, s_.stream());
  s_.discard(memory);
}

// ---- gradients -----------------------------------------------------------------------------------------------------

// _cast_grad_to_param_dtype
Tensor FlatParameter::cast_to_kept(Tensor gradient) const {
  if (gradient.dtype == kept_) return gradient;
  Tensor made = s_.empty(gradient.sizes, kept_, "sharded_gradient", Category::Gradients);
  s_.launch(Operation::Copy, {gradient}, {made});
  return made;
}

// A parameter without a gradient gets one like its shard first, for a moment.
void FlatParameter::use_unsharded_gradient_views() {
  if (std::exchange(shows_unsharded_gradient_, true)) return;
  const Session::Scope scope(s_, name_);
  for (const Held& held : held_) {
    if (!held.leaf || held.leaf->gradient.defined()) continue;
    const Tensor& value = held.leaf->value;
    const Tensor& whole = parameters_[held.parameter].module->value;
    if (value.sizes == whole.sizes && value.dtype == whole.dtype) continue;
    (void)s_.empty(value.sizes, value.dtype, "gradient_before_views", Category::Temporaries);
  }
}

void FlatParameter::keep_reduced(Tensor reduced) {
  shows_unsharded_gradient_ = false;
  Tensor made = cast_to_kept(std::move(reduced));
  if (!sharded()) {
    flat_->gradient = made;
  } else if (sharded_gradient_.defined()) {
    s_.launch(Operation::Add, {sharded_gradient_, made}, {sharded_gradient_});
  } else {
    sharded_gradient_ = made;
  }
  if (behavior_.offload) {
    s_.copy(sharded_gradient_, pinned_gradient_);
    s_.record_stream(sharded_gradient_, FlatStreams::post_backward);
  }
  show_gradient();
}

// After a forward pass parameters have views of the pinned gradient, whether or not there is one, and the flat one has
// none: it gets one of theirs.
void FlatParameter::write_gradients_back() {
  const bool shows = behavior_.offload && behavior_.original_parameters && behavior_.reshards_after_forward;
  if (!trained() || !shows || shows_unsharded_gradient_ || has_sharded_gradient_) return;
  const Session::Scope scope(s_, name_);
  const OnHost host(s_);
  written_back_ = s_.empty(shard_.sizes, kept_, "written_back", Category::Gradients);
  s_.launch({Operation::Fill, {0}}, {}, {written_back_});
  for (const Held& held : held_)
    s_.launch(Operation::Copy, {part_of(pinned_gradient_, held.at.in_shard, held.at.elements)},
              {part_of(written_back_, held.at.in_shard, held.at.elements)});
}

void FlatParameter::prepare_gradient_for_backward() {
  written_back_ = {};
  has_sharded_gradient_ = false;
}

void FlatParameter::prepare_gradient_for_optim() {
  if (!behavior_.offload) return;
  sharded_gradient_ = {};
  has_sharded_gradient_ = true;
}

void FlatParameter::show_gradient() {
  const Tensor& gradient = behavior_.offload ? pinned_gradient_ : sharded() ? sharded_gradient_ : flat_->gradient;
  for (const Held& held : held_)
    if (held.leaf) held.leaf->gradient = shaped(held, gradient);
  if (optimized_) optimized_->gradient = gradient;
}

void FlatParameter::before_zero_grad() {
  if (!behavior_.original_parameters) forget_gradient();
}

void FlatParameter::reset_gradient() {
  const bool shown =
      std::ranges::any_of(held_, [](const Held& its) { return its.leaf && its.leaf->gradient.defined(); });
  if (behavior_.original_parameters && !shown && !shows_unsharded_gradient_) forget_gradient();
}

void FlatParameter::forget_gradient() {
  sharded_gradient_ = {};
  has_sharded_gradient_ = false;
  if (!sharded() && flat_) flat_->gradient = {};
}

// ---- what others ask -----------------------------------------------------------------------------------------------

std::vector<FlatParameter::HeldPiece> FlatParameter::pieces() const {
  std::vector<HeldPiece> all;
  if (!trained()) return all;
  for (const Held& held : held_) {
    const Tensor& gradient = optimized_ ? optimized_->gradient : held.leaf->gradient;
    ShardPiece piece{parameters_[held.parameter].name, shaped(held, shard_), {}, held.at.in_part};
    if (gradient.defined()) piece.gradient = optimized_ ? shaped(held, gradient) : gradient;
    all.push_back({parameters_[held.parameter].module.get(), held.leaf, std::move(piece)});
  }
  return all;
}

}  // namespace tidemark::parallel::pytorch
