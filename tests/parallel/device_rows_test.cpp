// What programs take behind the allocator, and the scratch space of kernels that only the cache remembers.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::device_rows_test {
namespace {

// Names of the communicators that the first role of a stage creates, in order.
std::vector<std::string> created(const Lowered& lowered, std::int32_t stage) {
  const Program program = lowered.stage(stage);
  const std::vector<Communicator> table = communicators_of(lowered.input).table;
  std::vector<std::string> names;
  for (const Op& op : program.ops)
    if (const auto* create = std::get_if<CreateCommunicator>(&op)) names.push_back(table[create->comm.index()].name);
  return names;
}

std::int64_t handles(const Program& program) {
  return std::count_if(program.ops.begin(), program.ops.end(), [](const Op& op) {
    const auto* create = std::get_if<CreateDriver>(&op);
    return create != nullptr && create->resource == DriverResource::BlasHandle;
  });
}

// Bytes of every allocation with that label.
std::vector<std::int64_t> allocated(const Program& program, const std::string& label) {
  std::vector<std::int64_t> sizes;
  for (const Op& op : program.ops)
    if (const auto* alloc = std::get_if<Alloc>(&op); alloc != nullptr && program[alloc->label] == label)
      sizes.push_back(alloc->size.count());
  return sizes;
}

using Names = std::vector<std::string>;

TEST(DeviceRows, CommunicatorsComeWithTheFirstCollectiveOfTheirGroup) {
  TestJob job;
  job.layout = {.tensor = 2, .sequence_parallel = true, .data = 2, .sharding = Sharding::Zero1};
  EXPECT_EQ(created(Lowered(job), 0), (Names{"world", "tensor", "data", "optimizer_instance", "model_parallel"}));
  job.versions.megatron = {0, 10};  // nothing was agreed on yet
  EXPECT_EQ(created(Lowered(job), 0), (Names{"world", "tensor", "data", "optimizer_instance"}));
}

// With tensor = 1 the first and the last stage still broadcast their batch, to themselves; others load none.
TEST(DeviceRows, GroupsOfOneAreCreatedWhereMegatronDoesNotLook) {
  TestJob job;
  job.layout.pipeline = 4;
  const Lowered lowered(job);
  EXPECT_EQ(created(lowered, 0), (Names{"world", "tensor", "pipeline", "data", "model_parallel"}));
  EXPECT_EQ(created(lowered, 1), (Names{"world", "pipeline", "data", "model_parallel"}));
  const Program program = lowered.stage(0);
  const std::vector<Communicator> table = communicators_of(lowered.input).table;
  for (const Op& op : program.ops) {
    const auto* collective = std::get_if<Collective>(&op);
    if (collective == nullptr) continue;
    EXPECT_GT(group_size(table[collective->comm.index()]), 1);  // nothing goes through them
  }
}

TEST(DeviceRows, EachThreadThatCallsCublasHasAHandle) {
  TestJob job;
  job.layout.pipeline = 2;
  const Lowered lowered(job);
  EXPECT_EQ(handles(lowered.stage(0)), 0);  // Transformer Engine's linears have their own
  EXPECT_EQ(handles(lowered.stage(1)), 2);  // the LM head, forward and backward
}

// EmbeddingBackwardKernel.cu: more than 3072 tokens are summed in two steps. For n tokens of v rows of the table, the
// first leaves n / 10 + min(n, v) rows of fp32.
TEST(EmbeddingGradient, ManyTokensAreSummedInTwoSteps) {
  TestJob job;
  job.train.sequence_length = 3072;
  EXPECT_TRUE(allocated(Lowered(job).stage(0), "embedding.partial_sums").empty());
  job.train.sequence_length = 4096;
  const std::int64_t padded = 1024;  // the vocabulary: fewer rows than tokens
  const std::vector<std::int64_t> sums = allocated(Lowered(job).stage(0), "embedding.partial_sums");
  ASSERT_FALSE(sums.empty());
  EXPECT_EQ(sums.front(), (4096 / 10 + padded) * job.model.hidden * 4);
  job.model.vocabulary = 10'000;
  EXPECT_EQ(allocated(Lowered(job).stage(0), "embedding.partial_sums").front(),
            (4096 / 10 + 4096) * job.model.hidden * 4);
  job.settings.deterministic = true;  // tokens index the table instead
  EXPECT_TRUE(allocated(Lowered(job).stage(0), "embedding.partial_sums").empty());
}

}  // namespace
}  // namespace tidemark::tests::device_rows_test
