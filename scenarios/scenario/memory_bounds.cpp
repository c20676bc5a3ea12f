#include "scenarios/scenario/memory_bounds.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>

#include "parallel/job/stages.hpp"
#include "scenarios/scenario/memory_bounds_below.hpp"
#include "scenarios/scenario/scenario.hpp"
#include "sim/base/ensure.hpp"

// Every formula names what takes the bytes, and where that is written. They are of the fullest rank of a pipeline
// stage, and rounded up: tensors that sequence parallelism cuts are counted whole.

namespace tidemark::scenarios {
namespace {

std::int64_t over(std::int64_t all, std::int64_t parts) { return (all + parts - 1) / std::max<std::int64_t>(parts, 1); }

/// Sizes that bounds are made of.
struct Sizes {
  Sizes(const Scenario& scenario, std::int64_t said, std::int32_t of_stage)
      : s(scenario), number(said), stage(of_stage) {
    for (const parallel::Stage& its :
         parallel::chunks_of_rank(static_cast<std::int32_t>(s.model.layers.size()), s.layout, stage))
      its_layers += its.layers(), embedding |= its.embedding, head |= its.head;
  }

  const Scenario& s;
  std::int64_t number;  ///< that the bound's name carries
  std::int32_t stage;   ///< pipeline rank
  std::int64_t its_layers = 0;
  bool embedding = false, head = false;

  [[nodiscard]] std::int64_t tokens() const { return over(s.train.tokens(), s.layout.context); }
  [[nodiscard]] std::int64_t heads() const { return over(s.model.heads, s.layout.tensor); }
  [[nodiscard]] std::int64_t kv_heads() const { return over(s.model.kv_heads, s.layout.tensor); }
  [[nodiscard]] std::int64_t vocabulary() const {
    constexpr std::int64_t padding = 1024;  // more than any runtime pads to by itself
    return over(s.model.vocabulary + padding, s.layout.tensor);
  }
  [[nodiscard]] std::int64_t micro_batches() const {
    return over(s.train.global_batch, std::max<std::int64_t>(s.train.micro_batch * s.layout.data, 1));
  }
  [[nodiscard]] std::int64_t layers() const { return its_layers; }
  /// Micro-batches whose passes forward a rank has done, and not those backward, in passes of all its layers.
  [[nodiscard]] std::int64_t in_flight() const {
    const Layout& l = s.layout;
    if (l.schedule == parallel::ScheduleKind::GPipe) return micro_batches();
    if (l.schedule == parallel::ScheduleKind::OneFOneB && l.chunks == 1)
      return std::min<std::int64_t>(micro_batches(), l.pipeline - stage);
    const std::int64_t passes = l.chunks == 1 ? l.pipeline : 2 * (l.pipeline - 1) + (l.chunks - 1) * l.group() + 1;
    return std::min(micro_batches(), over(passes, l.chunks));
  }
  /// How wide MLPs are that a token goes through, with gates: of experts as many as are chosen.
  [[nodiscard]] std::int64_t ffn() const {
    const Model& m = s.model;
    const std::int64_t branches = parallel::gated(m.activation) ? 2 : 1;
    const std::int64_t of_experts =
        m.experts() ? m.experts()->chosen * over(m.experts()->ffn, s.layout.expert_tensor_parallel()) +
                          over(m.experts()->shared_ffn, s.layout.tensor)
                    : 0;
    return branches * std::max(over(m.ffn, s.layout.tensor), of_experts);
  }
  /// Passes of a layer that are saved at a time.
  [[nodiscard]] std::int64_t saved_layers() const {
    return s.train.recompute.kind == parallel::Recompute::Full ? 1 : layers() * in_flight();
  }
  /// Parameters of a rank, without what sequence parallelism or padding changes.
  [[nodiscard]] std::int64_t parameters() const {
    const Model& m = s.model;
    const std::int64_t query = m.latent() ? m.latent()->query_head() : m.head_dim, value = m.value_dim();
    const std::int64_t attention =
        m.hidden * (m.heads * (query + value) + m.kv_heads * (query + value)) +
        (m.latent() ? (m.latent()->kv_rank + m.latent()->query_rank) * (m.hidden + m.heads * (query + value)) : 0);
    const std::int64_t branches = parallel::gated(m.activation) ? 3 : 2;
    std::int64_t layer = over(attention, s.layout.tensor) + 8 * m.hidden;
    if (m.experts())
      layer += over(branches * m.hidden * m.experts()->ffn * m.experts()->count,
                    std::int64_t{s.layout.expert} * s.layout.expert_tensor_parallel()) +
               over(branches * m.hidden * m.experts()->shared_ffn, s.layout.tensor) + m.hidden * m.experts()->count;
    const auto is_dense = [](const parallel::Layer& its) { return its.experts() == nullptr; };
    if (std::ranges::any_of(m.layers.kinds(), is_dense)) layer += over(branches * m.hidden * m.ffn, s.layout.tensor);
    const std::int64_t positions =
        embedding && m.positions == parallel::Positions::Learned ? m.max_positions * m.hidden : 0;
    const std::int64_t ends = embedding && head && m.tied_embeddings ? 1 : (embedding ? 1 : 0) + (head ? 1 : 0);
    return layer * layers() + ends * vocabulary() * m.hidden + positions;
  }
};

struct Formula {
  std::string_view name;
  std::int64_t (*more)(const Sizes&);
  std::int64_t (*less)(const Sizes&) = nullptr;  // null: nothing
};

constexpr std::int64_t half = 2, whole = 4;  // bytes of bf16 and fp16, and of fp32

std::int64_t evaluated(const Sizes& z) {
  const Model& m = z.s.model;
  const std::int64_t tokens = z.number * z.s.train.sequence_length;
  const std::int64_t scores =
      parallel::stores_scores(z.s.train.attention) ? 2 * whole * tokens * z.s.train.sequence_length * z.heads() : 0;
  return 4 * whole * tokens * z.vocabulary() + 2 * whole * tokens * m.layers.size() * z.kv_heads() * m.head_dim +
         whole * tokens * (6 * m.hidden + 3 * z.ffn() + 3 * z.heads() * m.head_dim) + scores;
}
std::int64_t logits_trained(const Sizes& z) {
  return 2 * half * z.tokens() * over(z.s.model.vocabulary, z.s.layout.tensor);
}

constexpr std::array formulas{
    // Packed sequences are told apart by offsets (ms-swift, swift/megatron/trainers/utils.py; Megatron-LM core
    // 0.12, core/packed_seq_params.py): positions and offsets as whole numbers, and rotary positions that are turned
    // sequence by sequence, which saves cosines and sines of each for queries and keys, and has their parts beside
    // what they are put together to (core/models/common/embeddings/rope_utils.py _apply_rotary_pos_emb_thd).
    Formula{"packed-sequences",
            [](const Sizes& z) {
              const std::int64_t turned = z.s.model.latent() ? z.s.model.latent()->query_head() : z.s.model.head_dim;
              return z.tokens() * (64 + half * turned * (4 * z.saved_layers() + 2 * (z.heads() + 2 * z.kv_heads())));
            }},
    // Shared experts on a stream of their own (core/transformer/moe/shared_experts.py): what they save is in that
    // stream's pool, and what they have at work lives until tokens are back.
    Formula{"moe-shared-expert-overlap",
            [](const Sizes& z) {
              const std::int64_t ffn =
                  z.s.model.experts() ? over(z.s.model.experts()->shared_ffn, z.s.layout.tensor) : 0;
              return z.tokens() * half * (3 * z.s.model.hidden + 4 * ffn) * (z.saved_layers() + 1);
            }},
    // FlashAttention takes values as wide as keys: they are padded, and so is what it gives.
    Formula{"padded-values",
            [](const Sizes& z) {
              const std::int64_t wider =
                  z.s.model.latent() ? z.s.model.latent()->query_head() - z.s.model.latent()->value_head : 0;
              return 2 * half * z.tokens() * z.heads() * wider * (z.saved_layers() + 1);
            }},
    // llm-jp/Megatron-LM 23582f77, core/tensor_parallel/cross_entropy.py: a logarithm, its square and a factor for each
    // token; logits are changed where they are.
    Formula{"use-z-loss", [](const Sizes& z) { return z.head ? 6 * whole * z.tokens() : 0; }},
    // Megatron-DeepSpeed, megatron/model/language_model.py: weight and bias with all that an optimizer has, the norm's
    // input and output, and two numbers of each token.
    Formula{"embed-layernorm",
            [](const Sizes& z) {
              if (!z.embedding) return std::int64_t{0};
              return 40 * z.s.model.hidden + z.in_flight() * z.tokens() * (2 * half * z.s.model.hidden + 2 * whole);
            }},
    // Megatron-DeepSpeed, megatron/model/transformer.py: one row of slopes for each head and sequence, and no turned
    // queries and keys, which rotary positions save.
    Formula{"alibi",
            [](const Sizes& z) {
              return whole * z.heads() * z.s.train.micro_batch * z.s.train.sequence_length;
            },  // Queries and keys that are turned.
            [](const Sizes& z) {
              return 2 * half * z.tokens() * (z.heads() + z.kv_heads()) * z.s.model.head_dim * (z.saved_layers() + 1);
            }},
    // Beside parameters, gradients and the optimizer's share, DeepSpeed 0.9 holds gradients in half precision
    // (runtime/bf16_optimizer.py update_hp_grads), its share of gradients once more in both (runtime/zero/
    // stage_1_and_2.py step), two buckets of reductions of 5e8 elements, and of pipelines, of passes that are not
    // through,
    // outputs and inputs beside their clones, and gradients of one (runtime/pipe/engine.py).
    Formula{"deepspeed-engine",
            [](const Sizes& z) {
              constexpr std::int64_t bucket = 500'000'000;
              const std::int64_t parameters = z.parameters();
              const std::int64_t sides = (z.stage > 0 ? 1 : 0) + (z.stage + 1 < z.s.layout.pipeline ? 1 : 0);
              const std::int64_t passes = sides > 0 ? sides * z.in_flight() + 1 : 0;
              return half * parameters + 6 * over(parameters, z.s.layout.data) +
                     2 * half * std::min(bucket, parameters) + passes * half * z.tokens() * z.s.model.hidden;
            },
            // Where replicas share nothing out here, what they would not have each. Gradients are in half precision at
            // the least (engine.py get_data_types), and since stage 2 cut over replicas as well.
            [](const Sizes& z) {
              constexpr std::int64_t whole_gradients = 1;  // the stage up to which each replica has all of them
              if (z.s.layout.sharding == parallel::Sharding::None) return 16 * z.parameters();
              return (z.number == whole_gradients ? whole - half : whole) * z.parameters();
            }},
    // apex/contrib/optimizers/distributed_fused_adam.py, GradientBucket and ParameterBucket: where they are not parts
    // of
    // one buffer, gradients beside the buckets that are reduced, and parameters beside those that are gathered, in half
    // precision; the share of gradients once more. Gradients may be in half precision themselves (grad_sync_dtype).
    // The number is how many of the two are in one buffer (contiguous_grad_buffer, contiguous_param_buffer).
    Formula{"apex-distributed-adam",
            [](const Sizes& z) {
              return (2 - std::clamp<std::int64_t>(z.number, 0, 2)) * half * z.parameters() +
                     whole * over(z.parameters(), z.s.layout.data);
            },
            [](const Sizes& z) { return whole * z.parameters(); }},
    // Transformer Engine keeps of each linear's weight what is in FP8, by rows and by columns with a scale for every 32
    // elements at most (pytorch/module/base.py get_weight_workspace, tensor/mxfp8_tensor.py), and saves inputs so: of
    // attention's output and experts' rows that is beside what others save in half precision. The layer at work has
    // its gradients so, too. Inputs that nobody else saves are a byte an element in place of two.
    Formula{"fp8-format",
            [](const Sizes& z) {
              constexpr std::int64_t sixteenth = 16;  // scales of both
              const Model& m = z.s.model;
              const std::int64_t twice = 2 * z.tokens();
              const std::int64_t saved = z.heads() * m.value_dim() + over(m.hidden + z.ffn(), sixteenth / 2);
              const std::int64_t at_work = 4 * m.hidden + 3 * z.ffn() + 3 * z.heads() * m.head_dim;
              return 2 * z.parameters() + over(2 * z.parameters(), sixteenth) + twice * saved * (z.saved_layers() + 1) +
                     twice * at_work;
            },
            [](const Sizes& z) {
              return z.tokens() * (2 * z.s.model.hidden + z.heads() * z.s.model.value_dim() + z.ffn()) *
                     (z.saved_layers() + 1);
            }},
    // Parameters themselves in FP8 (core/fp8_utils.py): there are none in half precision.
    Formula{"fp8-param-gather", [](const Sizes& z) { return over(2 * z.parameters(), z.s.layout.data); },
            [](const Sizes& z) { return half * z.parameters(); }},
    // nanotron 2411b022: gradients in half precision until they are added to those in fp32
    // (optim/gradient_accumulator.py
    // build_grad_buffers), and DDP's buckets of them. Each layer saves the gate's activation, and queries, keys and
    // values behind their rotation too (models/qwen.py); the loss has logits once more in fp32, and their exponentials
    // (parallel/tensor_parallel/functional.py). With a number: a step of PyTorch's AdamW that is not fused.
    Formula{"nanotron",
            [](const Sizes& z) {
              const Model& m = z.s.model;
              const std::int64_t rotated = (z.heads() + 2 * z.kv_heads()) * m.head_dim;
              const std::int64_t branches = parallel::gated(m.activation) ? 2 : 1;
              const std::int64_t of_a_layer = half * (z.ffn() / branches + rotated);
              const bool shared = z.s.layout.sharding != parallel::Sharding::None;
              const std::int64_t states = shared ? over(z.parameters(), z.s.layout.data) : z.parameters();
              return 2 * half * z.parameters() + (z.number > 0 ? 2 * whole * states : 0) +
                     z.tokens() * of_a_layer * (z.saved_layers() + 1) + 2 * whole * z.tokens() * z.vocabulary();
            },
            [](const Sizes& z) {
              return 2 * half * z.tokens() * z.s.model.hidden * (z.saved_layers() + 1) +
                     whole * z.tokens() * z.vocabulary();
            }},
    // GPT-NeoX ea7aefd8, megatron/model/transformer.py: a second norm's output, outputs of attention and MLP with their
    // biases and dropouts' masks (ParallelTransformerLayer.forward), queries and keys that are turned and put together,
    // and copied beside values for FlashAttention (ParallelSelfAttention), and the sum behind the MLP's first bias
    // where
    // it is not fused; megatron/model/gpt2_model.py cross_entropy: logits once more in fp32, and their exponentials.
    // With a number: masks, and softmax in half precision or in fp32, of scores (megatron/model/fused_softmax.py).
    Formula{"gpt-neox",
            [](const Sizes& z) {
              const Model& m = z.s.model;
              const std::int64_t turned = 4 * (z.heads() + 2 * z.kv_heads()) * m.head_dim;
              const std::int64_t of_a_layer = half * (6 * m.hidden + turned + z.ffn()) + 2 * whole;
              const std::int64_t scores =
                  z.number > 0 ? z.tokens() * z.s.train.sequence_length * z.heads() * (2 * whole + 2 * half + 1) : 0;
              return (z.tokens() * of_a_layer + scores) * (z.saved_layers() + 1) +
                     (z.head ? 2 * whole * z.tokens() * z.vocabulary() : 0);
            },
            // What Transformer Engine's norms and heads keep, and these do not.
            [](const Sizes& z) {
              return half * z.tokens() * (2 * z.s.model.hidden + z.ffn()) * (z.saved_layers() + 1) +
                     (z.head ? whole * z.tokens() * z.vocabulary() : 0);
            }},
    // core/pipeline_parallel/utils.py, core/tensor_parallel/layers.py: inputs of the head and gradients of logits of so
    // many micro-batches.
    Formula{"deferred-head",
            [](const Sizes& z) {
              const std::int64_t kept = z.number > 0 ? std::min(z.number, z.micro_batches()) : z.micro_batches();
              return kept * half * z.tokens() * (z.s.model.hidden + z.vocabulary());
            }},
    // core/transformer/moe/moe_utils.py topk_softmax_with_capacity: softmax of all experts' logits in fp32, or of the
    // chosen ones alone; what it comes to, its gradient, and what it is put back into.
    Formula{"router-scores",
            [](const Sizes& z) {
              const std::int64_t experts = z.s.model.experts() ? z.s.model.experts()->count : 0;
              return 3 * whole * z.tokens() * experts * (z.saved_layers() + 1);
            },
            [](const Sizes& z) {
              return 3 * whole * z.tokens() * (z.s.model.experts() ? z.s.model.experts()->count : 0) *
                     (z.saved_layers() + 1);
            }},
    // torch.autograd.graph.save_on_cpu: of what was saved on the host, the largest is on the device as it is needed.
    Formula{"saved-on-hosts",
            [](const Sizes& z) { return whole * z.tokens() * std::max(2 * z.s.model.ffn, z.vocabulary()); },
            [](const Sizes& z) { return z.s.cluster.device.capacity.count(); }},
    // transformers' flattening of packed sequences (data/data_collator.py DataCollatorWithFlattening,
    // modeling_flash_attention_utils.py): positions, and cosines and sines of each row. FlashAttention keeps where
    // sequences begin, and pads a layer's query gradients by 128 rows for each. Without it each layer has a mask of all
    // tokens by all, and keys and values repeated for all heads; or all scores.
    Formula{"packed-rows",
            [](const Sizes& z) {
              const Model& m = z.s.model;
              const std::int64_t tokens = z.tokens(), layers = z.saved_layers() + 1;
              std::int64_t all = tokens * (64 + 6 * whole * m.head_dim + 16 * layers);
              const parallel::AttentionKernel kernel = z.s.train.attention;
              if (kernel == parallel::AttentionKernel::Flash) return all + whole * tokens * z.heads() * m.head_dim;
              all += half * tokens * layers * (tokens + 2 * z.heads() * m.head_dim);
              return parallel::stores_scores(kernel) ? all + 2 * whole * tokens * tokens * z.heads() * layers : all;
            }},
    // Losses that never have all logits (TRL's chunked_nll, trl/trainer/utils.py; cut cross-entropy): gradients of
    // hidden
    // states and of the head in fp32. Less: logits, their gradients, and both in fp32.
    Formula{"chunked-loss", [](const Sizes& z) { return whole * z.s.model.hidden * (z.vocabulary() + z.tokens()); },
            [](const Sizes& z) { return 4 * whole * z.tokens() * z.vocabulary(); }},
    // Liger-Kernel's functions (parallel/frameworks/transformers/liger.cpp), where they are not simulated: its loss has
    // the gradient of the head at once. Less: logits; of each layer norms' inputs in fp32, and what gate and up come
    // to.
    Formula{"liger-kernel", [](const Sizes& z) { return whole * z.s.model.hidden * (z.vocabulary() + z.tokens()); },
            [](const Sizes& z) {
              return 4 * whole * z.tokens() * z.vocabulary() +
                     z.tokens() * (6 * whole * z.s.model.hidden + 2 * whole * z.ffn()) * (z.saved_layers() + 1);
            }},
    // transformers' Trainer.prediction_step on so many sequences: logits, those in fp32, their softmax, and what
    // accelerate makes fp32 of them; keys and values of all layers, which are cached; one layer at work, whose scores
    // may
    // be whole. In training there were logits and their softmax, of as many sequences as it takes.
    Formula{"evaluation", [](const Sizes& z) { return std::max<std::int64_t>(evaluated(z) - logits_trained(z), 0); }},
    Formula{"evaluation-beside-liger", [](const Sizes& z) { return evaluated(z); }},
    // torchao/optim: codes of both moments with a scale for each 256, and one parameter at a time in fp32, with its
    // moments and gradient. Less: embeddings' state, which bitsandbytes keeps in fp32.
    Formula{"torchao-adam", [](const Sizes& z) { return 4 * whole * z.vocabulary() * z.s.model.hidden; },
            [](const Sizes& z) { return 4 * whole * z.vocabulary() * z.s.model.hidden; }},
    // Pai-Megatron-Patch, megatron_patch/model/llama3_1/rms_norm.py: the last norm in operations of PyTorch, which
    // save the input in fp32 and what it comes to, and give it back in half precision.
    Formula{"last-norm-by-operations",
            [](const Sizes& z) { return z.head ? z.tokens() * z.s.model.hidden * (2 * whole + half + half) : 0; }},
};

struct NamedBound {
  const Formula* formula = nullptr;
  std::int64_t number = 0;
};
NamedBound named(std::string_view name) {
  const std::size_t colon = name.find(':');
  const auto* const found = std::ranges::find(formulas, name.substr(0, colon), &Formula::name);
  if (found == formulas.end()) return {};
  NamedBound its{found};
  if (colon != std::string_view::npos) std::from_chars(name.data() + colon + 1, name.data() + name.size(), its.number);
  return its;
}

}  // namespace

bool has_memory_bound(std::string_view name) { return named(name).formula != nullptr; }

Bytes most_more(std::string_view name, const Scenario& scenario) {
  return std::ranges::max(more_by_stage(name, scenario));
}

std::vector<Bytes> more_by_stage(std::string_view name, const Scenario& scenario) {
  const NamedBound its = named(name);
  ensure(its.formula != nullptr, "a bound has a formula");
  std::vector<Bytes> all;
  for (std::int32_t stage = 0; stage < scenario.layout.pipeline; ++stage)
    all.emplace_back(its.formula->more(Sizes(scenario, its.number, stage)));
  return all;
}

Bytes most_less(std::string_view name, const Scenario& scenario) {
  const NamedBound its = named(name);
  ensure(its.formula != nullptr, "a bound has a formula");
  Bytes most;
  for (std::int32_t stage = 0; its.formula->less != nullptr && stage < scenario.layout.pipeline; ++stage)
    most = std::max(most, Bytes{its.formula->less(Sizes(scenario, its.number, stage))});
  return most;
}

Bytes most_more(const std::vector<MemoryBound>& bounds) {
  Bytes all;
  for (const MemoryBound& its : bounds) all += its.more;
  return all;
}

bool may_take_less(std::string_view name) {
  const NamedBound its = named(name);
  return its.formula != nullptr && its.formula->less != nullptr;
}

std::vector<std::string> memory_bounds() {
  std::vector<std::string> names;
  for (const Formula& its : formulas) names.emplace_back(its.name);
  return names;
}

}  // namespace tidemark::scenarios
