#include "scenarios/scenario/memory_bounds.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/frameworks/megatron/megatron_flags.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/scenario/memory_bounds_below.hpp"
#include "tests/convert/recipes.hpp"

// What is not simulated and bounded: how many bytes each bound is, and what becomes of them in an answer.

namespace tidemark::tests::memory_bounds_test {
namespace {

using namespace literals;

const std::string script =
    "torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 2 --hidden-size 512 --num-attention-heads 8 "
    "--seq-length 1024 --max-position-embeddings 1024 --vocab-size 50257 --micro-batch-size 1 --bf16";

Converted converted(const std::string& more) {
  ConvertRequest requested;
  requested.files = {"job.sh"};
  requested.texts = {{"job.sh", script + more + "\n"}};
  requested.cluster = "clusters/h100-sxm-80g.toml";
  requested.data_root = shipped_data();
  return convert(requested);
}
Scenario job() { return scenario_of(converted(""), shipped_data()); }

// "--use-z-loss by use-z-loss", …
std::vector<std::string> bounded(const Converted& its) {
  std::vector<std::string> found;
  for (const Remark& remark : its.remarks)
    if (remark.kind == RemarkKind::Bounded) found.push_back(remark.what + " by " + remark.bound);
  return found;
}

TEST(MemoryBounds, AreWhatTheirSourcesComeToForAJobWorkedOutByHand) {
  const Scenario s = job();
  // 1,024 tokens; a logarithm, its square and the like, in fp32.
  EXPECT_EQ(most_more("use-z-loss", s), Bytes{1024 * 24});
  // Whole numbers; heads of 64 elements of two bytes: cosines and sines of queries and keys of two layers, and parts
  // and whole of eight heads of queries and as many of keys and values.
  EXPECT_EQ(most_more("packed-sequences", s), Bytes{1024 * (64 + 128 * (8 + 48))});
  // Weight and bias of 512 with 20 bytes each, input and output of 1,024 tokens, two numbers of each.
  EXPECT_EQ(most_more("embed-layernorm", s), Bytes{2 * 512 * 20 + 1024 * (2 * 512 * 2 + 8)});
  EXPECT_EQ(most_more("alibi", s), Bytes{8 * 1024 * 4});
  // Of one micro-batch: 512 of the head's input and 50,257 logits, padded by no more than 1,024.
  EXPECT_EQ(most_more("deferred-head:1", s), Bytes{1024 * 2 * (512 + 50'257 + 1024)});
  EXPECT_EQ(most_more("deferred-head", s), most_more("deferred-head:1", s)) << "there is one micro-batch";
  EXPECT_EQ(most_more("padded-values", s), 0_B) << "there is no latent attention";
}

TEST(MemoryBounds, OfDeepSpeedsEngineIsMoreThanGradientsInHalfPrecisionAndTwoBuckets) {
  const Scenario s = job();
  // An embedding that is the head, too; 2 layers of 12 h^2 at least.
  const std::int64_t parameters = 50'257 * 512 + 2 * 12 * 512 * 512;
  EXPECT_GE(most_more("deepspeed-engine", s).count(), 2 * parameters + 2 * 2 * parameters);
  EXPECT_LE(most_more("deepspeed-engine", s).count(), 10 * parameters);
  EXPECT_GE(most_less("deepspeed-engine", s).count(), 16 * parameters) << "replicas share nothing out here";
  EXPECT_EQ(most_less("use-z-loss", s), 0_B);
}

// 33,079,808 parameters as bounds count them: two layers of 3,149,824, an embedding of 51,281 rows, 1,024 positions.
constexpr std::int64_t parameters_at_most = 2 * 3'149'824 + 51'281 * 512 + 1024 * 512;

TEST(MemoryBounds, OfDeepSpeedsGradientsInHalfPrecisionAreLessByStage) {
  const Scenario shared = scenario_of(converted(" --use-distributed-optimizer"), shipped_data());
  EXPECT_EQ(most_less("deepspeed-engine:1", shared), Bytes{2 * parameters_at_most}) << "two bytes in place of four";
  EXPECT_EQ(most_less("deepspeed-engine:2", shared), Bytes{4 * parameters_at_most}) << "cut over replicas";
}

TEST(MemoryBounds, OfApexAreItsShareOfGradientsAndCopiesThatAreInNoBuffer) {
  const Scenario s = job();
  const std::int64_t share = 4 * parameters_at_most / 8;
  EXPECT_EQ(most_more("apex-distributed-adam:2", s), Bytes{share});
  EXPECT_EQ(most_more("apex-distributed-adam:1", s), Bytes{share + 2 * parameters_at_most});
  EXPECT_EQ(most_more("apex-distributed-adam", s), Bytes{share + 4 * parameters_at_most});
}

// Two layers whose linears take 512, 512, 512 and 2,048 of a token and give 1,536, 512, 2,048 and 512; adapters of 8
// dimensions. Of them 18 bytes a parameter; of two layers and the one at work inputs twice, outputs, and four rows
// of 8.
TEST(MemoryBounds, OfAdaptersOnMegatronAreFewParametersInPlaceOfAll) {
  const Scenario s = job();
  constexpr std::int64_t in = 3 * 512 + 2048, out = 1536 + 512 + 2048 + 512, tokens = 1024;
  EXPECT_EQ(most_more("lora-on-megatron:8", s),
            Bytes{18 * 2 * 8 * (in + out) + tokens * (2 * (2 * in + out + 4 * 8) * 3 + 8 * out)});
  EXPECT_EQ(most_less("lora-on-megatron:8", s), Bytes{40 * parameters_at_most + 2 * tokens * in * 3});
}

// Weights twice. Of two layers and the one at work, inputs of attention's output (512 wide), twice; gradients of
// linears of one layer, 9,728 wide, twice. MXFP8 has a byte of scales for 32 elements of either copy: a sixteenth of
// weights, and of inputs, 2 x 512 + 512 + 2,048 wide; blocks have four for 128 of those, and for 128 by 128 of weights.
// Inputs that are a byte less: 512 twice, 512 and 2,048 wide.
TEST(MemoryBounds, OfFp8AreWeightsTwiceAndInputsThatOthersSaveToo) {
  const Scenario s = job();
  constexpr std::int64_t copies = 2 * parameters_at_most + 1024 * (3 * 2 * 512 + 2 * (4 * 512 + 3 * 2048 + 3 * 512));
  constexpr std::int64_t of_weights = (parameters_at_most + 15) / 16, of_inputs = 1024 * 3 * (3584 / 16);
  EXPECT_EQ(most_more("fp8-format:1", s), Bytes{copies}) << "a scale for each tensor";
  EXPECT_EQ(most_more("fp8-format:2", s), Bytes{copies + (parameters_at_most + 1023) / 1024 + of_inputs});
  EXPECT_EQ(most_more("fp8-format:3", s), Bytes{copies + of_weights + of_inputs});
  EXPECT_EQ(most_more("fp8-format", s), most_more("fp8-format:3", s));
  EXPECT_EQ(most_less("fp8-format", s), Bytes{1024 * 3584 * 3});
  EXPECT_EQ(most_less("fp8-param-gather", s), Bytes{2 * parameters_at_most});
}

// Of two layers and the one at work six rows of 512, four of each of eight heads' three of 64, the MLP's 2,048, and two
// numbers in fp32; logits and their gradient in half precision.
TEST(MemoryBounds, OfTheLegacyModelAreWhatItsLayersCopy) {
  const Converted its = converted(" --use-legacy-models");
  EXPECT_EQ(bounded(its), (std::vector<std::string>{"--use-legacy-models by use-legacy-models"}));
  EXPECT_EQ(most_more("use-legacy-models", job()),
            Bytes{1024 * (2 * (6 * 512 + 4 * 3 * 512 + 2048) + 8) * 3 + 2 * 2 * 1024 * 51'281});
  EXPECT_EQ(most_less("use-legacy-models", job()), Bytes{2 * 1024 * (2 * 512 + 2048) * 3 + 4 * 1024 * 51'281});
}

TEST(MemoryBounds, OfParametersWithinThoseInFp32AreTheirTwoBytes) {
  EXPECT_EQ(bounded(converted(" --reuse-fp32-param")),
            (std::vector<std::string>{"--reuse-fp32-param by reuse-fp32-param"}));
  EXPECT_EQ(most_more("reuse-fp32-param", job()), Bytes{0});
  EXPECT_EQ(most_less("reuse-fp32-param", job()), Bytes{2 * parameters_at_most});
}

// Losses by domains: 32 bytes a token. A reference in half precision, one layer of it at work (6 rows of 512, 3 of
// 2,048 and of eight heads of 64, in fp32), and its logits in half precision, in fp32 and as exponentials.
TEST(MemoryBounds, OfDoReMiAreItsReferenceAndLogitsOfThat) {
  EXPECT_EQ(most_more("doremi", job()), Bytes{32 * 1024});
  EXPECT_EQ(most_more("doremi:2", job()),
            Bytes{32 * 1024 + 2 * parameters_at_most + 4 * 1024 * (6 * 512 + 3 * 2048 + 3 * 512) + 10 * 1024 * 51'281});
}

// Gradients and buckets in half precision; of three layers the gate's activation and rotated rows of 24 heads; logits
// twice in fp32. A step that is not fused has 8 bytes a parameter.
TEST(MemoryBounds, OfNanotronAreGradientsTwiceAndWhatItsLayersSave) {
  const Bytes fused{4 * parameters_at_most + 1024 * 3 * 2 * (2048 + 24 * 64) + 8 * 1024 * 51'281};
  EXPECT_EQ(most_more("nanotron", job()), fused);
  EXPECT_EQ(most_more("nanotron:1", job()), fused + Bytes{8 * parameters_at_most});
}

// Four stages of two layers: the first has the embedding and four passes' outputs, the last the head and one pass's
// inputs.
TEST(MemoryBounds, AreOfAStage) {
  const Scenario s = scenario_of(converted(" --pipeline-model-parallel-size 4 --num-layers 8 --global-batch-size 32 "
                                           "--untie-embeddings-and-output-weights"),
                                 shipped_data());
  const std::int64_t layers = 2 * 3'149'824, rows = 51'281 * 512, pass = 2 * 1024 * 512;
  const auto engine = [&](std::int64_t parameters, std::int64_t passes) {
    return Bytes{2 * parameters + 6 * ((parameters + 1) / 2) + 4 * parameters + passes * pass};
  };
  const std::vector<Bytes> of_engine = more_by_stage("deepspeed-engine", s);
  ASSERT_EQ(of_engine.size(), 4);
  EXPECT_EQ(of_engine[0], engine(layers + rows + 1024 * 512, 4 + 1));
  EXPECT_EQ(of_engine[1], engine(layers, 2 * 3 + 1));
  EXPECT_EQ(of_engine[3], engine(layers + rows, 1 + 1));
  EXPECT_EQ(most_more("deepspeed-engine", s), of_engine[0]);
  EXPECT_EQ(more_by_stage("use-z-loss", s), (std::vector<Bytes>{0_B, 0_B, 0_B, Bytes{1024 * 24}}));
}

// Llama 3.1 8B: 128,256 tokens, 4,096 wide, 32 layers of 32 and 8 heads of 128, gated MLPs of 14,336.
TEST(MemoryBounds, OfFineTuningAreWorkedOutByHand) {
  ConvertRequest requested;
  requested.files = {"job.yaml"};
  requested.texts = {{"job.yaml",
                      "output_dir: o\nbf16: true\nper_device_train_batch_size: 2\ngradient_checkpointing: true\n"
                      "attn_implementation: flash_attention_2\n"}};
  requested.model = "models/llama-3.1-8b.json";
  requested.cluster = "clusters/h100-sxm-80g.toml";
  requested.sequence_length = 1024;
  requested.gpus = 1;
  requested.data_root = shipped_data();
  const Scenario s = scenario_of(convert(requested), shipped_data());
  const std::int64_t tokens = 2048, vocabulary = 128'256 + 1024;
  // Positions, cosines and sines; starts of sequences of a layer and the one at work; query gradients' padding.
  EXPECT_EQ(most_more("packed-rows", s), Bytes{tokens * (64 + 24 * 128 + 32) + 4 * tokens * 4096});
  EXPECT_EQ(most_more("chunked-loss", s), Bytes{4 * 4096 * (vocabulary + tokens)});
  EXPECT_EQ(most_less("chunked-loss", s), Bytes{16 * tokens * vocabulary});
  // Of four sequences: logits four times in fp32, caches of 32 layers, one layer; less the logits of two, twice in
  // bf16.
  const std::int64_t evaluated =
      4096 * (16 * vocabulary + 8 * 32 * 8 * 128 + 4 * (6 * 4096 + 3 * 2 * 14'336 + 3 * 4096));
  EXPECT_EQ(most_more("evaluation-beside-liger:4", s), Bytes{evaluated});
  EXPECT_EQ(most_more("evaluation:4", s), Bytes{evaluated - 4 * tokens * 128'256});
  EXPECT_EQ(most_less("liger-kernel", s), Bytes{16 * tokens * vocabulary + tokens * (24 * 4096 + 8 * 2 * 14'336) * 2});
  EXPECT_EQ(most_more("torchao-adam", s), Bytes{16 * vocabulary * 4096});
  // Two moments in fp32 of what a rank has.
  const std::int64_t layer = 4096 * (32 + 8) * 2 * 128 + 8 * 4096 + 3 * 4096 * 14'336;
  EXPECT_EQ(most_less("torchao-adam-of-shards", s), Bytes{8 * (32 * layer + 2 * vocabulary * 4096)});
}

TEST(MemoryBounds, EveryOneHasAFormulaAndTablesNameNoOther) {
  const Scenario s = job();
  for (const std::string& name : memory_bounds()) {
    EXPECT_TRUE(has_memory_bound(name));
    EXPECT_GE(most_more(name, s), 0_B) << name;
  }
  EXPECT_FALSE(has_memory_bound("no-such-bound"));
  // A flag within a bound either takes no more than without it, in words, or has a formula.
  for (const MegatronArgument& its : megatron_arguments_known())
    if (its.kind == MegatronArgument::Kind::Bound && !has_memory_bound(its.flag)) {
      EXPECT_TRUE(its.why.starts_with("no more than without it")) << its.flag;
    }
}

TEST(MemoryBounds, FlagsThatHaveOneAreToldWithIt) {
  EXPECT_EQ(bounded(converted(" --use-z-loss --embed-layernorm")),
            (std::vector<std::string>{"--use-z-loss by use-z-loss", "--embed-layernorm by embed-layernorm"}));
  EXPECT_EQ(bounded(converted(" --deepspeed --zero-stage 1")),
            std::vector<std::string>{"--deepspeed by deepspeed-engine:1"});
  EXPECT_EQ(bounded(converted(" --fp8-format hybrid --fp8-recipe mxfp8 --fp8-param-gather")),
            (std::vector<std::string>{"--fp8-format = \"hybrid\" by fp8-format:3",
                                      "--fp8-param-gather by fp8-param-gather"}));
  EXPECT_EQ(bounded(converted(" --fp8-format hybrid")),
            std::vector<std::string>{"--fp8-format = \"hybrid\" by fp8-format:1"})
      << "delayed scaling, which is Megatron-LM's own";
  EXPECT_EQ(bounded(converted(" --fp8-format hybrid --fp8-recipe blockwise")),
            std::vector<std::string>{"--fp8-format = \"hybrid\" by fp8-format:2"});
  EXPECT_EQ(bounded(converted(" --deepspeed --zero-stage 3")), std::vector<std::string>{}) << "nobody judged that";
  EXPECT_EQ(bounded(converted("")), std::vector<std::string>{});
}

Prediction answer(Bytes required, Bytes capacity, bool fits_at_best) {
  Prediction p;
  p.scenario.cluster.device.capacity = capacity;
  RankGroup& group = p.groups.emplace_back();
  group.required = {required, required};
  group.fits_at_best = fits_at_best;
  p.fits = required <= capacity;
  p.open = !p.fits && fits_at_best;
  return p;
}
std::string_view with(Prediction p, Bytes more, bool may_be_less) {
  add_bounds(p,
             {{.file = "job.sh", .line = 1, .what = "--flag", .why = "why", .more = more, .may_be_less = may_be_less}});
  return p.verdict();
}

TEST(MemoryBounds, ReachTheUpperEndAndLeaveYesOnlyWhereThereIsRoomForThem) {
  EXPECT_EQ(with(answer(70_GiB, 80_GiB, true), 9_GiB, false), "fits");
  EXPECT_EQ(with(answer(70_GiB, 80_GiB, true), 11_GiB, false), "cannot_say");
  EXPECT_EQ(with(answer(90_GiB, 80_GiB, false), 1_GiB, false), "does_not_fit");
  EXPECT_EQ(with(answer(90_GiB, 80_GiB, false), 1_GiB, true), "cannot_say") << "it may take less than is simulated";
  Prediction p = answer(70_GiB, 80_GiB, true);
  add_bounds(p, {{.file = {}, .line = 0, .what = "a", .why = {}, .more = 2_GiB, .may_be_less = false},
                 {.file = {}, .line = 0, .what = "b", .why = {}, .more = 3_GiB, .may_be_less = false}});
  EXPECT_EQ(p.groups.front().required.upper, 75_GiB) << "of several, their sum";
}

TEST(MemoryBounds, AScenarioHasNoWordForThemAndSaysSo) {
  const Converted its = converted(" --use-z-loss");
  EXPECT_TRUE(its.lossy());
  EXPECT_NO_THROW((void)scenario_of(its, shipped_data()));
}

}  // namespace
}  // namespace tidemark::tests::memory_bounds_test
