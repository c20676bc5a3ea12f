#include "scenarios/report/simulated_snapshot.hpp"
#include "tests/seed_guides/figures.hpp"
#include "tests/seed_guides/seed_page.hpp"

// What the training guide says to do: its cheatsheet, what to do where memory runs out, and what to use which GPU for.

namespace tidemark::tests::seeds {
namespace {

Row device_row(const char* says, const char* file, const char* verdict) {
  return {says,
          [file](Lab&) {
            const Device device = cluster_file(file).device;
            return fmt::format("{} usable, {:.0f} GB/s", gb(device.capacity),
                               static_cast<double>(device.memory_bandwidth.count()) / 1e9);
          },
          verdict};
}

Section cheatsheet() {
  return {
      "Memory Optimization Cheatsheet",
      {{"half the batch: linear",
        [](Lab& lab) {
          return times(
              ratio(activations(lab(bf16, "train.micro_batch = 4\ntrain.global_batch = 8")), activations(lab(bf16))));
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
          return times(
              ratio(activations(lab(bf16, "train.micro_batch = 2\ntrain.global_batch = 8")), activations(lab(bf16))));
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
        "agrees: an eighth, while the optimizer steps"},
       {"its reference, Rajbhandari et al.: stages 1, 2 and 3 divide states, gradients, parameters by ranks",
        [](Lab& lab) {
          const auto of = [&](const char* stage) {
            return gb(model_state(lab(bf16, fmt::format("gpus = 8\ntrain.micro_batch = 1\ntrain.global_batch = 8\n"
                                                        "train.master_dtype = \"fp32\"\n"
                                                        "runtime.name = \"deepspeed\"\nlayout.sharding = \"{}\"",
                                                        stage))));
          };
          return fmt::format("{}, {} and {} of eight ranks under DeepSpeed", of("zero1"), of("zero2"), of("zero3"));
        },
        "the paper's 16 bytes give 37.06, 25.27 and 13.48 GB: gradients of stage 1 are an eighth, too, when the "
        "optimizer steps, "
        "and are made fp32 for it"},
       {"smaller batch: slower convergence",
        [](Lab& lab) {
          return fmt::format("{} tokens/s with 4 sequences, {} with 8",
                             tokens_per_s(lab(bf16, "train.micro_batch = 4\ntrain.global_batch = 4")),
                             tokens_per_s(lab(bf16)));
        },
        "convergence is not simulated; tokens go through somewhat slower"},
       {"shorter sequence: less context",
        [](Lab& lab) {
          return fmt::format("{} tokens/s with 1,024, {} with 2,048",
                             tokens_per_s(lab(bf16,
                                              "train.sequence_length = 1024\ntrain.micro_batch = 16\n"
                                              "train.global_batch = 16")),
                             tokens_per_s(lab(bf16)));
        },
        "of as many tokens in shorter sequences attention is less"},
       {"BF16/FP16: minimal impact on speed",
        [](Lab& lab) { return fmt::format("a step is {} as fast", times(slower(lab(fp32), lab(bf16)))); },
        "wrong, in the good direction: products run on tensor cores, and all else moves half the bytes"},
       {"clear cache: variable, no impact on speed",
        [](Lab& lab) {
          const Peak& peak = memory(lab(bf16)).device;
          return fmt::format("{} of {} at the peak", gb(peak.composition[Category::Fragmentation]), gb(peak.bytes));
        },
        "what the allocator holds beside tensors where memory is short: there is little to clear then, and cudaMalloc "
        "is to be called again"},
       {"gradient checkpointing: 60-70 % of activations, 30 % slower",
        [](Lab& lab) {
          const Prediction &all = lab(bf16, small), &few = lab(bf16, with(small, checkpointed));
          return fmt::format("{} and {} with one sequence", percent(1 - ratio(activations(few), activations(all))),
                             percent(slower(few, all) - 1));
        },
        "as with eight sequences, above"},
       {"Flash Attention: 5-20x, 2-4x faster",
        [](Lab& lab) {
          const std::string longer = with(small, "train.sequence_length = 8192");
          const Prediction &all = lab(bf16, with(longer, scores)), &few = lab(bf16, longer);
          return fmt::format("{} less and {} faster, all told, with one sequence of 8,192",
                             times(ratio(activations(all), activations(few))), times(slower(all, few)));
        },
        "within its ranges where sequences are long; 2.99 and 1.30 with 2,048, above"},
       {"gradient accumulation: slightly slower",
        [](Lab& lab) {
          return fmt::format("{} with 4 steps of 2 sequences",
                             times(slower(lab(bf16, "train.micro_batch = 2\ntrain.global_batch = 8"), lab(bf16))));
        },
        "more than slightly: two sequences fill this device less than eight"},
       {"8-bit optimizer: 75 %, minimal impact on speed",
        [](Lab& lab) {
          return fmt::format("a step takes {} of the time with fp32 moments",
                             percent(slower(lab(fp32, "train.optimizer = \"adamw_8bit\""), lab(fp32))));
        },
        "agrees"},
       {"QLoRA: 75 %+ of the model, speed similar",
        [](Lab& lab) {
          const char* const b200 = "cluster = \"clusters/b200-sxm-180g.toml\"";
          const Prediction &four_bits = lab(qlora, b200), &lora_alone = lab(bf16, with(b200, lora(4, 16)));
          return fmt::format("{} of LoRA's base less, a step takes {} as long",
                             percent(1 - ratio(base(four_bits), base(lora_alone))),
                             times(slower(four_bits, lora_alone)));
        },
        "not similar where kernels are fast: weights are dequantized in each pass, and what stays in fp32 is moved"},
       {"DeepSpeed ZeRO: communication overhead",
        [](Lab& lab) {
          const Prediction& p =
              lab(bf16, "gpus = 8\ntrain.global_batch = 64\nruntime.name = \"fsdp2\"\nlayout.sharding = \"zero3\"");
          double exposed = 0;
          for (const double share : p.step.exposed) exposed += share;
          return fmt::format("{} of a step waits for bytes; {} tokens/s a device, {} on one", percent(exposed),
                             tokens_per_s(p), tokens_per_s(lab(bf16)));
        },
        "hidden within a node, beside so many tokens; and eight share the optimizer's step"}}};
}

Section out_of_memory() {
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
            "`headroom` under `[runtime]` asks for as much as one likes"},
           {"oom_in_backward: retained graphs",
            [](Lab& lab) { return fmt::format("{} each", gb(saved(memory(lab(bf16)).allocated.composition))); },
            "agrees that one is too much"},
           {"_record_memory_history and _dump_snapshot, for memory_viz",
            [](Lab& lab) {
              const Job job(lab(bf16, with(small, "model_override.num_hidden_layers = 2")).scenario);
              const MemorySnapshot snapshot = simulated_snapshot(job, simulate_time(job), Rank{0});
              return fmt::format("{} events of two layers and two steps", snapshot.device_traces.front().size());
            },
            "`predict --snapshot` writes the same file before anything runs, `replay` reads real ones"},
           {"at a step's end: memory_allocated, memory_reserved",
            [](Lab& lab) {
              const MemoryRecord& m = memory(lab(bf16));
              return fmt::format("{} and {}, after a peak of {}", gb(m.final_allocated), gb(m.peak_reserved),
                                 gb(m.allocated.bytes));
            },
            "its callback warns of what is allocated at the end, which is lowest there"}}};
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
                return fits(lab(bf16, with(fmt::format("model = \"models/{}.json\"", model),
                                           with("cluster = \"clusters/a100-sxm-40g.toml\"", lora()))));
              };
              const Prediction& large = lab(qlora, one_of("llama-2-70b", "a100-sxm-40g"));
              return fmt::format(
                  "LoRA 7B: {}; 13B: {}; QLoRA 70B: {}, with {} of base and {} saved; of 512 tokens: {}",
                  by_lora("llama-2-7b"), by_lora("llama-2-13b"), fits(large), gb(base(large)),
                  gb(saved(in(large, Phase::Backward))),
                  fits(lab(qlora, with(one_of("llama-2-70b", "a100-sxm-40g"), "train.sequence_length = 512"))));
            },
            "agrees for LoRA; wrong for QLoRA of 70B at one sequence of 2,048 tokens: 0.516 bytes for each quantized "
            "parameter, embedding and head in fp32, and so what each of 80 layers is handed"},
           {"A100 80GB: LoRA 70B",
            [](Lab& lab) {
              return fits(lab(bf16, with("model = \"models/llama-2-70b.json\"",
                                         with("cluster = \"clusters/a100-sxm-80g.toml\"", lora()))));
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
            "wrong: not 70B on one; it has as much memory as an A100"},
           {"consumer GPUs: QLoRA for 7B+",
            [](Lab& lab) {
              const std::string on_4090 = with(lora(), "cluster = \"clusters/rtx-4090-24g.toml\"");
              return fmt::format("LoRA over 16 bits: {}; QLoRA: {}", fits(lab(bf16, on_4090)),
                                 fits(lab(qlora, one_of("llama-2-7b", "rtx-4090-24g"))));
            },
            "of one sequence of 2,048 tokens a base in 16 bits fits as well"},
           {"consumer GPUs: Flash Attention is critical",
            [](Lab& lab) {
              const auto at = [&](const char* length) {
                return fits(lab(qlora, with(one_of("llama-2-7b", "rtx-4090-24g"),
                                            with(scores, fmt::format("train.sequence_length = {}", length)))));
              };
              return fmt::format("without it, 2,048 tokens: {}; 8,192: {}", at("2048"), at("8192"));
            },
            "agrees for long sequences"},
           {"consumer GPUs: consider gradient checkpointing always",
            [](Lab& lab) {
              return fmt::format(
                  "without it: {}",
                  fits(lab(qlora, with(one_of("llama-2-7b", "rtx-4090-24g"), "train.recompute = \"none\""))));
            },
            "for QLoRA of 7B with one sequence of 2,048 tokens"},
           {"A100s can often skip quantization for 7B models",
            [](Lab& lab) {
              const auto on = [&](const char* cluster) {
                return fits(lab(bf16, with(lora(4, 4), fmt::format("cluster = \"clusters/{}.toml\"", cluster))));
              };
              return fmt::format("LoRA, batch 4: on 40 GB {}; on 80 GB {}", on("a100-sxm-40g"), on("a100-sxm-80g"));
            },
            "agrees"},
           {"A100s: full fine-tuning of smaller models",
            [](Lab& lab) {
              return fmt::format(
                  "GPT-2 XL, 1.56 B, under autocast on 40 GB: {}",
                  fits(lab(autocast, with(one_of("gpt2-xl", "a100-sxm-40g"), "train.sequence_length = 1024"))));
            },
            "agrees"},
           {"RTX 3080: inference, small training",
            [](Lab& lab) {
              return fmt::format(
                  "GPT-2, 124 M, under autocast: {}; QLoRA of 7B, 512 tokens: {}",
                  fits(lab(autocast, with(one_of("gpt2", "rtx-3080-10g"), "train.sequence_length = 1024"))),
                  fits(lab(qlora, with(one_of("llama-2-7b", "rtx-3080-10g"), "train.sequence_length = 512"))));
            },
            "agrees, and even QLoRA of 7B, of short sequences"},
           {"RTX 4090: faster than the RTX 3090",
            [](Lab& lab) {
              return fmt::format("QLoRA's step {} as fast",
                                 times(slower(lab(qlora, one_of("llama-2-7b", "rtx-3090-24g")),
                                              lab(qlora, one_of("llama-2-7b", "rtx-4090-24g")))));
            },
            "agrees"},
           {"H100: faster",
            [](Lab& lab) {
              const auto on = [&](const char* cluster) -> const Prediction& {
                return lab(bf16, one_of("llama-2-7b", cluster));
              };
              return fmt::format("a step of 7B {} as fast as an A100's",
                                 times(slower(on("a100-sxm-80g"), on("h100-sxm-80g"))));
            },
            "agrees"}}};
}

}  // namespace

std::vector<Section> training_advice() { return {cheatsheet(), out_of_memory(), hardware()}; }

}  // namespace tidemark::tests::seeds
