// What a layer with experts saves, and holds where its forward pass peaks, item by item: figures made by hand for
// Megatron-LM core 0.14's core/transformer/moe/. T: tokens of a rank, h: hidden, E: experts, K: chosen by a token, f
// and f_sh: width of an expert and of the shared ones, N: rows that a rank's experts get, all in 16 bits.
#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "tests/parallel/test_job.hpp"

namespace tidemark::tests::moe_activations_test {
namespace {

// DeepSeek-V2's router, and as many rows as capacity has: every item of the figures is there.
TestJob job_of_experts() {
  TestJob job = job_cut({1, false}, 2);
  set_mlp(job.model, Experts{.count = 16,
                             .chosen = 3,
                             .ffn = 96,
                             .shared_ffn = 160,
                             .score = RouterScore::SoftmaxBefore,
                             .groups = 4,
                             .topk_group = 3,
                             .scale = 2});
  job.layout.data = job.layout.expert = 2;
  job.train.global_batch = 8;
  job.train.routing.capacity_factor = 1;
  job.train.routing.pads_to_capacity = true;
  job.settings.experts.fused_permutation = true;
  job.settings.experts.balancing = {LoadBalancing::Loss};
  return job;
}

using Items = std::map<std::string, std::int64_t>;

// Of a layer's MLP, what is live after an op: by name, tensors of one name together.
Items items(const Program& program, std::size_t op, Category category) {
  const std::string its = "layers.1.mlp.";
  Items found;
  for (const LiveTensor& tensor : live(program, op))
    if (tensor.label.starts_with(its) && tensor.category == category)
      found[tensor.label.substr(its.size())] += tensor.bytes;
  return found;
}

TEST(MoeActivations, AreTheHandFiguresItemByItem) {
  const TestJob job = job_of_experts();
  const Experts& e = *job.model.experts();
  const std::int64_t T = job.train.tokens(), h = job.model.hidden, E = e.count, K = e.chosen, f = e.ffn,
                     f_sh = e.shared_ffn, N = T * K;  // a capacity of T K / E
  const Lowered lowered(job);
  const Program program = lowered.stage(0);
  const std::size_t after = first_mark(program, Phase::Forward, "layers.2.attention.norm");
  EXPECT_EQ(items(program, after, Category::SavedActivations),
            (Items{
                {"add.out", 2 * T * h},  // what the layer gives, which the next one saves
                {"norm.out", 2 * T * h},
                {"norm.rstd", 4 * T},
                {"router.softmax", 4 * T * E + 4 * T * E},  // of the choice, and of the auxiliary loss
                {"router.not", T * E},                      // outside the chosen groups
                {"router.topk_ids", 8 * T * K},
                {"router.to", T * E},      // within capacity
                {"router.sum", 8 * E},     // tokens of each expert, which the auxiliary loss multiplies by
                {"router.mul_number", 4},  // the loss
                {"dispatcher.row_id_map", 4 * T * (2 * E + 1)},
                {"dispatcher.sorted", 2 * N * h},
                {"dispatcher.sorted_probs", 2 * N},
                {"experts.fc1.out", 2 * N * 2 * f},
                {"experts.activation", 2 * N * f},
                {"shared.fc1.out", 2 * T * 2 * f_sh},
                {"shared.swiglu", 2 * T * f_sh},
            }));
  // Until the next call, as the dispatcher's attribute.
  EXPECT_EQ(items(program, after, Category::Temporaries), (Items{{"router.mul", 2 * T * E}}));
}

TEST(MoeActivations, InTheLastExchangeRowsAreThereFourTimes) {
  const TestJob job = job_of_experts();
  const Experts& e = *job.model.experts();
  const std::int64_t T = job.train.tokens(), h = job.model.hidden, N = T * e.chosen;
  const Lowered lowered(job);
  const Program program = lowered.stage(0);
  const std::size_t after = first_mark(program, Phase::Forward, "layers.2.attention.norm");
  std::size_t exchange = after;
  while (!std::holds_alternative<Collective>(program.ops[exchange])) --exchange;
  Items all = items(program, exchange, Category::Temporaries);
  for (const auto& [name, bytes] : items(program, exchange, Category::CommEp)) all[name] += bytes;
  // What was permuted, what came, what experts gave in the order of ranks, and what comes back of it.
  EXPECT_EQ(all, (Items{
                     {"dispatcher.permuted_tokens", 2 * N * h},
                     {"dispatcher.exchanged", 2 * N * h + 2 * N * h},
                     {"dispatcher.sorted", 2 * N * h},
                     {"dispatcher.permuted_probs", 2 * N},
                     {"dispatcher.exchanged_probs", 2 * N},
                     {"router.mul", 2 * T * e.count},
                     {"shared.fc2.out", 2 * T * h},
                 }));
}

// core/transformer/moe/router.py, moe_utils.py: scores and probabilities are as wide as the router, but for the
// softmaxes; what it reads is saved as it is.
TEST(MoeActivations, OfARouterInFp64AreEightBytesWhereThoseInFp32AreFour) {
  const auto saved = [](std::optional<DType> type) {
    TestJob job = job_of_experts();
    job.settings.experts.router_type = type;
    const Program program = Lowered(job).stage(0);
    return items(program, first_mark(program, Phase::Forward, "layers.2.attention.norm"), Category::SavedActivations);
  };
  const Items narrow = saved(DType::FP32), wide = saved(DType::FP64);
  const TestJob job = job_of_experts();
  const std::int64_t N = job.train.tokens() * job.model.experts()->chosen;
  Items differ;
  for (const auto& [name, bytes] : wide)
    if (!narrow.contains(name) || narrow.at(name) != bytes) differ[name] = bytes - narrow.at(name);
  EXPECT_EQ(differ, (Items{{"dispatcher.sorted_probs", 4 * N}}));
}

// W: ranks of the group, R: tokens that come to this one. DeepEP's channels are ten.
TEST(MoeActivations, OfTheFlexDispatcherAreATokenForEachRankAndWhatLeadsBack) {
  TestJob job = job_of_experts();
  job.train.routing = {.dispatcher = TokenDispatcher::Flex};
  job.settings.experts.router_type = DType::FP32;
  const Experts& e = *job.model.experts();
  const std::int64_t T = job.train.tokens(), h = job.model.hidden, E = e.count, K = e.chosen, f = e.ffn, W = 2;
  job.train.routing.tokens = tokens_of_places(job.model, job.train.routing, T, 2, 1).value();
  const LayerRouting routing(e, job.train.routing, 1, T, 2);
  const std::int64_t R = routing.received_tokens(0, W), N = T * K;
  EXPECT_LT(R, N);
  const Lowered lowered(job);
  const Program program = lowered.stage(0);
  const std::size_t after = first_mark(program, Phase::Forward, "layers.2.attention.norm");
  Items found;
  for (const auto& [name, bytes] : items(program, after, Category::SavedActivations))
    if (name.starts_with("dispatcher.") || name.starts_with("experts.")) found[name] = bytes;
  EXPECT_EQ(found, (Items{
                       {"dispatcher.topk_ids", 8 * T * K},
                       {"dispatcher.is_token_in_rank", T * W},
                       {"dispatcher.ranks", 4 * W * W},
                       {"dispatcher.channels", 4 * W * 10},
                       {"dispatcher.sources", 4 * R},
                       {"dispatcher.received_channels", 4 * W * 10},
                       {"dispatcher.heads", 4 * T * W},
                       {"dispatcher.mask", R * K},  // of which numbers are of this rank's experts
                       {"dispatcher.gather", 8 * N},
                       {"dispatcher.masked_select", 8 * N},
                       {"dispatcher.row_id_map", 4 * R * (2 * E / W + 1)},
                       {"dispatcher.permuted_tokens", 2 * N * h},
                       {"dispatcher.permuted_probs", 4 * N},
                       {"experts.fc1.out", 2 * N * 2 * f},
                       {"experts.activation", 2 * N * f},
                   }));
}

}  // namespace
}  // namespace tidemark::tests::moe_activations_test
