#include "parallel/frameworks/torchtitan/latent_attention.hpp"

#include <utility>

#include "parallel/torch/ops/flex_attention.hpp"

namespace tidemark::parallel::torchtitan {
namespace {

// apply_rotary_emb: of [batch, sequence, heads, width], neighbours in the last dimension are complex numbers.
Tensor turned_pairs(Session& s, const Tensor& x, const Tensor& table) {
  const Tensor as_complex = [&] {
    const Tensor wide = to(s, x, DType::FP32);
    Shape pairs = wide.sizes;
    pairs.back() /= 2;
    pairs.push_back(2);
    return reshape(s, wide, std::move(pairs));
  }();
  const Tensor y = reshape(s, complex_mul(s, as_complex, table), x.sizes);
  return to(s, y, x.dtype);
}

}  // namespace

Tensor MultiLatentAttention::normed(Session& s, const Norm& norm, const Tensor& x) const {
  return fused_norms ? rms_norm(s, x, norm.weight->value) : norm(s, x);
}

Tensor MultiLatentAttention::queries(Session& s, const Tensor& x) const {
  if (!query_down.weight) return query(s, x);
  const Tensor q = query_down(s, x);
  return query(s, summed_before(s, tensor, normed(s, query_norm, q)));
}

// Attention.forward, whose variables live until it returns.
Tensor MultiLatentAttention::operator()(Session& s, const Model& model, const Tensor& part, const Tensor& table) const {
  const Session::Scope scope(s, "latent_attention");
  const parallel::MultiLatentAttention& latent = *model.latent();
  const Tensor x = gathered(s, tensor, part);
  const std::int64_t batch = x.sizes[0], sequence = x.sizes[1], plain = latent.qk_nope_head_dim,
                     turns = latent.qk_rope_head_dim;
  // A latent of queries has a whole gradient; that of keys and values has that of its rotary part in parts.
  std::array<Tensor, 2> read{x, x};
  if (query_down.weight) read = read_in_parts_and_whole(s, tensor, x);
  Tensor q = queries(s, read[1]);
  q = view(s, q, {batch, sequence, q.size(-1) / latent.query_head(), latent.query_head()});
  const std::vector<Tensor> of_q = split_last(s, q, {plain, turns});
  const Tensor q_pe = turned_pairs(s, of_q[1], table);
  q = cat_last(s, {of_q[0], q_pe});

  Tensor kv = kv_down(s, read[0]), k_pe;
  {
    const std::vector<Tensor> of_kv = split_last(s, kv, {latent.kv_rank, turns});
    kv = shared_out_before(s, tensor, of_kv[0]);
    k_pe = turned_pairs(s, unsqueeze(s, of_kv[1], 2), table);
  }
  kv = kv_up(s, summed_before(s, tensor, normed(s, kv_norm, kv)));
  const std::int64_t each = plain + latent.value_head, heads = kv.size(-1) / each;
  kv = view(s, kv, {batch, sequence, heads, each});
  const std::vector<Tensor> of_heads = split_last(s, kv, {plain, latent.value_head});
  const auto of_each_head = [&] {
    const Tensor all = expand(s, k_pe, {batch, sequence, heads, turns});
    return tensor.ranks == 1 ? all : clone(s, all, contiguous_strides(all.sizes));  // Shard._replicate_to_shard
  };
  Tensor k = cat_last(s, {of_heads[0], of_each_head()});

  q = transpose(s, q, 1, 2), k = transpose(s, k, 1, 2);
  const Tensor v = transpose(s, of_heads[1], 1, 2);
  Tensor out = flex_attention(s, q, k, v);
  out = contiguous(s, transpose(s, out, 1, 2));
  out = view(s, out, {batch, sequence, heads * latent.value_head});
  return scattered(s, tensor, output(s, out));
}

}  // namespace tidemark::parallel::torchtitan
