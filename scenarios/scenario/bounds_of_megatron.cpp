#include <algorithm>
#include <array>
#include <cstdint>

#include "scenarios/scenario/detail/bound_formulas.hpp"

// Every formula names what takes the bytes, and where that is written.

namespace tidemark::scenarios {
namespace {

// Of so many tokens of the vocabulary on a rank: parameters, gradients, and an optimizer's three numbers of a share; of
// logits those in half precision and in fp32, their exponentials, and gradients.
std::int64_t of_vocabulary(const BoundSizes& z, std::int64_t all) {
  const std::int64_t words = over(std::max<std::int64_t>(all, 0), z.s.layout.tensor);
  const std::int64_t ends =
      z.embedding && z.head && z.s.model.tied_embeddings ? 1 : (z.embedding ? 1 : 0) + (z.head ? 1 : 0);
  const std::int64_t parameters = ends * words * z.s.model.hidden;
  const std::int64_t shares = z.s.layout.sharding == parallel::Sharding::None ? 1 : z.s.layout.data;
  return (half + whole) * parameters + over(3 * whole * parameters, shares) +
         (z.head ? z.tokens() * words * (2 * half + 3 * whole) : 0);
}

// What a layer's linears take of a token, and what they give: of queries, keys and values, of attention's output, and
// of the MLP's two.
struct LinearWidths {
  std::int64_t in = 0, out = 0;
};
LinearWidths linears_of(const BoundSizes& z) {
  const Model& m = z.s.model;
  return {.in = 2 * m.hidden + z.heads() * m.head_dim + z.ffn(),
          .out = (z.heads() + 2 * z.kv_heads()) * m.head_dim + 2 * m.hidden + z.ffn()};
}
// Adapters of a rank (the number) beside all linears of its layers, with gradients and an optimizer's three numbers.
std::int64_t adapters_on_megatron(const BoundSizes& z) {
  const LinearWidths its = linears_of(z);
  const Model& m = z.s.model;
  const std::int64_t experts = m.experts() ? over(m.experts()->count, z.s.layout.expert) : 0;
  const std::int64_t of_experts = experts == 0 ? 0 : experts * (2 * m.hidden + 3 * m.experts()->ffn);
  const std::int64_t parameters = z.layers() * z.number * (its.in + its.out + of_experts);
  const std::int64_t saved = half * (2 * its.in + its.out + 4 * z.number) * (z.saved_layers() + 1);
  return (half + 4 * whole) * parameters + z.tokens() * (saved + 2 * whole * its.out);
}

std::int64_t experts_of(const BoundSizes& z) { return z.s.model.experts() ? z.s.model.experts()->count : 0; }
// Three tensors of all experts' scores in fp32, for each token that is saved.
std::int64_t of_router_scores(const BoundSizes& z) {
  return 3 * whole * z.tokens() * experts_of(z) * (z.saved_layers() + 1);
}

constexpr std::array megatron_formulas{
    // LoRA (Megatron-Bridge 067f987d, src/megatron/bridge/peft/lora.py and utils.py ParallelLinearAdapter; NeMo 2 and
    // ms-swift alike) in place of training all weights: beside each linear what it takes after a norm and dropout, what
    // both products give, and their sum with the linear's. Less: gradients and an optimizer's numbers of all weights,
    // with all that their construction and steps make of these (ten numbers are more than any), and what linears save
    // for gradients of theirs.
    BoundFormula{"lora-on-megatron", adapters_on_megatron,
                 [](const BoundSizes& z) {
                   constexpr std::int64_t numbers = 10;
                   return numbers * whole * z.parameters() +
                          half * z.tokens() * linears_of(z).in * (z.saved_layers() + 1);
                 }},
    // A vocabulary that nobody says: at most the largest of the models that are shipped, which is Gemma 3's, padded.
    BoundFormula{"vocabulary",
                 [](const BoundSizes& z) {
                   constexpr std::int64_t largest = 262'208 + 1024;
                   return of_vocabulary(z, largest - z.s.model.vocabulary);
                 },
                 [](const BoundSizes& z) { return of_vocabulary(z, z.s.model.vocabulary); }},
    // Packed sequences are told apart by offsets (ms-swift, swift/megatron/trainers/utils.py; Megatron-LM core
    // 0.12, core/packed_seq_params.py): positions and offsets as whole numbers, and rotary positions that are turned
    // sequence by sequence, which saves cosines and sines of each for queries and keys, and has their parts beside
    // what they are put together to (core/models/common/embeddings/rope_utils.py _apply_rotary_pos_emb_thd).
    BoundFormula{
        "packed-sequences",
        [](const BoundSizes& z) {
          const std::int64_t turned = z.s.model.latent() ? z.s.model.latent()->query_head() : z.s.model.head_dim;
          return z.tokens() * (64 + half * turned * (4 * z.saved_layers() + 2 * (z.heads() + 2 * z.kv_heads())));
        }},
    // Shared experts on a stream of their own (core/transformer/moe/shared_experts.py): what they save is in that
    // stream's pool, and what they have at work lives until tokens are back.
    BoundFormula{"moe-shared-expert-overlap",
                 [](const BoundSizes& z) {
                   const std::int64_t ffn =
                       z.s.model.experts() ? over(z.s.model.experts()->shared_ffn, z.s.layout.tensor) : 0;
                   return z.tokens() * half * (3 * z.s.model.hidden + 4 * ffn) * (z.saved_layers() + 1);
                 }},
    // FlashAttention takes values as wide as keys: they are padded, and so is what it gives.
    BoundFormula{"padded-values",
                 [](const BoundSizes& z) {
                   const std::int64_t wider =
                       z.s.model.latent() ? z.s.model.latent()->query_head() - z.s.model.latent()->value_head : 0;
                   return 2 * half * z.tokens() * z.heads() * wider * (z.saved_layers() + 1);
                 }},
    // llm-jp/Megatron-LM 23582f77, core/tensor_parallel/cross_entropy.py: a logarithm, its square and a factor for each
    // token; logits are changed where they are.
    BoundFormula{"use-z-loss", [](const BoundSizes& z) { return z.head ? 6 * whole * z.tokens() : 0; }},
    // Megatron-DeepSpeed, megatron/model/language_model.py: weight and bias with all that an optimizer has, the norm's
    // input and output, and two numbers of each token.
    BoundFormula{"embed-layernorm",
                 [](const BoundSizes& z) {
                   if (!z.embedding) return std::int64_t{0};
                   return 40 * z.s.model.hidden +
                          z.in_flight() * z.tokens() * (2 * half * z.s.model.hidden + 2 * whole);
                 }},
    // Megatron-DeepSpeed, megatron/model/transformer.py: one row of slopes for each head and sequence, and no turned
    // queries and keys, which rotary positions save.
    BoundFormula{"alibi",
                 [](const BoundSizes& z) {
                   return whole * z.heads() * z.s.train.micro_batch * z.s.train.sequence_length;
                 },  // Queries and keys that are turned.
                 [](const BoundSizes& z) {
                   return 2 * half * z.tokens() * (z.heads() + z.kv_heads()) * z.s.model.head_dim *
                          (z.saved_layers() + 1);
                 }},
    // Beside parameters, gradients and the optimizer's share, DeepSpeed 0.9 holds gradients in half precision
    // (runtime/bf16_optimizer.py update_hp_grads), its share of gradients once more in both (runtime/zero/
    // stage_1_and_2.py step), two buckets of reductions of 5e8 elements, and of pipelines, of passes that are not
    // through,
    // outputs and inputs beside their clones, and gradients of one (runtime/pipe/engine.py).
    BoundFormula{
        "deepspeed-engine",
        [](const BoundSizes& z) {
          constexpr std::int64_t bucket = 500'000'000;
          const std::int64_t parameters = z.parameters();
          const std::int64_t sides = (z.stage > 0 ? 1 : 0) + (z.stage + 1 < z.s.layout.pipeline ? 1 : 0);
          const std::int64_t passes = sides > 0 ? sides * z.in_flight() + 1 : 0;
          return half * parameters + 6 * over(parameters, z.s.layout.data) + 2 * half * std::min(bucket, parameters) +
                 passes * half * z.tokens() * z.s.model.hidden;
        },
        // Where replicas share nothing out here, what they would not have each. Gradients are in half precision at
        // the least (engine.py get_data_types), and since stage 2 cut over replicas as well.
        [](const BoundSizes& z) {
          constexpr std::int64_t whole_gradients = 1;  // the stage up to which each replica has all of them
          if (z.s.layout.sharding == parallel::Sharding::None) return 16 * z.parameters();
          return (z.number == whole_gradients ? whole - half : whole) * z.parameters();
        }},
    // apex/contrib/optimizers/distributed_fused_adam.py, GradientBucket and ParameterBucket: where they are not parts
    // of
    // one buffer, gradients beside the buckets that are reduced, and parameters beside those that are gathered, in half
    // precision; the share of gradients once more. Gradients may be in half precision themselves (grad_sync_dtype).
    // The number is how many of the two are in one buffer (contiguous_grad_buffer, contiguous_param_buffer).
    BoundFormula{"apex-distributed-adam",
                 [](const BoundSizes& z) {
                   return (2 - std::clamp<std::int64_t>(z.number, 0, 2)) * half * z.parameters() +
                          whole * over(z.parameters(), z.s.layout.data);
                 },
                 [](const BoundSizes& z) { return whole * z.parameters(); }},
    // Transformer Engine keeps of each linear's weight what is in FP8, by rows and by columns (pytorch/module/base.py
    // get_weight_workspace), and saves inputs so: of attention's output that is beside what others save in half
    // precision. The layer at work has its gradients so, too. Inputs that nobody else saves are a byte an element in
    // place of two. Scales by recipe, the number: 1, one of a tensor (delayed, tensorwise: tensor/float8_tensor.py);
    // 2, four bytes for 128 by 128 of a weight, and for 128 elements of an input (blockwise:
    // tensor/float8_blockwise_tensor.py get_scale_shape); 3, a byte for 32 elements (tensor/mxfp8_tensor.py); without a
    // number, the most of these.
    BoundFormula{"fp8-format",
                 [](const BoundSizes& z) {
                   constexpr std::int64_t of_tensors = 1, of_blocks = 2, sixteenth = 16, of_a_block = 1024;
                   const Model& m = z.s.model;
                   const std::int64_t parameters = z.parameters(), beside = 2 * z.heads() * m.value_dim();
                   const std::int64_t inputs = 2 * m.hidden + z.heads() * m.value_dim() + z.ffn();
                   const bool blocks = z.number != of_tensors;
                   const std::int64_t scales = !blocks                 ? 0
                                               : z.number == of_blocks ? over(parameters, of_a_block)
                                                                       : over(parameters, sixteenth);
                   const std::int64_t saved = beside + (blocks ? over(inputs, sixteenth) : 0);
                   const std::int64_t at_work = 4 * m.hidden + 3 * z.ffn() + 3 * z.heads() * m.head_dim;
                   return 2 * parameters + scales + z.tokens() * (saved * (z.saved_layers() + 1) + 2 * at_work);
                 },
                 [](const BoundSizes& z) {
                   return z.tokens() * (2 * z.s.model.hidden + z.heads() * z.s.model.value_dim() + z.ffn()) *
                          (z.saved_layers() + 1);
                 },
                 // Transformer Engine's pytorch/quantization.py: _compute_fp8_support and those of the other recipes.
                 [](std::int64_t number) {
                   constexpr std::int32_t ada = 89, hopper = 90, blackwell = 100;
                   return number == 3 ? blackwell : number == 2 ? hopper : ada;
                 }},
    // Parameters themselves in FP8 (core/fp8_utils.py): there are none in half precision.
    BoundFormula{"fp8-param-gather", [](const BoundSizes& z) { return over(2 * z.parameters(), z.s.layout.data); },
                 [](const BoundSizes& z) { return half * z.parameters(); }},
    // nanotron 2411b022: gradients in half precision until they are added to those in fp32
    // (optim/gradient_accumulator.py
    // build_grad_buffers), and DDP's buckets of them. Each layer saves the gate's activation, and queries, keys and
    // values behind their rotation too (models/qwen.py); the loss has logits once more in fp32, and their exponentials
    // (parallel/tensor_parallel/functional.py). With a number: a step of PyTorch's AdamW that is not fused.
    BoundFormula{"nanotron",
                 [](const BoundSizes& z) {
                   const Model& m = z.s.model;
                   const std::int64_t rotated = (z.heads() + 2 * z.kv_heads()) * m.head_dim;
                   const std::int64_t branches = parallel::gated(m.activation) ? 2 : 1;
                   const std::int64_t of_a_layer = half * (z.ffn() / branches + rotated);
                   const bool shared = z.s.layout.sharding != parallel::Sharding::None;
                   const std::int64_t states = shared ? over(z.parameters(), z.s.layout.data) : z.parameters();
                   return 2 * half * z.parameters() + (z.number > 0 ? 2 * whole * states : 0) +
                          z.tokens() * of_a_layer * (z.saved_layers() + 1) + 2 * whole * z.tokens() * z.vocabulary();
                 },
                 [](const BoundSizes& z) {
                   return 2 * half * z.tokens() * z.s.model.hidden * (z.saved_layers() + 1) +
                          whole * z.tokens() * z.vocabulary();
                 }},
    // GPT-NeoX ea7aefd8, megatron/model/transformer.py: a second norm's output, outputs of attention and MLP with their
    // biases and dropouts' masks (ParallelTransformerLayer.forward), queries and keys that are turned and put together,
    // and copied beside values for FlashAttention (ParallelSelfAttention), and the sum behind the MLP's first bias
    // where
    // it is not fused; megatron/model/gpt2_model.py cross_entropy: logits and their gradient in half precision beside
    // those in fp32, of which exponentials take the place (megatron/mpu/cross_entropy.py).
    // With a number: masks, and softmax in half precision or in fp32, of scores (megatron/model/fused_softmax.py).
    BoundFormula{"gpt-neox",
                 [](const BoundSizes& z) {
                   const Model& m = z.s.model;
                   const std::int64_t turned = 4 * (z.heads() + 2 * z.kv_heads()) * m.head_dim;
                   const std::int64_t of_a_layer = half * (6 * m.hidden + turned + z.ffn()) + 2 * whole;
                   const std::int64_t scores =
                       z.number > 0 ? z.tokens() * z.s.train.sequence_length * z.heads() * (2 * whole + 2 * half + 1)
                                    : 0;
                   return (z.tokens() * of_a_layer + scores) * (z.saved_layers() + 1) +
                          (z.head ? 2 * half * z.tokens() * z.vocabulary() : 0);
                 },
                 // What Transformer Engine's norms and heads keep, and these do not.
                 [](const BoundSizes& z) {
                   return half * z.tokens() * (2 * z.s.model.hidden + z.ffn()) * (z.saved_layers() + 1) +
                          (z.head ? whole * z.tokens() * z.vocabulary() : 0);
                 }},
    // megatron/legacy/model/transformer.py (core 0.5 to 0.17): GPT-NeoX's layers began as these. Beside the inputs of
    // linears they save a second norm's output, outputs of attention and MLP with their dropouts, and queries, keys and
    // values that are turned, repeated for all heads and copied for FlashAttention; megatron/legacy/model/gpt_model.py:
    // logits and their gradient in half precision beside those in fp32, of which exponentials take the place
    // (core/tensor_parallel/cross_entropy.py).
    BoundFormula{"use-legacy-models",
                 [](const BoundSizes& z) {
                   const Model& m = z.s.model;
                   const std::int64_t turned = 4 * 3 * z.heads() * m.head_dim;
                   const std::int64_t of_a_layer = half * (6 * m.hidden + turned + z.ffn()) + 2 * whole;
                   return z.tokens() * of_a_layer * (z.saved_layers() + 1) +
                          (z.head ? 2 * half * z.tokens() * z.vocabulary() : 0);
                 },
                 // What Transformer Engine's norms and heads keep, and these do not.
                 [](const BoundSizes& z) {
                   return half * z.tokens() * (2 * z.s.model.hidden + z.ffn()) * (z.saved_layers() + 1) +
                          (z.head ? whole * z.tokens() * z.vocabulary() : 0);
                 }},
    // MindSpeed c77308a1, mindspeed/features_manager/memory/reuse_fp32_param.py: parameters in half precision lie
    // within those in fp32.
    BoundFormula{"reuse-fp32-param", [](const BoundSizes&) { return std::int64_t{0}; },
                 [](const BoundSizes& z) { return half * z.parameters(); }},
    // core/pipeline_parallel/utils.py, core/tensor_parallel/layers.py: inputs of the head and gradients of logits of so
    // many micro-batches.
    BoundFormula{"deferred-head",
                 [](const BoundSizes& z) {
                   const std::int64_t kept = z.number > 0 ? std::min(z.number, z.micro_batches()) : z.micro_batches();
                   return kept * half * z.tokens() * (z.s.model.hidden + z.vocabulary());
                 }},
    // core/transformer/moe/moe_utils.py topk_softmax_with_capacity: softmax of all experts' logits in fp32, or of the
    // chosen ones alone; what it comes to, its gradient, and what it is put back into.
    BoundFormula{"router-scores", of_router_scores, of_router_scores},
    // Transformer Engine, pytorch/router.py FusedTopkScoreFunction and FusedComputeScoresForMoEAuxLoss: scores of all
    // experts in fp32, once for the choice and once for the balancing loss, and what is chosen, a byte each. Less: what
    // core/transformer/moe/moe_utils.py keeps by operations, which is the same three in fp32.
    BoundFormula{"moe-router-fusion", of_router_scores, of_router_scores},
    // core/transformer/moe/moe_utils.py RandomSTE: logits once more, in fp32 at the most.
    BoundFormula{"moe-router-force-load-balancing",
                 [](const BoundSizes& z) { return whole * z.tokens() * experts_of(z) * (z.saved_layers() + 1); }},
    // core/optimizer/distrib_optimizer.py start_param_sync at each chunk's step: buffers are the same. Less: copies of
    // three states of all chunks at once.
    BoundFormula{"overlap-param-gather-with-optimizer-step", [](const BoundSizes&) { return std::int64_t{0}; },
                 [](const BoundSizes& z) { return 3 * whole * over(z.parameters(), z.s.layout.data); }},
    // Transformer Engine, common/comm_gemm_overlap/comm_gemm_overlap.cpp CommOverlapP2PBase: a ring that reduces has
    // buffers of 2 t - 1 parts in place of t; at most four of a layer's products are reduced (pytorch/module/base.py).
    BoundFormula{"tp-comm-overlap-cfg", [](const BoundSizes& z) { return 4 * half * z.tokens() * z.s.model.hidden; }},
    // Pai-Megatron-Patch, megatron_patch/model/llama3_1/rms_norm.py: the last norm in operations of PyTorch, which
    // save the input in fp32 and what it comes to, and give it back in half precision.
    BoundFormula{
        "last-norm-by-operations",
        [](const BoundSizes& z) { return z.head ? z.tokens() * z.s.model.hidden * (2 * whole + half + half) : 0; }},
    // Pai-Megatron-Patch, megatron_patch/model/deepseek_v2 (multi_latent_attention.py, transformer_layer.py): values
    // are
    // copied, queries and keys put together from parts that are turned, and norms before linears saved apart from them.
    BoundFormula{"copied-latent-attention",
                 [](const BoundSizes& z) {
                   const Model& m = z.s.model;
                   const std::int64_t query = m.latent() ? m.latent()->query_head() : m.head_dim;
                   const std::int64_t of_a_layer = 2 * z.heads() * (2 * query + m.value_dim()) + 2 * m.hidden;
                   return half * z.tokens() * of_a_layer * (z.saved_layers() + 1);
                 }},
    // States are on the host; what a step sends there and gets back is a share in fp32 each way.
    BoundFormula{"adam-on-hosts", [](const BoundSizes& z) { return 2 * whole * over(z.parameters(), z.s.layout.data); },
                 [](const BoundSizes& z) { return 3 * whole * z.parameters(); }},
};

}  // namespace

std::span<const BoundFormula> formulas_of_megatron() { return megatron_formulas; }

}  // namespace tidemark::scenarios
