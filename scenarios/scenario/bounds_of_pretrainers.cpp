#include <algorithm>
#include <array>
#include <cstdint>

#include "scenarios/scenario/detail/bound_formulas.hpp"

// Of tools that pre-train models of their own, whose figures are those of transformers' modules. Every formula names
// what takes the bytes, and where that is written.

namespace tidemark::scenarios {
namespace {

std::int64_t width_of_all_heads(const BoundSizes& z) { return (z.heads() + 2 * z.kv_heads()) * z.s.model.head_dim; }

constexpr std::array pretrainer_formulas{
    // llm-foundry 8c8dd48f, llmfoundry/models: attention_implementations gather queries, keys and values by rows and
    // put the output back in place, a copy (layers/attention.py flash_attn_fn); clip_qkv's clamp saves its input, and
    // positions may turn queries and keys. An untied head is a unit of its own. Less: GPT-2's layer norms save inputs
    // in fp32 beside masks of dropout, logits and their logarithms are in fp32 (layers/norm.py LPLayerNorm,
    // mpt/modeling_mpt.py FusedCrossEntropyLoss), and learned positions may not be there.
    BoundFormula{"mpt",
                 [](const BoundSizes& z) {
                   const Model& m = z.s.model;
                   constexpr std::int64_t of_rows = 64;
                   const std::int64_t all = width_of_all_heads(z);
                   const std::int64_t saved = half * (m.hidden + 2 * all) + of_rows;
                   return z.tokens() * (saved * (z.saved_layers() + 1) + 6 * half * all) +
                          2 * half * z.vocabulary() * m.hidden;
                 },
                 [](const BoundSizes& z) {
                   const Model& m = z.s.model;
                   const std::int64_t norms = 4 * whole * m.hidden + 4 * m.hidden;
                   const std::int64_t places = z.s.train.sequence_length * m.hidden;
                   return z.tokens() * (norms * (z.saved_layers() + 1) + 4 * whole * z.vocabulary()) +
                          over(4 * whole * places, z.s.layout.shards()) + 2 * half * places;
                 }},
    // layers/norm.py LPRMSNorm and TritonRMSNorm: what is normalized, and its square, in fp32.
    BoundFormula{
        "mpt-rms",
        [](const BoundSizes& z) { return 4 * whole * z.tokens() * z.s.model.hidden * (z.saved_layers() + 1); }},
    // OLMo 0.6, olmo/model.py: queries, keys and values are one tensor, which the values' view keeps; they are turned
    // in fp32 (RotaryEmbedding), and keys and values repeated where PyTorch's attention is taken. olmo/train.py
    // model_forward copies logits of all tokens but the last. Their loss and its square are fp32 numbers of all of
    // them, but where flash_attn's is taken (the number 1); with the square (2) there is one gradient more. Less:
    // logits and logarithms in fp32, ends that are units of their own.
    BoundFormula{"olmo",
                 [](const BoundSizes& z) {
                   const Model& m = z.s.model;
                   constexpr std::int64_t fused = 1, squared = 2;
                   const std::int64_t all = width_of_all_heads(z);
                   const std::int64_t repeated = z.kv_heads() < z.heads() ? 2 * half * z.heads() * m.head_dim : 0;
                   // transformers' OLMo 2 keeps what its four norms come to in fp32 (modeling_olmo2.py Olmo2RMSNorm),
                   // and this one in half precision, which is more than queries and keys of the one tensor.
                   const bool of_second = m.qk_norm == QkNorm::AllHeads;
                   const std::int64_t kept = of_second ? 0 : half * (all - z.kv_heads() * m.head_dim);
                   const std::int64_t saved = kept + repeated;
                   const std::int64_t of_logit = z.number == fused     ? 2 * half
                                                 : z.number == squared ? 2 * half + 2 * whole
                                                                       : 2 * half + whole;
                   return z.tokens() * (saved * (z.saved_layers() + 1) + 6 * whole * all + of_logit * z.vocabulary());
                 },
                 [](const BoundSizes& z) {
                   const Model& m = z.s.model;
                   const std::int64_t normed = 2 * m.hidden + (z.heads() + z.kv_heads()) * m.head_dim;
                   const std::int64_t norms = m.qk_norm == QkNorm::AllHeads             ? half * normed
                                              : m.normalization == Normalization::Layer ? 2 * whole * m.hidden
                                                                                        : 0;
                   const std::int64_t of_logit = z.number == 1 ? 2 * whole + half : whole;
                   return z.tokens() * (norms * (z.saved_layers() + 1) + of_logit * z.vocabulary()) +
                          2 * half * z.vocabulary() * m.hidden;
                 }},
    // olmo/model.py clip_qkv: clamp_ in place, which autograd copies for.
    BoundFormula{
        "olmo-clips",
        [](const BoundSizes& z) { return half * z.tokens() * width_of_all_heads(z) * (z.saved_layers() + 1); }},
    // Pai-Megatron-Patch a098ca5a, megatron_patch/model/llama2, codellama and baichuan2 (transformer.py, gpt_model.py):
    // Megatron-LM's legacy modules, whose norms are made of operations in fp32; queries, keys and values are copied
    // before and behind their turn and once more by rows; outputs before dropout are kept, and logits with
    // their gradient in half precision. Less:
    // what Transformer Engine's linears keep of norms, and outputs of activations.
    BoundFormula{"pai-legacy-model",
                 [](const BoundSizes& z) {
                   const Model& m = z.s.model;
                   const std::int64_t copies = 4 * half * 3 * z.heads() * m.head_dim;
                   const std::int64_t norms = 2 * (2 * whole + half) * m.hidden;
                   const std::int64_t saved = copies + norms + half * (6 * m.hidden + z.ffn()) + 2 * whole;
                   return z.tokens() * saved * (z.saved_layers() + 1) +
                          (z.head ? 2 * half * z.tokens() * z.vocabulary() : 0);
                 },
                 [](const BoundSizes& z) {
                   return half * z.tokens() * (2 * z.s.model.hidden + z.ffn()) * (z.saved_layers() + 1) +
                          (z.head ? whole * z.tokens() * z.vocabulary() : 0);
                 }},
    // A layer norm in place of an RMS norm: its bias, and the mean of each row, are more than there is.
    BoundFormula{"norms-of-another-kind", [](const BoundSizes&) { return std::int64_t{0}; },
                 [](const BoundSizes& z) {
                   constexpr std::int64_t norms = 4, numbers = 10;
                   return norms * whole * (z.tokens() + numbers * z.s.model.hidden) * (z.saved_layers() + 1) * 2;
                 }},
    // swiss-ai/Megatron-LM, megatron/core/optimizer/ademamix.py: a slow mean beside Adam's two numbers, shared out as
    // they are, and of the parameter at work a root, two means, their sum and the update.
    BoundFormula{"ademamix",
                 [](const BoundSizes& z) {
                   const bool shared = z.s.layout.sharding != parallel::Sharding::None;
                   const std::int64_t widest = z.s.model.hidden * std::max(z.vocabulary(), z.ffn());
                   return over(whole * z.parameters(), shared ? z.s.layout.data : 1) +
                          5 * whole * (shared ? std::min(widest, over(z.parameters(), z.s.layout.data)) : widest);
                 }},
    // swiss-ai/Megatron-LM, megatron/training/activations.py XIELU: compiled (core/jit.py), so that it keeps its input
    // as GELU does; its two numbers have gradients, which are sums over all of it.
    BoundFormula{"xielu", [](const BoundSizes& z) { return 2 * half * z.tokens() * z.ffn(); }},
    // Lingua 437d680e, lingua/transformer.py: a norm saves two numbers in fp32 where transformers' has one, and one in
    // half; apply_rotary_emb multiplies queries and keys by tables of 2 x 2, in fp32, which is two numbers for each,
    // and sums them; repeat_kv. Less: embedding and output are units of their own, of which one is gathered at a time.
    BoundFormula{"lingua",
                 [](const BoundSizes& z) {
                   const Model& m = z.s.model;
                   const std::int64_t repeated = z.kv_heads() < z.heads() ? 2 * half * z.heads() * m.head_dim : 0;
                   const std::int64_t saved = 2 * half * m.hidden + repeated;
                   return z.tokens() * (saved * (z.saved_layers() + 1) + 4 * whole * width_of_all_heads(z));
                 },
                 [](const BoundSizes& z) {
                   return z.tokens() * whole * z.vocabulary() + 2 * half * z.vocabulary() * z.s.model.hidden;
                 }},
};

}  // namespace

std::span<const BoundFormula> formulas_of_pretrainers() { return pretrainer_formulas; }

}  // namespace tidemark::scenarios
