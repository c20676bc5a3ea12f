#pragma once

#include <cstdint>

#include "parallel/frameworks/megatron/te.hpp"

// TransformerEngine 2.11's Userbuffers: memory that tensor-parallel ranks reach of each other, through which
// sequence-parallel activations go beside the products that read or make them (module/base.py initialize_ub,
// common/comm_gemm_overlap/comm_gemm_overlap.cpp). Which product overlaps how is the library's default.
//
//   ring (qkv, fc1; gradients of proj, fc2)   | product of own rows | of the neighbour's | ...
//                                             | rows come | rows come | ...
//   pipeline (proj, fc2)                      | quarter of the product | next quarter | ...
//                                                                      | reduce-scatter | ...
//   bulk (backward of qkv, fc1)               | input gradient's product | weight gradient's product |
//                                             | input comes              | input gradient is reduced |

namespace tidemark::parallel::megatron {

/// One for each product that overlaps.
void register_user_buffers(Worker& w);

/// What of a linear's communication goes through them: of those of a transformer layer, and only under sequence
/// parallelism.
[[nodiscard]] bool gathers_in_ring(const Worker& w, const Linear& linear);
[[nodiscard]] bool scatters_in_pieces(const Worker& w, const Linear& linear);
[[nodiscard]] bool gathers_in_bulk(const Worker& w, const Linear& linear);
[[nodiscard]] bool scatters_in_bulk(const Worker& w, const Linear& linear);

/// x W^T of every rank's rows of x, part by part.
[[nodiscard]] Tensor ring_forward(Worker& w, const Linear& linear, const Tensor& x);
/// … summed over ranks, of which each has its part.
[[nodiscard]] Tensor pipelined_forward(Worker& w, const Linear& linear, const Tensor& x);
/// The gradient of the input, and that of the output from every rank.
struct RingGradients {
  Tensor input, gathered;
};
[[nodiscard]] RingGradients ring_backward(Worker& w, const Linear& linear, Tensor gradient);

/// Every rank's rows, once `come` is over.
struct Coming {
  Tensor whole;
  EventId come;
};
[[nodiscard]] Coming bulk_gather(Worker& w, const Linear& linear, const Tensor& own);
/// Where the gradient of the input is made; and this rank's part of its sum over ranks, once `come` is over.
[[nodiscard]] Tensor bulk_room(Worker& w, const Linear& linear);
[[nodiscard]] Coming bulk_scatter(Worker& w, const Linear& linear);

/// Multiprocessors that products leave to Userbuffers' kernels beside them: num_sm of get_default_config.
inline constexpr double spared_multiprocessors = 16;

}  // namespace tidemark::parallel::megatron
