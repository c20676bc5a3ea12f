#include "parallel/frameworks/megatron/attention/multi_latent_attention.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "parallel/frameworks/megatron/module_offload.hpp"
#include "parallel/frameworks/megatron/recompute.hpp"

namespace tidemark::parallel::megatron {

using torch::with;

// The spec of core/models/gpt/gpt_layer_specs.py: a norm by itself before attention, down projections whole on every
// rank, and the norms of latents within the projections up.
MlaSelfAttention::MlaSelfAttention(Worker& w, Parameters& parameters, std::int32_t layer)
    : w_(w), latent_(std::get<MultiLatentAttention>(w.model.layer(layer).mixer)), layer_(layer) {
  const Model& m = w.model;
  const std::string at = fmt::format("layers.{}.attention", layer);
  const auto down = [&](const char* name, std::int64_t rank) {
    return make_linear(w, parameters, at + name, rank, m.hidden, WeightCut::None, GemmBias::None);
  };
  const auto up = [&](const char* name, std::int64_t width, std::int64_t rank) {
    return make_linear(w, parameters, at + name, m.heads * width, rank, WeightCut::Rows, GemmBias::None);
  };
  name_ = w.name(at);
  norm_ = make_norm(w, parameters, at + ".norm");
  proj_ = make_linear(w, parameters, at + ".proj", m.hidden, m.heads * latent_.value_head, WeightCut::Columns,
                      GemmBias::None);
  if (m.output_bias) output_bias_ = make_output_bias(w, parameters, at + ".proj");
  if (latent_.query_rank > 0) {
    q_down_ = down(".q_down", latent_.query_rank);
    if (latent_.normalized) q_norm_ = make_norm(w, parameters, at + ".q_norm", latent_.query_rank);
    q_up_ = up(".q_up", latent_.query_head(), latent_.query_rank);
  } else {
    q_up_ = up(".q", latent_.query_head(), m.hidden);
  }
  kv_down_ = down(".kv_down", latent_.kv_rank + latent_.qk_rope_head_dim);
  if (latent_.normalized) kv_norm_ = make_norm(w, parameters, at + ".kv_norm", latent_.kv_rank);
  kv_up_ = up(".kv_up", latent_.qk_nope_head_dim + latent_.value_head, latent_.kv_rank);
  positions_ = w.name(at + ".rotary");
  core_ = {w.name(at + ".core"), name_};
  const auto turned = [&](const char* cos, const char* sin, const char* out, const char* gradient) {
    return Rotary{.name = positions_,
                  .cos = name_(cos),
                  .sin = name_(sin),
                  .out = positions_(out),
                  .gradient = positions_(gradient),
                  .mark = positions_(),
                  .table = &angles_};
  };
  query_rotary_ = turned("query_cos", "query_sin", "q_turned", "query_gradient");
  key_rotary_ = turned("key_cos", "key_sin", "k_turned", "key_gradient");
}

Shape MlaSelfAttention::by_head(std::int64_t heads, std::int64_t width) const {
  return {w_.sizes.sequence, w_.sizes.micro_batch, heads, width};
}

// ---- tables of positions -------------------------------------------------------------------------------------------

// Angles that functools.lru_cache holds for all layers of a rank together: the last 32 that were asked for. Each layer
// asks for those of the original sequence length when it is made, and later, if they are others, for its own. Where the
// first are forgotten, all ask again.
bool MlaSelfAttention::remembered(Requested requested, bool others) const {
  constexpr std::int64_t remembered = 32;
  std::int64_t layers = 0, before = 0;
  for (const Stage& chunk : w_.chunks) {
    const std::int32_t its = chunk.layers() + (chunk.head ? static_cast<std::int32_t>(w_.model.further.size()) : 0);
    before += std::clamp(layer_ - chunk.first, std::int32_t{0}, its);
    layers += chunk.layers();
    if (chunk.head) layers += w_.model.further.size();
  }
  const bool forgets = w_.runtime.core.forgets_first_angles;
  if (forgets && requested == Requested::AtFirst) return false;
  const bool twice = others && !forgets;
  const std::int64_t entries = twice ? 2 * layers : layers;
  const std::int64_t place = requested == Requested::Later && twice ? layers + before : before;
  return place >= entries - remembered;
}

// core/models/common/embeddings/yarn_rotary_pos_embedding.py YarnRotaryEmbedding: every layer has one. What its
// constructor fills for the original length in fp32 is replaced when the first tokens come, or narrowed with the model.
void MlaSelfAttention::make_tables() {
  constexpr std::int64_t original = 4096;  // MLATransformerConfig original_max_position_embeddings
  const std::int64_t sequence = w_.train.sequence_length, width = latent_.qk_rope_head_dim, ranks = w_.layout.context;
  const bool fused = w_.built.options.rotary == RotaryKernel::Fused;
  const auto kept = [&](std::string_view use, Shape shape, DType dtype) {
    Tensor made = w_.make(positions_(use), std::move(shape), dtype, Category::Workspaces);
    w_.process.keep(made.buffer());
    kept_.push_back(made);
    return made;
  };
  const auto angles_for = [&](std::int64_t positions, bool remembers) {
    const Tensor half = w_.temporary(positions_("angles"), {positions, width / 2}, DType::FP32);
    w_.launch({Operation::RotaryTable, {torch::usual_rotary_base}}, {}, {half});
    const auto table = [&](std::string_view use, std::int64_t rows, bool keeps) {
      const Shape shape{rows, width};
      return keeps ? kept(use, shape, DType::FP32) : w_.temporary(positions_(use), shape, DType::FP32);
    };
    Tensor whole = table(ranks == 1 ? "table" : "whole_table", positions, remembers && ranks == 1);
    w_.launch(Operation::Copy, {half, half},
              {narrowed(whole, -1, 0, width / 2), narrowed(whole, -1, width / 2, width / 2)});
    if (ranks == 1) return whole;
    Tensor own = table("table", positions / ranks, remembers);
    w_.own_tokens(positions_, std::move(whole), own, 0);
    return own;
  };
  for (const std::string_view frequencies : {"frequencies", "extrapolated", "interpolated"})
    w_.launch({Operation::RotaryTable, {torch::usual_rotary_base}}, {}, {kept(frequencies, {width / 2}, DType::FP32)});
  // In fp32 the constructor's cosines and sines do, as far as they go. A fused kernel asks for angles of the same
  // length in the same words, which the others do not.
  const bool first_do = w_.train.precision == DType::FP32 && sequence <= original;
  const std::int64_t length = !fused || first_do ? original : sequence;
  const bool others = !fused || length != original;
  if (others) (void)angles_for(original, remembered(Requested::AtFirst, others));
  const Requested last = first_do && !others ? Requested::AtFirst : Requested::Later;
  angles_ = angles_for(fused ? length : sequence, remembered(last, others));
  const auto function = [&](std::string_view use, Operation of) {
    const Tensor narrow = kept(use, {length / ranks, 1, 1, width}, w_.train.precision);
    const Shape all{length / ranks, width};
    Tensor wide = w_.temporary(positions_("angle_function"), all, DType::FP32);
    w_.launch(of, {fused ? angles_ : angles_for(length, false)}, {wide});
    Tensor scaled = w_.temporary(positions_("scaled_function"), all, DType::FP32);
    w_.launch({Operation::Scale, {1}}, {std::move(wide)}, {scaled});
    w_.launch(Operation::Copy, {sized(std::move(scaled), narrow.sizes)}, {narrow});
    return narrowed(narrow, 0, 0, std::min(sequence, length) / ranks);
  };
  cosines_ = function("cosines", Operation::Cosine);
  sines_ = function("sines", Operation::Sine);
  if (fused) angles_ = {};
}

// ---- from the residual stream to latents ---------------------------------------------------------------------------

// What is projected down together, apart.
MlaSelfAttention::Down MlaSelfAttention::down(const Tensor& hidden) {
  const Tensor combined = linear(w_, kv_down_, hidden);
  const std::int64_t rank = latent_.kv_rank, turned = latent_.qk_rope_head_dim;
  w_.mark(Phase::Forward, kv_down_.name);
  const auto node = w_.node(kv_down_.name("split"), {&combined});
  if (node) {
    node->outputs = 2;
    node->apply = [this, shape = combined.sizes, rank, turned](Gradients& gradients) {
      Tensor whole = w_.temporary(kv_down_.name("gradient"), shape);
      const Tensor end = narrowed(whole, -1, rank, turned);
      w_.launch(Operation::Copy, {std::move(gradients[0]), sized(std::move(gradients[1]), end.sizes)},
                {narrowed(whole, -1, 0, rank), end});
      return Gradients{std::move(whole)};
    };
  }
  Tensor positions = with(narrowed(combined, -1, rank, turned), node, 1);
  if (w_.sequence_parallel()) positions = gathered(std::move(positions));
  return {with(narrowed(combined, -1, 0, rank), node, 0), std::move(positions)};
}

// A copy, as TransformerEngine's modules take it (module/base.py prepare_forward).
Tensor MlaSelfAttention::side_by_side(const Tensor& latent) {
  Tensor copy = w_.temporary(name_("kv_latent"), latent.sizes);
  w_.launch(Operation::Copy, {latent}, {copy});
  copy.gradient = latent.gradient;
  return copy;
}

Tensor MlaSelfAttention::up(const std::optional<Norm>& its_norm, const Linear& projection, const Tensor& latent) {
  return its_norm ? norm_linear(w_, *its_norm, projection, latent) : linear(w_, projection, latent);
}

// core/tensor_parallel/mappings.py gather_from_sequence_parallel_region.
Tensor MlaSelfAttention::gathered(Tensor positions) {
  const auto node = w_.node(positions_("gather"), {&positions});
  const Shape part = positions.sizes;
  Tensor dense = w_.temporary(positions_("part"), part);
  w_.launch(Operation::Copy, {std::move(positions)}, {dense});
  Tensor whole = w_.all_gather(positions_("gathered"), std::move(dense), w_.whole(latent_.qk_rope_head_dim));
  if (!node) return whole;
  node->apply = [this, part](Gradients& gradients) {
    Tensor made = w_.communicated(positions_("scattered"), part);
    w_.session.collective(w_.comms.tensor, CollectiveKind::ReduceScatter, std::move(gradients.front()), made);
    return Gradients{std::move(made)};
  };
  return with(std::move(whole), node);
}

// ---- from latents to heads -----------------------------------------------------------------------------------------

MlaSelfAttention::Heads MlaSelfAttention::up_and_turned(const Tensor& q_latent, const Tensor& kv_latent,
                                                        const Tensor& positions) {
  Tensor query = up(q_norm_, q_up_, q_latent);
  const Tensor joint = up(kv_norm_, kv_up_, side_by_side(kv_latent));
  w_.mark(Phase::Forward, positions_);
  if (w_.built.options.rotary == RotaryKernel::Fused) {
    query = turned_in_place(std::move(query));
    return assembled(std::move(query), joint, positions);
  }
  return turned_and_joined(query, joint, positions);
}

// A gradient as kernels of positions take it.
Tensor MlaSelfAttention::contiguous(std::string_view label, Tensor x) {
  if (x.contiguous()) return x;
  Tensor copy = w_.like(positions_(label), x);
  w_.launch(Operation::Copy, {std::move(x)}, {copy});
  return copy;
}

// core/fusions/fused_mla_yarn_rope_apply.py ApplyMLARotaryEmbQ.
Tensor MlaSelfAttention::turned_in_place(Tensor query) {
  const auto node = w_.node(positions_(), {&query});
  const Shape flat = query.sizes, heads = by_head(w_.model.heads / w_.sizes.tensor, latent_.query_head());
  const auto part = [this, heads](const Tensor& x) {
    return narrowed(sized(x, heads), -1, latent_.qk_nope_head_dim, latent_.qk_rope_head_dim);
  };
  w_.launch(Operation::RotaryPairs, {part(query), cosines_, sines_}, {part(query)});
  query = sized(std::move(query), heads);
  if (!node) return query;
  node->apply = [this, flat, part](Gradients& gradients) {
    Tensor gradient = contiguous("query_gradient_copy", std::move(gradients.front()));
    w_.launch(Operation::RotaryPairsBackward, {part(gradient), cosines_, sines_}, {part(gradient)});
    return Gradients{sized(std::move(gradient), flat)};
  };
  return with(std::move(query), node);
}

// ApplyMLARotaryEmbKV of the same file.
MlaSelfAttention::Heads MlaSelfAttention::assembled(Tensor query, const Tensor& joint, const Tensor& positions) {
  const auto node = w_.node(positions_(), {&joint, &positions});
  const std::int64_t held = w_.model.heads / w_.sizes.tensor;
  const Shape heads = by_head(held, latent_.qk_nope_head_dim + latent_.value_head),
              one = by_head(1, latent_.qk_rope_head_dim);
  Tensor key = w_.temporary(name_("k"), by_head(held, latent_.query_head()));
  Tensor value = w_.temporary(name_("v"), by_head(held, latent_.value_head));
  w_.launch(Operation::LatentKeys, {sized(joint, heads), sized(positions, one), cosines_, sines_}, {key, value});
  if (!node) return {std::move(query), std::move(key), std::move(value)};
  node->outputs = 2;
  node->apply = [this, heads, one, flat = joint.sizes, flat_one = positions.sizes](Gradients& gradients) {
    Tensor dkey = contiguous("key_gradient_copy", std::move(gradients[0]));
    Tensor dvalue = contiguous("value_gradient_copy", std::move(gradients[1]));
    Tensor of_heads = w_.temporary(positions_("joint_gradient"), heads);
    Tensor of_positions = w_.temporary(positions_("positions_gradient"), one);
    w_.launch(Operation::LatentKeysBackward, {std::move(dkey), std::move(dvalue), cosines_, sines_},
              {of_heads, of_positions});
    return Gradients{sized(std::move(of_heads), flat), sized(std::move(of_positions), flat_one)};
  };
  return {std::move(query), with(std::move(key), node, 0), with(std::move(value), node, 1)};
}

// Neighbours that turn together, as halves: rope_utils.py _apply_rotary_pos_emb_bshd with multi_latent_attention.
Tensor MlaSelfAttention::in_halves(Tensor x, const Shape& shape) {
  const auto node = w_.node(positions_(), {&x});
  const Shape own = x.sizes;
  if (own != shape) x = sized(std::move(x), shape);
  Shape pairs = shape;
  pairs.back() /= 2;
  pairs.push_back(2);
  const auto neighbour = [pairs](Tensor of, std::int64_t which) {
    Shape half = pairs;
    half.back() = 1;
    Tensor one = narrowed(sized(std::move(of), pairs), -1, which, 1);
    return sized(std::move(one), half);
  };
  const auto half = [pairs, neighbour](Tensor of, std::int64_t which) {
    const std::int64_t width = pairs[pairs.size() - 2];
    Shape seen = pairs;
    seen.back() = 1;
    return sized(narrowed(std::move(of), -1, which * width, width), seen);
  };
  Tensor out = w_.temporary(positions_("halves"), shape);
  w_.launch(Operation::Copy, {neighbour(x, 0), neighbour(x, 1)}, {half(out, 0), half(out, 1)});
  if (!node) return out;
  node->apply = [this, own, shape, neighbour, half](Gradients& gradients) {
    const Tensor gradient = std::move(gradients.front());
    Tensor sum;
    for (const std::int64_t which : {0, 1}) {  // each into a tensor of zeros
      Tensor laid = w_.temporary(positions_("neighbours_gradient"), shape);
      w_.launch({Operation::Fill, {0}}, {}, {laid});
      w_.launch(Operation::Copy, {half(gradient, which)}, {neighbour(laid, which)});
      if (sum.defined())
        w_.launch(Operation::Add, {sum, std::move(laid)}, {sum});
      else
        sum = std::move(laid);
    }
    return Gradients{own == shape ? std::move(sum) : sized(std::move(sum), own)};
  };
  return with(std::move(out), node);
}

// One operation after the other: heads are cut, what positions turn is turned, and both are joined again.
MlaSelfAttention::Heads MlaSelfAttention::turned_and_joined(const Tensor& query, const Tensor& joint,
                                                            const Tensor& positions) {
  const std::int64_t held = w_.model.heads / w_.sizes.tensor, plain = latent_.qk_nope_head_dim;
  const std::int64_t turned = latent_.qk_rope_head_dim, value_width = latent_.value_head;
  const auto cut = [this](const Tensor& whole, const Shape& heads, std::int64_t first, std::int64_t second,
                          std::string_view label) {
    const auto node = w_.node(positions_(), {&whole});
    if (node) {
      node->outputs = 2;
      node->apply = [this, heads, flat = whole.sizes, first, second, label](Gradients& gradients) {
        Tensor made = w_.temporary(positions_(label), heads);
        w_.launch(Operation::Copy, {std::move(gradients[0]), std::move(gradients[1])},
                  {narrowed(made, -1, 0, first), narrowed(made, -1, first, second)});
        return Gradients{sized(std::move(made), flat)};
      };
    }
    const Tensor seen = sized(whole, heads);
    return std::pair{with(narrowed(seen, -1, 0, first), node, 0), with(narrowed(seen, -1, first, second), node, 1)};
  };
  auto [q_plain, q_turning] = cut(query, by_head(held, plain + turned), plain, turned, "query_cut_gradient");
  auto [k_plain, value] = cut(joint, by_head(held, plain + value_width), plain, value_width, "joint_gradient");
  const Shape of_query = q_turning.sizes;
  Tensor q_turned = rotary(w_, query_rotary_, in_halves(std::move(q_turning), of_query));
  Tensor k_turned = rotary(w_, key_rotary_, in_halves(positions, by_head(1, turned)));
  const auto join = [this, held, plain, turned](const Tensor& first, const Tensor& second, LabelId label, bool shared) {
    const auto node = w_.node(positions_(), {&first, &second});
    Tensor made = w_.temporary(label, by_head(held, plain + turned));
    const Tensor end = narrowed(made, -1, plain, turned);
    w_.launch(Operation::Copy, {first, expanded(second.detached(), end.sizes)}, {narrowed(made, -1, 0, plain), end});
    if (!node) return made;
    node->apply = [this, plain, turned, shared, shape = second.sizes](Gradients& gradients) {
      const Tensor gradient = std::move(gradients.front());
      Tensor of_second = narrowed(gradient, -1, plain, turned);
      if (shared) {  // one for all heads
        Tensor sum = w_.temporary(positions_("positions_gradient"), shape);
        w_.launch(Operation::Sum, {std::move(of_second)}, {sum});
        of_second = std::move(sum);
      }
      return Gradients{narrowed(gradient, -1, 0, plain), std::move(of_second)};
    };
    return with(std::move(made), node);
  };
  Tensor whole_query = join(q_plain, q_turned, name_("q"), false);
  Tensor key = join(k_plain, k_turned, name_("k"), true);
  const auto node = w_.node(positions_(), {&value});
  Tensor dense = w_.temporary(name_("v"), value.sizes);
  w_.launch(Operation::Copy, {value}, {dense});
  if (node) node->apply = [](Gradients& gradients) { return Gradients{std::move(gradients.front())}; };
  return {std::move(whole_query), std::move(key), with(std::move(dense), node)};
}

// ---- attention -----------------------------------------------------------------------------------------------------

Tensor MlaSelfAttention::core(const Heads& of) {
  if (!recompute_core) {
    Tensor query = of.query;
    OffloadedRegion offload(w_, OffloadedModule::CoreAttention, query);
    Tensor context = core_attention(w_, core_, std::move(query), of.key, of.value);
    return offload.commit(std::move(context), {&of.query, &of.key, &of.value});
  }
  const auto run = [this](Tensors of_again) {
    return core_attention(w_, core_, std::move(of_again[0]), std::move(of_again[1]), std::move(of_again[2]));
  };
  return checkpoint(w_, run, {of.query, of.key, of.value});
}

// get_query_key_value_tensors.
MlaSelfAttention::Heads MlaSelfAttention::heads(Tensor normed, std::optional<CheckpointWithoutOutput>& again) {
  if (!cosines_.defined()) make_tables();
  const Tensor held = normed;
  OffloadedRegion offload(w_, OffloadedModule::Qkv, normed);
  Heads made = heads_of(normed, again);
  made.query = offload.commit(std::move(made.query), {&held});
  return made;
}

MlaSelfAttention::Heads MlaSelfAttention::heads_of(const Tensor& normed,
                                                   std::optional<CheckpointWithoutOutput>& again) {
  const Tensor q_latent = q_down_ ? linear(w_, *q_down_, normed) : normed;
  const Down of_keys = down(normed);
  if (!w_.train.recompute.selects(RecomputedModule::LatentUp))
    return up_and_turned(q_latent, of_keys.latent, of_keys.positions);
  const auto run = [this](const Tensors& latents) {
    Heads made = up_and_turned(latents[0], latents[1], latents[2]);
    return Tensors{std::move(made.query), std::move(made.key), std::move(made.value)};
  };
  Tensors made = again.emplace(w_)(run, {q_latent, of_keys.latent, of_keys.positions});
  return {std::move(made[0]), std::move(made[1]), std::move(made[2])};
}

// forward() refers to queries, keys and values until it returns, its caller to what was normalized.
Tensor MlaSelfAttention::operator()(Tensor hidden, OffloadedRegion* norm) {
  RecomputedNorm before(w_);
  const Tensor normed = before(norm_, std::move(hidden));
  if (norm != nullptr) norm->close(normed);
  const auto forward = [&] {
    std::optional<CheckpointWithoutOutput> again;
    const Heads of = heads(normed, again);
    const Tensor context = core(of);
    if (again) again->discard_outputs(context);
    return projected(w_, proj_, context);
  };
  Tensor out = forward();
  before.discard_output(out);
  return out;
}

}  // namespace tidemark::parallel::megatron
