#include "parallel/frameworks/megatron/user_buffers.hpp"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tidemark::parallel::megatron {

using torch::InMemory;
using torch::OnStream;
using torch::Process;

namespace {

constexpr StreamId beside{15};      // Userbuffers' own
constexpr std::int64_t pieces = 4;  // of a pipeline: num_splits

// Every rank's rows.
Tensor room(const Worker& w, const Linear& linear, std::string_view product) {
  return w.user_buffers.at(fmt::format("{}_{}", linear.user_buffer, product));
}

Tensor part_of(const Worker& w, const Tensor& whole, std::int32_t rank) {
  const std::int64_t rows = whole.size(0) / w.sizes.tensor;
  return narrowed(whole, 0, rank * rows, rows);
}

// copy_into_buffer
void fill_own(const Worker& w, Tensor own, const Tensor& whole) {
  w.launch(Operation::Copy, {std::move(own)}, {part_of(w, whole, w.place.tensor)});
}

// CommOverlapP2PBase::split_overlap_ag: what was multiplied goes on to the next rank meanwhile.
template <class Product>
void in_ring(const Worker& w, const Tensor& whole, const Product& product) {
  const std::int32_t ranks = static_cast<std::int32_t>(w.sizes.tensor), me = w.place.tensor;
  const auto part = [&](std::int32_t step) { return (me + ranks - step) % ranks; };
  w.process.wait(beside, w.process.record(Process::compute_stream));
  EventId come;
  for (std::int32_t step = 0; step < ranks; ++step) {
    w.process.join(come);
    product(part(step));
    if (step + 1 == ranks) break;
    const std::array transfers{Transfer{sim::Direction::Send, +1, whole.buffer(), part(step), ranks},
                               Transfer{sim::Direction::Receive, -1, whole.buffer(), part(step + 1), ranks}};
    w.process.exchange(w.comms.user_buffers, transfers, beside);
    come = w.process.record(beside);
  }
}

bool is_of_layers(const Worker& w, const Linear& linear) {
  return w.runtime.tensor_overlap && w.sequence_parallel() && !linear.user_buffer.empty();
}

}  // namespace

bool gathers_in_ring(const Worker& w, const Linear& linear) {
  return is_of_layers(w, linear) && w.runtime.tensor_overlap->gathers;
}
bool scatters_in_pieces(const Worker& w, const Linear& linear) {
  return is_of_layers(w, linear) && w.runtime.tensor_overlap->scatters;
}
bool gathers_in_bulk(const Worker& w, const Linear& linear) {
  return is_of_layers(w, linear) && w.runtime.tensor_overlap->bulk_gathers;
}
bool scatters_in_bulk(const Worker& w, const Linear& linear) {
  return is_of_layers(w, linear) && w.runtime.tensor_overlap->bulk_scatters;
}

// All are made, whichever are used; proj_wgrad and fc2_wgrad came with 2.7.
void register_user_buffers(Worker& w) {
  if (!w.runtime.tensor_overlap || !w.comms.user_buffers.valid()) return;
  // Barriers of the groups that set them up: userbuffers-host.cpp create_communicator_grouped2.
  for (const CommSlot group : {w.comms.user_buffers_world, w.comms.user_buffers_domain}) {
    if (!group.valid()) continue;
    const Tensor one = w.temporary(w.process.label("user_buffers.barrier"), {1}, DType::FP32);
    w.session.collective(group, CollectiveKind::AllReduce, one, one);
  }
  if (w.runtime.shared_user_workspace) (void)w.user_buffer_workspace();
  std::vector<std::string_view> products{"qkv_fprop", "fc1_fprop", "proj_dgrad", "fc2_dgrad", "proj_fprop",
                                         "fc2_fprop", "qkv_dgrad", "qkv_wgrad",  "fc1_dgrad", "fc1_wgrad"};
  if (w.runtime.external_user_buffers) products.insert(products.end(), {"proj_wgrad", "fc2_wgrad"});
  const InMemory registered(w.session, MemorySpace::Registered);
  for (const std::string_view product : products) {
    Tensor buffer = w.communicated(w.process.label(fmt::format("user_buffers.{}", product)), w.whole(w.model.hidden));
    w.process.keep(buffer.buffer());
    w.user_buffers.emplace(product, std::move(buffer));
  }
}

Tensor ring_forward(Worker& w, const Linear& linear, const Tensor& x) {
  const Weight& weight = *linear.weight;
  const Tensor whole = room(w, linear, "fprop");
  fill_own(w, x, whole);
  const BufferId workspace = w.user_buffer_workspace();
  Tensor out = w.temporary(linear.name("out"), {whole.size(0), weight.rows});
  in_ring(w, whole, [&](std::int32_t rank) {
    forward_product(w, weight, linear.bias, part_of(w, whole, rank), part_of(w, out, rank), workspace);
  });
  return out;
}

// CommOverlapBase::split_overlap_rs. The library cuts features, where rows of every rank are cut here: a piece takes as
// long, and each rank's part of it lies in one piece. What the GEMM would give is made, and nobody fills it.
Tensor pipelined_forward(Worker& w, const Linear& linear, const Tensor& x) {
  const Weight& weight = *linear.weight;
  const Tensor whole = room(w, linear, "fprop");
  Tensor out = w.temporary(linear.name("out"), w.residual(weight.rows));
  const BufferId workspace = w.user_buffer_workspace();
  const Tensor unused = w.temporary(linear.name("partial_sum"), whole.sizes);
  const std::int64_t rows = out.size(0) / pieces;  // of a rank in a piece
  const Tensor in = sized(x, {w.sizes.tensor, pieces, rows, x.size(1)});
  w.process.wait(beside, w.process.record(Process::compute_stream));
  for (std::int64_t i = 0; i < pieces; ++i) {
    const Tensor made = narrowed(whole, 0, i * rows * w.sizes.tensor, rows * w.sizes.tensor);
    forward_product(w, weight, linear.bias, narrowed(in, 1, i, 1), sized(made, {w.sizes.tensor, 1, rows, weight.rows}),
                    workspace, {.spared = spared_multiprocessors});
    w.process.wait(beside, w.process.record(Process::compute_stream));
    const OnStream on(w.session, beside);
    w.session.collective(w.comms.user_buffers, CollectiveKind::ReduceScatter, made, narrowed(out, 0, i * rows, rows));
  }
  w.process.join(w.process.record(beside));
  return out;
}

RingGradients ring_backward(Worker& w, const Linear& linear, Tensor gradient) {
  const Weight& weight = *linear.weight;
  const Tensor whole = room(w, linear, "dgrad");
  fill_own(w, std::move(gradient), whole);
  const BufferId workspace = w.user_buffer_workspace();
  Tensor input = w.temporary(linear.name("input_gradient"), w.whole(weight.columns));
  in_ring(w, whole, [&](std::int32_t rank) {
    data_gradient_product(w, weight, part_of(w, whole, rank), part_of(w, input, rank), workspace);
  });
  return {std::move(input), whole};
}

namespace {

// In place: each rank's part is where it is among the others'.
EventId beside_in_place(const Worker& w, CollectiveKind kind, const Tensor& whole) {
  return w.session.unchecked_collective_aside(beside, w.comms.user_buffers, kind, whole, whole, Reduction::Sum);
}

}  // namespace

// CommOverlapBase::bulk_overlap
Coming bulk_gather(Worker& w, const Linear& linear, const Tensor& own) {
  Tensor whole = room(w, linear, "dgrad");
  fill_own(w, own, whole);
  const EventId come = beside_in_place(w, CollectiveKind::AllGather, whole);
  return {std::move(whole), come};
}

Tensor bulk_room(Worker& w, const Linear& linear) { return room(w, linear, "wgrad"); }

Coming bulk_scatter(Worker& w, const Linear& linear) {
  const Tensor whole = room(w, linear, "wgrad");
  const EventId come = beside_in_place(w, CollectiveKind::ReduceScatter, whole);
  return {part_of(w, whole, w.place.tensor), come};
}

}  // namespace tidemark::parallel::megatron
