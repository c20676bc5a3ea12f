#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "parallel/torch/operation.hpp"
#include "parallel/torch/ops/aten.hpp"

// Attention as PyTorch chooses and calls it: aten/src/ATen/native/transformers/attention.cpp, cuda/attention.cu,
// cuda/attention_backward.cu, cuda/flash_attn/flash_api.cpp, cuda/mem_eff_attention/kernel_forward.h,
// kernel_backward.h, ../cudnn/MHA.cpp.

namespace tidemark::parallel::torch {
namespace {

// Batch, heads, sequence, width: as batch, sequence, heads, width.
// Outputs and gradients of FlashAttention lie in memory as what they are like does (empty_like).
Tensor like(Session& s, const Tensor& t, std::string_view what) {
  return s.empty_strided(t.sizes, elementwise_strides({&t}, t.sizes), t.dtype, what);
}

// Those of the memory-efficient kernel have heads after the sequence.
Tensor with_heads_last(Session& s, const Tensor& t, std::string_view what) {
  Shape strides = contiguous_strides(by_sequence(t).sizes);
  std::swap(strides[1], strides[2]);
  return s.empty_strided(t.sizes, strides, t.dtype, what);
}

// What a kernel with those heads after the sequence copies first.
Tensor copied_with_heads_last(Session& s, const Tensor& t, std::string_view what) {
  Tensor copy = with_heads_last(s, t, what);
  s.launch(Operation::Copy, {t}, {copy});
  return copy;
}

struct AttentionShape {
  std::int64_t batch, sequence, heads, kv_heads, head_dim, keys;
  DType dtype;
};

AttentionShape shape_of(const Tensor& q, const Tensor& k) {
  return {q.sizes[0], q.sizes[2], q.sizes[1], k.sizes[1], q.sizes[3], k.sizes[2], q.dtype};
}

// What a query sees, as the operation has it: all keys, those up to its own, or so many of them.
constexpr std::int64_t all_keys = FlashWindow::all, own_and_before = FlashWindow::causal;

Attributes attributes_of(const AttentionShape& shape, std::int64_t causal, double dropout) {
  return {1 / std::sqrt(static_cast<double>(shape.head_dim)), static_cast<double>(causal), dropout};
}
Attributes attributes_of(AttentionShape shape, FlashWindow seen, double dropout) {
  if (seen.head_dim > 0) shape.head_dim = seen.head_dim;
  return attributes_of(shape, seen.keys, dropout);
}

std::int64_t parts(std::int64_t whole, std::int64_t part) { return (whole + part - 1) / part; }

// flash_api.cpp num_splits_heuristic: the fewest parts of the keys that keep the device 85 % as busy as the best number
// of parts would; one where sequences and heads do that alone.
std::int64_t key_parts(const AttentionShape& shape, std::int64_t multiprocessors) {
  constexpr std::int64_t query_block = 64, most = 128;
  constexpr double nearly_full = 0.8, good_enough = 0.85;
  const std::int64_t key_block = shape.head_dim <= 64 ? 256 : shape.head_dim <= 128 ? 128 : 64;
  const std::int64_t blocks = shape.batch * shape.heads * parts(shape.sequence, query_block);
  const std::int64_t places = 2 * multiprocessors, key_blocks = parts(shape.keys, key_block);
  if (static_cast<double>(blocks) >= nearly_full * static_cast<double>(places)) return 1;
  const auto differs = [&](std::int64_t n) { return n == 1 || parts(key_blocks, n) != parts(key_blocks, n - 1); };
  const auto efficiency = [&](std::int64_t n) {
    return static_cast<double>(blocks * n) / static_cast<double>(places * parts(blocks * n, places));
  };
  const std::int64_t end = std::min({most, places, key_blocks});
  double best = 0;
  for (std::int64_t n = 1; n <= end; ++n)
    if (differs(n)) best = std::max(best, efficiency(n));
  for (std::int64_t n = 1; n <= end; ++n)
    if (differs(n) && efficiency(n) >= good_enough * best) return n;
  return 1;
}

}  // namespace

std::array<Tensor, 4> flash_kernel(Session& s, const Tensor& q, const Tensor& k, const Tensor& v, FlashWindow seen,
                                   double dropout) {
  const AttentionShape shape = shape_of(q, k);
  const Tensor out = like(s, q, "attention");
  const Tensor lse = s.empty({shape.batch, shape.heads, shape.sequence}, DType::FP32, "attention_lse");
  std::vector<Tensor> partial;
  // The kernel draws a dropout mask from the seed again, and then leaves its keys together.
  const std::int64_t split = dropout > 0 ? 1 : key_parts(shape, s.behavior().multiprocessors);
  if (s.behavior().kernel_workspaces && split > 1) {
    const Shape rows{split, shape.batch, shape.heads, shape.sequence};
    const std::int64_t width = round_up(shape.head_dim, std::int64_t{32});
    partial.push_back(s.empty(rows, DType::FP32, "attention_lse_parts"));
    partial.push_back(s.empty({rows[0], rows[1], rows[2], rows[3], width}, DType::FP32, "attention_parts"));
  }
  const Tensor seed = s.empty({2}, DType::INT64, "attention_rng_state");
  const Tensor offset = s.empty({1}, DType::INT64, "attention_rng_offset");
  s.launch({Operation::Attention, attributes_of(shape, seen, dropout)},
           {by_sequence(q), by_sequence(k), by_sequence(v), Tensor{}}, {by_sequence(out), lse, seed, offset}, partial);
  return {out, lse, seed, offset};
}

Gradients flash_backward_kernel(Session& s, const Tensor& gradient, const Tensor& q, const Tensor& k, const Tensor& v,
                                const std::array<Tensor, 4>& made, FlashWindow seen, double dropout) {
  const AttentionShape shape = shape_of(q, k);
  const auto& [result, sums, seed, offset] = made;
  const bool workspaces = s.behavior().kernel_workspaces;
  // attention_backward.cu _flash_attention_backward: the kernel wants heads after the sequence. To a compiler that
  // looks on, what happens within the kernel's function is no operation.
  const auto rearranged = [&](const Tensor& x, std::string_view what) {
    if (!workspaces || by_sequence(x).contiguous()) return Tensor{};
    return s.tracer == nullptr ? copied_with_heads_last(s, x, what) : with_heads_last(s, x, what);
  };
  const Tensor given_copy = rearranged(gradient, "gradient_copy"), copy = rearranged(result, "attention_copy");
  const auto read = [&](const Tensor& x, const Tensor& its_copy) -> const Tensor& {
    return its_copy.defined() && s.tracer == nullptr ? its_copy : x;
  };
  const Tensor dq = like(s, q, "query_gradient");
  const Tensor dk = like(s, k, "key_gradient"), dv = like(s, v, "value_gradient");
  std::vector<Tensor> scratch;
  for (const Tensor& its : {given_copy, copy})
    if (its.defined() && s.tracer != nullptr) scratch.push_back(its);
  if (workspaces) {
    // flash_api.cpp mha_bwd: sequences in blocks of 128, heads in multiples of 32 elements; fp32.
    const std::int64_t rounded = round_up(shape.sequence, std::int64_t{128});
    const std::int64_t width = round_up(shape.head_dim, std::int64_t{32});
    scratch.push_back(s.empty({shape.batch, shape.heads, rounded}, DType::FP32, "softmax_d"));
    scratch.push_back(s.empty({shape.batch, rounded, shape.heads, width}, DType::FP32, "query_gradient_sum"));
    if (shape.heads != shape.kv_heads) {  // summed over the heads that share a key once all are there
      const Shape of_each{shape.batch, shape.heads, shape.keys, shape.head_dim};
      scratch.push_back(s.empty(of_each, k.dtype, "expanded_key_gradient"));
      scratch.push_back(s.empty(of_each, v.dtype, "expanded_value_gradient"));
    }
  }
  s.launch({Operation::AttentionBackward, attributes_of(shape, seen, dropout)},
           {by_sequence(read(gradient, given_copy)), by_sequence(q), by_sequence(k), by_sequence(v),
            by_sequence(read(result, copy)), sums, seed, offset, Tensor{}},
           {by_sequence(dq), by_sequence(dk), by_sequence(dv)}, scratch);
  while (!scratch.empty()) scratch.pop_back();
  return {dq, dk, dv};
}

namespace {

struct States {
  Tensor q, k, v, bias;
};

// Both kernels of an attention that makes what flash_kernel does, within the graph.
template <typename Forward, typename Backward>
Tensor fused_attention(Session& s, const States& states, Forward forward, Backward backward) {
  const auto& [q, k, v, bias] = states;
  auto node = s.node({&q, &k, &v});
  Saved saved_q, saved_k, saved_v, saved_bias;
  if (node && bias.defined()) saved_bias = s.save(bias);
  if (node) saved_q = s.save(q), saved_k = s.save(k), saved_v = s.save(v);
  std::array<Tensor, 4> made;
  if (!s.recalled(Dispatched::FusedAttention, made)) {
    made = forward(states);
    s.made(Dispatched::FusedAttention, made);
  }
  auto& [out, lse, seed, offset] = made;
  if (node)
    node->apply = [&s, saved_offset = s.save(offset), saved_seed = s.save(seed), saved_out = s.save(out),
                   saved_lse = s.save(lse), saved_v, saved_q, saved_k, saved_bias, backward](const Gradients& g) {
      const States in{s.unpack(saved_q), s.unpack(saved_k), s.unpack(saved_v),
                      saved_bias ? s.unpack(saved_bias) : Tensor{}};
      const Tensor result = s.unpack(saved_out), sums = s.unpack(saved_lse), random = s.unpack(saved_seed),
                   place = s.unpack(saved_offset);
      return backward(g.front(), in, {result, sums, random, place});
    };
  return with(std::move(out), std::move(node));
}

}  // namespace

namespace {

Tensor flash_in_graph(Session& s, const Tensor& q, const Tensor& k, const Tensor& v, double probability,
                      FlashWindow seen) {
  return fused_attention(
      s, {q, k, v, {}}, [&](const States& in) { return flash_kernel(s, in.q, in.k, in.v, seen, probability); },
      [&s, seen, probability](const Tensor& gradient, const States& in, const std::array<Tensor, 4>& made) {
        return flash_backward_kernel(s, gradient, in.q, in.k, in.v, made, seen, probability);
      });
}

// Both libraries load 16 bytes at once: so many halves.
constexpr std::int64_t aligned_halves = 8, aligned_floats = 4;

// attention.cpp pad_last_dim: at::pad, whose backward pass pads by less than nothing (PadNd.cpp constant_pad_nd).
Tensor padded_heads(Session& s, const Tensor& x, std::int64_t width) {
  auto node = s.node({&x});
  if (node)
    node->apply = [&s, own = x.size(-1)](const Gradients& g) {
      const Tensor part = narrowed(g.front(), -1, 0, own);
      return Gradients{clone(s, part, elementwise_strides({&part}, part.sizes))};
    };
  Tensor made = s.empty(with_size(x.sizes, -1, width), x.dtype, "padded_heads");
  s.launch({Operation::Fill, {0}}, {}, {made});
  s.launch(Operation::Copy, {x}, {narrowed(made, -1, 0, x.size(-1))});
  return with(std::move(made), std::move(node));
}

}  // namespace

Tensor flash_attention(Session& s, const Tensor& query, const Tensor& key, const Tensor& value, double probability,
                       std::int64_t window) {
  const Tensor v = operand(s, value), k = operand(s, key), q = operand(s, query);
  return flash_in_graph(s, q, k, v, probability, FlashWindow{std::max(window, own_and_before)});
}

namespace {

// attention.cpp: FlashAttention is handed copies with wider heads, and what it gives is cut.
Tensor flash_attention_of_padded(Session& s, const Tensor& q, const Tensor& k, const Tensor& v, double probability) {
  const std::int64_t own = q.size(-1), width = round_up(own, aligned_halves);
  const Tensor query = padded_heads(s, q, width), key = padded_heads(s, k, width), value = padded_heads(s, v, width);
  return slice(s, flash_in_graph(s, query, key, value, probability, FlashWindow{own_and_before, own}), -1, 0, own);
}

// cuDNN works in memory that PyTorch allocates for each call: what the plan itself asks for, on an H100 with cuDNN 9.19
// (tests/golden/gpu_recordings), and what cudnn-frontend's node/scaled_dot_product_flash_attention.h adds backward:
// each row's sum of gradient times output, and gradients of queries in fp32. Where heads share keys, the plan also has
// gradients of keys and values for each head.
constexpr std::int64_t cudnn_plan = 256;

std::int64_t cudnn_workspace(const AttentionShape& shape) {
  const std::int64_t rows = shape.batch * shape.heads * shape.sequence;
  std::int64_t bytes = cudnn_plan + rows * (1 + shape.head_dim) * size_of(DType::FP32).count();
  if (shape.heads != shape.kv_heads)
    bytes += 2 * shape.batch * shape.heads * shape.keys * shape.head_dim * size_of(shape.dtype).count();
  return bytes;
}

Tensor cudnn_attention(Session& s, const States& states, double dropout) {
  const AttentionShape shape = shape_of(states.q, states.k);
  const Attributes attributes = attributes_of(shape, states.bias.defined() ? all_keys : own_and_before, dropout);
  const auto works_in = [&s](std::int64_t bytes) {
    return s.behavior().kernel_workspaces ? s.empty({bytes}, DType::BOOL, "attention_workspace") : Tensor{};
  };
  return fused_attention(
      s, states,
      [&](const States& in) -> std::array<Tensor, 4> {
        const Tensor seed = s.empty({1}, DType::INT64, "attention_rng_state");
        const Tensor offset = s.empty({1}, DType::INT64, "attention_rng_offset");
        const Tensor out = like(s, in.q, "attention");
        const Tensor lse = s.empty({shape.batch, shape.heads, shape.sequence}, DType::FP32, "attention_lse");
        s.launch({Operation::Attention, attributes}, {by_sequence(in.q), by_sequence(in.k), by_sequence(in.v), in.bias},
                 {by_sequence(out), lse, seed, offset}, works_in(cudnn_plan));
        return {out, lse, seed, offset};
      },
      [&s, shape, attributes, works_in](const Tensor& gradient, const States& in, const std::array<Tensor, 4>& made) {
        const auto& [result, sums, seed, offset] = made;
        const Tensor dq = like(s, in.q, "query_gradient");
        const Tensor dk = like(s, in.k, "key_gradient"), dv = like(s, in.v, "value_gradient");
        s.launch({Operation::AttentionBackward, attributes},
                 {by_sequence(gradient), by_sequence(in.q), by_sequence(in.k), by_sequence(in.v), by_sequence(result),
                  sums, seed, offset, in.bias},
                 {by_sequence(dq), by_sequence(dk), by_sequence(dv)}, works_in(cudnn_workspace(shape)));
        return Gradients{dq, dk, dv};
      });
}

// The memory-efficient kernel's backward pass: blocks of queries and keys, and whether gradients of keys and values are
// summed in registers.
struct Blocks {
  std::int64_t queries = 64, keys = 64;
  bool in_registers = false;
};

// kernels/cutlassB.h, from compute capability 8.0 on: of kernels for heads so wide, the first whose blocks a
// multiprocessor can hold.
Blocks blocks_of(const AttentionShape& shape, bool large) {
  const bool half = size_of(shape.dtype) == size_of(DType::BF16);
  if (shape.head_dim <= 64) return {64, 64, half};
  if (!large) return half && shape.head_dim <= 96 ? Blocks{128, 64, true} : Blocks{64, 64, false};
  if (shape.head_dim <= 128) return half ? Blocks{128, 128, true} : Blocks{128, 64, false};
  return {128, 64, false};
}

// kernel_backward.h workspace_size: query gradients in blocks, each with a lock and a counter; those of keys and
// values, where they are neither fp32 nor in registers, for each of the parts into which keys are split.
Bytes workspace_of(const AttentionShape& shape, bool large) {
  constexpr std::int64_t header = 4, most_split = 200;  // floats; heads at once
  const Blocks blocks = blocks_of(shape, large);
  const std::int64_t tiles = parts(shape.sequence, blocks.queries) * parts(shape.head_dim, blocks.keys);
  std::int64_t floats = tiles * (header + blocks.queries * blocks.keys);
  if (!blocks.in_registers && shape.dtype != DType::FP32) {
    const std::int64_t heads = shape.batch * shape.heads;
    std::int64_t split = parts(shape.sequence, blocks.keys);
    if (heads >= 256 && shape.sequence <= 2 * blocks.keys) split = 1;
    split = std::max<std::int64_t>(std::min(split, most_split / heads), 1);
    floats += 2 * split * blocks.keys * round_up(shape.head_dim, blocks.queries);
  }
  return Bytes{shape.batch * shape.heads * round_up(floats, std::int64_t{4})} * size_of(DType::FP32).count();
}

// Each row's sum of gradient times output: halves leave it to the kernel, fp32 is multiplied and summed before. The
// operation computes it itself in either case.
Tensor row_sums(Session& s, const AttentionShape& shape, const Tensor& gradient, const Tensor& out) {
  const Shape rows{shape.batch, shape.heads, shape.sequence};
  if (shape.dtype != DType::FP32) return s.empty(rows, DType::FP32, "delta");
  const Tensor product = s.empty(by_sequence(out).sizes, DType::FP32, "delta_product");
  s.launch(Operation::Multiply, {by_sequence(gradient), by_sequence(out)}, {product});
  const Tensor sum = s.empty(with_size(product.sizes, -1, 1), DType::FP32, "delta_sum");
  s.launch(Operation::Sum, {product}, {sum});
  Tensor delta = s.empty(rows, DType::FP32, "delta");
  s.launch(Operation::Copy, {sized(by_sequence(sum), rows)}, {delta});
  return delta;
}

std::vector<Saved> save_all(Session& s, const std::vector<Tensor>& tensors) {
  std::vector<Saved> saved;
  for (const Tensor& t : tensors)
    if (t.defined()) saved.push_back(s.save(t));
  return saved;
}

}  // namespace

Tensor efficient_attention(Session& s, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias,
                           double probability) {
  const Tensor v = operand(s, value), k = operand(s, key), q = operand(s, query);
  auto node = s.node({&q, &k, &v});
  Saved saved_bias, saved_q, saved_k, saved_v;
  if (node && bias.defined()) saved_bias = s.save(bias);
  if (node) saved_k = s.save(k), saved_q = s.save(q), saved_v = s.save(v);
  const AttentionShape shape = shape_of(q, k);
  const Attributes attributes = attributes_of(shape, bias.defined() ? all_keys : own_and_before, probability);
  // attention.cu: with dropout, seed and offset lie in the host's memory; without, they are tensors that nobody reads.
  std::vector<Tensor> random(2);
  if (probability == 0 && s.behavior().efficient_random_state)
    random = {s.empty({1}, DType::INT64, "attention_rng_state"), s.empty({1}, DType::INT64, "attention_rng_offset")};
  Tensor out = with_heads_last(s, q, "attention");
  constexpr std::int64_t aligned = 32;  // kernel_forward.h kAlignLSE
  Tensor lse, rows;                     // none where no gradient will be asked for
  if (node) {
    lse = s.empty({shape.batch, shape.heads, round_up(shape.sequence, aligned)}, DType::FP32, "attention_lse");
    rows = narrowed(lse, -1, 0, shape.sequence);
  }
  constexpr std::int64_t widest = 128;  // that is summed in registers
  Tensor sum;
  if (s.behavior().kernel_workspaces && shape.dtype != DType::FP32 && shape.head_dim > widest)
    sum = s.empty(out.sizes, DType::FP32, "attention_sum");
  s.launch({Operation::Attention, attributes}, {by_sequence(q), by_sequence(k), by_sequence(v), bias},
           {by_sequence(out), rows, random[0], random[1]}, sum);
  sum = {}, rows = {};
  if (node)
    node->apply = [&s, saved_random = save_all(s, random), saved_out = s.save(out), saved_lse = s.save(lse), saved_v,
                   saved_q, saved_k, saved_bias, shape, attributes](const Gradients& g) {
      const Tensor in_bias = saved_bias ? s.unpack(saved_bias) : Tensor{};
      const Tensor in_k = s.unpack(saved_k), in_q = s.unpack(saved_q), in_v = s.unpack(saved_v);
      const Tensor sums = s.unpack(saved_lse), result = s.unpack(saved_out);
      std::vector<Tensor> drawn;
      for (const Saved& saved : saved_random) drawn.push_back(s.unpack(saved));
      const bool workspaces = s.behavior().kernel_workspaces;
      Tensor gradient = g.front();
      if (workspaces && !by_sequence(gradient).contiguous())
        gradient = copied_with_heads_last(s, gradient, "gradient_copy");
      const Tensor dq = with_heads_last(s, in_q, "query_gradient"), dk = with_heads_last(s, in_k, "key_gradient"),
                   dv = with_heads_last(s, in_v, "value_gradient");
      std::vector<Tensor> scratch;
      if (workspaces) {
        if (shape.heads != shape.kv_heads) {  // summed over the heads that share a key once all are there
          scratch.push_back(s.empty(result.sizes, in_k.dtype, "expanded_key_gradient"));
          scratch.push_back(s.empty(result.sizes, in_v.dtype, "expanded_value_gradient"));
        }
        scratch.push_back(row_sums(s, shape, gradient, result));
        const Bytes size = workspace_of(shape, s.behavior().large_blocks);
        scratch.push_back(s.empty({size / size_of(DType::FP32)}, DType::FP32, "attention_workspace"));
      }
      s.launch({Operation::AttentionBackward, attributes},
               {by_sequence(gradient), by_sequence(in_q), by_sequence(in_k), by_sequence(in_v), by_sequence(result),
                narrowed(sums, -1, 0, shape.sequence), Tensor{}, Tensor{}, in_bias},
               {by_sequence(dq), by_sequence(dk), by_sequence(dv)}, scratch);
      while (!scratch.empty()) scratch.pop_back();
      return Gradients{dq, dk, dv};
    };
  return with(std::move(out), std::move(node));
}

namespace {

// attention.cpp convert_boolean_attn_mask: what is added to the scores, for all heads at once.
Tensor bias_of(Session& s, const Tensor& mask, DType dtype) {
  const NoGrad no_grad(s);
  Tensor bias;
  {
    const auto number = [&](double value, std::string_view what) {
      Tensor made = s.empty({}, dtype, what);
      s.launch({Operation::Fill, {value}}, {}, {made});
      return made;
    };
    const Tensor low = number(-std::numeric_limits<double>::infinity(), "attention_bias_low");
    const Tensor zero = number(0, "attention_bias_zero");
    bias = s.empty(mask.sizes, dtype, "attention_bias");
    s.launch(Operation::Where, {mask, zero, low}, {bias});
  }
  return bias;
}

// preprocess_mask: rows of whole 16 bytes of halves.
Tensor aligned_bias(Session& s, const Tensor& mask, DType dtype) {
  constexpr std::int64_t aligned = 8;
  Tensor bias = bias_of(s, mask, dtype);
  const NoGrad no_grad(s);
  const std::int64_t width = bias.size(-1);
  if (width % aligned == 0) return bias;
  Shape padded = bias.sizes;
  padded.back() = round_up(width, aligned);
  Tensor wide = s.empty(padded, dtype, "attention_bias_padded");
  wide.sizes = bias.sizes;
  s.launch(Operation::Copy, {bias}, {wide});
  return wide;
}

// at::ones(...).tril(), of booleans, as a bias.
Tensor causal_bias(Session& s, const Tensor& query, std::int64_t keys) {
  const NoGrad no_grad(s);
  const auto table = [&](std::string_view what) { return s.empty({query.size(-2), keys}, DType::BOOL, what); };
  Tensor seen;
  {
    const Tensor ones = table("attention_ones");
    s.launch({Operation::Fill, {1}}, {}, {ones});
    seen = table("attention_seen");
    s.launch({Operation::CausalMask, {0}}, {ones}, {seen});
  }
  return bias_of(s, seen, query.dtype);
}

// attention.cpp _scaled_dot_product_attention_math (SDPBackend.MATH): products, and all scores.
Tensor math_attention(Session& s, const States& states, double probability) {
  const double scale = std::sqrt(1 / std::sqrt(static_cast<double>(states.q.size(-1))));
  const Tensor query = mul_number(s, states.q, scale);
  const Tensor bias = states.bias.defined() ? states.bias : causal_bias(s, states.q, states.k.size(-2));
  const auto for_all_heads = [&](const Tensor& x) {  // repeat_interleave, which copies in any case
    const Shape& z = x.sizes;
    const std::int64_t times = query.size(1) / z[1];
    if (times == 1) return x;
    const Tensor wide = expand(s, unsqueeze(s, x, 2), {z[0], z[1], times, z[2], z[3]});
    return view(s, clone(s, wide, contiguous_strides(wide.sizes)), {z[0], z[1] * times, z[2], z[3]});
  };
  const Tensor keys = for_all_heads(states.k), values = for_all_heads(states.v);
  Tensor weights = matmul(s, query, mul_number(s, transpose(s, keys, 2, 3), scale));
  weights = add_in_place(s, weights, bias);
  weights = safe_softmax_last(s, weights);
  return matmul(s, dropout(s, weights, probability), values);
}

}  // namespace

Tensor scaled_dot_product_attention(Session& s, const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& mask, double dropout) {
  // sdp_utils.cpp select_sdp_backend.
  const DType dtype = s.autocast.value_or(query.dtype);
  const bool half = dtype != DType::FP32;
  const TorchBehavior& behavior = s.behavior();
  const std::int64_t width = query.size(-1);
  const bool whole = width % aligned_halves == 0;
  const bool cudnn =
      half && behavior.cudnn_attention && !behavior.deterministic && whole && width <= behavior.widest_cudnn_head;
  if (half && !cudnn && !mask.defined() && whole) return flash_attention(s, query, key, value, dropout);
  const Tensor v = operand(s, value), k = operand(s, key), q = operand(s, query);
  if (cudnn) return cudnn_attention(s, {q, k, v, mask.defined() ? bias_of(s, mask, dtype) : Tensor{}}, dropout);
  if (half && !mask.defined()) return flash_attention_of_padded(s, q, k, v, dropout);
  const bool shared = q.size(1) != k.size(1);
  // check_head_dim_size_mem_efficient.
  const bool aligned = width % (half ? aligned_halves : aligned_floats) == 0;
  if (!behavior.efficient_attention || !aligned || (shared && !behavior.efficient_shares_keys))
    return math_attention(s, {q, k, v, mask.defined() ? bias_of(s, mask, dtype) : Tensor{}}, dropout);
  const Tensor bias = mask.defined() ? aligned_bias(s, mask, dtype) : Tensor{};
  return efficient_attention(s, q, k, v, bias, dropout);
}

}  // namespace tidemark::parallel::torch
