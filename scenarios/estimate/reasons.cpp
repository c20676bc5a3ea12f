#include "scenarios/estimate/reasons.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "parallel/job/sharing.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/format.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/reader/adapter_reader.hpp"
#include "scenarios/scenario/cpu_offload.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

std::string gb(double bytes) { return fmt::format("{:.2f} GB", bytes / 1e9); }
std::string gb(Bytes bytes) { return gb(static_cast<double>(bytes.count())); }

std::string joined(const std::vector<std::string>& parts, std::string_view otherwise) {
  return parts.empty() ? std::string(otherwise) : fmt::format("{}", fmt::join(parts, "; "));
}

// Of a frozen base in few bits: its linears, and the rest by how it was prepared.
std::string base_text(const Scenario& s) {
  const Quantization& its = *s.train.quantization;
  std::string text = fmt::format("the base's linears are frozen, in {} with scales of blocks",
                                 word(quantized_format_names, its.format));
  if (runtime_kind(s.runtime.name).id == RuntimeId::DeepSpeed)
    return text + fmt::format(", all else of it in {}", name(s.train.precision));
  switch (its.prepared) {
    case Prepared::All:
      return text + ", all else of it in fp32";
    case Prepared::Norms:
      return text + ", its norms in fp32";
    case Prepared::Nothing:
      break;
  }
  return text;
}

// What an optimizer keeps, and the rule does not say; nothing of AdamW.
std::string state_text(Optimizer optimizer) {
  constexpr std::string_view small_ones = "scales of blocks, small tensors and embeddings in fp32",
                             pages = "large tensors' is in managed memory, which PyTorch does not count";
  switch (optimizer) {
    case Optimizer::AdamW:
      return {};
    case Optimizer::PagedAdamW:
      return std::string(pages);
    case Optimizer::AdamW8Bit:
      return fmt::format("two moments of a byte each, where the rule has one for both; {}", small_ones);
    case Optimizer::PagedAdamW8Bit:
      return fmt::format("two moments of a byte each, where the rule has one for both; {}; {}", small_ones, pages);
    case Optimizer::Lion:
      return "one moment in fp32";
    case Optimizer::PagedLion:
      return fmt::format("one moment in fp32; {}", pages);
    case Optimizer::Lion8Bit:
      return fmt::format("one moment of a byte; {}", small_ones);
    case Optimizer::PagedLion8Bit:
      return fmt::format("one moment of a byte; {}; {}", small_ones, pages);
    case Optimizer::Sgd:
      return "no state at all";
    case Optimizer::SgdMomentum:
      return "one moment, of the parameters that are updated";
    case Optimizer::Muon:
      return "one moment of matrices, two of embeddings, head and vectors";
    case Optimizer::Adafactor:
      return "sums over rows and columns of matrices, which the rule leaves out";
    case Optimizer::ApolloAdamW:
    case Optimizer::GaloreAdamW:
    case Optimizer::GaloreAdamWLayerwise:
      return "moments of layers' linears are of projections to few dimensions";
  }
  return {};
}

}  // namespace

DType Reasons::trained_dtype() const {
  return s_.train.adapter ? s_.train.adapter->dtype.value_or(base_dtype(s_)) : s_.train.master_dtype;
}

std::string Reasons::trained_share() const {
  return fmt::format("{:.2f} M of {:.2f} B parameters", static_cast<double>(p_.trained) / 1e6,
                     static_cast<double>(p_.parameters) / 1e9);
}

std::string Reasons::of_experts() const {
  const Layout& layout = s_.layout;
  if (!s_.model.experts() || experts_sharing(layout) == sharing(layout)) return {};
  if (layout.expert == 1)
    return fmt::format("what is experts' over the {} that hold the same ones", experts_sharing(layout));
  const std::string divided =
      fmt::format("what is experts' is divided by expert parallelism, over {} ranks", layout.expert);
  return experts_sharing(layout) == 1
             ? divided + ", and no further: no two ranks hold the same ones"
             : fmt::format("{}, and shared out over the {} that hold the same ones", divided, experts_sharing(layout));
}

bool Reasons::eager() const { return runtime_kind(s_.runtime.name).eager(); }

std::string Reasons::parameters() const {
  std::vector<std::string> parts;
  if (s_.train.quantization)
    parts.push_back(base_text(s_));
  else if (eager() && s_.train.master_dtype != s_.train.precision)
    parts.push_back(fmt::format("kept in {}, {}; {} only where they are computed with", name(s_.train.master_dtype),
                                s_.train.adapter ? "frozen" : "which is what is updated too",
                                name(s_.train.precision)));
  if (s_.train.adapter)
    parts.push_back(fmt::format("adapters beside them, in {}, are what is updated", name(trained_dtype())));
  if (shards_parameters() && sharing(s_.layout) > 1)
    parts.push_back(fmt::format("sharded over {} ranks, and at the peak some layers are gathered", sharing(s_.layout)));
  if (s_.layout.pipeline > 1)
    parts.emplace_back("embedding and head are on the first and the last stage, not divided over all");
  if (s_.layout.tensor > 1) parts.emplace_back("norms are whole on every rank, and the vocabulary is padded");
  if (s_.model.experts())
    parts.push_back(fmt::format("experts are divided over {} ranks, all else over TP x PP", s_.layout.expert));
  if (s_.train.rollout && s_.train.rollout->weights == EngineWeights::Own)
    parts.emplace_back("the engine of the rollout has weights of its own");
  if (!s_.train.frozen.empty()) parts.emplace_back("frozen models are loaded next to the trained one");
  if (cpu_offload(s_.runtime).parameters) parts.emplace_back("on the host, but for what is computed with");
  return joined(parts, "every tensor is rounded up to blocks of 512 B");
}

std::string Reasons::gradients() const {
  std::vector<std::string> parts;
  if (s_.train.adapter) parts.push_back(fmt::format("of adapters alone, {}: what is frozen has none", trained_share()));
  if (b_.gradients == Bytes{}) {
    parts.push_back(fmt::format("there are none when allocated memory peaks (in {}): they are freed after each step",
                                name(phase())));
    return joined(parts, {});
  }
  if (!eager() && size_of(s_.train.gradient_dtype) != size_of(s_.train.precision))
    parts.push_back(fmt::format("Megatron-LM sums gradients in {}: {} B a parameter", name(s_.train.gradient_dtype),
                                size_of(s_.train.gradient_dtype).count()));
  if (eager() && trained_dtype() != s_.train.precision)
    parts.push_back(fmt::format("of the type of the parameters that are {}, {}", s_.train.adapter ? "trained" : "kept",
                                name(trained_dtype())));
  if ((s_.layout.sharding == Sharding::Zero2 || shards_parameters()) && sharing(s_.layout) > 1) {
    parts.push_back(fmt::format("shared out over {} ranks once they are reduced", sharing(s_.layout)));
    if (std::string experts = of_experts(); !experts.empty()) parts.push_back(std::move(experts));
  }
  if (!eager() && s_.layout.pipeline > 1) parts.emplace_back("embedding and head as of parameters");
  if (eager() && phase() == Phase::Backward)
    parts.emplace_back("when allocated memory peaks, not all layers have theirs yet");
  return joined(parts, "every tensor is rounded up to blocks of 512 B");
}

std::string Reasons::optimizer() const {
  std::vector<std::string> parts;
  if (s_.train.adapter) parts.push_back(fmt::format("of adapters alone, {}", trained_share()));
  if (cpu_offload(s_.runtime).optimizer) parts.emplace_back("on the host");
  if (std::string kept = state_text(s_.train.optimizer); !kept.empty()) parts.push_back(std::move(kept));
  const bool copies = in_tensors(Category::OptimizerMaster) > Bytes{};
  if (copies)
    parts.push_back(fmt::format("an fp32 copy of the parameters, which the rule leaves out: {}",
                                gb(in_tensors(Category::OptimizerMaster))));
  if (eager() && s_.train.optimizer == Optimizer::AdamW && trained_dtype() != DType::FP32)
    parts.push_back(
        fmt::format("PyTorch's Adam keeps moments in the parameters' own type, {}: they are not always in fp32",
                    name(trained_dtype())));
  const OptimizerBehavior& behavior = s_.runtime.optimizer;
  if (!eager() && behavior.precision_aware && (behavior.mean != DType::FP32 || behavior.squares != DType::FP32))
    parts.push_back(fmt::format("moments in {} and {} (precision-aware)", name(behavior.mean), name(behavior.squares)));
  if (s_.layout.sharding != Sharding::None && sharing(s_.layout) > 1) {
    const std::string experts = of_experts();
    parts.push_back(fmt::format("{} over {} ranks: data parallelism divides it",
                                experts.empty() ? "shared out" : "all but what is experts' is shared out",
                                sharing(s_.layout)));
    if (!experts.empty()) parts.push_back(experts);
  }
  return joined(parts, "both moments in fp32, as the rule says");
}

std::string Reasons::division() const {
  if (s_.layout.sharding == Sharding::None || sharing(s_.layout) == 1) return "as above, one by one";
  constexpr std::string_view zero =
      "ZeRO divides by data-parallel ranks as well, where the guide says that data parallelism does not help";
  if (!s_.model.experts() || s_.layout.expert == 1) return std::string(zero);
  return fmt::format("experts are divided over {} ranks, which the rule does not know; {}", s_.layout.expert, zero);
}

std::string Reasons::zero() const {
  constexpr std::string_view rest =
      "pieces are padded to equal shares; replicated, gathered and not yet reduced tensors are whole";
  const std::string experts = of_experts();
  return experts.empty() ? std::string(rest) : fmt::format("{}; {}", experts, rest);
}

std::string Reasons::hidden_states() const {
  return s_.train.recompute.kind == Recompute::Full
             ? "checkpointing every layer keeps one hidden state per layer; the recomputed layer, the logits and the "
               "loss are extra"
             : "a layer saves many tensors, not one, and logits and loss are extra";
}

std::string Reasons::activations(double k) const {
  std::vector<std::string> parts{fmt::format("k comes to {:.2f}", k)};
  const Bytes logits = in_tensors(Category::LogitsLoss);
  if (logits > Bytes{})
    parts.push_back(fmt::format(
        "logits and loss are {}, of the vocabulary, which no multiple of the hidden size covers", gb(logits)));
  if (s_.layout.tensor > 1)
    parts.push_back(fmt::format("{} ranks share a layer's activations{}", s_.layout.tensor,
                                s_.layout.sequence_parallel ? ", all of them by sequence parallelism"
                                                            : " but for what lies between its branches"));
  if (s_.layout.context > 1) parts.push_back(fmt::format("{} ranks share the sequence", s_.layout.context));
  if (s_.layout.pipeline > 1)
    parts.push_back(fmt::format("a stage has {} times fewer layers, and up to {} micro-batches in flight",
                                s_.layout.pipeline, s_.layout.pipeline));
  if (s_.train.recompute.kind == Recompute::Full) parts.emplace_back("layers run again");
  if (s_.train.recompute.kind == Recompute::Selective) parts.emplace_back("some modules run again");
  if (cpu_offload(s_.runtime).activations) parts.emplace_back("saved activations go to the host");
  return joined(parts, {});
}

std::string Reasons::no_scores() const {
  return "the attention kernel stores no scores: one number a token and head stands for a row of them";
}
std::string Reasons::scores() const {
  return "scores, probabilities and a mask where there is dropout are stored, as many as the implementation needs";
}

std::string Reasons::checkpointing(Bytes whole, Bytes left) const {
  return fmt::format(
      "{:.0f} % of {}: a hidden state of each layer remains, one layer during recomputation, and everything outside "
      "layers; more layers and a smaller vocabulary save more",
      100 * (1 - static_cast<double>(left.count()) / static_cast<double>(whole.count())), gb(whole));
}
std::string Reasons::square_root() const {
  return "frameworks checkpoint every layer, which keeps one small tensor of each, not the square root of the layers' "
         "whole activations";
}

std::string Reasons::kv_cache() const {
  const Model& m = s_.model;
  const Rollout& r = *s_.train.rollout;
  std::vector<std::string> parts;
  if (m.latent())
    parts.push_back(fmt::format("latent attention caches {} numbers a token and layer, not twice {}",
                                m.latent()->kv_rank + m.latent()->qk_rope_head_dim, m.hidden));
  else if (m.kv_heads * m.head_dim != m.hidden)
    parts.push_back(
        fmt::format("grouped-query attention caches {} of {} heads: the rule's hidden size is {:g} times too wide",
                    m.kv_heads, m.heads, static_cast<double>(m.hidden) / static_cast<double>(m.kv_heads * m.head_dim)));
  if (r.tensor > 1 && !m.latent()) parts.push_back(fmt::format("{} ranks of the engine share the heads", r.tensor));
  if (r.memory_fraction > 0) parts.emplace_back("the engine reserves its part of the device, whatever is asked of it");
  parts.push_back(fmt::format("blocks of {} tokens are whole", r.block_size));
  return joined(parts, {});
}

std::string Reasons::overhead() const {
  std::vector<std::pair<Bytes, std::string_view>> parts{
      {memory().device.composition[Category::Nccl], "NCCL"},
      {memory().device.composition[Category::Context], "context and code"},
      {in_tensors(Category::Workspaces), "workspaces"},
      {memory().device.bytes - memory().allocated.bytes - memory().device.composition[Category::Nccl] -
           memory().device.composition[Category::Context],
       "the allocator's cache"}};
  Bytes communication;
  for (const Category c : {Category::CommTp, Category::CommCp, Category::CommEp, Category::CommDp, Category::CommPp})
    communication += in_tensors(c);
  parts.emplace_back(communication, "communication");
  std::ranges::stable_sort(parts, std::greater{}, [](const auto& part) { return part.first; });
  std::vector<std::string> texts;
  for (const auto& [bytes, what] : parts)
    if (bytes > Bytes{}) texts.push_back(fmt::format("{} {}", what, gb(bytes)));
  return fmt::format("it is not a share of anything: {}", fmt::join(texts, ", "));
}

std::string Reasons::total() const {
  return fmt::format("the sum of the above; the simulated peak is one moment, in {}",
                     name(memory().device.at.mark.phase));
}

std::string Reasons::shortcut() const {
  return "it ignores layout and batch, and assumes activations of 1.5 times the parameters; its comment says 73.6 "
         "GB of 7 billion parameters, its code gives 120.75";
}

}  // namespace tidemark::scenarios
