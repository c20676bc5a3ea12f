#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/golden/fake_recordings.hpp"

// One rank of trainings under fully_shard, FullyShardedDataParallel and DeepSpeed's ZeRO against the programs of
// runtimes "fsdp2", "torchtitan", "fsdp" and "deepspeed": those that are equal. What each is off by:
// own_figures_test.cpp.

namespace tidemark::tests::golden::sharded_test {
namespace {

TEST(Flat, TensorsTakeAsMuchToTheByte) {
  for (const Recording& recording : flat_recordings()) {
    if (recording.scenario.train.adapter) continue;
    EXPECT_EQ(requested_by_step(recording.scenario, recording.rank), recording.requested) << recording.name;
  }
}

// In the first step three lack what was made while parameters were hooked: 8 and 72 bytes, and 2 MiB of GPT-NeoX.
// Experts that stage 3 gathers are off by 14.4 MB and 64 KiB, for a cause that is not known; OwnFigures holds them to
// that.
TEST(Zero, TensorsOfLaterStepsTakeAsMuchToTheByte) {
  const std::set<std::string, std::less<>> off{"zero3_mixtral_8", "zero3_qwen3_moe_8_checkpointed"};
  const auto later = [](std::vector<Bytes> steps) { return std::vector(steps.begin() + 1, steps.end()); };
  for (const Recording& recording : zero_recordings()) {
    if (off.contains(recording.name)) continue;
    EXPECT_EQ(later(requested_by_step(recording.scenario, recording.rank)), later(recording.requested))
        << recording.name;
  }
}

// In the first step of some, Inductor makes tensors while it compiles attention. Of one it keeps a constant that it
// folded (joint_graph.py _deduce_value), which is not predicted.
TEST(Titan, TensorsOfExpertsTakeAsMuchToTheByteInLaterSteps) {
  constexpr std::string_view keeps_one = "deepseek_tensor_parts_4_16_hsdp";
  const auto later = [](std::vector<Bytes> steps) { return std::vector(steps.begin() + 1, steps.end()); };
  int with_experts = 0;
  for (const Recording& recording : titan_recordings()) {
    if (!recording.scenario.model.experts()) continue;
    ++with_experts;
    std::vector<Bytes> predicted = later(requested_by_step(recording.scenario, recording.rank));
    if (recording.name == keeps_one)
      for (Bytes& peak : predicted) peak += Bytes{1};
    EXPECT_EQ(predicted, later(recording.requested)) << recording.name;
  }
  EXPECT_GE(with_experts, 44);
}

// As PyTorch's allocator told of them: of the embedding, of the last norm with the head, and of a layer.
TEST(Titan, TablesOfWhatIsReducedAreAsLargeAsRecorded) {
  const std::map<std::string, std::set<std::int64_t>> recorded{{"llama_layers_8", {8256, 8312, 22'480}},
                                                               {"llama_tensor_2_8", {8256, 8296, 22'464}}};
  std::size_t found = 0;
  for (const Recording& recording : titan_recordings()) {
    const auto its = recorded.find(recording.name);
    if (its == recorded.end()) continue;
    ++found;
    const Program program = program_of(recording.scenario, recording.rank);
    std::set<std::int64_t> tables;
    for (const Op& op : program.ops)
      if (const auto* alloc = std::get_if<Alloc>(&op); alloc != nullptr)
        if (program[alloc->label].ends_with("chunk_cat_table")) tables.insert(alloc->size.count());
    EXPECT_EQ(tables, its->second) << recording.name;
  }
  EXPECT_EQ(found, recorded.size());
}

// Of one device, and of replicas: under autocast, and in fp32.
TEST(Titan, TensorsOfWholeModelsTakeAsMuchToTheByte) {
  int whole = 0;
  for (const Recording& recording : titan_recordings()) {
    const Layout& layout = recording.scenario.layout;
    if (layout.sharding != Sharding::None || layout.tensor * layout.pipeline > 1) continue;
    ++whole;
    EXPECT_EQ(requested_by_step(recording.scenario, recording.rank), recording.requested) << recording.name;
  }
  EXPECT_GE(whole, 16);
}

TEST(Titan, TensorsOfPipelinesTakeAsMuchToTheByte) {
  int pipelined = 0;
  for (const Recording& recording : titan_recordings()) {
    if (recording.scenario.layout.pipeline == 1) continue;
    ++pipelined;
    EXPECT_EQ(requested_by_step(recording.scenario, recording.rank), recording.requested) << recording.name;
  }
  EXPECT_GE(pipelined, 40);
}

}  // namespace
}  // namespace tidemark::tests::golden::sharded_test
