#include "scenarios/estimate/rules.hpp"
#include "tests/seed_guides/figures.hpp"
#include "tests/seed_guides/seed_page.hpp"

// The training guide's techniques, one after the other, and its setup with all of them.

namespace tidemark::tests::seeds {
namespace {

double tera(OperationRate rate) { return static_cast<double>(rate.count()) / 1e12; }

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
            "agrees: the scaler is a few numbers"},
           {"BF16 on Ampere and later, FP16 on all GPUs",
            [](Lab&) {
              const Device device = cluster_file("rtx-3080-10g").device;
              return fmt::format("compute capability {}.{} of the RTX 3080, {:.1f} TFLOP/s in bf16 and {:.1f} in fp16",
                                 device.compute_capability / 10, device.compute_capability % 10, tera(device.peak.bf16),
                                 tera(device.peak.fp16));
            },
            "agrees: Ampere's are the oldest clusters that are shipped, and both have one rate"}}};
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
        "a little less: one forward pass more, of three, but not of the head"},
       {"use_reentrant = False",
        [](Lab& lab) {
          const auto of = [&](const char* reentrant) {
            return gb(
                device(lab(bf16, with(checkpointed, fmt::format("runtime.switches.use_reentrant = {}", reentrant)))));
          };
          return fmt::format("{} without reentrance, {} with it", of("false"), of("true"));
        },
        "the guide's choice takes less here; over bases of 8 bits it is the other way round (int8, in the other "
        "guide)"},
       {"the square root of the layers is kept (its reference, Chen et al.)",
        [](Lab& lab) {
          return fmt::format("the rule gives {}, every layer by itself {}",
                             gb(rules::square_root_checkpointed(number(activations(lab(bf16))), 32)),
                             gb(activations(lab(bf16, checkpointed))));
        },
        "transformers checkpoints each layer: less is kept of layers, and the loss, which no rule has, is most of what "
        "is "
        "left"}}};
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
            return times(
                ratio(activations(lab(bf16, with(longer, change))), activations(lab(bf16, with(small, change)))));
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
            "managed memory is the driver's, and goes to the host when the device is full"},
           {"paged optimizers for what does not fit the device",
            [](Lab& lab) {
              const Prediction& p = lab(fp32, with(small, with(h100, "train.optimizer = \"paged_adamw_32bit\"")));
              const Bytes resident = p.resident(memory(p), device(p));
              return fmt::format("{} of moments, {} of them on an H100 beside {}, {} on its host",
                                 gb(memory(p).managed), gb(resident), gb(device(p)), gb(memory(p).managed - resident));
            },
            "agrees: of one sequence; pages that do not fit cross PCIe each step"}}};
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
            "agrees: what is frozen has neither gradients nor state"},
           {"bnb_4bit_use_double_quant",
            [](Lab& lab) {
              return fmt::format("{} with it, {} without", gb(base(lab(qlora))),
                                 gb(base(lab(qlora, "quantization.double_quant = false"))));
            },
            "scales of 64 numbers: 0.0625 bytes for each, quantized in turn 0.016"},
           {"bnb_4bit_quant_type = nf4",
            [](Lab& lab) {
              return fmt::format("{} more than fp4",
                                 mb(base(lab(qlora)) - base(lab(qlora, "quantization.format = \"fp4\""))));
            },
            "another table of 16 numbers, of the same size"},
           {"bnb_4bit_compute_dtype = bfloat16",
            [](Lab& lab) {
              const Prediction& wide = lab(qlora, "quantization.compute_dtype = \"fp32\"");
              return fmt::format("{}; in fp32 {}, and a step takes {} as long", gb(device(lab(qlora))),
                                 gb(device(wide)), times(slower(wide, lab(qlora))));
            },
            "fp32, which it is where it is left out, costs time: what comes in is fp32 already, and needs no cast"},
           {"device_map = auto", [](Lab& lab) { return fits(lab(qlora)); },
            "of one GPU nothing is spread; over several it would be layers in turn, which is not modelled"}}};
}

Section together() {
  return {
      "Putting It All Together: Complete Memory-Optimized Setup",
      {{"QLoRA, FlashAttention, checkpointing and paged 8-bit AdamW: ~6 GB for 7B, down from 130+",
        [](Lab& lab) {
          const Prediction& one = lab(qlora, "train.micro_batch = 1\ntrain.global_batch = 4");
          return fmt::format("{} with batch 4 of 2,048 tokens, {} with batch 1", gb(device(lab(qlora))),
                             gb(device(one)));
        },
        "wrong for its own batch of 4: activations and the loss take more than the quantized model"},
       {"prepare_model_for_kbit_training",
        [](Lab& lab) {
          const auto of = [&](const char* what) {
            return gb(device(lab(qlora, fmt::format("train.master_dtype = \"bf16\"\nruntime.switches.autocast = "
                                                    "true\nquantization.prepare = \"{}\"",
                                                    what))));
          };
          return fmt::format("{} with it, {} with norms alone in fp32, {} without", of("all"), of("norms"), of("none"));
        },
        "it makes embedding, head and norms fp32, and so all that they hand on; of a model that was loaded in bf16"},
       {"LoRA adapters (only train small matrices)",
        [](Lab& lab) {
          const Prediction& p = lab(qlora);
          return fmt::format("{:.1f} million of {:.0f} million parameters, {}", static_cast<double>(p.trained) / 1e6,
                             static_cast<double>(p.parameters) / 1e6,
                             percent(static_cast<double>(p.trained) / static_cast<double>(p.parameters)));
        },
        "agrees"},
       {"batch 4 x 4 steps = 16",
        [](Lab& lab) {
          const Train& t = lab(qlora).scenario.train;
          return fmt::format("{} passes a step of {} sequences", t.global_batch / t.micro_batch, t.global_batch);
        },
        "agrees"},
       {"what each technique of it brings",
        [](Lab& lab) {
          const std::string by_16_bits = with("cluster = \"clusters/rtx-4090-24g.toml\"",
                                              with(lora(4, 16), "train.optimizer = \"paged_adamw_8bit\""));
          return fmt::format(
              "{}; without four bits {}, FlashAttention {}, checkpointing {}, eight-bit paged moments {}",
              gb(device(lab(qlora))), gb(device(lab(bf16, by_16_bits))), gb(device(lab(qlora, scores))),
              gb(device(lab(qlora, "train.recompute = \"none\""))),
              gb(device(lab(qlora, "train.optimizer = \"adamw\""))));
        },
        "checkpointing is most of it; of so few trained parameters the optimizer is none of it"}}};
}

Section offloading() {
  const std::string alone = with(small, with(h100, "runtime.name = \"fsdp2\"\nlayout.sharding = \"zero3\""));
  const std::string offloaded = with(alone, "offload.parameters = \"cpu\"");
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

}  // namespace

std::vector<Section> training_techniques() {
  return {mixed_precision(), checkpointing(), accumulation(), flash_attention(),
          optimizer_state(), quantization(),  offloading(),   together()};
}

}  // namespace tidemark::tests::seeds
