// What routers keep from pass to pass, and add up with other ranks: Megatron-LM core 0.15,
// core/transformer/moe/router.py and core/distributed/finalize_model_grads.py.
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::routers_test {
namespace {

TestJob job_of_routers() {
  TestJob job = job_cut({2, true});
  set_mlp(job.model, Experts{.count = 8, .chosen = 2, .ffn = 96});
  job.layout.expert_tensor = 1;
  job.layout.data = 2, job.layout.expert = 4;
  job.train.global_batch = 8;
  job.train.steps = 1;
  job.versions.megatron = {0, 15};
  return job;
}

// Of the first step, what goes over a communicator: bytes in the order of calls.
std::vector<std::int64_t> calls(const Lowered& lowered, CommSlot comm) {
  std::vector<std::int64_t> sizes;
  const Program program = lower_every_pass(lowered.input, lowered.roles.front());
  for (const Op& op : program.ops)
    if (const auto* its = std::get_if<Collective>(&op); its != nullptr && comm.valid() && its->comm == comm)
      sizes.push_back(its->size.count());
  return sizes;
}
using Sizes = std::vector<std::int64_t>;

std::int64_t kept(const Lowered& lowered, const std::string& what) {
  return sum(live_at_end(lowered.stage(0)), [&](const LiveTensor& tensor) { return tensor.label.ends_with(what); });
}

TEST(Routers, CountTogetherForALossOfAllRanks) {
  TestJob job = job_of_routers();
  EXPECT_FALSE(communicators_of(Lowered(job).input).same_stage.valid());
  job.settings.experts.balancing = {LoadBalancing::GlobalLoss};
  const Lowered lowered(job);
  const Communicators comms = communicators_of(lowered.input);
  ASSERT_TRUE(comms.same_stage.valid());
  EXPECT_EQ(group_size(comms.table[comms.same_stage.index()]), 4);
  // Four layers and as many micro-batches, a count for each of eight experts.
  EXPECT_EQ(calls(lowered, comms.same_stage), Sizes(4 * 4, 8 * 8));
  EXPECT_EQ(calls(lowered, comms.tensor_context), Sizes{});
  EXPECT_EQ(kept(lowered, "router.global_tokens_per_expert"), 4 * 8 * 4);
  EXPECT_EQ(kept(lowered, "router.ga_steps"), 4 * 4);
}

TEST(Routers, MakeEachOfSeveralLosses) {
  TestJob job = job_of_routers();
  job.train.micro_batch = 2;
  job.settings.experts.balancing = {LoadBalancing::Loss, LoadBalancing::SequenceLoss, LoadBalancing::GlobalLoss};
  const Lowered lowered(job);
  const Communicators comms = communicators_of(lowered.input);
  Sizes of_layers;  // of two micro-batches: by expert, and by sequence and expert
  for (int i = 0; i < 2 * 4; ++i) of_layers.insert(of_layers.end(), {8 * 8, 2 * 8 * 8});
  EXPECT_EQ(calls(lowered, comms.tensor_context), of_layers);
  EXPECT_EQ(calls(lowered, comms.same_stage), Sizes(2 * 4, 8 * 8));
}

TEST(Routers, CountOncePerPassWhereLayersRunAgain) {
  TestJob job = job_of_routers();
  job.settings.experts.balancing = {LoadBalancing::GlobalLoss};
  job.train.recompute.kind = Recompute::Full;
  const Lowered lowered(job);
  EXPECT_EQ(calls(lowered, communicators_of(lowered.input).same_stage), Sizes(4 * 4, 8 * 8));
}

TEST(Routers, MoveTheirBiasesAfterAStep) {
  TestJob job = job_of_routers();
  Experts experts = *job.model.experts();
  experts.score = RouterScore::Sigmoid;
  experts.correction_bias = true;
  set_mlp(job.model, experts);
  job.model.layers.replace(0, {});
  const Lowered lowered(job);
  const Communicators comms = communicators_of(lowered.input);
  EXPECT_EQ(calls(lowered, comms.same_stage), Sizes{3 * 8 * 4});  // of three layers at once
  EXPECT_EQ(kept(lowered, "router.expert_bias"), 3 * 8 * 4);
  const Program program = lowered.stage(0);
  EXPECT_GT(first_mark(program, Phase::Communication, "finish_routing"),
            first_mark(program, Phase::Communication, "reduce_gradients"));
}

}  // namespace
}  // namespace tidemark::tests::routers_test
