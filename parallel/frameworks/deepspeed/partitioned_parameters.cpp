#include "parallel/frameworks/deepspeed/partitioned_parameters.hpp"

#include <algorithm>
#include <utility>

#include "parallel/frameworks/deepspeed/host_copies.hpp"

namespace tidemark::parallel::deepspeed {

// deepspeed.zero.Init, and defragment: the parts of all parameters lie one after another in the end, and what was made
// on the way has gone back to the driver.
PartitionedParameters::PartitionedParameters(Session& session, const DataGroup& group, StreamId stream,
                                             NamedParameters parameters, const PartsOnHost& host)
    : s_(session), group_(group), stream_(stream), offload_(host.space) {
  const NoGrad no_grad(s_);
  std::int64_t elements = 0;
  for (NamedParameter& p : parameters) {
    PartitionedParameter made;
    made.elements = p.leaf->value.elements();
    made.each = (made.elements + group.ranks - 1) / group.ranks;
    made.name = std::move(p.name);
    made.leaf = std::move(p.leaf);
    all_.push_back(std::move(made));
    elements += all_.back().each;
  }
  const DType dtype = all_.front().leaf->value.dtype;
  const auto made_on_host = [&](std::int64_t size, MemorySpace space) {
    const OnHost on_host(s_, space);
    return s_.empty({size}, dtype, "zero.part", Category::OffloadStaging);
  };
  std::vector<Tensor> parts;
  Tensor before;
  const auto part = [&](std::int64_t each) {
    before = made_on_host(each, MemorySpace::Pageable);
    parts.push_back(*offload_ == MemorySpace::Pinned ? made_on_host(each, MemorySpace::Pinned) : before);
  };
  if (offload_) {
    for (const PartitionedParameter& p : all_) part(p.each);
    if (host.untied > 0) part((host.untied + group.ranks - 1) / group.ranks);
    before = made_on_host(elements, MemorySpace::Pageable);  // the buffer is pinned, whatever is asked for
  }
  {
    OnPlace place;
    if (offload_) go_to(place, s_, MemorySpace::Pinned);
    buffer_ = s_.empty({elements}, dtype, s_.process.label(drawn_together), Category::Parameters);
    s_.launch(Operation::Initialize, {}, {buffer_});
  }
  before = {};
  parts.clear();
  for (std::int64_t at = 0; PartitionedParameter & p : all_) {
    p.partition = narrowed(buffer_, 0, at, p.each);
    at += p.each;
    if (!stays()) continue;
    Tensor whole = sized(p.partition, p.leaf->value.sizes);
    whole.gradient = p.leaf->value.gradient;
    p.leaf->value = std::move(whole);
  }
}

std::int64_t PartitionedParameters::held(std::size_t p) const {
  return std::clamp<std::int64_t>(all_[p].elements - all_[p].each * group_.rank, 0, all_[p].each);
}

void PartitionedParameters::place(std::size_t p, Tensor whole) {
  Tensor& value = all_[p].leaf->value;
  s_.reclassify(whole, Category::Parameters);
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

void PartitionedParameters::gather_to_place(std::size_t p) {
  const PartitionedParameter& its = all_[p];
  if (alone()) return place(p, on_device(p));
  Tensor whole = s_.empty({its.each * group_.ranks}, its.partition.dtype, s_.process.label(its.name + ".gathered"),
                          Category::Temporaries);
  s_.collective(group_.comm, CollectiveKind::AllGather, on_device(p), whole);
  place(p, std::move(whole));
}

std::shared_ptr<Gathering> PartitionedParameters::gather(std::vector<std::size_t> parameters) {
  auto made = std::make_shared<Gathering>();
  made->parameters = std::move(parameters);
  for (const std::size_t p : made->parameters) all_[p].status = Availability::InFlight;
  if (stays()) return made;
  const OnStream gathering(s_, stream_);
  if (alone()) {
    for (const std::size_t p : made->parameters) gather_to_place(p);
    return made;
  }
  if (made->parameters.size() == 1) {
    gather_to_place(made->parameters.front());
    return made;
  }
  std::int64_t of_rank = 0;
  for (const std::size_t p : made->parameters) of_rank += all_[p].each;
  made->flat = s_.empty({of_rank * group_.ranks}, buffer_.dtype, "all_gather", Category::CommDp);
  std::vector<Tensor> parts, places;
  for (std::int64_t at = of_rank * group_.rank; const std::size_t p : made->parameters) {
    parts.push_back(on_device(p));
    places.push_back(narrowed(made->flat, 0, at, all_[p].each));
    at += all_[p].each;
  }
  s_.launch(Operation::Copy, parts, places);
  s_.collective(group_.comm, CollectiveKind::AllGather, made->flat, made->flat);  // in place
  return made;
}

// Each parameter is put together from what came from the ranks.
void PartitionedParameters::wait(Gathering& gathering) {
  if (std::exchange(gathering.complete, true)) return;
  const OnStream copying(s_, stream_);
  const std::int64_t of_rank = gathering.flat.defined() ? gathering.flat.elements() / group_.ranks : 0;
  for (std::int64_t offset = 0; const std::size_t p : gathering.parameters) {
    PartitionedParameter& its = all_[p];
    its.status = Availability::Available;
    if (!gathering.flat.defined()) continue;
    Tensor whole =
        s_.empty({its.elements}, its.partition.dtype, s_.process.label(its.name + ".gathered"), Category::Temporaries);
    std::vector<Tensor> pieces, places;
    for (std::int64_t rank = 0, at = 0; at < its.elements; ++rank, at += its.each) {
      const std::int64_t size = std::min(its.each, its.elements - at);
      pieces.push_back(narrowed(gathering.flat, 0, of_rank * rank + offset, size));
      places.push_back(narrowed(whole, 0, at, size));
    }
    s_.launch(Operation::Copy, pieces, places);
    places.clear();
    place(p, std::move(whole));
    offset += its.each;
  }
}

void PartitionedParameters::gather_now(std::span<const std::size_t> parameters) {
  for (const std::size_t p : parameters) {
    if (all_[p].status != Availability::NotAvailable) continue;
    if (!stays()) gather_to_place(p);
    all_[p].status = Availability::Available;
  }
}

Tensor PartitionedParameters::free(std::size_t p, Saved saved) {
  all_[p].status = Availability::NotAvailable;
  if (stays()) return {};
  const Tensor& value = all_[p].leaf->value;
  if (s_.process.allocation(value.buffer()).stream != Process::compute_stream)
    s_.record_stream(value, Process::compute_stream);
  if (saved == Saved::ItsMemory) return s_.taken(value);
  s_.discard(value);
  return {};
}

}  // namespace tidemark::parallel::deepspeed
