#include <filesystem>

#include "scenarios/estimate/rules.hpp"
#include "scenarios/io/cluster_reader.hpp"
#include "scenarios/io/text_file.hpp"
#include "tests/seed_guides/figures.hpp"
#include "tests/seed_guides/seed_page.hpp"

namespace tidemark::tests::seeds {
namespace {

constexpr const char* small = "train.micro_batch = 1\ntrain.global_batch = 1";
constexpr const char* layers_2 = "train.micro_batch = 1\ntrain.global_batch = 1\nmodel_override.num_hidden_layers = 2";
constexpr const char* layers_4 = "train.micro_batch = 1\ntrain.global_batch = 1\nmodel_override.num_hidden_layers = 4";
constexpr const char* checkpointed = "train.recompute = \"full\"";
constexpr const char* scores = "train.attention = \"unfused\"";

std::string with(const char* one, const std::string& other) { return std::string(one) + "\n" + other; }

Cluster device_file(const std::string& name) {
  const std::filesystem::path path =
      std::filesystem::path(TIDEMARK_SOURCE_DIR) / "scenarios/clusters" / (name + ".toml");
  return parse_cluster(read_text(path), path);
}

// What one layer saves of one sequence.
double of_layer(Lab& lab, const std::string& change = "") {
  const auto kept = [&](const char* layers) { return saved(in(lab(bf16, with(layers, change)), Phase::Forward)); };
  return number(kept(layers_4) - kept(layers_2)) / 2;
}

Row device_row(const char* says, const char* file, const char* verdict) {
  return {says,
          [file](Lab&) {
            const Device device = device_file(file).device;
            return fmt::format("{} usable, {:.0f} GB/s", gb(device.capacity),
                               static_cast<double>(device.memory_bandwidth.count()) / 1e9);
          },
          verdict};
}

Section memory_hierarchy() {
  return {"Memory Hierarchy",
          {{"registers ~256 KB and L1 128 KB an SM, L2 40-60 MB",
            [](Lab& lab) { return fmt::format("{} of {} allocated", mb(Bytes{}), gb(allocated(lab(bf16)))); },
            "agrees that they do not matter: what kernels hold on the chip is no memory of the device"},
           {"HBM of 24-80 GB",
            [](Lab&) {
              return fmt::format("{} (RTX 3080) to {} (GB200)", gb(device_file("rtx-3080-10g").device.capacity),
                                 gb(device_file("gb200-nvl72").device.capacity));
            },
            "devices of its own last table have less, newer ones more; an \"80 GB\" H100 has 84.93 GB"},
           {"HBM at 1-3 TB/s",
            [](Lab&) {
              return fmt::format(
                  "{:.2f} to {:.2f} TB/s",
                  static_cast<double>(device_file("rtx-3080-10g").device.memory_bandwidth.count()) / 1e12,
                  static_cast<double>(device_file("gb200-nvl72").device.memory_bandwidth.count()) / 1e12);
            },
            "the same; its own table of GPUs goes from 0.76 to 3.35"}}};
}

Section state() {
  return {
      "Where Training Memory Goes: parameters, optimizer states, gradients",
      {{"parameters in FP32: 4 bytes, 28 GB of 7B", [](Lab& lab) { return gb(parameters(lab(fp32))); },
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
          {{"a token of a layer: 4096 x 2 bytes = 8 KB",
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
        "agrees, between runs; within one it is asked for again"}}};
}

Section mixed_precision() {
  return {"1. Mixed Precision Training",
          {{"autocast and GradScaler: ~50 % less of model and gradients",
            [](Lab& lab) {
              const double all = number(parameters(lab(fp32)) + gradients(lab(fp32)));
              const auto saved_by = [&](const Prediction& p) {
                return percent(1 - number(parameters(p) + gradients(p)) / all);
              };
              return fmt::format("{} under autocast, {} in bf16", saved_by(lab(autocast)), saved_by(lab(bf16)));
            },
            "wrong for autocast, which halves what is computed, not what is kept; right for a model in 16 bits"},
           {"BF16 and FP16 take the same, FP16 with a scaler",
            [](Lab& lab) {
              const Prediction &a = lab(autocast, small), &b = lab(autocast, with(small, "train.precision = \"fp16\""));
              return fmt::format("{} more in fp16", mb(allocated(b) - allocated(a)));
            },
            "agrees: the scaler is a few numbers"}}};
}

Section checkpointing() {
  return {
      "2. Gradient Checkpointing",
      {{"60-70 % less of activations",
        [](Lab& lab) {
          return fmt::format("{}: {} to {}",
                             percent(1 - ratio(activations(lab(bf16, checkpointed)), activations(lab(bf16)))),
                             gb(activations(lab(bf16))), gb(activations(lab(bf16, checkpointed))));
        },
        "more is saved: a hidden state of each layer, one layer that runs again, and the loss are all that is left"},
       {"~30 % slower", [](Lab& lab) { return percent(slower(lab(bf16, checkpointed), lab(bf16)) - 1); },
        "a little less: one forward pass more, of three, but not of the head"}}};
}

Section accumulation() {
  return {"3. Gradient Accumulation",
          {{"4 steps of accumulation take no more memory than one",
            [](Lab& lab) {
              const Prediction &one = lab(bf16, "train.micro_batch = 2\ntrain.global_batch = 2"),
                               &more = lab(bf16, "train.micro_batch = 2\ntrain.global_batch = 8");
              return fmt::format("{} more", gb(allocated(more) - allocated(one)));
            },
            "not quite: gradients of earlier micro-batches are there while the next one runs forward"},
           {"batch of 4 x 8 steps = 32",
            [](Lab& lab) {
              const Train& t = lab(bf16, "train.micro_batch = 4\ntrain.global_batch = 32").scenario.train;
              return fmt::format("{} passes a step", t.global_batch / t.micro_batch);
            },
            "agrees"}}};
}

Section flash_attention() {
  return {
      "4. Flash Attention",
      {{"5-20x less for attention; O(seq) for O(seq^2)",
        [](Lab& lab) {
          return fmt::format("{} less in all: {} to {}",
                             times(ratio(activations(lab(bf16, scores)), activations(lab(bf16)))),
                             gb(activations(lab(bf16, scores))), gb(activations(lab(bf16))));
        },
        "scores vanish altogether; what a layer saves besides is left, so that the whole shrinks less than attention"},
       {"O(seq^2): twice the sequence, four times the memory",
        [](Lab& lab) {
          const auto grown = [&](const std::string& change) {
            const std::string longer = with(small, "train.sequence_length = 4096");
            return times(ratio(activations(lab(bf16, with(longer.c_str(), change))),
                               activations(lab(bf16, with(small, change)))));
          };
          return fmt::format("{} with scores, {} with FlashAttention", grown(scores), grown(""));
        },
        "agrees, as far as scores go"},
       {"2-4x faster attention",
        [](Lab& lab) { return fmt::format("a step is {} faster", times(slower(lab(bf16, scores), lab(bf16)))); },
        "of the whole step, by a roofline"}}};
}

Section optimizer_state() {
  constexpr const char* eight_bits = "train.optimizer = \"adamw_8bit\"";
  return {"5. Optimizer State Optimization",
          {{"8-bit Adam: 8 bytes to 1, 75 % less",
            [=](Lab& lab) {
              const Bytes whole = states(lab(fp32)), narrow = states(lab(fp32, eight_bits));
              return fmt::format("{} to {}: {} less", gb(whole), gb(narrow), percent(1 - ratio(narrow, whole)));
            },
            "75 % is right and 1 byte is wrong: two moments of a byte, and an fp32 scale for each block of 256"},
           {"paged AdamW",
            [](Lab& lab) {
              const Prediction& p = lab(fp32, "train.optimizer = \"paged_adamw_32bit\"");
              return fmt::format("{} of managed memory; PyTorch counts {} of {}", gb(memory(p).managed),
                                 gb(allocated(p)), gb(allocated(lab(fp32))));
            },
            "managed memory is the driver's, and goes to the host when the device is full"}}};
}

// LoRA of rank 16 on attention's projections, as in the guide, over a base in bf16.
const std::string lora =
    "train.recompute = \"full\"\ntrain.micro_batch = 1\ntrain.global_batch = 1\nadapter.rank = 16\n"
    "adapter.target_modules = [\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\"]";
std::string one_of(const std::string& model, const std::string& cluster) {
  return fmt::format(
      "model = \"models/{}.json\"\ncluster = \"clusters/{}.toml\"\ntrain.micro_batch = 1\ntrain.global_batch = 1",
      model, cluster);
}

Section quantization() {
  return {"6. Model Quantization for Training (QLoRA)",
          {{"base weights of 7B from 28 GB to 3.5 GB: 75-87.5 % less",
            [](Lab& lab) {
              return fmt::format("{} to {}: {} less", gb(parameters(lab(fp32))), gb(base(lab(qlora))),
                                 percent(1 - ratio(base(lab(qlora)), parameters(lab(fp32)))));
            },
            "within its range: embedding and head stay as they are"},
           {"only the adapters are trained",
            [](Lab& lab) {
              const Prediction& p = lab(qlora);
              const Composition& c = in(p, Phase::OptimizerStep);
              return fmt::format("{} of adapters, {} of gradients, {} of moments in PyTorch's memory",
                                 mb(c[Category::Adapters]), mb(gradients(p)), mb(states(p)));
            },
            "agrees: what is frozen has neither gradients nor state"}}};
}

Section together() {
  return {"Putting It All Together: Complete Memory-Optimized Setup",
          {{"QLoRA, FlashAttention, checkpointing and paged 8-bit AdamW: ~6 GB for 7B, down from 130+",
            [](Lab& lab) {
              const Prediction& one = lab(qlora, "train.micro_batch = 1\ntrain.global_batch = 4");
              return fmt::format("{} with batch 4 of 2,048 tokens, {} with batch 1", gb(device(lab(qlora))),
                                 gb(device(one)));
            },
            "wrong for its own batch of 4: activations and the loss take more than the quantized model"}}};
}

Section offloading() {
  constexpr const char* h100 = "cluster = \"clusters/h100-sxm-80g.toml\"";
  const std::string alone = with(small, with(h100, "runtime.name = \"fsdp2\"\nlayout.sharding = \"zero3\""));
  const std::string offloaded = with(alone.c_str(), "offload.parameters = \"cpu\"");
  return {"7. CPU Offloading",
          {{"optimizer state or parameters on the CPU",
            [=](Lab& lab) {
              return fmt::format("{} to {} on the device, {} on the host", gb(device(lab(bf16, alone))),
                                 gb(device(lab(bf16, offloaded))), gb(memory(lab(bf16, offloaded)).host.bytes));
            },
            "agrees: `[offload]` under every framework that can (fsdp2 here, batch 1)"},
           {"DeepSpeed's ZeRO-3 with offload_optimizer and offload_param",
            [=](Lab& lab) {
              const std::string zero = with(small, with(h100,
                                                        "train.master_dtype = \"fp32\"\nruntime.name = \"deepspeed\"\n"
                                                        "layout.sharding = \"zero3\"\noffload.optimizer = \"cpu\"\n"
                                                        "offload.parameters = \"cpu\""));
              const Prediction& p = lab(bf16, zero);
              return fmt::format("{} on the device, {} on the host", gb(device(p)), gb(memory(p).host.bytes));
            },
            "agrees: 16 bytes a parameter and buffers of the host's Adam are there, layers come when they run"},
           {"slower by the CPU-GPU transfer (cheatsheet: 2-5x)",
            [=](Lab& lab) { return times(slower(lab(bf16, offloaded), lab(bf16, alone))); },
            "the host's Adam and both transfers; the smaller the batch, the slower"},
           {"memory saved: unlimited",
            [=](Lab& lab) { return fmt::format("{} are left", gb(device(lab(bf16, offloaded)))); },
            "wrong: activations, logits and what is computed with stay, and hosts have an end too"}}};
}

Section cheatsheet() {
  return {"Memory Optimization Cheatsheet",
          {{"half the batch: linear",
            [](Lab& lab) {
              return times(ratio(activations(lab(bf16, "train.micro_batch = 4\ntrain.global_batch = 8")),
                                 activations(lab(bf16))));
            },
            "agrees"},
           {"half the sequence: quadratic",
            [](Lab& lab) {
              const auto shrunk = [&](const std::string& change) {
                return times(ratio(activations(lab(bf16, with("train.sequence_length = 1024", change))),
                                   activations(lab(bf16, change))));
              };
              return fmt::format("{} with scores, {} with FlashAttention", shrunk(scores), shrunk(""));
            },
            "with stored scores between linear and quadratic, with FlashAttention linear"},
           {"BF16/FP16: 50 %", [](Lab& lab) { return percent(1 - ratio(device(lab(bf16)), device(lab(fp32)))); },
            "agrees, where parameters are in 16 bits too"},
           {"gradient accumulation: proportional to steps",
            [](Lab& lab) {
              return times(ratio(activations(lab(bf16, "train.micro_batch = 2\ntrain.global_batch = 8")),
                                 activations(lab(bf16))));
            },
            "agrees for activations: 4 steps, a quarter"},
           {"DeepSpeed ZeRO: distributed",
            [](Lab& lab) {
              const Prediction& p =
                  lab(bf16, "gpus = 8\ntrain.global_batch = 64\nruntime.name = \"fsdp2\"\nlayout.sharding = \"zero3\"");
              const Prediction& one = lab(bf16);
              return fmt::format("{} of {} a rank of eight", gb(parameters(p) + gradients(p) + states(p)),
                                 gb(parameters(one) + gradients(one) + states(one)));
            },
            "agrees: an eighth, while the optimizer steps"}}};
}

Section out_of_memory() {
  constexpr const char* h100 = "cluster = \"clusters/h100-sxm-80g.toml\"";
  const auto dies = [](const Prediction& p) -> std::string {
    for (const RankGroup& group : p.groups)
      if (group.failure)
        return fmt::format("{}: {} asked, {} free", name(group.failure->at.mark.phase), mb(group.failure->requested),
                           mb(group.failure->free));
    return "nowhere";
  };
  return {"Debugging OOM Errors",
          {{"find where it occurs: forward, backward or optimizer", [=](Lab& lab) { return dies(lab(bf16, h100)); },
            "the phase is in the first lines of `predict`, with what helps there"},
           {"oom_in_forward: reduce batch size or sequence length",
            [=](Lab& lab) {
              const auto of = [&](const char* change) { return gb(device(lab(bf16, with(h100, change)))); };
              return fmt::format("{}; batch 4 {}; 1,024 tokens {}", of(""),
                                 of("train.micro_batch = 4\ntrain.global_batch = 8"),
                                 of("train.sequence_length = 1024"));
            },
            "agrees; `advise` tries them all"},
           {"oom_in_forward: checkpointing, Flash Attention",
            [=](Lab& lab) {
              const auto of = [&](const std::string& change) { return gb(device(lab(bf16, with(h100, change)))); };
              return fmt::format("with scores {}, without {}, checkpointed {}", of(scores), of(""), of(checkpointed));
            },
            "agrees"},
           {"oom_in_backward: checkpointing, accumulation of smaller batches",
            [=](Lab& lab) {
              const std::string both = with(checkpointed, "train.micro_batch = 2\ntrain.global_batch = 8");
              return fmt::format("{} to {}", gb(device(lab(bf16, h100))), gb(device(lab(bf16, with(h100, both)))));
            },
            "agrees"},
           {"oom_in_optimizer: optimizer state offloading",
            [=](Lab& lab) {
              const std::string on_host =
                  with(small, "runtime.name = \"fsdp2\"\nlayout.sharding = \"zero3\"\noffload.parameters = \"cpu\"");
              return fmt::format("{} to {} of state", gb(states(lab(bf16))), gb(states(lab(bf16, on_host))));
            },
            "agrees"},
           {"oom_in_optimizer: 8-bit optimizer",
            [](Lab& lab) {
              return fmt::format("{} to {} of state", gb(states(lab(bf16))),
                                 gb(states(lab(bf16, "train.optimizer = \"adamw_8bit\""))));
            },
            "agrees; of state that was in bf16 it is half"},
           {"warn above 90 % of the device",
            [](Lab& lab) {
              const Prediction& p = lab(bf16);
              return percent(ratio(memory(p).peak_device_upper, p.scenario.cluster.device.capacity));
            },
            "`headroom` under `[runtime]` asks for as much as one likes"}}};
}

Section hardware() {
  return {"Hardware-Specific Tips",
          {device_row("RTX 3080: 10 GB, 760 GB/s", "rtx-3080-10g", "agrees"),
           device_row("RTX 3090: 24 GB, 936 GB/s", "rtx-3090-24g", "agrees"),
           device_row("RTX 4090: 24 GB, 1008 GB/s", "rtx-4090-24g", "agrees"),
           device_row("A100 40GB: 40 GB, 1555 GB/s", "a100-sxm-40g", "agrees"),
           device_row("A100 80GB: 80 GB, 2039 GB/s", "a100-sxm-80g", "agrees"),
           device_row("H100: 80 GB, 3350 GB/s", "h100-sxm-80g", "agrees"),
           {"RTX 3090: QLoRA 7B-13B",
            [](Lab& lab) {
              return fmt::format("7B: {}; 13B: {}", fits(lab(qlora, one_of("llama-2-7b", "rtx-3090-24g"))),
                                 fits(lab(qlora, one_of("llama-2-13b", "rtx-3090-24g"))));
            },
            "agrees, at batch 1 of 2,048 tokens"},
           {"RTX 4090: QLoRA 7B-13B",
            [](Lab& lab) {
              return fmt::format("7B: {}; 13B: {}", fits(lab(qlora, one_of("llama-2-7b", "rtx-4090-24g"))),
                                 fits(lab(qlora, one_of("llama-2-13b", "rtx-4090-24g"))));
            },
            "agrees, at batch 1 of 2,048 tokens"},
           {"A100 40GB: LoRA 7B-13B, QLoRA 70B",
            [](Lab& lab) {
              const auto by_lora = [&](const char* model) {
                return fits(lab(bf16, with(fmt::format("model = \"models/{}.json\"", model).c_str(),
                                           with("cluster = \"clusters/a100-sxm-40g.toml\"", lora))));
              };
              const Prediction& large = lab(qlora, one_of("llama-2-70b", "a100-sxm-40g"));
              return fmt::format(
                  "LoRA 7B: {}; 13B: {}; QLoRA 70B: {}, with {} of base and {} saved; of 512 tokens: {}",
                  by_lora("llama-2-7b"), by_lora("llama-2-13b"), fits(large), gb(base(large)),
                  gb(saved(in(large, Phase::Backward))),
                  fits(lab(qlora, with(one_of("llama-2-70b", "a100-sxm-40g").c_str(), "train.sequence_length = 512"))));
            },
            "agrees for LoRA; wrong for QLoRA of 70B at one sequence of 2,048 tokens: 0.516 bytes for each quantized "
            "parameter, embedding and head in fp32, and so what each of 80 layers is handed"},
           {"A100 80GB: LoRA 70B",
            [](Lab& lab) {
              return fits(lab(bf16, with("model = \"models/llama-2-70b.json\"",
                                         with("cluster = \"clusters/a100-sxm-80g.toml\"", lora))));
            },
            "wrong: bf16 weights alone are 138 GB"},
           {"A100 80GB: full fine-tuning of 7B",
            [](Lab& lab) {
              const auto on = [&](const std::string& change) {
                return fits(lab(bf16, with("cluster = \"clusters/a100-sxm-80g.toml\"", with(small, change))));
              };
              return fmt::format("{} in bf16; {} under autocast", on(""), on("train.master_dtype = \"fp32\""));
            },
            "agrees for a model, and moments, in 16 bits; not with FP32 state"},
           {"A100s: more than one for 70B+",
            [](Lab& lab) {
              const std::string model =
                  "model = \"models/llama-2-70b.json\"\ncluster = \"clusters/a100-sxm-80g.toml\"\n"
                  "train.recompute = \"full\"\ntrain.micro_batch = 1\n";
              return fmt::format("one: {}; sixteen by fsdp2: {}", fits(lab(bf16, model + "train.global_batch = 1")),
                                 fits(lab(bf16, model + "gpus = 16\ntrain.global_batch = 16\nruntime.name = \"fsdp2\"\n"
                                                        "layout.sharding = \"zero3\"")));
            },
            "agrees"},
           {"H100: everything",
            [](Lab& lab) {
              return fits(lab(bf16,
                              "model = \"models/llama-2-70b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\n"
                              "train.recompute = \"full\"\ntrain.micro_batch = 1\ntrain.global_batch = 1"));
            },
            "wrong: not 70B on one; it has as much memory as an A100"}}};
}

}  // namespace

std::vector<Section> training_guide() {
  return {memory_hierarchy(), state(),        activation_rules(), total_table(),     diagnosing(),   mixed_precision(),
          checkpointing(),    accumulation(), flash_attention(),  optimizer_state(), quantization(), offloading(),
          together(),         cheatsheet(),   out_of_memory(),    hardware()};
}

}  // namespace tidemark::tests::seeds
