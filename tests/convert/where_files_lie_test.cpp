#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <unistd.h>

#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/convert/recipes.hpp"

// What launch files leave to where they lie and who starts them: files of their repository, nodes, checkpoints.

namespace tidemark::tests::where_files_lie_test {
namespace {

const std::string model =
    "--num-layers 4 --hidden-size 512 --ffn-hidden-size 2048 --num-attention-heads 8 --swiglu --normalization RMSNorm "
    "--disable-bias-linear --untie-embeddings-and-output-weights --position-embedding-type rope --vocab-size 32000 "
    "--seq-length 1024 --max-position-embeddings 1024 --bf16 --use-distributed-optimizer ";

bool has(const Converted& converted, RemarkKind kind, std::string_view what) {
  return std::ranges::any_of(converted.remarks, [&](const Remark& its) {
    return its.kind == kind && its.what.find(what) != std::string::npos;
  });
}

class WhereFilesLie : public testing::Test {
 protected:
  void SetUp() override {
    const testing::TestInfo& test = *testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("tidemark_lie_" + std::string(test.name()) + "_" + std::to_string(getpid()));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  static ConvertRequest requested(const std::string& file) {
    ConvertRequest made;
    made.files = {file};
    made.cluster = "clusters/h100-sxm-80g.toml";
    made.data_root = shipped_data();
    return made;
  }
  std::filesystem::path folder_;
};

// "/home/someone/repo/train/params/4.sh" lies as "params/4.sh" beside the script, and as "train/params/4.sh" above it,
// which is the longer end; a file of one part may be anyone's.
TEST_F(WhereFilesLie, AFileOfTheRepositoryThatLiesElsewhere) {
  write("train/params/4.sh", "ALL_PARAMS=(" + model + "--micro-batch-size 4)\n");
  write("params/4.sh", "ALL_PARAMS=(" + model + "--micro-batch-size 2)\n");
  const std::string script =
      "NAME=4\nROOT=/home/someone/repo\nsource $ROOT/train/params/$NAME.sh\n"
      "torchrun --nproc-per-node 8 pretrain_gpt.py ${ALL_PARAMS[@]} --global-batch-size 32\n";
  const std::string job = write("train/job.sh", script);
  const Converted converted = convert(requested(job));
  const Scenario s = scenario_of(converted, shipped_data());
  EXPECT_EQ(s.train.micro_batch, 4);
  EXPECT_EQ(s.train.global_batch, 32);
  EXPECT_TRUE(has(converted, RemarkKind::Assumed, "train/params/4.sh")) << "and says so";
  write("4.sh", "ALL_PARAMS=(" + model + "--micro-batch-size 1)\n");
  const std::string other = write("job.sh",
                                  "source /elsewhere/4.sh\ntorchrun --nproc-per-node 8 pretrain_gpt.py "
                                  "${ALL_PARAMS[@]}\n");
  EXPECT_THROW((void)scenario_of(convert(requested(other)), shipped_data()), InputError) << "of one part: anyone's";
}

// Whatever it is called, a file that is not there may assign again what the script assigned.
TEST_F(WhereFilesLie, AFileThatIsNotThereMayAssignAgain) {
  const std::string behind = "torchrun --nproc-per-node 8 pretrain_gpt.py " + model +
                             "--micro-batch-size $MBS --global-batch-size 32 --data-path $TRAIN_DATA_PATH\n";
  for (const std::string name : {"environment.sh", "sizes.sh"}) {
    const Converted converted = convert(requested(write("job.sh", "MBS=2\nsource /envs/" + name + "\n" + behind)));
    EXPECT_EQ(scenario_of(converted, shipped_data()).train.micro_batch, 2) << name;
    EXPECT_TRUE(has(converted, RemarkKind::NotJudged, name)) << name;
  }
}

// Four stages of tensor-parallel pairs are eight devices, and two are there where nobody says on how many nodes.
TEST_F(WhereFilesLie, NodesThatWhoeverStartsTheScriptSays) {
  const auto script = [&](const std::string& nodes) {
    return write("job.sh", "NNODES=" + nodes + "\ntorchrun --nproc_per_node 2 --nnodes $NNODES pretrain_gpt.py " +
                               model +
                               "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --micro-batch-size 1 "
                               "--global-batch-size 8\n");
  };
  const Converted converted = convert(requested(script("${SLURM_NNODES:-\"1\"}")));
  EXPECT_EQ(scenario_of(converted, shipped_data()).gpus, 8);
  EXPECT_TRUE(has(converted, RemarkKind::Assumed, "gpus = 2"));
  EXPECT_FALSE(has(converted, RemarkKind::NotJudged, ""));
  EXPECT_TRUE(has(convert(requested(script("1"))), RemarkKind::NotJudged, "gpus = 2")) << "the script says it";
  EXPECT_TRUE(has(convert(requested(script("1 # one"))), RemarkKind::NotJudged, "gpus = 2"));
  const std::string template_of_many =
      write("many.sh",
            "GPUS_PER_NODE=2\n# Change for multinode config\nMASTER_ADDR=localhost\nNUM_NODES=1\n"
            "torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES pretrain_gpt.py " +
                model + "--tensor-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 8\n");
  const Converted of_many = convert(requested(template_of_many));
  EXPECT_EQ(scenario_of(of_many, shipped_data()).gpus, 4);
  EXPECT_TRUE(has(of_many, RemarkKind::Assumed, "gpus = 2")) << "the script says that it is to be changed";
  ConvertRequest said = requested(script("${SLURM_NNODES:-1}"));
  said.variables = {{"SLURM_NNODES", "3"}};
  EXPECT_TRUE(has(convert(said), RemarkKind::NotJudged, "gpus = 6")) << "whoever asks says it";
}

// Experts that are compiled are simulated without the compiler, within a bound; dense layers with it.
TEST_F(WhereFilesLie, ExpertsThatTorchtitanCompiles) {
  const std::string rest =
      "[training]\nlocal_batch_size = 1\nseq_len = 1024\n[compile]\nenable = true\n"
      "[optimizer]\nearly_step_in_backward = true\n";
  ConvertRequest of_experts = requested_of("job.toml", "[model]\nname = \"deepseek_v3\"\nflavor = \"16B\"\n" + rest);
  of_experts.gpus = 8;
  const Converted converted = convert(of_experts);
  EXPECT_TRUE(has(converted, RemarkKind::Bounded, "compile"));
  EXPECT_TRUE(has(converted, RemarkKind::Bounded, "early_step_in_backward"));
  EXPECT_FALSE(scenario_of(converted, shipped_data()).runtime.eager.titan.compile_layers);
  ConvertRequest dense = requested_of("job.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n" + rest);
  dense.gpus = 8;
  EXPECT_FALSE(has(convert(dense), RemarkKind::Bounded, "compile"));
  EXPECT_TRUE(scenario_of(convert(dense), shipped_data()).runtime.eager.titan.compile_layers);
}

// nanotron's examples/doremi, its cluster's own data, and brrr's models.
TEST_F(WhereFilesLie, NanotronsOtherTrainers) {
  const std::string config =
      "general: {project: a}\nmodel:\n  model_config: {hidden_size: 512, intermediate_size: 2048, "
      "num_attention_heads: 8, num_hidden_layers: 4, num_key_value_heads: 8, vocab_size: 32000, "
      "max_position_embeddings: 1024, tie_word_embeddings: false}\noptimizer: {zero_stage: 0, "
      "accumulate_grad_in_fp32: true}\nparallelism: {dp: 4, pp: 1, tp: 1, tp_mode: ALL_REDUCE}\n"
      "tokens: {sequence_length: 1024, micro_batch_size: 2, batch_accumulation_per_replica: 1, train_steps: 1}\n"
      "brrr_data: {seed: 1}\n";
  const auto bound = [&](const std::string& doremi) -> std::string {
    const Converted its = convert(requested_of("job.yaml", config + doremi));
    EXPECT_FALSE(has(its, RemarkKind::NotJudged, ""));
    const auto found = std::ranges::find(its.remarks, "doremi", &Remark::what);
    return found == its.remarks.end() ? "none" : found->bound;
  };
  EXPECT_EQ(bound(""), "none");
  EXPECT_EQ(bound("doremi: {domain_names: a, ref_model_resume_checkpoint_path: null}\n"), "doremi");
  EXPECT_EQ(bound("doremi: {domain_names: a, ref_model_resume_checkpoint_path: ckpt/1}\n"), "doremi:2");
  try {
    (void)convert(requested_of("job.yaml",
                               "general: {name: a}\nparallelism: {dp: 4, pp: 1, tp: 1}\n"
                               "model: {n_layer: 24, hidden_size: 2048}\ntokens: {micro_batch_size: 1}\n"
                               "optimizer: {zero_stage: 0}\n"));
    ADD_FAILURE() << "brrr's models have other keys";
  } catch (const InputError& error) {
    EXPECT_TRUE(error.leaves_open());
    EXPECT_TRUE(error.problems().front().message.starts_with("model.n_layer: of brrr"));
  }
}

// nanotron's run_train.py takes a file, which lies beside the script; the launcher has to start as many as it fills.
TEST_F(WhereFilesLie, TheConfigurationThatAScriptNames) {
  write("job.yaml",
        "general: {project: a}\nmodel:\n  model_config: {hidden_size: 512, intermediate_size: 2048, "
        "num_attention_heads: 8, num_hidden_layers: 4, num_key_value_heads: 8, vocab_size: 32000, "
        "max_position_embeddings: 1024, tie_word_embeddings: false}\noptimizer: {zero_stage: 0, "
        "accumulate_grad_in_fp32: true}\nparallelism: {dp: 2, pp: 1, tp: 2, tp_mode: ALL_REDUCE}\n"
        "tokens: {sequence_length: 1024, micro_batch_size: 2, batch_accumulation_per_replica: 3, train_steps: 1}\n");
  const auto script = [&](const std::string& processes) {
    return write("job.sh", "HERE=$(cd -- \"$(dirname \"$0\")\" && pwd -P)\ntorchrun --nproc_per_node " + processes +
                               " run_train.py --config-file $HERE/job.yaml\n");
  };
  const Converted converted = convert(requested(script("4")));
  const Scenario s = scenario_of(converted, shipped_data());
  EXPECT_EQ(s.gpus, 4);
  EXPECT_EQ(s.layout.tensor, 2);
  EXPECT_EQ(s.train.global_batch, 12) << "two replicas with three of two sequences";
  EXPECT_FALSE(has(converted, RemarkKind::NotJudged, ""));
  EXPECT_TRUE(has(convert(requested(script("8"))), RemarkKind::NotJudged, "gpus = 8")) << "at which nanotron stops";
}

// What says how long it trains and on which data is none of the job's arguments, whatever it comes to.
TEST_F(WhereFilesLie, LengthsAndDataThatOnlyRunningItTells) {
  const Converted converted = convert(requested(write(
      "job.sh", "source /data/train_data_50B.sh\nITERS=$(cat iters.txt)\nARGS=(" + model +
                    "--train-iters ${ITERS} --micro-batch-size 2 --data-path ${TRAIN_DATA_PATH[@]} --split 1,0,0)\n"
                    "torchrun --nproc_per_node 8 pretrain_gpt.py ${ARGS[@]}\n")));
  EXPECT_EQ(scenario_of(converted, shipped_data()).train.micro_batch, 2);
  EXPECT_FALSE(has(converted, RemarkKind::NotJudged, ""));
}

// MindSpeed's scripts: a path that is to be filled in, and an allocator of other devices.
TEST_F(WhereFilesLie, PlacesToBeFilledIn) {
  const Converted converted = convert(
      requested(write("job.sh",
                      "export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True\nTOKENIZER=\"your tokenizer path\"\n"
                      "torchrun --nproc_per_node 8 pretrain_gpt.py " +
                          model + "--use-fused-rmsnorm --micro-batch-size 1 --tokenizer-model ${TOKENIZER}\n")));
  EXPECT_EQ(scenario_of(converted, shipped_data()).gpus, 8);
  EXPECT_FALSE(has(converted, RemarkKind::NotJudged, ""));
}

// Of Megatron-DeepSpeed: parts of layers alone are as many in each stage.
TEST_F(WhereFilesLie, StagesOfEqualNumbersOfLayers) {
  const std::string script = "torchrun --nproc_per_node 8 pretrain_gpt.py " + model +
                             "--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 8 "
                             "--pp-partition-method ";
  EXPECT_FALSE(has(convert(requested(write("job.sh", script + "'type:transformer'\n"))), RemarkKind::NotJudged, ""));
  EXPECT_TRUE(has(convert(requested(write("job.sh", script + "'parameters'\n"))), RemarkKind::NotJudged,
                  "pp-partition-method"));
}

}  // namespace
}  // namespace tidemark::tests::where_files_lie_test
