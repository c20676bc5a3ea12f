#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "scenarios/validate/arithmetic/check_math.hpp"
#include "sim/program/liveness.hpp"
#include "sim/program/verify.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

// [quantization]: bytes against bitsandbytes' own arithmetic (functional.py quantize_4bit), and what its linears make.

namespace tidemark::tests::quantization_test {
namespace {

struct Requested {
  std::string quantization = "format = \"nf4\"", adapter = "[adapter]\nrank = 8\n", switches{};
  std::string versions = "bitsandbytes = \"0.50\"", train{}, runtime = "pytorch";
  int gpus = 1, micro_batches = 1;
};

Scenario parsed(const Requested& a) {
  const std::string text = fmt::format(
      "model = \"models/llama-2-7b.json\"\ncluster = \"clusters/a100-sxm-80g.toml\"\ngpus = {}\n[quantization]\n{}\n{}"
      "[model_override]\nnum_hidden_layers = 2\nvocab_size = 4096\n"
      "[train]\nsequence_length = 512\nmicro_batch = 2\nglobal_batch = {}\n{} = \"bf16\"\n{}\n"
      "[runtime]\nname = \"{}\"\nversions = {{ {} }}\n[runtime.switches]\nuse_cache = false\n{}\n",
      a.gpus, a.quantization, a.adapter, 2 * a.gpus * a.micro_batches,
      a.runtime == "deepspeed" ? "precision" : "master_dtype", a.train, a.runtime, a.versions, a.switches);
  return parse_scenario(text, "job.toml", folders);
}

std::string problems(const Requested& a) {
  try {
    (void)parsed(a);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no problem";
}

Program program_of(const Requested& a) {
  const Job job(parsed(a));
  Program program = lower_role(job.lowering(), job.roles.front());
  EXPECT_TRUE(verify(program).empty());
  return program;
}

// Sizes of what is allocated in that step, of what `counts` says.
std::vector<std::int64_t> sizes(const Program& program, int step,
                                const std::function<bool(const std::string&, Category)>& counts) {
  std::vector<std::int64_t> found;
  int now = 0;
  for (const Op& op : program.ops) {
    if (const Mark* mark = std::get_if<Mark>(&op)) now = mark->step;
    const Alloc* alloc = std::get_if<Alloc>(&op);
    if (alloc != nullptr && now == step && counts(program[alloc->label], alloc->category))
      found.push_back(alloc->size.count());
  }
  return found;
}

std::int64_t sum(const std::vector<std::int64_t>& all) {
  std::int64_t total = 0;
  for (const std::int64_t one : all) total += one;
  return total;
}

std::int64_t quantized_bytes(const std::string& keys, const std::string& release = "0.50") {
  return sum(sizes(program_of({.quantization = keys, .versions = "bitsandbytes = \"" + release + "\""}), 0,
                   [](const std::string&, Category its) { return its == Category::Quantization; }));
}

constexpr std::int64_t hidden = 4096, ffn = 11008, layers = 2, tokens = 1024;

// Each linear: codes of four bits, a scale of four bytes for each block, and the table of 16 numbers.
TEST(Quantization, BytesOfCodesAndScales) {
  const auto of_linear = [](std::int64_t n, std::int64_t block) { return n / 2 + 4 * (n / block) + 64; };
  const auto of_model = [&](std::int64_t block) {
    return layers * (4 * of_linear(hidden * hidden, block) + 3 * of_linear(hidden * ffn, block));
  };
  EXPECT_EQ(quantized_bytes("format = \"nf4\""), of_model(64));
  EXPECT_EQ(quantized_bytes("format = \"fp4\""), of_model(64));
  EXPECT_EQ(quantized_bytes("format = \"nf4\"\nblock_size = 256"), of_model(256));
}

// Scales of one byte, a scale of four bytes for 256 of them, their mean, and one table of 256 numbers for all.
TEST(Quantization, DoubleQuantizationTakes0_516BytesForAParameter) {
  const auto of_linear = [](std::int64_t n) {
    const std::int64_t blocks = n / 64;
    return n / 2 + blocks + 4 * ((blocks + 255) / 256) + 4 + 64;
  };
  const std::int64_t expected = 1024 + layers * (4 * of_linear(hidden * hidden) + 3 * of_linear(hidden * ffn));
  constexpr const char* nested = "format = \"nf4\"\ndouble_quant = true";
  EXPECT_EQ(quantized_bytes(nested, "0.45"), expected);
  EXPECT_EQ(quantized_bytes(nested, "0.47"), expected + 7 * layers * 1024) << "a table for each linear, too";
  constexpr double parameters = layers * (4.0 * hidden * hidden + 3.0 * hidden * ffn);
  EXPECT_NEAR(static_cast<double>(expected) / parameters, 0.515869, 0.00001);
}

// Each linear: codes of a byte, and a scale of four bytes for each row.
TEST(Quantization, EightBitsTakeAByteAndAScaleForEachRow) {
  const auto of_linear = [](std::int64_t outputs, std::int64_t inputs) { return outputs * inputs + 4 * outputs; };
  EXPECT_EQ(quantized_bytes("format = \"int8\""),
            layers * (4 * of_linear(hidden, hidden) + 2 * of_linear(ffn, hidden) + of_linear(hidden, ffn)));
}

std::int64_t most_saved(const Program& program) {
  std::vector<std::int64_t> live(static_cast<std::size_t>(program.buffers));
  std::int64_t now = 0, most = 0;
  for (const Op& op : program.ops) {
    if (const Alloc* alloc = std::get_if<Alloc>(&op))
      now += live[alloc->buffer.index()] = alloc->category == Category::SavedActivations ? alloc->size.count() : 0;
    if (const Free* free = std::get_if<Free>(&op)) now -= live[free->buffer.index()];
    most = std::max(most, now);
  }
  return most;
}

// MatMul8bitLt's context holds what its linear was given, past what torch.utils.checkpoint without reentrance sees.
TEST(Quantization, ContextsOf8BitsHoldInputsThatCheckpointsDoNotSee) {
  const auto highest = [](const std::string& quantization, const std::string& reentrant) {
    return most_saved(program_of(
        {.quantization = quantization, .switches = "use_reentrant = " + reentrant, .train = "recompute = \"full\""}));
  };
  // Of each layer: what norms give, attention and both of the MLP's, in fp32 and bf16.
  const std::int64_t held = highest("format = \"int8\"", "false") - highest("format = \"int8\"", "true");
  EXPECT_GT(held, layers * tokens * 2 * (3 * hidden + ffn));
  EXPECT_EQ(highest("format = \"nf4\"", "false"), highest("format = \"nf4\"", "true"));
}

// transformers/trainer.py training_step returns loss.detach(): the graph, and what its contexts hold, goes with the
// function. In a script's own loop it goes when the next loss is there.
TEST(Quantization, ContextsOfTheMicroBatchBeforeGoWithTheTrainersFunction) {
  const auto highest = [](const std::string& loop, int micro_batches) {
    return most_saved(program_of({.quantization = "format = \"int8\"",
                                  .switches = "use_reentrant = false\nlogging_nan_inf_filter = " + loop,
                                  .train = "recompute = \"full\"",
                                  .micro_batches = micro_batches}));
  };
  EXPECT_EQ(highest("true", 2), highest("true", 1));
  EXPECT_GT(highest("false", 2), highest("false", 1) + layers * tokens * 2 * (3 * hidden + ffn));
}

// fully_shard: codes are sharded by rows with their layer, what undoes them is whole on every rank.
TEST(Quantization, FullyShardCutsCodesAlone) {
  const auto of = [](int gpus) {
    const Program program =
        program_of({.quantization = "format = \"nf4\"\nstorage_dtype = \"bf16\"\nprepare = \"none\"",
                    .adapter = "[adapter]\nrank = 8\ndtype = \"bf16\"\n",
                    .runtime = "fsdp2",
                    .gpus = gpus});
    const auto in = [&](Category category) {
      return sum(sizes(program, 0, [=](const std::string&, Category its) { return its == category; }));
    };
    return std::pair(in(Category::Parameters), in(Category::Quantization));
  };
  constexpr std::int64_t codes = layers * (4 * hidden * hidden + 3 * hidden * ffn) / 2;
  const auto [of_two, undoing] = of(2);
  const auto [of_four, the_same] = of(4);
  EXPECT_EQ(undoing, the_same);
  constexpr std::int64_t others = 2 * (2 * 4096 * hidden + (2 * layers + 1) * hidden);
  EXPECT_EQ(of_two - of_four, (codes + others) / 4);
}

// Of codes and their parts, while a step runs, the most that is there at once.
std::int64_t most_codes(const Requested& requested) {
  const Program program = program_of(requested);
  std::vector<std::int64_t> live(static_cast<std::size_t>(program.buffers));
  std::int64_t now = 0, most = 0;
  int step = 0;
  for (const Op& op : program.ops) {
    if (const Mark* mark = std::get_if<Mark>(&op)) step = mark->step;
    if (const Alloc* alloc = std::get_if<Alloc>(&op))
      now += live[alloc->buffer.index()] = alloc->category == Category::Quantization ? alloc->size.count() : 0;
    if (const Free* free = std::get_if<Free>(&op)) now -= live[free->buffer.index()];
    if (step > 0) most = std::max(most, now);
  }
  return most;
}

constexpr std::int64_t codes_of_all = layers * (4 * hidden * hidden + 3 * hidden * ffn) / 2;
constexpr const char* letting_go = "stage3_prefetch_bucket_size = 0\nstage3_max_reuse_distance = 0\n";

Requested under_stage_3(std::string quantization, std::string train = {}, std::string switches = letting_go) {
  return {.quantization = std::move(quantization),
          .switches = std::move(switches),
          .train = "recompute = \"full\"\n[layout]\nsharding = \"zero3\"\n" + train,
          .runtime = "deepspeed",
          .gpus = 2};
}

// DeepSpeed's stage 3: transformers makes all of the model, the engine then cuts codes as it cuts other parameters.
TEST(Quantization, UnderStage3CodesAreMadeWholeAndThenCut) {
  const Program program = program_of(under_stage_3("format = \"nf4\""));
  const auto of_linears = [&](std::string_view end) {
    return sum(sizes(program, 0, [=](const std::string& label, Category its) {
      return its == Category::Quantization && label.ends_with(end);
    }));
  };
  EXPECT_EQ(of_linears(".parameter"), codes_of_all);
  EXPECT_EQ(of_linears(".part"), codes_of_all / 2);
}

// A context holds codes past what torch.utils.checkpoint without reentrance sees; with it, those of one layer are
// there.
TEST(Quantization, UnderStage3ContextsHoldGatheredCodes) {
  const auto most = [](const std::string& reentrant) {
    return most_codes(under_stage_3("format = \"nf4\"", {}, letting_go + ("use_reentrant = " + reentrant + "\n")));
  };
  EXPECT_GE(most("false") - most("true"), codes_of_all / layers * (layers - 1));
}

// MatmulLtState.CB: codes of 8 bits are whole for good.
TEST(Quantization, UnderStage3CodesOf8BitsStayWhole) {
  EXPECT_GE(most_codes(under_stage_3("format = \"int8\"", {}, letting_go + std::string("use_reentrant = true\n"))),
            2 * codes_of_all + 2 * codes_of_all / 2);
}

// The engine casts adapters with all else of the model.
TEST(Quantization, UnderStage3AdaptersAreOfTheTypeThatIsComputedIn) {
  const Program program = program_of(under_stage_3("format = \"nf4\""));
  const auto masters =
      sizes(program, 0, [](const std::string&, Category its) { return its == Category::OptimizerMaster; });
  constexpr std::int64_t of_rank = layers * 2 * 8 * (hidden + hidden) / 2;  // q_proj and v_proj
  EXPECT_EQ(sum(masters), 2 * 4 * of_rank);
}

// Of a weight of the MLP, in the forward pass and in the backward pass.
TEST(Quantization, WeightsAreDequantizedForEachProduct) {
  const auto made = [](const std::string& versions, const std::string& switches) {
    return sizes(program_of({.switches = switches, .versions = versions}), 1, [](const std::string& label, Category) {
      return label.ends_with(".mlp.dequantized") || label.ends_with(".mlp.to");
    });
  };
  constexpr std::int64_t weight = 2 * hidden * ffn;
  const auto of_weights = [=](const std::vector<std::int64_t>& all) {
    return std::ranges::count(all, weight) + 2 * std::ranges::count(all, 2 * weight);
  };
  EXPECT_EQ(of_weights(made("bitsandbytes = \"0.50\"", "")), layers * 3 * 2);
  // Norms in fp32 have an older release compute in fp32: from bf16 weights, in both directions.
  EXPECT_EQ(of_weights(made("bitsandbytes = \"0.45\"", "")), layers * 3 * (2 + 2 * 2));
}

TEST(Quantization, WhatIsNotQuantizedIsWidenedAsAsked) {
  const auto parameters = [](const std::string& prepare) {
    std::int64_t bytes = 0;
    std::vector<std::int64_t> live;
    const Program program =
        program_of({.quantization = "format = \"nf4\"\nprepare = \"" + prepare + "\"", .switches = "autocast = true"});
    live.resize(static_cast<std::size_t>(program.buffers));
    for (const Op& op : program.ops) {
      if (const Alloc* alloc = std::get_if<Alloc>(&op); alloc != nullptr && alloc->category == Category::Parameters)
        bytes += live[alloc->buffer.index()] = alloc->size.count();
      if (const Free* free = std::get_if<Free>(&op)) bytes -= live[free->buffer.index()];
      if (const Mark* mark = std::get_if<Mark>(&op); mark != nullptr && mark->step == 1) break;
    }
    return bytes;
  };
  constexpr std::int64_t ends = 2 * 4096 * hidden, norms = (2 * layers + 1) * hidden;
  const std::int64_t frequencies = parameters("none") - 2 * (ends + norms);
  EXPECT_EQ(parameters("norms") - frequencies, 2 * ends + 4 * norms);
  EXPECT_EQ(parameters("all") - frequencies, 4 * (ends + norms));
}

TEST(Quantization, WhatItDoesNotGoWith) {
  const auto says = [](const Requested& requested, const std::string& what) {
    EXPECT_NE(problems(requested).find(what), std::string::npos) << problems(requested);
  };
  says({.adapter = ""}, "nothing would be trained");
  says({.quantization = "format = \"int8\"\ndouble_quant = true"}, "double_quant is of bases in 4 bits");
  says({.quantization = "format = \"nf4\"\nthreshold = 6.0"}, "threshold is of bases in 8 bits");
  says({.quantization = "format = \"int8\"", .versions = "bitsandbytes = \"0.44\""}, "is not modelled");
  says({.quantization = "format = \"int8\"", .runtime = "fsdp", .gpus = 2}, "and 8-bit codes are not");
  says({.quantization = "format = \"nf4\"\nblock_size = 48"}, "bitsandbytes has no such blocks");
  says({.quantization = "format = \"nf4\"\nskip_modules = [\"lm_haed\"]"}, "did you mean \"lm_head\"?");
  says({.quantization = "format = \"nf4\"\nskip_modules = [\"q_proj\"]"}, "a quantized head is not modelled yet");
  says({.quantization = "format = \"nf4\"\nprepare = \"norms\""},
       "without autocast the head, which is not fp32, would get fp32 inputs");
  says({.runtime = "fsdp", .gpus = 2}, "storage_dtype = \"uint8\": FullyShardedDataParallel flattens codes");
  says({.runtime = "fsdp2", .gpus = 2}, "fully_shard gathers parameters in precision = \"bf16\"");
  says({.quantization = "format = \"nf4\"\nstorage_dtype = \"bf16\"", .runtime = "fsdp2", .gpus = 2},
       "prepare = \"all\" under fully_shard is not modelled yet");
  says({.train = "[layout]\nsharding = \"zero2\"\n[offload]\noptimizer = \"cpu\"", .runtime = "deepspeed", .gpus = 2},
       "a quantized base under DeepSpeed's stages 1 and 2 with [offload] is not modelled yet");
  says(under_stage_3("format = \"nf4\"", "[offload]\nparameters = \"nvme\""),
       "under DeepSpeed's stage 3 on NVMe is not modelled yet");
  says(under_stage_3("format = \"nf4\"\nstorage_dtype = \"fp32\""),
       "DeepSpeed casts codes that are kept as numbers, too, to precision = \"bf16\"");
  Requested saving = under_stage_3("format = \"nf4\"");
  saving.adapter = "[adapter]\nrank = 8\nmodules_to_save = [\"lm_head\"]\n";
  says(saving, "modules_to_save with a quantized base under DeepSpeed's stage 3 are not modelled yet");
  Requested wide = under_stage_3("format = \"nf4\"");
  wide.adapter = "[adapter]\nrank = 8\ndtype = \"fp32\"\n";
  says(wide, "DeepSpeed casts adapters, too, to \"bf16\"");
  EXPECT_NE(beyond_arithmetic(parsed({})).find("quantized weights"), std::string::npos);
}

}  // namespace
}  // namespace tidemark::tests::quantization_test
