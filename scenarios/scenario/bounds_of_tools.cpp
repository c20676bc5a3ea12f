#include <algorithm>
#include <array>
#include <cstdint>

#include "scenarios/scenario/detail/bound_formulas.hpp"
#include "scenarios/scenario/image_towers.hpp"

// Of tools around transformers. Every formula names what takes the bytes, and where that is written.

namespace tidemark::scenarios {
namespace {

std::int64_t evaluated(const BoundSizes& z) {
  const Model& m = z.s.model;
  const std::int64_t tokens = z.number * z.s.train.sequence_length;
  const std::int64_t scores =
      parallel::stores_scores(z.s.train.attention) ? 2 * whole * tokens * z.s.train.sequence_length * z.heads() : 0;
  return 4 * whole * tokens * z.vocabulary() + 2 * whole * tokens * m.layers.size() * z.kv_heads() * m.head_dim +
         whole * tokens * (6 * m.hidden + 3 * z.ffn() + 3 * z.heads() * m.head_dim) + scores;
}
// All that the operations of one of torchtitan's layers give, of a token, in bytes (torchtitan/models/llama3/model.py):
// of tensors that sequence parallelism cuts norms in fp32 and sums with the residual; whole, what linears gather and
// give; queries, keys and values, turned as complex numbers in fp32; of MLPs gate, up, the activation and the product.
std::int64_t results_of_layer(const BoundSizes& z) {
  const Model& m = z.s.model;
  const std::int64_t cut = over(12 * m.hidden, z.s.layout.tensor), gathered = 4 * m.hidden;
  const std::int64_t attention = (7 * z.heads() + 7 * z.kv_heads()) * m.head_dim;
  return half * (cut + gathered + attention + 2 * z.ffn());
}
// A frozen model of the same shape that only judges, and one layer of it at work. Its parameters, of so many bytes each
// (the number; 0: adapters are turned off), are cut as those of ZeRO-3 and FSDP are, with two layers and an end
// gathered; else each rank has all.
std::int64_t reference_model(const BoundSizes& z) {
  const Model& m = z.s.model;
  const bool cut = z.s.layout.sharding == parallel::Sharding::Zero3;
  const std::int64_t layers = std::max<std::int64_t>(m.layers.size(), 1);
  const std::int64_t gathered = 2 * over(z.parameters(), layers) + z.vocabulary() * m.hidden;
  return z.number * (over(z.parameters(), cut ? z.s.layout.shards() : 1) + (cut ? gathered : 0)) +
         whole * z.tokens() * (6 * m.hidden + 3 * z.ffn() + 3 * z.heads() * m.head_dim);
}
// All that a step has of rows, which may be shorter than the longest: logits, and what layers save.
std::int64_t rows_of_answers(const BoundSizes& z) {
  const Model& m = z.s.model;
  return z.tokens() * (5 * whole * z.vocabulary() +
                       whole * (6 * m.hidden + 3 * z.ffn() + 3 * z.heads() * m.head_dim) * (z.saved_layers() + 1) +
                       half * m.hidden * static_cast<std::int64_t>(m.layers.size()));
}
std::int64_t logits_trained(const BoundSizes& z) {
  return 2 * half * z.tokens() * over(z.s.model.vocabulary, z.s.layout.tensor);
}

// A tower for images beside the text model, whose place in image_towers is the number over two; an odd number says that
// it is trained. As many tokens as there are in a batch are of images, which is the most that rows have room for.
std::int64_t images(const BoundSizes& z) {
  const Model& m = z.s.model;
  const ImageTower& tower = image_towers.at(static_cast<std::size_t>(z.number / 2));
  const bool trained = z.number % 2 != 0;
  const std::int64_t tokens = z.tokens(), patches = tower.patches_a_token * tokens;
  const std::int64_t width = (tower.gated ? 3 : 2) * tower.ffn;
  // Of each patch: pixels as they come and in the model's type; one layer at work in fp32, and where it is trained what
  // each saves, or its input where layers run again.
  const bool again = z.s.train.recompute.kind == parallel::Recompute::Full;
  const std::int64_t of_layer = whole * (14 * tower.hidden + width);
  const std::int64_t saved = !trained ? 0 : tower.layers * (again ? whole * tower.hidden : of_layer);
  std::int64_t all = patches * (2 * whole * tower.patch + of_layer + saved);
  if (parallel::stores_scores(z.s.train.attention)) all += 2 * whole * patches * patches * tower.layers;
  // Of each token: what mergers make, and copies of embeddings with images in them, with gradients; cosines and sines
  // of three kinds of places, which Qwen2-VL puts together in each layer.
  all += tokens * whole *
         (2 * tower.patches_a_token * tower.hidden * std::max<std::int64_t>(tower.mergers, 1) +
          (6 + 4 * tower.mergers) * m.hidden + m.head_dim * (6 + 2 * (z.saved_layers() + 1)));
  // Gemma 3 lets the tokens of an image see each other: masks of all tokens by all, with which keys and values are
  // repeated for all heads (integrations/sdpa_attention.py).
  if (tower.projects)
    all += z.s.train.micro_batch * z.s.train.sequence_length * z.s.train.sequence_length * 2 * whole +
           2 * half * tokens * z.heads() * m.head_dim * (z.saved_layers() + 1);
  // Frozen: in the type that is loaded, and as autocast converts them. Trained: also gradients and moments in fp32.
  const std::int64_t parameters = tower.parameters(m.hidden);
  if (!trained) return all + parameters * (whole + half);
  const bool cut = z.s.layout.sharding == parallel::Sharding::Zero3;
  return all + parameters * (whole + half) + over(parameters * (4 * whole + half), cut ? z.s.layout.shards() : 1);
}

constexpr std::array tool_formulas{
    BoundFormula{"images", images},
    // Ulysses (verl/models/transformers/monkey_patch.py, ms-swift's sequence parallelism, DeepSpeed's) and ring
    // attention (axolotl's, torch.distributed.tensor.experimental) on so many ranks: attention has each rank's heads of
    // whole rows in place of all heads of its part, which is as much, but that keys and values are repeated for each
    // rank. Sent and received at a time: queries, keys, values, what comes of them, and their gradients; in a ring
    // outputs and two gradients in fp32. Places of whole rows; one communicator more, at NCCL's channels and buffers.
    BoundFormula{"row-parts",
                 [](const BoundSizes& z) {
                   constexpr std::int64_t of_communicator = std::int64_t{1} << 30;
                   const Model& m = z.s.model;
                   const std::int64_t kv = std::max(z.kv_heads(), std::min(z.number, z.heads()));
                   const std::int64_t sent = 2 * whole * (3 * z.heads() + 4 * kv) * m.head_dim;
                   const std::int64_t repeated = 2 * half * (kv - z.kv_heads()) * m.head_dim * (z.saved_layers() + 1);
                   return z.tokens() * (sent + repeated + 64 * z.number) + of_communicator;
                 }},
    // torch.autograd.graph.save_on_cpu: of what was saved on the host, the largest is on the device as it is needed.
    BoundFormula{"saved-on-hosts",
                 [](const BoundSizes& z) { return whole * z.tokens() * std::max(2 * z.s.model.ffn, z.vocabulary()); },
                 [](const BoundSizes& z) { return z.s.cluster.device.capacity.count(); }},
    // transformers' flattening of packed sequences (data/data_collator.py DataCollatorWithFlattening,
    // modeling_flash_attention_utils.py): positions, and cosines and sines of each row. FlashAttention keeps where
    // sequences begin, and pads a layer's query gradients by 128 rows for each. Without it each layer has a mask of all
    // tokens by all, and keys and values repeated for all heads; or all scores.
    BoundFormula{"packed-rows",
                 [](const BoundSizes& z) {
                   const Model& m = z.s.model;
                   const std::int64_t tokens = z.tokens(), layers = z.saved_layers() + 1;
                   std::int64_t all = tokens * (64 + 6 * whole * m.head_dim + 16 * layers);
                   const parallel::AttentionKernel kernel = z.s.train.attention;
                   if (kernel == parallel::AttentionKernel::Flash) return all + whole * tokens * z.heads() * m.head_dim;
                   all += half * tokens * layers * (tokens + 2 * z.heads() * m.head_dim);
                   return parallel::stores_scores(kernel) ? all + 2 * whole * tokens * tokens * z.heads() * layers
                                                          : all;
                 }},
    // Losses that never have all logits (TRL's chunked_nll, trl/trainer/utils.py; cut cross-entropy): gradients of
    // hidden
    // states and of the head in fp32. Less: logits, their gradients, and both in fp32.
    BoundFormula{"chunked-loss",
                 [](const BoundSizes& z) { return whole * z.s.model.hidden * (z.vocabulary() + z.tokens()); },
                 [](const BoundSizes& z) { return 4 * whole * z.tokens() * z.vocabulary(); }},
    // Liger-Kernel's functions (parallel/frameworks/transformers/liger.cpp), where they are not simulated: its loss has
    // the gradient of the head at once. Less: logits; of each layer norms' inputs in fp32, and what gate and up come
    // to.
    BoundFormula{"liger-kernel",
                 [](const BoundSizes& z) { return whole * z.s.model.hidden * (z.vocabulary() + z.tokens()); },
                 [](const BoundSizes& z) {
                   return 4 * whole * z.tokens() * z.vocabulary() +
                          z.tokens() * (6 * whole * z.s.model.hidden + 2 * whole * z.ffn()) * (z.saved_layers() + 1);
                 }},
    // transformers' Trainer.prediction_step on so many sequences: logits, those in fp32, their softmax, and what
    // accelerate makes fp32 of them; keys and values of all layers, which are cached; one layer at work, whose scores
    // may
    // be whole. In training there were logits and their softmax, of as many sequences as it takes.
    BoundFormula{"evaluation",
                 [](const BoundSizes& z) { return std::max<std::int64_t>(evaluated(z) - logits_trained(z), 0); }},
    BoundFormula{"evaluation-beside-liger", [](const BoundSizes& z) { return evaluated(z); }},
    // torchao/optim: codes of both moments with a scale for each 256, and one parameter at a time in fp32, with its
    // moments and gradient. Less: embeddings' state, which bitsandbytes keeps in fp32.
    // In 4 bits (the number) both moments take a byte together, not two.
    BoundFormula{"torchao-adam", [](const BoundSizes& z) { return 4 * whole * z.vocabulary() * z.s.model.hidden; },
                 [](const BoundSizes& z) {
                   constexpr std::int64_t four_bits = 4;
                   return 4 * whole * z.vocabulary() * z.s.model.hidden + (z.number == four_bits ? z.parameters() : 0);
                 }},
    // The same of DTensors, which bitsandbytes' kernels do not take: less are the moments in fp32 that are simulated.
    BoundFormula{"torchao-adam-of-shards",
                 [](const BoundSizes& z) { return 4 * whole * z.vocabulary() * z.s.model.hidden; },
                 [](const BoundSizes& z) { return 2 * whole * over(z.parameters(), z.s.layout.shards()); }},
    // torchtune bd2a0fc7, torchtune/modules: queries and keys are turned in fp32, in parts that are put together
    // (position_embeddings.py: a copy, four products of halves, two sums, and what they are stacked to), and keys and
    // values repeated for all heads, which attention saves (attention.py). Embedding and head may be units of their own
    // (training/_distributed.py shard_model), whose gathered parts come and go. Less: what the root unit keeps of them,
    // and repeated keys and values that transformers has as well.
    BoundFormula{"torchtune",
                 [](const BoundSizes& z) {
                   const Model& m = z.s.model;
                   const std::int64_t turned = 6 * whole * (z.heads() + z.kv_heads()) * m.head_dim;
                   const std::int64_t repeated = 2 * half * z.heads() * m.head_dim;
                   return z.tokens() * (turned + repeated * (z.saved_layers() + 1)) +
                          2 * half * z.vocabulary() * m.hidden;
                 },
                 [](const BoundSizes& z) {
                   const Model& m = z.s.model;
                   return 2 * half * z.tokens() * z.heads() * m.head_dim * (z.saved_layers() + 1) +
                          2 * half * z.vocabulary() * m.hidden;
                 }},
    // Beside a step on answers, trl/trainer/dpo_trainer.py and kto_trainer.py of 0.13 and later: logarithms of softmax
    // row by row (trainer/utils.py selective_log_softmax), of which each row's gradient is as large as all of them
    // while it is added, and answers' logits are copied. Then, while the trained model's logits wait, the reference's
    // pass without gradients: logits, one row's in fp32, and one layer at work. Less: all of rows that are shorter.
    BoundFormula{"preferences",
                 [](const BoundSizes& z) {
                   const std::int64_t row = 2 * whole * z.s.train.sequence_length * z.vocabulary();
                   return reference_model(z) + z.tokens() * 4 * half * z.vocabulary() + row;
                 },
                 rows_of_answers},
    // The same where logits and logarithms of softmax are whole in fp32, of the reference too: LLaMA-Factory
    // (src/llamafactory/train/dpo/trainer.py concatenated_forward, train/trainer_utils.py), OpenRLHF
    // (openrlhf/models/utils.py log_probs_from_logits), torchtune (torchtune/rlhf/sequence_processing.py).
    BoundFormula{"preferences-whole",
                 [](const BoundSizes& z) {
                   const std::int64_t logits = (2 * whole + half) + (half + 2 * whole);
                   return reference_model(z) + z.tokens() * logits * z.vocabulary();
                 },
                 rows_of_answers},
    // A reward model (trl/trainer/reward_trainer.py, openrlhf/models/model.py): a number for each token or row of the
    // last hidden states, which are copied in fp32. Less: logits with their gradients, and the head with all that an
    // optimizer has of a share.
    BoundFormula{"ranked-pairs", [](const BoundSizes& z) { return 2 * whole * z.tokens() * z.s.model.hidden; },
                 [](const BoundSizes& z) {
                   const std::int64_t head = z.vocabulary() * z.s.model.hidden;
                   const bool cut = z.s.layout.sharding != parallel::Sharding::None;
                   return rows_of_answers(z) + 2 * half * head + over(4 * whole * head, cut ? z.s.layout.shards() : 1);
                 }},
    // torchao/quantization/qat: each linear keeps what its input and its weight are rounded to, in fp32 at most, and a
    // byte of each element for the gradient (qat/utils.py _GenericFakeQuantize); rounding has four copies in fp32 of
    // the one at work. Less: inputs themselves, which nobody else may save.
    BoundFormula{"fake-quantized",
                 [](const BoundSizes& z) {
                   const Model& m = z.s.model;
                   const std::int64_t inputs = 5 * m.hidden + z.heads() * m.head_dim + z.ffn();
                   const std::int64_t layer = over(z.parameters(), std::max<std::int64_t>(m.layers.size(), 1));
                   const std::int64_t kept = (whole + 1) * (z.tokens() * inputs + layer) * (z.saved_layers() + 1) +
                                             (whole + 1) * m.hidden * (z.tokens() + z.vocabulary());
                   const std::int64_t widest = std::max(z.ffn(), m.hidden);
                   return kept + 4 * whole * std::max(z.tokens() * widest, m.hidden * std::max(widest, z.vocabulary()));
                 },
                 [](const BoundSizes& z) {
                   return half * z.tokens() * (5 * z.s.model.hidden + z.ffn()) * (z.saved_layers() + 1);
                 }},
    // axolotl 067b021c, src/axolotl/kernels/lora.py: what its functions save PEFT's linears do as well; at work are the
    // product of gate and up, three gradients as wide, and two weights made whole. Less: what PEFT keeps of inputs that
    // are dropped out or cast, activations and products.
    BoundFormula{"lora-kernels",
                 [](const BoundSizes& z) {
                   const std::int64_t hidden = z.s.model.hidden;
                   return half * (z.tokens() * (4 * z.ffn() + 4 * hidden) + 2 * hidden * z.ffn());
                 },
                 [](const BoundSizes& z) {
                   return whole * z.tokens() * (7 * z.s.model.hidden + 3 * z.ffn()) * (z.saved_layers() + 1);
                 }},
    // models/mixtral/modeling_mixtral.py load_balancing_loss_func, of each layer and token: the logits that a layer
    // hands out, these of all layers together, probabilities, a mask, their product, gradients of four of them; which
    // experts are chosen as numbers, one-hot in eight bytes and in four, a mask of as many, and a product.
    BoundFormula{"router-loss",
                 [](const BoundSizes& z) {
                   const auto* const experts = z.s.model.experts();
                   if (experts == nullptr) return std::int64_t{0};
                   const std::int64_t of_logits = 12 * whole, of_choice = 6 * whole, of_number = 4 * whole;
                   return z.tokens() * z.s.model.layers.size() *
                          (of_logits * experts->count + experts->chosen * (of_number + of_choice * experts->count));
                 }},
    // torchao/float8/float8_linear.py matmul_with_hp_or_float8_args saves inputs and weights as they are; those of the
    // linear at work, and its gradient, are there in eight bits, by rows and by columns. Less: weights that are
    // gathered
    // so, and products that selective checkpoints do not know.
    BoundFormula{"float8-linears",
                 [](const BoundSizes& z) {
                   const std::int64_t widest = std::max(z.ffn(), z.s.model.hidden);
                   return 2 * (2 * z.tokens() * widest + z.s.model.hidden * widest);
                 },
                 [](const BoundSizes& z) {
                   const std::int64_t layer = over(z.parameters(), std::max<std::int64_t>(z.s.model.layers.size(), 1));
                   return 2 * layer + z.tokens() * results_of_layer(z) * (z.saved_layers() + 1);
                 }},
    // torch/distributed/_symmetric_memory: what is gathered for a product lies in memory of its own that all ranks see,
    // twice in turn, and partial sums are stacked before they are reduced.
    BoundFormula{"async-tensor", [](const BoundSizes& z) { return 3 * half * z.tokens() * z.s.model.hidden; }},
    // torch.compile of each layer (torchtitan/models/llama3/infra/parallelize.py apply_compile): the partitioner saves
    // no more bytes than autograd does (torch/_functorch/partitioners.py min_cut_rematerialization_partition, of which
    // those are a cut), and a graph that runs holds at most all results of its operations at once. Less: what is saved,
    // and logits of a compiled loss in fp32.
    BoundFormula{"compiled-layers", [](const BoundSizes& z) { return z.tokens() * results_of_layer(z); },
                 [](const BoundSizes& z) {
                   return z.tokens() * (results_of_layer(z) * (z.saved_layers() + 1) + 4 * whole * z.vocabulary());
                 }},
    // torchtitan's tied ends as one unit (distributed/fsdp.py): gathered all the step, and their gradient until it is
    // reduced, in half precision and in fp32. Less: a head of its own, with all that an optimizer has of a share.
    BoundFormula{"tied-ends",
                 [](const BoundSizes& z) { return (2 * half + whole) * z.vocabulary() * z.s.model.hidden; },
                 [](const BoundSizes& z) {
                   const std::int64_t head = z.vocabulary() * z.s.model.hidden;
                   return over(4 * whole * head, z.s.layout.shards() * z.s.layout.context) + (half + whole) * head;
                 }},
    // nanotron 2411b022, examples/doremi: losses of each token by their domains (doremi/loss.py). With a number, the
    // reference that a proxy is trained beside (doremi/trainer.py DoReMiTrainer), its logits, and those in fp32 with
    // their exponentials.
    BoundFormula{"doremi",
                 [](const BoundSizes& z) {
                   const std::int64_t judged =
                       z.number > 0 ? reference_model(z) + z.tokens() * (half + 2 * whole) * z.vocabulary() : 0;
                   return judged + 8 * whole * z.tokens();
                 }},
    // An optimizer's step for each parameter as its gradient is there, which then goes (torchtune/training/memory.py
    // register_optim_in_bwd_hooks).
    BoundFormula{"optimizer-in-backward", [](const BoundSizes&) { return std::int64_t{0}; },
                 [](const BoundSizes& z) {
                   const bool cut = z.s.layout.sharding == parallel::Sharding::Zero3;
                   return over(whole * z.parameters(), cut ? z.s.layout.shards() : 1);
                 }},
    // LitGPT 26857050, litgpt/model.py: a norm saves what its weight multiplies in fp32; queries, keys and values are
    // one tensor, which the values' view keeps, turned in three copies, and keys and values repeated for all heads.
    // litgpt/lora.py LoRAQKVLinear: the update is spread over a tensor as wide, and added to another. Of a quantized
    // base the head has codes too and is made whole as it is used, and embeddings have a norm in fp32
    // (finetune/lora.py main). Less: the quantized head; inputs that PEFT drops out once for each linear.
    BoundFormula{"litgpt",
                 [](const BoundSizes& z) {
                   const Model& m = z.s.model;
                   const std::int64_t all = (z.heads() + 2 * z.kv_heads()) * m.head_dim;
                   const std::int64_t saved = 2 * whole * m.hidden + half * (all + 2 * z.heads() * m.head_dim);
                   return z.tokens() * (saved * (z.saved_layers() + 1) + 6 * half * all + 4 * whole * m.hidden) +
                          half * z.vocabulary() * m.hidden;
                 },
                 [](const BoundSizes& z) {
                   const Model& m = z.s.model;
                   const std::int64_t dropped = z.s.train.adapter ? 3 * (6 * m.hidden + z.ffn()) : 0;
                   return z.tokens() * (dropped + 2 * half * z.heads() * m.head_dim) * (z.saved_layers() + 1) +
                          2 * half * z.vocabulary() * m.hidden;
                 }},
    // nemo_automodel/components/distributed/parallelizer.py: the last layer's parameters stay gathered, and halves of
    // layers may be checkpointed, whose inputs are kept. Less: Liger's kernels.
    BoundFormula{"automodel",
                 [](const BoundSizes& z) {
                   const Model& m = z.s.model;
                   const std::int64_t layers = std::max<std::int64_t>(m.layers.size(), 1);
                   const bool again = z.s.train.recompute.kind == Recompute::Full;
                   return half * z.parameters() / layers + (again ? 3 * half * z.tokens() * m.hidden * layers : 0);
                 },
                 [](const BoundSizes& z) {
                   return z.tokens() * (6 * whole * z.s.model.hidden + 2 * whole * z.ffn()) * (z.saved_layers() + 1);
                 }},
    // LLaMA-Factory's second trainer (src/llamafactory/v1/core/base_trainer.py compute_log_probs) and DeepSpeed-Chat's
    // loss in fp32 copy logits of all tokens but the last, which have a gradient of their own.
    BoundFormula{"copied-logits", [](const BoundSizes& z) { return 2 * whole * z.tokens() * z.vocabulary(); }},
    // OpenRLHF, openrlhf/models/actor.py: logits in fp32 are held with the model's output; utils.py
    // log_probs_from_logits: what is gathered of them, and the logarithm of sums of exponentials, have a gradient each.
    // Less: transformers' softmax of all tokens.
    BoundFormula{"openrlhf", [](const BoundSizes& z) { return 3 * whole * z.tokens() * z.vocabulary(); },
                 [](const BoundSizes& z) { return 2 * whole * z.tokens() * z.vocabulary(); }},
};

}  // namespace

std::span<const BoundFormula> formulas_of_tools() { return tool_formulas; }

}  // namespace tidemark::scenarios
