#include <array>
#include <utility>

#include "scenarios/estimate/rules.hpp"
#include "tests/seed_guides/figures.hpp"
#include "tests/seed_guides/seed_page.hpp"

namespace tidemark::tests::seeds {
namespace {

constexpr const char* layers_2 = "train.micro_batch = 1\ntrain.global_batch = 1\nmodel_override.num_hidden_layers = 2";
constexpr const char* layers_4 = "train.micro_batch = 1\ntrain.global_batch = 1\nmodel_override.num_hidden_layers = 4";

// What one layer saves of one sequence.
double of_layer(Lab& lab, const std::string& change = "") {
  const auto kept = [&](const char* layers) { return saved(in(lab(bf16, with(layers, change)), Phase::Forward)); };
  return number(kept(layers_4) - kept(layers_2)) / 2;
}

Section memory_hierarchy() {
  return {"Memory Hierarchy",
          {{"registers ~256 KB and L1 128 KB an SM, L2 40-60 MB",
            [](Lab& lab) { return fmt::format("{} of {} allocated", mb(Bytes{}), gb(allocated(lab(bf16)))); },
            "agrees that they do not matter: what kernels hold on the chip is not a memory of the device"},
           {"HBM of 24-80 GB",
            [](Lab&) {
              return fmt::format("{} (RTX 3080) to {} (GB200)", gb(cluster_file("rtx-3080-10g").device.capacity),
                                 gb(cluster_file("gb200-nvl72").device.capacity));
            },
            "devices of its own last table have less, newer ones more; an \"80 GB\" H100 has 84.93 GB"},
           {"HBM at 1-3 TB/s",
            [](Lab&) {
              return fmt::format("{} to {}", tb_per_s(cluster_file("rtx-3080-10g").device.memory_bandwidth),
                                 tb_per_s(cluster_file("gb200-nvl72").device.memory_bandwidth));
            },
            "the same; its own table of GPUs goes from 0.76 to 3.35"},
           {"registers, L1 and L2 at 20, 19 and 5 TB/s, 0 to 400 cycles away",
            [](Lab& lab) {
              const Device& device = lab(bf16).scenario.cluster.device;
              return fmt::format("{} of HBM, of which kernels that only move bytes reach {}",
                                 tb_per_s(device.memory_bandwidth),
                                 percent(static_cast<double>(device.efficiency.memory.count()) / one.count()));
            },
            "no bandwidth but HBM's is asked for: what kernels gain by what lies on the chip is within measured "
            "efficiencies"}}};
}

Section state() {
  return {
      "Where Training Memory Goes: parameters, optimizer states, gradients",
      {{"total = parameters + optimizer states + gradients + activations",
        [](Lab& lab) {
          const Prediction& p = lab(bf16);
          return fmt::format("{} + {} + {} + {} = {}; the device holds {}", gb(parameters(p)), gb(states(p)),
                             gb(gradients(p)), gb(activations(p)), gb(model_state(p) + activations(p)), gb(device(p)));
        },
        "no sum: gradients come while activations go, and context, workspaces and fragmentation are left out"},
       {"parameters in FP32: 4 bytes, 28 GB of 7B", [](Lab& lab) { return gb(parameters(lab(fp32))); },
        "agrees: 4 bytes each; Llama 2 7B has 6.74 B of them"},
       {"parameters in FP16/BF16: 2 bytes, 14 GB", [](Lab& lab) { return gb(parameters(lab(bf16))); },
        "agrees: 2 bytes each"},
       {"parameters in INT8: 1 byte, 7 GB", [](Lab& lab) { return gb(base(lab(int8))); },
        "a quantized parameter takes 1.0008 bytes with its row's scale; embedding and head are not quantized (here "
        "fp32)"},
       {"parameters in INT4: 0.5 bytes, 3.5 GB", [](Lab& lab) { return gb(base(lab(qlora))); },
        "more: a quantized parameter takes 0.516 bytes with both levels of its scales, and embedding and head are not "
        "quantized"},
       {"AdamW in FP32: 4 + 4 bytes, 56 GB", [](Lab& lab) { return gb(states(lab(fp32))); }, "agrees: 8 bytes each"},
       {"gradients in FP32: 28 GB", [](Lab& lab) { return gb(gradients(lab(fp32))); },
        "agrees, when the optimizer steps; while tensors are most, plain PyTorch has none yet"},
       {"gradients in FP16: 14 GB", [](Lab& lab) { return gb(gradients(lab(bf16))); }, "agrees, at the same time"}}};
}

Section activation_rules() {
  const auto implied = [](Lab& lab, double guide, std::int64_t batch) {
    const std::string change = fmt::format("train.micro_batch = {0}\ntrain.global_batch = {0}", batch);
    const Bytes bytes = activations(lab(bf16, change));
    return fmt::format("{}, {} as much", gb(bytes), times(number(bytes) / guide));
  };
  return {"Where Training Memory Goes: activations",
          {{"batch x seq x hidden x layers x bytes",
            [](Lab& lab) {
              return fmt::format("the formula gives {}; saved {} where layers are checkpointed",
                                 gb(rules::hidden_states({8, 2048, 4096, 32, 2})),
                                 gb(saved(in(lab(bf16, checkpointed), Phase::Forward))));
            },
            "agrees with what checkpointed layers leave, their inputs; what they save otherwise is below"},
           {"a token of a layer: 4096 x 2 bytes = 8 KB",
            [](Lab& lab) { return fmt::format("{:.1f} KB", of_layer(lab) / 2048 / 1024); },
            "wrong: norms, projections, heads, both branches of the MLP and their product are all saved"},
           {"a sequence of a layer: 16 MB",
            [](Lab& lab) { return fmt::format("{:.1f} MB", of_layer(lab) / (1 << 20)); }, "wrong, for the same reason"},
           {"an item of the batch: 32 x 16 MB = 512 MB", [=](Lab& lab) { return implied(lab, 512 * 1048576.0, 1); },
            "wrong: layers as above, and logits and loss of the vocabulary"},
           {"batch 8: 4 GB", [=](Lab& lab) { return implied(lab, 4096 * 1048576.0, 8); },
            "wrong by the same factor; linear in the batch, as it says"},
           {"attention: batch x heads x seq x seq x 2 bytes = batch x 256 MB",
            [](Lab& lab) {
              return fmt::format("{:.1f} MB a layer that stores them, 0.5 MB with FlashAttention",
                                 (of_layer(lab, scores) - of_layer(lab)) / (1 << 20) + 0.5);
            },
            "its 256 MB are of one layer, which it does not say; transformers' own attention keeps probabilities "
            "twice, before "
            "and after they are cast"}}};
}

Section total_table() {
  return {
      "Total Memory Example: 7B Model",
      {{"FP32: parameters 28, optimizer 56, gradients 28 GB",
        [](Lab& lab) {
          const Prediction& p = lab(fp32);
          return fmt::format("{}, {}, {}", gb(parameters(p)), gb(states(p)), gb(gradients(p)));
        },
        "agrees: 16 bytes each"},
       {"FP32: activations 20+ GB", [](Lab& lab) { return gb(activations(lab(fp32))); },
        "wrong by far at its batch of 8; 20 GB are about one sequence"},
       {"FP32: total 132+ GB",
        [](Lab& lab) {
          return fmt::format("{} at batch 8, {} at batch 1", gb(device(lab(fp32))), gb(device(lab(fp32, small))));
        },
        "near it at batch 1, where the optimizer's step with its temporaries is the highest: gradients and activations "
        "are "
        "not there at the same time"},
       {"mixed precision: parameters 14 GB (FP16)",
        [](Lab& lab) {
          return fmt::format("{} under Megatron-LM, {} under autocast", gb(parameters(lab(megatron))),
                             gb(parameters(lab(autocast))));
        },
        "wrong for the recipe that it gives: autocast leaves parameters in FP32"},
       {"mixed precision: optimizer 28 GB (FP16) or 56 GB (FP32 master)",
        [](Lab& lab) {
          return fmt::format("{} in bf16, {} under autocast, {} under Megatron-LM", gb(states(lab(bf16))),
                             gb(states(lab(autocast))), gb(states(lab(megatron))));
        },
        "28 GB where all is in 16 bits; with FP32 masters there are 12 bytes, not 8: master and two moments"},
       {"mixed precision: gradients 14 GB",
        [](Lab& lab) {
          return fmt::format("{} in bf16, {} under autocast, {} under Megatron-LM", gb(gradients(lab(bf16))),
                             gb(gradients(lab(autocast))), gb(gradients(lab(megatron))));
        },
        "of parameters' type, which is FP32 under autocast; Megatron-LM sums them in FP32"},
       {"mixed precision: activations 20+ GB, as in FP32",
        [](Lab& lab) { return fmt::format("{}, in FP32 {}", gb(activations(lab(bf16))), gb(activations(lab(fp32)))); },
        "wrong: they are about half as large, too"},
       {"mixed precision: total 76+ GB",
        [](Lab& lab) {
          return fmt::format("{} in bf16, {} under autocast, {} under Megatron-LM, all at batch 1",
                             gb(device(lab(bf16, small))), gb(device(lab(autocast, small))),
                             gb(device(lab(megatron, small))));
        },
        "too low: its own lines add up to 76 with 28 GB of states, and to 104 with 56"},
       {"a 7B model cannot be trained on a GPU of 24 GB without optimization",
        [](Lab& lab) { return fits(lab(bf16, with(small, "cluster = \"clusters/rtx-4090-24g.toml\""))); }, "agrees"}}};
}

Section diagnosing() {
  return {
      "Diagnosing Memory Issues",
      {{"memory_allocated, memory_reserved, max_memory_allocated",
        [](Lab& lab) {
          const MemoryRecord& m = memory(lab(bf16));
          return fmt::format("{}, {}, {}", gb(m.final_allocated), gb(m.peak_reserved), gb(m.allocated.bytes));
        },
        "the same three: after the last step, held by the allocator, at most"},
       {"nvidia-smi shows HBM",
        [](Lab& lab) {
          return fmt::format("{}: {} more than PyTorch says", gb(device(lab(bf16))),
                             gb(device(lab(bf16)) - memory(lab(bf16)).peak_reserved));
        },
        "context, code and NCCL are in no statistic of PyTorch"},
       {"a profiler's timeline shows when memory is taken",
        [](Lab& lab) {
          const MemoryRecord& m = memory(lab(bf16));
          return fmt::format("highest at {}", where(m.allocated.at, lab(bf16).highest().allocated_peak_op));
        },
        "the same before anything runs: `--timeline`, `--snapshot` for memory_viz"},
       {"leak: total_loss += loss keeps the graph",
        [](Lab& lab) { return fmt::format("{} a batch", gb(saved(memory(lab(bf16)).allocated.composition))); },
        "agrees: what the graph has saved; the second batch would not fit"},
       {"leak: outputs in a list",
        [](Lab& lab) {
          return fmt::format("{} for one batch kept until the step ends",
                             gb(allocated(lab(bf16, "runtime.switches.keep_outputs = true")) - allocated(lab(bf16))));
        },
        "agrees: logits, and keys and values; the more batches are kept, the more"},
       {"torch.cuda.empty_cache() between runs",
        [](Lab& lab) {
          return fmt::format("{} come back", gb(memory(lab(bf16)).peak_reserved - memory(lab(bf16)).final_allocated));
        },
        "agrees, between runs; within one it is asked for again"},
       {"reset_peak_memory_stats, and peaks of what comes after it",
        [](Lab& lab) {
          const std::vector<Bytes>& peaks = memory(lab(bf16, small)).peak_allocated_by_step;
          return fmt::format("{} to make the model, {} and {} in its first two steps, of one sequence", gb(peaks[0]),
                             gb(peaks[1]), gb(peaks[2]));
        },
        "as it says, of each step by itself; here the first peaks as high as others, when its moments are there"},
       {"the profiler's table of operators by memory",
        [](Lab& lab) {
          const Composition& c = memory(lab(bf16)).allocated.composition;
          return fmt::format("{} of {} are activations that were saved, {} logits and loss", gb(saved(c)),
                             gb(allocated(lab(bf16))), gb(c[Category::LogitsLoss]));
        },
        "`explain` lists every tensor that is there at the peak, with the operation that made it"},
       {"export_chrome_trace",
        [](Lab& lab) {
          const StepPrediction& step = lab(bf16).step;
          return fmt::format("a step of {:.2f} s, {} of it kernels", static_cast<double>(step.step.count()) / 1e12,
                             percent(step.share(StepCause::Compute)));
        },
        "`predict --trace` writes the same kind of file, of a run that has not been"},
       {"fixes: .item(), .detach().cpu()",
        [](Lab& lab) {
          const std::vector<Bytes>& peaks = memory(lab(bf16, "train.steps = 3")).peak_allocated_by_step;
          return fmt::format("{} in the second step, {} in the third", gb(peaks[2]), gb(peaks[3]));
        },
        "agrees: a loop that keeps numbers alone comes back to the same peak"}}};
}

}  // namespace

std::vector<Section> training_guide() {
  std::vector<Section> sections = {memory_hierarchy(), state(), activation_rules(), total_table(), diagnosing()};
  for (std::vector<Section>& more : std::array{training_techniques(), training_advice()})
    for (Section& section : more) sections.push_back(std::move(section));
  return sections;
}

}  // namespace tidemark::tests::seeds
