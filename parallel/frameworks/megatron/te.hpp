#pragma once

#include <utility>

#include "parallel/frameworks/megatron/worker.hpp"

// TransformerEngine 2.11's modules, as the single autograd functions that they are: forward, what it saves, backward.
// Which temporaries they take, in which order, and what they drop when. With `framework_linears` they are Megatron's
// own.

namespace tidemark::parallel::megatron {

/// RMSNorm or LayerNorm over the hidden dimension.
struct Norm {
  Name name;
  const Weight* weight = nullptr;
  const Weight* bias = nullptr;  ///< of LayerNorm
};

/// y = x W^T, and + b where the GEMM adds it. Column-parallel linears take residual values and give tensor-parallel
/// ones, row-parallel ones the other way round; one that every rank holds whole gives residual values, too. What an
/// expert's linear takes was gathered, and what it gives is summed, by the dispatcher of tokens.
struct Linear {
  Name name;
  const Weight* weight = nullptr;
  const Weight* bias = nullptr;
  std::string_view user_buffer{};  ///< what Userbuffers call it (user_buffers.hpp); empty: nothing

  [[nodiscard]] bool column_parallel() const { return cuts(WeightCut::Rows); }
  [[nodiscard]] bool row_parallel() const { return cuts(WeightCut::Columns); }
  [[nodiscard]] bool cuts(WeightCut cut) const {
    return weight->parameter->cut == cut && !weight->parameter->of_expert();
  }
};

/// Norms multiply by that and their weight.
[[nodiscard]] double norm_weight_offset(const Worker& w);
/// What a norm of tokens saves.
struct NormContext {
  Saved input, mean, rstd;
};
/// Keeps what backward needs in `context`, where there is one.
[[nodiscard]] Tensor norm_forward(Worker& w, const Norm& norm, Tensor x, NormContext* context);
/// Gradients of the input, the weight and the bias.
[[nodiscard]] Gradients norm_backward(Worker& w, const Norm& norm, Tensor gradient, NormContext context);

[[nodiscard]] Tensor norm(Worker& w, const Norm& norm, Tensor x);
[[nodiscard]] Tensor linear(Worker& w, const Linear& linear, Tensor x);
/// A norm and the column-parallel linear after it: one function, where the runtime has it.
[[nodiscard]] Tensor norm_linear(Worker& w, const Norm& norm, const Linear& linear, Tensor x);

/// Attention's output projection.
[[nodiscard]] Tensor projected(Worker& w, const Linear& projection, Tensor context);

/// What runs beside a GEMM: something that keeps so many multiprocessors, or GEMMs like it, with which it makes so many
/// (0: it is alone).
struct ConcurrentKernels {
  double spared = 0, alike = 0;
};
/// The linear's GEMMs on this rank: x W^T and + bias where there is one, and the gradient of x.
void forward_product(const Worker& w, const Weight& weight, const Weight* bias, Tensor x, const Tensor& out,
                     BufferId workspace, ConcurrentKernels concurrent = {});
void data_gradient_product(const Worker& w, const Weight& weight, const Tensor& gradient, const Tensor& out,
                           BufferId workspace, ConcurrentKernels concurrent = {});
/// The GEMM adds into the gradient buffer, or makes a tensor of its own, which is given.
[[nodiscard]] Tensor weight_gradient_product(Worker& w, const Name& name, const Weight& weight, Tensor input,
                                             Tensor gradient, BufferId workspace, ConcurrentKernels concurrent = {});
/// What autograd gets: the product's own tensor, or a dummy, because it wants something.
[[nodiscard]] Tensor given_gradient(Worker& w, const Weight& weight, Tensor own);
/// Both.
[[nodiscard]] Tensor weight_gradient(Worker& w, const Name& name, const Weight& weight, Tensor input, Tensor gradient,
                                     BufferId workspace, ConcurrentKernels concurrent = {});

/// Causal self-attention of a layer, by the job's kernel. Queries, keys and values are [sequence, batch, heads, width];
/// what it gives to the projection has a row for each token.
struct CoreAttention {
  Name name;                      ///< "layers.0.attention.core"
  Name outside;                   ///< "layers.0.attention", to which its tensors belong
  const Weight* sinks = nullptr;  ///< a logit of each head that takes part in the softmax, of no key
};
[[nodiscard]] Tensor core_attention(Worker& w, const CoreAttention& attention, Tensor query, Tensor key, Tensor value);
/// The kernels that it may be: one that never stores scores, on whole sequences or on what context-parallel ranks have
/// of them, and the framework's operations that do. FlashAttention's tensors are [batch, sequence, heads, width].
[[nodiscard]] Tensor fused_attention(Worker& w, const CoreAttention& attention, Tensor query, Tensor key, Tensor value);
[[nodiscard]] Tensor context_attention(Worker& w, const CoreAttention& attention, Tensor query, Tensor key,
                                       Tensor value);
[[nodiscard]] Tensor scored_attention(Worker& w, const CoreAttention& attention, Tensor query, Tensor key,
                                      Tensor value);

[[nodiscard]] Tensor ring_attention(Worker& w, const CoreAttention& attention, Tensor query, Tensor key, Tensor value);
[[nodiscard]] bool batch_first(const Worker& w);
/// Which keys a query sees: those up to its own place, the last query's being that of the last key, or all of them.
enum class Mask : std::uint8_t { Causal, None };
/// What one kernel makes.
struct Attended {
  Tensor out, lse, rng_state;
};
[[nodiscard]] Attended attend(Worker& w, const CoreAttention& attention, Mask mask, Tensor query, Tensor key,
                              Tensor value, const Shape& out);
/// Writes gradients into tensors that are made.
void attend_backward(Worker& w, const CoreAttention& attention, Mask mask, Tensor gradient, const Tensor& query,
                     const Tensor& key, const Tensor& value, const Attended& attended, const Gradients& made);

/// value * tanh(x / value), as three steps.
struct Cap {
  double value = 0;
  LabelId divided, tangent, capped;                              ///< forward
  LabelId capped_gradient, tangent_gradient, uncapped_gradient;  ///< backward
  Category category = Category::Temporaries;                     ///< of all but the tangent
  Category tangent_category = Category::Temporaries;
};
/// Leaves the tangent, which backward needs.
[[nodiscard]] Tensor cap_forward(Worker& w, const Cap& cap, const Tensor& x, Tensor& tangent);
[[nodiscard]] Tensor cap_backward(Worker& w, const Cap& cap, Tensor gradient, Tensor tangent);

/// Positions turn queries or keys: by one kernel, or as x cos + rotated(x) sin, each term a tensor.
struct Rotary {
  Name name;                      ///< "layers.0.attention.rotary"
  bool window = false;            ///< by the angles of layers with a sliding window
  LabelId cos, sin, out;          ///< of what is kept
  LabelId gradient;               ///< of x
  LabelId mark;                   ///< of the backward pass; none: it belongs to what ran before
  const Tensor* table = nullptr;  ///< of angles; none: the one that all layers share
};
[[nodiscard]] Tensor rotary(Worker& w, const Rotary& rotary, Tensor x);

}  // namespace tidemark::parallel::megatron
