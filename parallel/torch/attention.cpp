#include <algorithm>
#include <utility>

#include "parallel/torch/aten.hpp"
#include "parallel/torch/operation.hpp"

// Fused attention as PyTorch 2.15 chooses and calls it: aten/src/ATen/native/transformers/attention.cpp,
// cuda/attention.cu, cuda/attention_backward.cu, cuda/flash_attn/flash_api.cpp,
// cuda/mem_eff_attention/kernel_forward.h, kernel_backward.h.

namespace tidemark::parallel::torch {
namespace {

// Batch, heads, sequence, width: as batch, sequence, heads, width.
Tensor swapped(Tensor t) {
  std::swap(t.sizes[1], t.sizes[2]);
  std::swap(t.strides[1], t.strides[2]);
  return t;
}

// Outputs and gradients of FlashAttention lie in memory as what they are like does (empty_like).
Tensor like(Session& s, const Tensor& t, std::string_view what) {
  return s.empty_strided(t.sizes, elementwise_strides({&t}, t.sizes), t.dtype, what);
}

// Those of the memory-efficient kernel have heads after the sequence.
Tensor with_heads_last(Session& s, const Tensor& t, std::string_view what) {
  return swapped(s.empty(swapped(t).sizes, t.dtype, what));
}

Attention shape_of(const Tensor& q, const Tensor& k) {
  return {Pass::Forward, q.sizes[0], q.sizes[2], q.sizes[1], k.sizes[1], q.sizes[3], q.dtype};
}

std::int64_t parts(std::int64_t whole, std::int64_t part) { return (whole + part - 1) / part; }

// flash_api.cpp num_splits_heuristic: the fewest parts of the keys that keep the device 85 % as busy as the best number
// of parts would; one where sequences and heads do that alone.
std::int64_t key_parts(const Attention& shape, std::int64_t multiprocessors) {
  constexpr std::int64_t query_block = 64, most = 128;
  constexpr double nearly_full = 0.8, good_enough = 0.85;
  const std::int64_t key_block = shape.head_dim <= 64 ? 256 : shape.head_dim <= 128 ? 128 : 64;
  const std::int64_t blocks = shape.batch * shape.heads * parts(shape.sequence, query_block);
  const std::int64_t places = 2 * multiprocessors, key_blocks = parts(shape.sequence, key_block);
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

Tensor flash_attention(Session& s, const Tensor& query, const Tensor& key, const Tensor& value, double probability) {
  const Tensor v = operand(s, value), k = operand(s, key), q = operand(s, query);
  auto node = s.node({&q, &k, &v});
  Saved saved_q, saved_k, saved_v;
  if (node) saved_q = s.save(q), saved_k = s.save(k), saved_v = s.save(v);
  const Attention shape = shape_of(q, k);
  Tensor out = like(s, q, "attention");
  const Tensor lse = s.empty({shape.batch, shape.heads, shape.sequence}, DType::FP32, "attention_lse");
  std::vector<Tensor> made{out, lse};
  const std::int64_t width = round_up(shape.head_dim, std::int64_t{32});
  // The kernel draws a dropout mask from the seed again, and then leaves its keys together.
  const std::int64_t split = probability > 0 ? 1 : key_parts(shape, s.habits().multiprocessors);
  if (s.habits().kernel_workspaces && split > 1) {
    made.push_back(s.empty({split, shape.batch, shape.heads, shape.sequence}, DType::FP32, "attention_lse_parts"));
    made.push_back(s.empty({split, shape.batch, shape.heads, shape.sequence, width}, DType::FP32, "attention_parts"));
  }
  const Tensor seed = s.empty({2}, DType::INT64, "attention_rng_state");
  const Tensor offset = s.empty({1}, DType::INT64, "attention_rng_offset");
  made.push_back(seed), made.push_back(offset);
  s.launch(shape, {q, k, v}, made);
  made.clear();
  if (node)
    node->apply = [&s, saved_offset = s.save(offset), saved_seed = s.save(seed), saved_out = s.save(out),
                   saved_lse = s.save(lse), saved_v, saved_q, saved_k, shape, width](const Gradients& g) {
      const Tensor in_q = s.unpack(saved_q), in_k = s.unpack(saved_k), in_v = s.unpack(saved_v);
      const Tensor result = s.unpack(saved_out), sums = s.unpack(saved_lse), random = s.unpack(saved_seed),
                   place = s.unpack(saved_offset);
      const bool workspaces = s.habits().kernel_workspaces;
      // attention_backward.cu _flash_attention_backward: the kernel wants heads after the sequence.
      Tensor rearranged;
      if (workspaces && !swapped(result).contiguous())
        rearranged = s.empty(result.sizes, result.dtype, "attention_copy");
      const Tensor dq = like(s, in_q, "query_gradient");
      const Tensor dk = like(s, in_k, "key_gradient"), dv = like(s, in_v, "value_gradient");
      std::vector<Tensor> outputs{dq, dk, dv};
      const std::size_t gradients = outputs.size();
      if (workspaces) {
        // flash_api.cpp mha_bwd: sequences in blocks of 128, heads in multiples of 32 elements; fp32.
        const std::int64_t rounded = round_up(shape.sequence, std::int64_t{128});
        outputs.push_back(s.empty({shape.batch, shape.heads, rounded}, DType::FP32, "softmax_d"));
        outputs.push_back(s.empty({shape.batch, rounded, shape.heads, width}, DType::FP32, "query_gradient_sum"));
        if (shape.heads != shape.kv_heads) {  // summed over the heads that share a key once all are there
          outputs.push_back(s.empty(result.sizes, in_k.dtype, "expanded_key_gradient"));
          outputs.push_back(s.empty(result.sizes, in_v.dtype, "expanded_value_gradient"));
        }
      }
      Attention back = shape;
      back.pass = Pass::Backward;
      s.launch(back, {g.front(), in_q, in_k, in_v, result, sums, random, place}, outputs);
      while (outputs.size() > gradients) outputs.pop_back();
      return Gradients{dq, dk, dv};
    };
  return with(std::move(out), std::move(node));
}

namespace {

// The memory-efficient kernel's backward pass: blocks of queries and keys, and whether gradients of keys and values are
// summed in registers.
struct Blocks {
  std::int64_t queries = 64, keys = 64;
  bool in_registers = false;
};

// kernels/cutlassB.h, from compute capability 8.0 on: of kernels for heads so wide, the first whose blocks a
// multiprocessor can hold.
Blocks blocks_of(const Attention& shape, bool large) {
  const bool half = size_of(shape.dtype) == size_of(DType::BF16);
  if (shape.head_dim <= 64) return {64, 64, half};
  if (!large) return half && shape.head_dim <= 96 ? Blocks{128, 64, true} : Blocks{64, 64, false};
  if (shape.head_dim <= 128) return half ? Blocks{128, 128, true} : Blocks{128, 64, false};
  return {128, 64, false};
}

// kernel_backward.h workspace_size: query gradients in blocks, each with a lock and a counter; those of keys and
// values, where they are neither fp32 nor in registers, for each of the parts into which keys are split.
Bytes workspace_of(const Attention& shape, bool large) {
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

// Each row's sum of gradient times output: halves leave it to the kernel, fp32 is multiplied and summed before.
Tensor row_sums(Session& s, const Attention& shape, const Tensor& gradient, const Tensor& out) {
  const Shape rows{shape.batch, shape.heads, shape.sequence};
  if (shape.dtype != DType::FP32) return s.empty(rows, DType::FP32, "delta");
  const Tensor product = s.empty(out.sizes, DType::FP32, "delta_product");
  s.stream(Streaming::Add, {gradient, out}, {product});
  const Tensor sum = s.empty(rows, DType::FP32, "delta_sum");
  s.stream(Streaming::Reduce, {product}, {sum});
  Tensor delta = s.empty(rows, DType::FP32, "delta");
  s.stream(Streaming::Copy, {sum}, {delta});
  return delta;
}

std::vector<Saved> save_all(Session& s, const std::vector<Tensor>& tensors) {
  std::vector<Saved> saved;
  for (const Tensor& t : tensors) saved.push_back(s.save(t));
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
  const Attention shape = shape_of(q, k);
  // attention.cu: with dropout, seed and offset lie in the host's memory; without, they are tensors that nobody reads.
  std::vector<Tensor> random;
  if (probability == 0)
    random = {s.empty({1}, DType::INT64, "attention_rng_state"), s.empty({1}, DType::INT64, "attention_rng_offset")};
  Tensor out = with_heads_last(s, q, "attention");
  constexpr std::int64_t aligned = 32;  // kernel_forward.h kAlignLSE
  std::vector<Tensor> made{out};
  made.insert(made.end(), random.begin(), random.end());
  Tensor lse;  // none where no gradient will be asked for
  if (node) {
    lse = s.empty({shape.batch, shape.heads, round_up(shape.sequence, aligned)}, DType::FP32, "attention_lse");
    made.push_back(lse);
  }
  constexpr std::int64_t widest = 128;  // that is summed in registers
  if (s.habits().kernel_workspaces && shape.dtype != DType::FP32 && shape.head_dim > widest)
    made.push_back(s.empty(out.sizes, DType::FP32, "attention_sum"));
  s.launch(shape, {q, k, v}, made);
  made.clear();
  if (node)
    node->apply = [&s, saved_random = save_all(s, random), saved_out = s.save(out), saved_lse = s.save(lse), saved_v,
                   saved_q, saved_k, saved_bias, shape](const Gradients& g) {
      const Tensor in_bias = saved_bias ? s.unpack(saved_bias) : Tensor{};
      const Tensor in_k = s.unpack(saved_k), in_q = s.unpack(saved_q), in_v = s.unpack(saved_v);
      const Tensor sums = s.unpack(saved_lse), result = s.unpack(saved_out);
      std::vector<Tensor> drawn;
      for (const Saved& saved : saved_random) drawn.push_back(s.unpack(saved));
      const bool workspaces = s.habits().kernel_workspaces;
      Tensor gradient = g.front();
      if (workspaces && !swapped(gradient).contiguous()) gradient = with_heads_last(s, gradient, "gradient_copy");
      const Tensor dq = with_heads_last(s, in_q, "query_gradient"), dk = with_heads_last(s, in_k, "key_gradient"),
                   dv = with_heads_last(s, in_v, "value_gradient");
      std::vector<Tensor> outputs{dq, dk, dv};
      const std::size_t gradients = outputs.size();
      if (workspaces) {
        if (shape.heads != shape.kv_heads) {  // summed over the heads that share a key once all are there
          outputs.push_back(s.empty(result.sizes, in_k.dtype, "expanded_key_gradient"));
          outputs.push_back(s.empty(result.sizes, in_v.dtype, "expanded_value_gradient"));
        }
        outputs.push_back(row_sums(s, shape, gradient, result));
        const Bytes size = workspace_of(shape, s.habits().large_blocks);
        outputs.push_back(s.empty({size / size_of(DType::FP32)}, DType::FP32, "attention_workspace"));
      }
      Attention back = shape;
      back.pass = Pass::Backward;
      s.launch(back, {gradient, in_q, in_k, in_v, result, sums}, outputs);
      while (outputs.size() > gradients) outputs.pop_back();
      return Gradients{dq, dk, dv};
    };
  return with(std::move(out), std::move(node));
}

namespace {

// attention.cpp convert_boolean_attn_mask and preprocess_mask: what is added to the scores, with rows of whole 16 bytes
// of halves, for all heads at once.
Tensor bias_of(Session& s, const Tensor& mask, DType dtype) {
  constexpr std::int64_t aligned = 8;
  const NoGrad no_grad(s);
  Tensor bias;
  {
    const Tensor low = s.empty({}, dtype, "attention_bias_low"), zero = s.empty({}, dtype, "attention_bias_zero");
    bias = s.empty(mask.sizes, dtype, "attention_bias");
    s.stream(Streaming::Activation, {mask, low, zero}, {bias});
  }
  const std::int64_t width = bias.size(-1);
  if (width % aligned == 0) return bias;
  Shape padded = bias.sizes;
  padded.back() = round_up(width, aligned);
  Tensor wide = s.empty(padded, dtype, "attention_bias_padded");
  s.stream(Streaming::Copy, {bias}, {wide});
  wide.sizes = bias.sizes;
  return wide;
}

}  // namespace

Tensor scaled_dot_product_attention(Session& s, const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& mask, double dropout) {
  // sdp_utils.cpp: FlashAttention takes neither masks nor fp32.
  const DType dtype = s.autocast.value_or(query.dtype);
  if (!mask.defined() && dtype != DType::FP32) return flash_attention(s, query, key, value, dropout);
  const Tensor v = operand(s, value), k = operand(s, key), q = operand(s, query);
  const Tensor bias = mask.defined() ? bias_of(s, mask, dtype) : Tensor{};
  return efficient_attention(s, q, k, v, bias, dropout);
}

}  // namespace tidemark::parallel::torch
