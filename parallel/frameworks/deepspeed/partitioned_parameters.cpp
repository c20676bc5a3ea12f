#include "parallel/frameworks/deepspeed/partitioned_parameters.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "parallel/frameworks/deepspeed/host_copies.hpp"

namespace tidemark::parallel::deepspeed {

std::vector<std::size_t> sub_groups(const std::vector<std::int64_t>& parts, std::int64_t size) {
  std::int64_t all = 0;
  for (const std::int64_t part : parts) all += part;
  std::vector<std::size_t> counts;
  std::size_t count = 0;
  std::int64_t elements = 0;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    ++count;
    elements += parts[p];
    if (p + 1 < parts.size() && (size >= all || elements < size)) continue;
    counts.push_back(count);
    count = 0;
    elements = 0;
  }
  return counts;
}

PartitionedParameters::PartitionedParameters(Session& session, const DataGroup& group, const DataGroup& neighbours,
                                             StreamId stream, NamedParameters parameters, const PartsOnHost& host)
    : s_(session), group_(group), neighbours_(neighbours), stream_(stream), offload_(host.space) {
  const NoGrad no_grad(s_);
  for (NamedParameter& p : parameters) {
    PartitionedParameter made;
    made.elements = p.leaf->value.elements();
    made.each = (made.elements + group.ranks - 1) / group.ranks;
    made.name = std::move(p.name);
    made.leaf = std::move(p.leaf);
    made.trained = made.leaf->trained();
    all_.push_back(std::move(made));
    if (all_.back().trained) flat_ += all_.back().each;
  }
  were_whole_ = all_.front().leaf->value.defined();
  for (PartitionedParameter& p : all_)
    if (were_whole_ && s_.process.allocation(p.leaf->value.buffer()).category == Category::Quantization)
      p.category = Category::Quantization;
  const auto first = std::ranges::find_if(all_, &PartitionedParameter::trained);
  dtype_ = first->leaf->value.dtype;
  if (host.nvme != nullptr) {
    flat_ = 0;
    swapper_.emplace(s_, *host.nvme, dtype_);
    make_parts(host);
    lay_out(host);
    return;
  }
  partition(host);
  // Each was whole for a moment; here it is put together again.
  for (std::size_t p = 0; neighbours_.ranks > 1 && !were_whole_ && p < all_.size(); ++p) {
    gather_now(std::span(&p, 1));
    free(p);
  }
}

// deepspeed.zero.Init, of modules while they are made or of a model that is there. What is not trained stays where it
// was put (_create_fp16_partitions_with_defragmentation); the other parts lie one after another in the end: on the
// device by way of the host (defragment in deepspeed/runtime/zero/utils.py), and what was made on the way has gone back
// to the driver.
void PartitionedParameters::partition(const PartsOnHost& host) {
  const auto made_on_host = [&](std::int64_t size, MemorySpace space) {
    const OnHost on_host(s_, space);
    return s_.empty({size}, dtype_, "zero.part", Category::OffloadStaging);
  };
  std::vector<Tensor> parts;
  Tensor before;
  const auto part_on_host = [&](std::int64_t each) {
    before = made_on_host(each, MemorySpace::Pageable);
    parts.push_back(*offload_ == MemorySpace::Pinned ? made_on_host(each, MemorySpace::Pinned) : before);
  };
  std::vector<Tensor> whole;  // of the module that zero.Init partitions, the next one last
  for (std::size_t p = 0; p < all_.size(); ++p) {
    PartitionedParameter& its = all_[p];
    if (its.trained && !offload_ && !were_whole_) continue;
    if (whole.empty() && offload_ && !were_whole_) whole = made_module(p);
    if (were_whole_) keep_secondary(p);
    if (its.trained && offload_) {
      part_on_host(its.each);
    } else {
      before = {};
      (its.trained ? parts.emplace_back() : its.partition) = made_part(its);
    }
    if (were_whole_) {
      cut(its, its.trained ? parts.back() : its.partition);
    } else if (!its.trained) {
      OnPlace there;
      go_to(there, s_, offload_.value_or(MemorySpace::Device));
      s_.launch(Operation::Initialize, {}, {its.partition});
    }
    if (!its.trained) stand_alone(its);
    if (!whole.empty()) whole.pop_back();
  }
  if (offload_ && host.untied > 0 && !were_whole_)
    (void)drawn_whole("untied", host.untied, all_.front().leaf->value.dtype);
  if (offload_ && host.untied > 0) part_on_host((host.untied + group_.ranks - 1) / group_.ranks);
  // On the host the buffer is pinned, whatever is asked for.
  if (offload_ || were_whole_) before = made_on_host(flat_, MemorySpace::Pageable);
  const auto put_together = [&](const Tensor& together) {
    for (std::int64_t at = 0; const Tensor& part : parts) {
      copy_over(s_, part, narrowed(together, 0, at, part.elements()));
      at += part.elements();
    }
  };
  if (were_whole_ && !offload_) {
    put_together(before);
    parts.clear();
    s_.process.empty_cache();  // defragment
  }
  {
    OnPlace place;
    if (offload_) go_to(place, s_, MemorySpace::Pinned);
    buffer_ = s_.empty({flat_}, dtype_, s_.process.label(drawn_together), Category::Parameters);
    if (!were_whole_) s_.launch(Operation::Initialize, {}, {buffer_});
  }
  if (were_whole_ && offload_) put_together(buffer_);
  if (were_whole_ && !offload_) copy_over(s_, before, buffer_);
  before = {};
  parts.clear();
  for (std::int64_t at = 0; PartitionedParameter & p : all_) {
    if (!p.trained) continue;
    p.partition = narrowed(buffer_, 0, at, p.each);
    at += p.each;
    stand_alone(p);
  }
}

// zero.Init: what a module makes lies on the device in PyTorch's usual type until it is cast. Where parts go to the
// host, nothing of it goes back to the driver.
Tensor PartitionedParameters::drawn_whole(const std::string& name, std::int64_t elements, DType kept) {
  const Session::Scope scope(s_, name);
  const auto made = [&](DType dtype) { return s_.empty({elements}, dtype, "made", Category::Temporaries); };
  const Tensor usual = made(DType::FP32);
  return kept == DType::FP32 ? usual : made(kept);
}

// Those that a module makes are partitioned once all of them are there. Adapters come later, and by themselves.
std::vector<Tensor> PartitionedParameters::made_module(std::size_t first) {
  const auto module_of = [this](std::size_t p) { return all_[p].name.substr(0, all_[p].name.rfind('.')); };
  const bool adapted = !std::ranges::all_of(all_, &PartitionedParameter::trained);
  std::vector<Tensor> whole;
  for (std::size_t p = first; p < all_.size() && module_of(p) == module_of(first); ++p)
    if (!adapted || !all_[p].trained)
      whole.insert(whole.begin(), drawn_whole(all_[p].name, all_[p].elements, all_[p].leaf->value.dtype));
  return whole;
}

// The rank's part of a parameter that is there is copied, and the rest given up.
void PartitionedParameters::cut(PartitionedParameter& its, const Tensor& part) {
  const std::int64_t begin = its.each * group_.rank, held = std::clamp<std::int64_t>(its.elements - begin, 0, its.each);
  if (held > 0)
    copy_over(s_, narrowed(sized(its.leaf->value.detached(), {its.elements}), 0, begin, held),
              narrowed(part, 0, 0, held));
  let_go(its);
}

// Where it is partitioned to, and stays unless it is trained.
Tensor PartitionedParameters::made_part(const PartitionedParameter& its) {
  const auto made = [&](MemorySpace space, const std::string& label) {
    OnPlace there;
    go_to(there, s_, space);
    return s_.empty({its.each}, its.leaf->value.dtype, s_.process.label(label), its.category);
  };
  if (!offload_) return made(MemorySpace::Device, its.name + ".part");
  const bool pins = *offload_ == MemorySpace::Pinned;
  const Tensor pageable = made(MemorySpace::Pageable, pins ? "zero.part" : its.name + ".part");
  return pins ? made(MemorySpace::Pinned, its.name + ".part") : pageable;
}

// The only rank's part is what modules read.
void PartitionedParameters::stand_alone(PartitionedParameter& its) {
  if (!stays()) return;
  Tensor whole = sized(its.partition, its.leaf->value.sizes);
  whole.gradient = its.leaf->value.gradient;
  its.leaf->value = std::move(whole);
}

// Each is made on the device: what is worth a file goes there, the rest to the host.
void PartitionedParameters::make_parts(const PartsOnHost& host) {
  const auto drawn = [&](const std::string& name, std::int64_t each) {
    const Session::Scope scope(s_, name);
    Tensor part = s_.empty({each}, dtype_, torch::trained_parameter, Category::Temporaries);
    s_.launch(Operation::Initialize, {}, {part});
    return part;
  };
  for (PartitionedParameter& p : all_) {
    const Tensor part = drawn(p.name, p.each);
    if (swapper_->swaps(p.each)) {
      p.swapped = swapper_->kept(p.name, part);
      p.partition = narrowed(p.swapped->file, 0, 0, p.each);
    } else {
      p.partition = made_part(p);
      copy_over(s_, part, p.partition);
    }
  }
  const std::int64_t untied = (host.untied + group_.ranks - 1) / group_.ranks;
  if (untied > 0 && swapper_->swaps(untied)) untied_ = swapper_->kept("untied", drawn("untied", untied));
}

// _create_fp16_partitions_with_defragmentation: sub-groups go to pinned memory as long as there is to be more of it.
void PartitionedParameters::lay_out(const PartsOnHost& host) {
  std::vector<std::int64_t> parts;
  std::int64_t elements = 0;
  for (const PartitionedParameter& p : all_) {
    parts.push_back(p.each);
    elements += p.each;
  }
  const std::int64_t stays = std::min(elements, host.nvme->max_in_cpu);
  if (stays > 0) {
    const auto made = [&](MemorySpace space) {
      const OnHost its(s_, space);
      return s_.empty({stays}, dtype_, s_.process.label("zero.flat_parameters"), Category::Parameters);
    };
    const Tensor before = made(MemorySpace::Pageable);
    buffer_ = made(MemorySpace::Pinned);
  }
  std::vector<std::int64_t> largest;  // parameters of the largest sub-group, whole
  std::int64_t most = 0, begin = 0;
  bool all_stay = true;
  std::size_t p = 0;
  for (const std::size_t count : sub_groups(parts, host.sub_group_size)) {
    std::int64_t its = 0;
    for (std::size_t i = 0; i < count; ++i) its += parts[p + i];
    if (its > most) {
      most = its;
      largest.clear();
      for (std::size_t i = 0; i < count; ++i) largest.push_back(all_[p + i].elements);
    }
    const bool fits = begin + its <= stays;
    all_stay &= fits;
    for (std::size_t i = 0; i < count; ++i, ++p, begin += parts[p - 1]) {
      if (!fits) continue;
      const Tensor place = narrowed(buffer_, 0, begin, parts[p]);
      if (all_[p].swapped)
        swapper_->read_to(*all_[p].swapped, place);
      else
        copy_over(s_, all_[p].partition, place);
      all_[p].partition = place;
      all_[p].swapped.reset();
    }
    if (fits) flat_ = begin;
  }
  if (!all_stay) swapper_->reserve(largest);
}

Tensor PartitionedParameters::flat(std::int64_t begin, std::int64_t elements) const {
  return begin + elements <= flat_ ? narrowed(buffer_, 0, begin, elements) : Tensor{};
}

void PartitionedParameters::ensure_read(std::span<const std::size_t> parameters) {
  if (!swapper_) return;
  std::vector<SwappedPart*> missing;
  bool arrive = false;
  for (const std::size_t p : parameters) {
    if (is_in_file(p)) missing.push_back(&*all_[p].swapped);
    arrive |= all_[p].swapped && all_[p].swapped->arrives;
  }
  if (!missing.empty()) swapper_->read(missing);
  if (!missing.empty() || arrive) swapper_->wait();
  for (const std::size_t p : parameters)
    if (all_[p].swapped) all_[p].partition = swapper_->in_memory(*all_[p].swapped);
}

void PartitionedParameters::read_ahead(const std::vector<std::size_t>& parameters) {
  std::vector<SwappedPart*> parts;
  for (const std::size_t p : parameters) parts.push_back(&*all_[p].swapped);
  swapper_->read(parts);
}

void PartitionedParameters::release_part(PartitionedParameter& its) {
  if (!its.swapped) return;
  swapper_->release(*its.swapped);
  its.partition = narrowed(its.swapped->file, 0, 0, its.each);
}

void PartitionedParameters::release_persistent(const std::vector<std::size_t>& parameters) {
  for (const std::size_t p : parameters)
    if (all_[p].persists) release_part(all_[p]);
}

void PartitionedParameters::copy_to(std::span<const std::size_t> parameters, const Tensor& flat) {
  for (std::int64_t at = 0; const std::size_t p : parameters) {
    ensure_read({&p, 1});
    copy_over(s_, all_[p].partition, narrowed(flat, 0, at, all_[p].each));
    release_part(all_[p]);
    at += all_[p].each;
  }
}

Tensor PartitionedParameters::in_a_buffer(std::span<const std::size_t> parameters) {
  std::int64_t elements = 0;
  for (const std::size_t p : parameters) elements += all_[p].each;
  Tensor together = swapper_->buffer_for(elements);
  for (std::int64_t at = 0; const std::size_t p : parameters) {
    const Tensor place = narrowed(together, 0, at, all_[p].each);
    if (all_[p].swapped)
      swapper_->read_straight(*all_[p].swapped, place);
    else
      copy_over(s_, all_[p].partition, place);
    at += all_[p].each;
  }
  return together;
}

void PartitionedParameters::update(std::span<const std::size_t> parameters, const Tensor& flat) {
  std::vector<std::pair<SwappedPart*, Tensor>> to_files;
  for (std::int64_t at = 0; const std::size_t p : parameters) {
    const Tensor value = narrowed(flat, 0, at, all_[p].each);
    at += all_[p].each;
    if (all_[p].swapped)
      to_files.emplace_back(&*all_[p].swapped, value);
    else
      copy_over(s_, value, all_[p].partition);
  }
  if (swapper_) swapper_->update(to_files);
}

std::int64_t PartitionedParameters::held(std::size_t p) const {
  return std::clamp<std::int64_t>(all_[p].elements - all_[p].each * group_.rank, 0, all_[p].each);
}

void PartitionedParameters::place(std::size_t p, Tensor whole) {
  Tensor& value = all_[p].leaf->value;
  s_.reclassify(whole, all_[p].category);
  if (value.defined())
    s_.replace(value, std::move(whole));
  else
    value.storage = std::move(whole.storage);
}

Tensor PartitionedParameters::on_device(std::size_t p) {
  const Tensor& part = all_[p].partition;
  if (!offload_) return part;
  return moved(s_, part, MemorySpace::Device, part.dtype, all_[p].name + ".part", Category::OffloadStaging);
}

void PartitionedParameters::gather_to_place(std::size_t p, From from) {
  const PartitionedParameter& its = all_[p];
  if (alone()) return place(p, on_device(p));
  Tensor whole = s_.empty({its.each * group_.ranks}, its.partition.dtype, s_.process.label(its.name + ".gathered"),
                          Category::Temporaries);
  if (from == From::Secondary)
    s_.collective(neighbours_.comm, CollectiveKind::AllGather, its.secondary, whole);
  else
    s_.collective(group_.comm, CollectiveKind::AllGather, on_device(p), whole);
  place(p, std::move(whole));
}

// _partition_param_sec.
void PartitionedParameters::keep_secondary(std::size_t p) {
  PartitionedParameter& its = all_[p];
  if (neighbours_.ranks == 1 || its.secondary.defined()) return;
  const NoGrad no_grad(s_);
  const std::int64_t size = each(p, true), begin = size * neighbours_.rank;
  its.secondary = s_.empty({size}, dtype(p), s_.process.label(its.name + ".secondary"), its.category);
  s_.launch({Operation::Fill, {0}}, {}, {its.secondary});
  if (const std::int64_t held = std::clamp<std::int64_t>(its.elements - begin, 0, size); held > 0) {
    const Tensor flat = sized(its.leaf->value.detached(), {its.elements});
    s_.launch(Operation::Copy, {narrowed(flat, 0, begin, held)}, {narrowed(its.secondary, 0, 0, held)});
  }
  // Gathers are on a stream of their own, and no event orders them after this.
  s_.process.synchronize(s_.process.record(s_.stream()));
}

void PartitionedParameters::forget_secondary() {
  for (PartitionedParameter& p : all_)
    if (p.trained) p.secondary = {};
}

namespace {

// utils.py sort_dtypes: as PyTorch's names of them are sorted, in which bytes come last.
std::string_view sorted_as(DType dtype) { return dtype == byte_type ? "uint8" : name(dtype); }

}  // namespace

std::vector<std::shared_ptr<Gathering>> PartitionedParameters::gather(const std::vector<std::size_t>& parameters) {
  std::map<std::string_view, std::vector<std::size_t>> by_type;
  for (const std::size_t p : parameters) by_type[sorted_as(dtype(p))].push_back(p);
  std::vector<std::shared_ptr<Gathering>> made;
  for (auto& [type, of_type] : by_type) made.push_back(gather_together(std::move(of_type)));
  return made;
}

std::shared_ptr<Gathering> PartitionedParameters::gather_together(std::vector<std::size_t> parameters) {
  auto made = std::make_shared<Gathering>();
  made->parameters = std::move(parameters);
  ensure_read(made->parameters);
  for (const std::size_t p : made->parameters) all_[p].status = Availability::InFlight;
  if (stays()) return made;
  const OnStream gathering(s_, stream_);
  if (alone()) {
    for (const std::size_t p : made->parameters) gather_to_place(p, From::Parts);
    return made;
  }
  const bool secondary = made->secondary = all_[made->parameters.front()].secondary.defined();
  if (made->parameters.size() == 1) {
    gather_to_place(made->parameters.front(), secondary ? From::Secondary : From::Parts);
    return made;
  }
  const DataGroup& among = secondary ? neighbours_ : group_;
  std::int64_t of_rank = 0;
  for (const std::size_t p : made->parameters) of_rank += each(p, secondary);
  made->flat = s_.empty({of_rank * among.ranks}, dtype(made->parameters.front()), "all_gather", Category::CommDp);
  std::vector<Tensor> parts, places;
  for (std::int64_t at = of_rank * among.rank; const std::size_t p : made->parameters) {
    parts.push_back(secondary ? all_[p].secondary : on_device(p));
    places.push_back(narrowed(made->flat, 0, at, each(p, secondary)));
    at += each(p, secondary);
  }
  s_.launch(Operation::Copy, parts, places);
  s_.collective(among.comm, CollectiveKind::AllGather, made->flat, made->flat);  // in place
  return made;
}

// Each parameter is put together from what came from the ranks.
void PartitionedParameters::wait(Gathering& gathering) {
  if (std::exchange(gathering.complete, true)) return;
  const OnStream copying(s_, stream_);
  const std::int64_t ranks = gathering.secondary ? neighbours_.ranks : group_.ranks;
  const std::int64_t of_rank = gathering.flat.defined() ? gathering.flat.elements() / ranks : 0;
  for (std::int64_t offset = 0; const std::size_t p : gathering.parameters) {
    PartitionedParameter& its = all_[p];
    its.status = Availability::Available;
    if (!gathering.flat.defined()) continue;
    Tensor whole =
        s_.empty({its.elements}, its.partition.dtype, s_.process.label(its.name + ".gathered"), Category::Temporaries);
    std::vector<Tensor> pieces, places;
    const std::int64_t part = each(p, gathering.secondary);
    for (std::int64_t rank = 0, at = 0; at < its.elements; ++rank, at += part) {
      const std::int64_t size = std::min(part, its.elements - at);
      pieces.push_back(narrowed(gathering.flat, 0, of_rank * rank + offset, size));
      places.push_back(narrowed(whole, 0, at, size));
    }
    s_.launch(Operation::Copy, pieces, places);
    places.clear();
    place(p, std::move(whole));
    offset += part;
  }
}

void PartitionedParameters::gather_now(std::span<const std::size_t> parameters) {
  ensure_read(parameters);
  for (const std::size_t p : parameters) {
    if (all_[p].status != Availability::NotAvailable) continue;
    if (!stays()) gather_to_place(p, From::Parts);
    all_[p].status = Availability::Available;
  }
}

void PartitionedParameters::free(std::size_t p, Saved saved) {
  keep_secondary(p);
  PartitionedParameter& its = all_[p];
  its.status = Availability::NotAvailable;
  release_part(its);
  if (stays()) return;
  const Tensor& value = its.leaf->value;
  if (s_.process.allocation(value.buffer()).stream != Process::compute_stream)
    s_.record_stream(value, Process::compute_stream);
  if (saved == Saved::Memory || its.viewed) return let_go(its);
  s_.discard(value);
}

}  // namespace tidemark::parallel::deepspeed
