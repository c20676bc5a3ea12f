#include "parallel/generation/engine.hpp"
#include "scenarios/estimate/rules.hpp"
#include "tests/seed_guides/figures.hpp"
#include "tests/seed_guides/seed_page.hpp"

namespace tidemark::tests::seeds {
namespace {

double k_of(const Prediction& p) {
  const Scenario& s = p.scenario;
  return rules::k_of({static_cast<double>(s.train.micro_batch), static_cast<double>(s.train.sequence_length),
                      static_cast<double>(s.model.hidden), static_cast<double>(s.model.layers.size()),
                      number(size_of(s.train.precision))},
                     number(activations(p)));
}

Section memory_equation() {
  return {
      "The Memory Equation - What Eats Your VRAM",
      {{"parameters + gradients + optimizer states + activations + overhead",
        [](Lab& lab) {
          const Buckets b = buckets(lab(megatron));
          return fmt::format("{} + {} + {} + {} + {} = {} under Megatron-LM, whose device holds {}", gb(b.parameters),
                             gb(b.gradients), gb(b.optimizer), gb(b.activations), gb(b.overhead), gb(b.total()),
                             gb(device(lab(megatron))));
        },
        "agrees at the highest moment of the passes, in which all five are there"},
       {"7B in bf16: 14 GB; in fp32: 28 GB; the headline number is all you need",
        [](Lab& lab) {
          const Prediction& qwen = lab(four);
          return fmt::format("Llama 2 7B {} and {}; Qwen2.5 7B {}", gb(parameters(lab(bf16))),
                             gb(parameters(lab(fp32))), gb(rules::parameters(static_cast<double>(qwen.parameters), 2)));
        },
        "agrees to what the headline leaves out: 6.74 and 7.62 billion are both called 7B"},
       {"gradients cost what parameters do",
        [](Lab& lab) {
          return fmt::format("{} of {} in bf16; {} of {} under Megatron-LM", gb(gradients(lab(bf16))),
                             gb(parameters(lab(bf16))), gb(gradients(lab(megatron))), gb(parameters(lab(megatron))));
        },
        "agrees where frameworks do not sum them in fp32, as Megatron-LM does"},
       {"the CUDA context alone: several hundred MB",
        [](Lab& lab) { return mb(memory(lab(four)).device.composition[Category::Context]); },
        "agrees, with the code that is loaded; an estimate with bounds"},
       {"overhead: 10-20 % on top of everything else",
        [](Lab& lab) {
          const auto part = [](const Prediction& p) {
            const Buckets b = buckets(p);
            return percent(ratio(b.overhead, b.total() - b.overhead));
          };
          return fmt::format("{} in bf16 on one device, {} under Megatron-LM, {} on eight", part(lab(bf16)),
                             part(lab(megatron)), part(lab(eight)));
        },
        "it is not a share of anything: fragmentation, NCCL, context and workspaces, each by its own mechanism"},
       {"framework internals: communication buffers, temporary tensors",
        [](Lab& lab) {
          const Composition& c = memory(lab(eight)).device.composition;
          Bytes buffers;
          for (const Category kind : {Category::CommTp, Category::CommCp, Category::CommEp, Category::CommDp,
                                      Category::CommPp, Category::Nccl})
            buffers += c[kind];
          return fmt::format("{} of communication and NCCL, {} of workspaces, {} of fragmentation on eight cards",
                             gb(buffers), gb(c[Category::Workspaces]), gb(c[Category::Fragmentation]));
        },
        "agrees that they are there; the graph of autograd itself is on the host"}}};
}

Section formats() {
  return {
      "Precision Formats and Why They Matter",
      {{"float32: 4 bytes, float16 / bfloat16: 2",
        [](Lab& lab) {
          const auto each = [](const Prediction& p) {
            return number(parameters(p)) / static_cast<double>(p.parameters);
          };
          return fmt::format("{:.4f}, {:.4f} and {:.4f} bytes", each(lab(fp32)),
                             each(lab(megatron, "train.precision = \"fp16\"")), each(lab(bf16)));
        },
        "agrees"},
       {"int8: 1 byte; quantized inference, QLoRA",
        [](Lab& lab) {
          const auto one = [&](const char* reentrant) {
            return gb(device(lab(int8, fmt::format("train.micro_batch = 1\ntrain.global_batch = 4\n"
                                                   "runtime.switches.use_reentrant = {}",
                                                   reentrant))));
          };
          return fmt::format("{:.4f} bytes; under LoRA {} with checkpoints that do not reenter, {} with such that do",
                             number(base(lab(int8))) / static_cast<double>(lab(fp32).parameters), one("false"),
                             one("true"));
        },
        "a byte, a scale for each row, and what is not quantized (embedding and head, here in fp32); its products hold "
        "their inputs past checkpoints that do not reenter; QLoRA's are of 4 bits"},
       {"int4: 0.5 bytes",
        [](Lab& lab) {
          return fmt::format("{:.4f} bytes", number(base(lab(qlora))) / static_cast<double>(lab(fp32).parameters));
        },
        "more: scales, and what is not quantized (embedding and head, here in fp32)"},
       {"fp32 to bf16 halves parameters, gradients and activations",
        [](Lab& lab) {
          return fmt::format("{}, {}, {}", times(ratio(parameters(lab(bf16)), parameters(lab(fp32)))),
                             times(ratio(gradients(lab(bf16)), gradients(lab(fp32)))),
                             times(ratio(activations(lab(bf16)), activations(lab(fp32)))));
        },
        "agrees, nearly: norms and the loss compute in fp32 all the same"}}};
}

Section optimizer_trap() {
  return {"The Optimizer State Trap",
          {{"Adam: 4 + 4 bytes, always in fp32",
            [](Lab& lab) {
              const auto each = [](const Prediction& p) {
                return number(in(p, Phase::OptimizerStep)[Category::OptimizerMoments]) /
                       static_cast<double>(p.parameters);
              };
              return fmt::format("{:.3f} under Megatron-LM, {:.3f} of a bf16 model under plain PyTorch",
                                 each(lab(megatron)), each(lab(bf16)));
            },
            "not always: torch.optim keeps moments in the parameters' own type"},
           {"7B: parameters 14, gradients 14, Adam 56 GB",
            [](Lab& lab) {
              const Prediction& p = lab(megatron);
              return fmt::format("{}, {}, {} under Megatron-LM", gb(parameters(p)), gb(gradients(p)), gb(states(p)));
            },
            "it leaves out the fp32 master copy, 4 bytes, and fp32 gradients, 2 more"},
           {"optimizer states are 4 times the model in bf16",
            [](Lab& lab) {
              return fmt::format("{} under Megatron-LM, {} in bf16",
                                 times(ratio(states(lab(megatron)), parameters(lab(megatron)))),
                                 times(ratio(states(lab(bf16)), parameters(lab(bf16)))));
            },
            "6 with the master copy, 2 without fp32"},
           {"SGD with momentum: 4 bytes; without: none",
            [](Lab& lab) {
              const auto of = [&](const char* which) {
                return gb(states(lab(fp32, fmt::format("train.optimizer = \"{}\"", which))));
              };
              return fmt::format("{} and {}", of("sgd_momentum"), of("sgd"));
            },
            "agrees in fp32"},
           {"often the single largest consumer",
            [](Lab& lab) {
              const auto part = [](const Prediction& p) { return percent(ratio(buckets(p).optimizer, device(p))); };
              return fmt::format("{} of the device with one sequence, {} with eight", part(lab(megatron, small)),
                                 part(lab(megatron)));
            },
            "agrees under Megatron-LM, as long as activations are not more"},
           {"not everything fits because one trains in fp16",
            [](Lab& lab) { return fits(lab(megatron, with(small, with(h100, "train.precision = \"fp16\"")))); },
            "agrees: on an H100, with one sequence"}}};
}

Section activation_memory() {
  return {"Activation Memory - The Hard Part",
          {{"k x batch x seq x hidden x layers x bytes, k of 2-10+",
            [](Lab& lab) {
              return fmt::format(
                  "k = {:.1f} in bf16, {:.1f} with stored scores, {:.1f} under Megatron-LM, {:.1f} checkpointed",
                  k_of(lab(bf16)), k_of(lab(bf16, "train.attention = \"unfused\"")), k_of(lab(megatron)),
                  k_of(lab(bf16, checkpointed)));
            },
            "k is what one wants to know: it goes by framework, attention, vocabulary and checkpointing"},
           {"attention materializes batch x heads x seq x seq unless FlashAttention",
            [](Lab& lab) {
              const Prediction& p = lab(bf16, "train.attention = \"unfused\"");
              const double matrix = 32 * rules::attention_matrix(8, 32, 2048, 2);
              return fmt::format("{} more, the matrices of all layers being {}",
                                 gb(activations(p) - activations(lab(bf16))), gb(matrix));
            },
            "agrees in kind; transformers' own attention saves more than one of them a layer"},
           {"checkpointing every layer: 50-70 % less",
            [](Lab& lab) {
              const auto less = [&](const char* scenario) {
                return percent(1 - ratio(activations(lab(scenario, checkpointed)), activations(lab(scenario))));
              };
              return fmt::format("{} in bf16, {} under Megatron-LM", less(bf16), less(megatron));
            },
            "more, where there are many layers"},
           {"at roughly 30 % more compute",
            [](Lab& lab) { return percent(slower(lab(megatron, checkpointed), lab(megatron)) - 1); }, "agrees"},
           {"it depends on which layers are checkpointed and how many",
            [](Lab& lab) {
              const auto of = [&](int layers) {
                return gb(activations(lab(megatron, fmt::format("train.recompute = \"full\"\ntrain.recompute_method = "
                                                                "\"block\"\ntrain.recompute_layers = {}",
                                                                layers))));
              };
              return fmt::format("{}; 8 layers {}, 16 {}, 24 {}, 32 {}", gb(activations(lab(megatron))), of(8), of(16),
                                 of(24), of(32));
            },
            "agrees: a layer is as good as another, and one runs again at a time"}}};
}

Section parallelism() {
  constexpr const char* parts_of_8 = "gpus = 8\nlayout.tensor = 8\nlayout.sequence_parallel = true\n";
  constexpr const char* stages_of_4 = "gpus = 4\nlayout.pipeline = 4\n";
  return {"How Parallelism Strategies Distribute Memory",
          {{"data parallelism: essentially no impact",
            [](Lab& lab) {
              const Prediction &p = lab(bf16, "gpus = 8\ntrain.global_batch = 64"), &one = lab(bf16);
              return fmt::format("{} more in tensors, {} with NCCL", gb(allocated(p) - allocated(one)),
                                 gb(device(p) - device(one)));
            },
            "it takes more: buckets of gradients, which DistributedDataParallel keeps, and NCCL"},
           {"data parallelism reduces wall-clock time",
            [](Lab& lab) {
              return fmt::format("{} tokens/s a device of eight, {} of one",
                                 tokens_per_s(lab(bf16, "gpus = 8\ntrain.global_batch = 64")), tokens_per_s(lab(bf16)));
            },
            "agrees: nearly by eight, gradients being reduced beside the backward pass"},
           {"data parallelism does not reduce optimizer state",
            [](Lab& lab) {
              const Prediction& p = lab(megatron, "gpus = 8\ntrain.global_batch = 64\nlayout.sharding = \"zero1\"");
              return fmt::format("{} of {} a rank of eight", gb(states(p)), gb(states(lab(megatron))));
            },
            "wrong with a distributed optimizer, or ZeRO"},
           {"TP: (parameters + gradients + states) / TP",
            [=](Lab& lab) {
              const Prediction& p = lab(megatron, parts_of_8);
              return fmt::format("{}, an eighth is {}", gb(model_state(p)), gb(number(model_state(lab(megatron))) / 8));
            },
            "agrees: norms are whole on every rank, which is little"},
           {"TP: + partial activations",
            [=](Lab& lab) { return times(ratio(activations(lab(megatron, parts_of_8)), activations(lab(megatron)))); },
            "an eighth with sequence parallelism, and more without"},
           {"TP requires fast interconnect: all-reduce in every layer, forward and backward",
            [](Lab& lab) {
              const auto across = [&](int ranks) {
                const Prediction& p = lab(megatron, fmt::format("gpus = {0}\nlayout.tensor = {0}\n"
                                                                "layout.sequence_parallel = true",
                                                                ranks));
                double exposed = 0;
                for (const double share : p.step.exposed) exposed += share;
                return percent(exposed);
              };
              return fmt::format("{} of a step waits for bytes over eight in a node, {} over sixteen in two", across(8),
                                 across(16));
            },
            "agrees"},
           {"PP: each GPU stores its own layers' state and activations",
            [=](Lab& lab) {
              const Prediction& p = lab(megatron, with(stages_of_4, "train.micro_batch = 1\ntrain.global_batch = 8"));
              const auto state = [](const RankGroup& g) {
                const Composition& c =
                    g.memory.allocated_by_phase[static_cast<std::size_t>(Phase::OptimizerStep)].composition;
                return c[Category::Parameters] + c[Category::Gradients] + c[Category::OptimizerMaster] +
                       c[Category::OptimizerMoments];
              };
              return fmt::format("state {} to {}; saved {} on the first stage, {} on the last", gb(state(p.groups[1])),
                                 gb(state(p.groups.front())), gb(saved(p.groups.front().memory.allocated.composition)),
                                 gb(saved(p.groups.back().memory.allocated.composition)));
            },
            "not evenly: embedding and head are at the ends, and the first stage has most micro-batches in flight"},
           {"PP: bubbles, which micro-batching helps fill",
            [=](Lab& lab) {
              const auto of = [&](int passes) {
                const std::string batch = fmt::format("train.micro_batch = 1\ntrain.global_batch = {}", passes);
                return percent(lab(megatron, with(stages_of_4, batch)).step.waiting());
              };
              return fmt::format("{} of a step with 4 micro-batches, {} with 8, {} with 32", of(4), of(8), of(32));
            },
            "agrees: 3 of 7, 11 and 35 passes, where stages are alike"},
           {"EP: each GPU stores a subset of the experts",
            [](Lab& lab) {
              const std::string moe =
                  "model = \"models/mixtral-8x7b.json\"\ngpus = 8\ntrain.micro_batch = 1\ntrain.global_batch = 8\n"
                  "runtime.headroom = \"0 B\"\n";
              const Prediction &p = lab(megatron, moe + "layout.expert = 8"),
                               &whole = lab(megatron, moe + "layout.expert = 1");
              return fmt::format("parameters {} of {}", gb(parameters(p)), gb(parameters(whole)));
            },
            "agrees: an eighth of the experts, and all of the rest"},
           {"EP: all-to-all for tokens; routing and other layers are replicated",
            [](Lab& lab) {
              const Prediction& p = lab(megatron,
                                        "model = \"models/mixtral-8x7b.json\"\ngpus = 8\ntrain.micro_batch = 1\n"
                                        "train.global_batch = 8\nruntime.headroom = \"0 B\"\n"
                                        "layout.expert = 8");
              const double experts = 32.0 * 8 * 3 * 4096 * 14336 * 2;
              return fmt::format("{} of what was dispatched at the peak; {} of parameters are on every rank",
                                 gb(memory(p).allocated.composition[Category::CommEp]),
                                 gb(number(parameters(p)) - experts / 8));
            },
            "agrees; what has come from other ranks takes memory that the guide does not count"},
           {"combined: total / (TP x PP)",
            [](Lab& lab) {
              const Prediction& p = lab(megatron,
                                        "gpus = 8\nlayout.tensor = 2\nlayout.sequence_parallel = true\n"
                                        "layout.pipeline = 4\ntrain.micro_batch = 1\ntrain.global_batch = 8");
              return fmt::format("{} on the fullest rank, an eighth is {}", gb(model_state(p)),
                                 gb(rules::divided(number(model_state(lab(megatron))), 2, 4)));
            },
            "a lower bound, as it says: stages are not alike"},
           {"communication buffers and activation overlap make it worse than that",
            [](Lab& lab) {
              const Prediction& p = lab(megatron,
                                        "gpus = 8\nlayout.tensor = 2\nlayout.sequence_parallel = true\n"
                                        "layout.pipeline = 4\ntrain.micro_batch = 1\ntrain.global_batch = 8");
              return fmt::format("{} of overhead, {} of activations on the fullest rank", gb(buckets(p).overhead),
                                 gb(activations(p)));
            },
            "agrees"}}};
}

Row component(const char* says, Bytes (*of)(const Prediction&), const char* scenario, const char* verdict) {
  return {says, [=](Lab& lab) { return gb(of(lab(scenario))); }, verdict};
}

Section eight_cards() {
  return {
      "Worked Example: 8-Card Configuration",
      {{"7B parameters, 28 layers, AdamW",
        [](Lab& lab) {
          const Prediction& p = lab(eight);
          return fmt::format("{:.2f} B, {} layers of {}", static_cast<double>(p.parameters) / 1e9,
                             p.scenario.model.layers.size(), p.scenario.model.hidden);
        },
        "agrees: 7.62 billion, of which 1.09 are embedding and head"},
       component("model parameters 14.0 GB (bf16)", parameters, eight,
                 "wrong: TP=4 divides them; this is a quarter for training, and another for the engine"),
       component("gradients 5.6 GB (sharded across TP=4)", gradients, eight,
                 "a quarter of 14 is 3.5, and Megatron-LM's are in fp32"),
       component("optimizer states 22.4 GB (partially sharded)", states, eight,
                 "12 bytes of a quarter, over two data-parallel ranks: with fp32 masters, and sharded"),
       component("KV cache 24.5 GB", kv_cache, eight,
                 "of 128 answers, as the configuration says; grouped queries keep 4 of 28 heads, one on each rank"),
       component("activations 9.8 GB (micro-batch 1, recompute 1 layer)", activations, eight,
                 "27 of 28 layers save all; logits and loss are a good part"),
       {"framework overhead 3.7 GB (SGLang + Ray + PyTorch)", [](Lab& lab) { return gb(buckets(lab(eight)).overhead); },
        "of PyTorch, NCCL and the driver; what SGLang and Ray hold in processes of their own is not modelled"},
       {"total ~80 GB, right at the limit",
        [](Lab& lab) {
          return fmt::format("{}, most tensors in {}; {}", gb(device(lab(eight))),
                             name(memory(lab(eight)).allocated.at.mark.phase), fits(lab(eight)));
        },
        "wrong: cache and activations are not there at the same time, so that buckets do not add up"},
       {"a slightly longer sequence runs out of memory",
        [](Lab& lab) {
          const auto at = [&](int length) {
            return fits(lab(eight, fmt::format("train.sequence_length = {0}\nrollout.response_length = {0}", length)));
          };
          return fmt::format("9,216: {}; 12,288: {}", at(9216), at(12288));
        },
        "wrong, as its total is"}}};
}

// The eight cards with one of the four changes.
Row change(const char* says, const char* keys, const char* verdict) {
  return {says,
          [keys](Lab& lab) {
            const Prediction &p = lab(eight, keys), &was = lab(eight);
            return fmt::format("cache {} less, activations {} less, device {} less", gb(kv_cache(was) - kv_cache(p)),
                               gb(activations(was) - activations(p)), gb(device(was) - device(p)));
          },
          verdict};
}

Section four_cards() {
  return {
      "Worked Example: 4-Card Optimized Configuration",
      {change("--rollout-batch-size 16, halved", "rollout.batch = 8\ntrain.global_batch = 128",
              "half the cache, and so the device's peak, which is in the rollout"),
       change("--n-samples-per-prompt 4, halved", "rollout.samples = 4\ntrain.global_batch = 128",
              "the same: answers are prompts times samples"),
       change("--rollout-max-response-len 4096, halved", "rollout.response_length = 4096\ntrain.sequence_length = 4096",
              "half the cache, and half of what is saved: the only one that the passes gain by, too"),
       change("--recompute-num-layers 2", "train.recompute_layers = 2", "a layer's activations"),
       component("model parameters 14.0 GB", parameters, four, "as on eight cards"),
       component("gradients 7.0 GB", gradients, four, "fp32, a quarter"),
       component("optimizer states 28.0 GB", states, four,
                 "half of Adam's 56 GB, which nothing divides by two: 12 bytes of a quarter"),
       component("KV cache ~12.0 GB", kv_cache, four, "of 64 answers half as long on the one engine"),
       component("activations ~7.5 GB", activations, four, "half the sequence, and one layer less that saves"),
       {"framework overhead 3.7 GB", [](Lab& lab) { return gb(buckets(lab(four)).overhead); }, "as on eight cards"},
       {"total ~52 GB, 35 % less",
        [](Lab& lab) {
          return fmt::format("{}, {} less", gb(device(lab(four))),
                             percent(1 - ratio(device(lab(four)), device(lab(eight)))));
        },
        "its own lines add up to 72.2, not 52"}}};
}

Section biggest_win() {
  return {"What Gave the Biggest Win",
          {{"2 x layers x hidden x seq x batch x bytes (24.5 GB)",
            [](Lab& lab) {
              const Prediction& p = lab(eight);
              const Rollout& r = *p.scenario.train.rollout;
              return fmt::format("the formula gives {} for {} answers; simulated {}",
                                 gb(rules::kv_cache(28, 3584, 8192, static_cast<double>(r.sequences()), 2)),
                                 r.sequences(), gb(kv_cache(p)));
            },
            "wrong under grouped queries: keys and values are kv_heads x head_dim wide, 7 times narrower here, and "
            "ranks share "
            "the heads; 24.5 GB are its formula's 7.4 answers"},
           {"a token's cache",
            [](Lab& lab) {
              const Prediction& p = lab(eight);
              return fmt::format("{} B on a rank, by its formula {:.0f} B",
                                 generation::cache_of_token(p.scenario.model, *p.scenario.train.rollout).count(),
                                 rules::kv_cache(28, 3584, 1, 1, 2));
            },
            "28 times: 7 for the heads, 4 for the ranks"},
           {"the cache was the single largest contributor",
            [](Lab& lab) {
              const Buckets was = buckets(lab(eight)), is = buckets(lab(four));
              return fmt::format("cache {} less, activations {}, overhead {}, optimizer {} more",
                                 gb(kv_cache(lab(eight)) - kv_cache(lab(four))), gb(was.activations - is.activations),
                                 gb(was.overhead - is.overhead), gb(is.optimizer - was.optimizer));
            },
            "agrees; optimizer states, which fewer ranks share, take as much back"},
           {"everything is multiplicative: several factors compound",
            [](Lab& lab) {
              const Bytes less = kv_cache(lab(eight,
                                              "rollout.batch = 8\nrollout.samples = 4\n"
                                              "rollout.response_length = 4096\ntrain.global_batch = 64"));
              return fmt::format("half of three: {} to {}, {}", gb(kv_cache(lab(eight))), gb(less),
                                 times(ratio(less, kv_cache(lab(eight)))));
            },
            "agrees: an eighth"},
           {"8192 to 4096 cuts the cache by 50 %, over 12 GB",
            [](Lab& lab) {
              const Bytes half = kv_cache(lab(eight, "rollout.response_length = 4096"));
              return fmt::format("{}, {}", percent(1 - ratio(half, kv_cache(lab(eight)))),
                                 gb(kv_cache(lab(eight)) - half));
            },
            "agrees in part: linear, of a cache that is smaller"}}};
}

Section trade_offs() {
  return {
      "The Trade-offs",
      {{"peak 80 and 52 GB",
        [](Lab& lab) { return fmt::format("{} and {}", gb(device(lab(eight))), gb(device(lab(four)))); }, "as above"},
       {"throughput 65-70 %",
        [](Lab& lab) {
          return fmt::format("{} and {} tokens/s a device in the passes that train", tokens_per_s(lab(eight)),
                             tokens_per_s(lab(four)));
        },
        "of training alone, a device does as much; generation's time is not modelled, and there are half the devices"},
       {"maximum sequence length 8192 on eight cards, 4096 on four",
        [](Lab& lab) {
          return fmt::format("8192 on four: {}",
                             fits(lab(four, "train.sequence_length = 8192\nrollout.response_length = 8192")));
        },
        "a length that was chosen, not the longest that fits"},
       {"4-card: 28 GB headroom", [](Lab& lab) { return fits(lab(four)); }, "more"}}};
}

Section playbook() {
  return {"Practical Tips and OOM Emergency Playbook",
          {{"1. sequence 8192 to 3072 frees 10+ GB",
            [](Lab& lab) {
              const Prediction& p = lab(eight, "train.sequence_length = 3072\nrollout.response_length = 3072");
              return fmt::format("cache {} less, device {} less", gb(kv_cache(lab(eight)) - kv_cache(p)),
                                 gb(device(lab(eight)) - device(p)));
            },
            "agrees: both are linear in the length"},
           {"2. smaller micro-batch, more accumulation",
            [](Lab& lab) {
              const Prediction& two = lab(eight, "train.micro_batch = 2");
              return fmt::format("activations {} with 2, {} with 1", gb(activations(two)), gb(activations(lab(eight))));
            },
            "agrees"},
           {"3. fewer samples per prompt",
            [](Lab& lab) {
              return fmt::format("cache {} with 8, {} with 4", gb(kv_cache(lab(eight))),
                                 gb(kv_cache(lab(eight, "rollout.samples = 4"))));
            },
            "agrees, where the cache grows; an engine that reserves its part of the device keeps that"},
           {"4. more layers recomputed (1 to 2)",
            [](Lab& lab) {
              return fmt::format("activations {} to {}; all layers {}", gb(activations(lab(eight))),
                                 gb(activations(lab(eight, "train.recompute_layers = 2"))),
                                 gb(activations(lab(eight, "train.recompute_layers = 28"))));
            },
            "agrees: each layer more is a layer's activations less"},
           {"5. switch optimizer: 8-bit Adam or Adafactor",
            [](Lab& lab) {
              const auto of = [&](const char* optimizer) {
                return gb(states(lab(fp32, fmt::format("train.optimizer = \"{}\"", optimizer))));
              };
              return fmt::format("states {} to {} and {}", gb(states(lab(fp32))), of("adamw_8bit"), of("adafactor"));
            },
            "agrees: a quarter, and next to nothing"}}};
}

Section shortcut() {
  return {"Quick Estimation Shortcut",
          {{"estimate_training_memory_gb(7) prints ~73.6 GB",
            [](Lab& lab) {
              return fmt::format(
                  "its own code gives {:.2f}; Qwen2.5 7B on one device {} in bf16, {} under Megatron-LM, at batch 1",
                  rules::shortcut_gb(7), gb(device(lab(bf16, with(small, "model = \"models/qwen2.5-7b.json\"")))),
                  gb(device(lab(megatron, with(small, "model = \"models/qwen2.5-7b.json\"")))));
            },
            "wrong comment: (14 + 14 + 56 + 21) x 1.15 = 120.75"},
           {"optimizer = \"sgd\": 4 bytes",
            [](Lab& lab) {
              return fmt::format("its code gives {:.2f}; {} with momentum in bf16, at batch 1",
                                 rules::shortcut_gb(7, 2, rules::State::Momentum),
                                 gb(device(lab(bf16, with(small, "train.optimizer = \"sgd_momentum\"")))));
            },
            "fp32 momentum of a bf16 model is not an optimizer of PyTorch's"},
           {"15 % overhead",
            [](Lab& lab) {
              const auto part = [](const Prediction& p) {
                const Buckets b = buckets(p);
                return percent(ratio(b.overhead, b.total() - b.overhead));
              };
              return fmt::format("{} at batch 1 in bf16, {} under Megatron-LM", part(lab(bf16, small)),
                                 part(lab(megatron, small)));
            },
            "as above: it is not a share of anything"},
           {"activations: rough lower bound at 1.5 times the parameters",
            [](Lab& lab) {
              return fmt::format("{} at batch 1, {} at batch 8",
                                 times(ratio(activations(lab(bf16, small)), parameters(lab(bf16)))),
                                 times(ratio(activations(lab(bf16)), parameters(lab(bf16)))));
            },
            "no lower bound, and no bound: activations go by tokens, not by parameters"},
           {"activations are the wildcard",
            [](Lab& lab) {
              const auto part = [](const Prediction& p) { return percent(ratio(activations(p), device(p))); };
              return fmt::format("{} of the device checkpointed, {} with one sequence, {} with eight",
                                 part(lab(bf16, with(small, checkpointed))), part(lab(bf16, small)), part(lab(bf16)));
            },
            "agrees"},
           {"cut sequence length first",
            [](Lab& lab) {
              const auto of = [&](const char* keys) { return gb(device(lab(bf16, keys))); };
              return fmt::format("{}; half the sequence {}, half the micro-batch {}, 8-bit Adam {}, checkpointing {}",
                                 of(""), of("train.sequence_length = 1024"),
                                 of("train.micro_batch = 4\ntrain.global_batch = 8"),
                                 of("train.optimizer = \"adamw_8bit\""), of(checkpointed));
            },
            "wrong: half the micro-batch does as much, and checkpointing more, and both leave the context whole"}}};
}

}  // namespace

std::vector<Section> estimation_guide() {
  return {memory_equation(), formats(),     optimizer_trap(), activation_memory(), parallelism(), eight_cards(),
          four_cards(),      biggest_win(), trade_offs(),     playbook(),          shortcut()};
}

}  // namespace tidemark::tests::seeds
