#include "parallel/frameworks/megatron/optimizer/overlapped_buckets.hpp"

#include <string_view>

namespace tidemark::parallel::megatron {
namespace {

constexpr std::string_view reduction = "reduce_gradients", gathering = "gather_parameters";

}  // namespace

OverlappedBuckets::OverlappedBuckets(Worker& w, std::vector<ParamAndGradBuffer>& buffers) : w_(w) {
  for (ParamAndGradBuffer& buffer : buffers) {
    const BufferLayout& layout = buffer.layout();
    const std::size_t first = buckets_.size();
    if (const Tensor& values = buffer.values(); values.defined()) first_of_[values.buffer()] = first;
    for (std::size_t place = 0; place < layout.buckets.size(); ++place) buckets_.push_back({&buffer, place});
    for (const BufferLayout::Place& its : layout.places) {
      const std::size_t bucket = first + layout.bucket_of(its.begin);
      ++buckets_[bucket].parameters;
      w_.weight(its.parameter).gradient_arrived = [this, bucket] { arrived(bucket); };
    }
  }
}

OverlappedBuckets::~OverlappedBuckets() { w_.session.before_operation = {}; }

bool OverlappedBuckets::of_chunk(const Bucket& bucket, std::size_t chunk) const {
  return bucket.buffer->stage() == w_.chunks[chunk];
}

void OverlappedBuckets::begin_step(std::int32_t step) {
  for (Bucket& bucket : buckets_)
    bucket = {
        .buffer = bucket.buffer, .place = bucket.place, .parameters = bucket.parameters, .missing = bucket.parameters};
  last_ = false;
  if (step == 1 || !gathers()) return;
  unread_ = buckets_.size();
  w_.session.before_operation = [this](Operands inputs) {
    for (const Tensor& input : inputs)
      if (input.defined()) before_reading(input);
  };
}

// ---- gradients -----------------------------------------------------------------------------------------------------

// register_grad_ready.
void OverlappedBuckets::arrived(std::size_t bucket) {
  Bucket& its = buckets_[bucket];
  if (!last_ || --its.missing > 0) return;
  const torch::Meanwhile meanwhile(w_.process, Phase::Communication, reduction);
  // The hook runs on the stream of the wrapper, which has waited for the gradient that autograd handed over, or for the
  // dummy that stands for it.
  const StreamId hook = w_.runtime.core.wraps_aside ? wrapper_stream : w_.session.stream();
  if (w_.runtime.core.wraps_aside) w_.process.wait(hook, w_.process.record(torch::Process::compute_stream));
  const torch::OnStream aside(w_.session, hook);
  start_reducing(its);
}

void OverlappedBuckets::start_reducing(Bucket& bucket) {
  if (bucket.reducing) return;
  bucket.reducing = true;
  bucket.reduced = bucket.buffer->reduce_aside(bucket.place);
}

void OverlappedBuckets::reduce(std::size_t chunk) {
  w_.process.mark(Phase::Communication, reduction);
  for (Bucket& bucket : buckets_)
    if (of_chunk(bucket, chunk)) start_reducing(bucket);
}

void OverlappedBuckets::finish() {
  w_.process.mark(Phase::Communication, reduction);
  for (Bucket& bucket : buckets_) start_reducing(bucket);
  for (const Bucket& bucket : buckets_) w_.process.join(bucket.reduced);
  w_.session.before_operation = {};
}

// ---- parameters ----------------------------------------------------------------------------------------------------

void OverlappedBuckets::start_gathering(Bucket& bucket) {
  if (bucket.gathering) return;
  bucket.gathering = true;
  bucket.gathered = bucket.buffer->gather_aside(bucket.place);
}

void OverlappedBuckets::gather(std::size_t chunk) {
  if (unread_ == 0) return;
  w_.process.mark(Phase::Communication, gathering);
  for (Bucket& bucket : buckets_)
    if (of_chunk(bucket, chunk)) start_gathering(bucket);
}

// finish_param_sync. Buckets of the model's end come first in a buffer: the next to be read is the one before.
void OverlappedBuckets::before_reading(const Tensor& parameter) {
  const auto found = first_of_.find(parameter.buffer());
  if (found == first_of_.end()) return;
  const std::size_t first = found->second;
  const std::size_t place = buckets_[first].buffer->layout().bucket_of(parameter.offset);
  Bucket& its = buckets_[first + place];
  if (its.awaited) return;
  const torch::Meanwhile meanwhile(w_.process, Phase::Communication, gathering);
  start_gathering(its);
  w_.process.join(its.gathered);
  its.awaited = true;
  if (place > 0 && !aligns_parameters()) start_gathering(buckets_[first + place - 1]);
  if (--unread_ == 0) w_.session.before_operation = {};
}

}  // namespace tidemark::parallel::megatron
