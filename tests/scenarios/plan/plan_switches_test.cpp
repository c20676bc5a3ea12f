#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "scenarios/frameworks/megatron/deferred_gradients.hpp"
#include "scenarios/frameworks/megatron/megatron_switches.hpp"
#include "scenarios/frameworks/megatron/module_offload.hpp"
#include "scenarios/frameworks/megatron/optimizer_switches.hpp"
#include "scenarios/frameworks/megatron/tensor_overlap.hpp"
#include "scenarios/frameworks/pytorch/pytorch_switches.hpp"
#include "scenarios/model_config/moe_reader.hpp"
#include "scenarios/scenario/schedule_reader.hpp"
#include "tests/scenarios/small_space.hpp"
#include "tests/seeds.hpp"

// Every switch that a framework's reader knows is an axis of a space that is searched, and run by brute force.

namespace tidemark::tests::plan_switches_test {
namespace {

struct Switch {
  std::string key;
  std::vector<std::string> values{"false", "true"};
};

const std::vector<Switch> of_megatron{{"no-create-attention-mask-in-dataloader"},
                                      {"no-gradient-accumulation-fusion"},
                                      {"no-bias-dropout-fusion"},
                                      {"no-bias-gelu-fusion"},
                                      {"no-bias-swiglu-fusion"},
                                      {"no-rope-fusion"},
                                      {"no-masked-softmax-fusion"},
                                      {"attention-softmax-in-fp32"},
                                      {"apply-query-key-layer-scaling"},
                                      {"deterministic-mode"},
                                      {"overlap-grad-reduce"},
                                      {"overlap-param-gather"},
                                      {"no-align-grad-reduce"},
                                      {"no-align-param-gather"},
                                      {"ddp-bucket-size", {"1000000", "100000000"}},
                                      {"microbatch-group-size-per-virtual-pipeline-stage", {"2", "4"}},
                                      {"no-check-for-nan-in-loss-and-grad"},
                                      {"check-for-large-grads"},
                                      {"check-for-spiky-loss"},
                                      {"check_for_nan_in_loss"},
                                      {"check_for_nan_in_grad"}};
const std::vector<Switch> of_pytorch{{"foreach"},
                                     {"fused"},
                                     {"use_cache"},
                                     {"use_reentrant"},
                                     {"gradient_as_bucket_view"},
                                     {"bucket_cap_mb", {"1", "100"}},
                                     {"max_grad_norm", {"0.0", "1.0"}},
                                     {"weight_decay", {"0.0", "0.1"}},
                                     {"decoupled_weight_decay"},
                                     {"amsgrad"},
                                     {"keep_outputs"},
                                     {"fake_tensor_mode"},
                                     {"enable_cudnn_sdp"},
                                     {"logging_nan_inf_filter"}};

constexpr std::uint32_t switches_in_each = 2, spaces_of_megatron = 11, spaces_of_pytorch = 7;

// Seeds from 0: those of Megatron first.
bool is_megatron(std::uint32_t seed) { return seed < spaces_of_megatron; }

std::vector<Switch> switches_of(std::uint32_t seed) {
  const std::vector<Switch>& all = is_megatron(seed) ? of_megatron : of_pytorch;
  std::vector<Switch> its;
  const std::uint32_t space = is_megatron(seed) ? seed : seed - spaces_of_megatron;
  for (std::size_t i = space * switches_in_each; i < all.size() && its.size() < switches_in_each; ++i)
    its.push_back(all[i]);
  return its;
}

SmallSpace switch_space(std::uint32_t seed) {
  SmallSpace space;
  const bool gelu = seed == 1;  // what is fused with its bias
  space.top = fmt::format(
      "model = \"models/{}.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = 2\n"
      "model_override.num_hidden_layers = {}\nruntime.name = \"{}\"\n",
      gelu ? "gpt2-xl" : "qwen2.5-7b",
      gelu                             ? 6
      : seed + 1 == spaces_of_megatron ? 4
                                       : 2,
      is_megatron(seed) ? "megatron" : "pytorch");
  space.train = "sequence_length = 512\nglobal_batch = 8\nhidden_dropout = 0.1\n";
  for (const Switch& each : switches_of(seed)) space.axes.push_back({"runtime.switches." + each.key, each.values});
  space.axes.push_back({"train.micro_batch", {"1", "2"}});
  space.axes.push_back({"train.recompute", {"\"none\"", "\"full\""}});
  if (!is_megatron(seed)) return space;
  const bool overlaps = switches_of(seed).front().key == "overlap-grad-reduce";
  if (overlaps) space.axes.push_back({"layout.sharding", {"\"none\"", "\"zero1\""}});
  if (switches_of(seed).front().key == "no-align-grad-reduce")
    space.top +=
        "layout.sharding = \"zero1\"\nruntime.switches.overlap-grad-reduce = true\n"
        "runtime.switches.overlap-param-gather = true\n";
  if (seed + 1 == spaces_of_megatron) {
    space.axes.push_back({"layout.pipeline", {"2"}});
    space.axes.push_back({"layout.chunks", {"2"}});
  } else {
    space.axes.push_back({"layout.tensor", {"1", "2"}});
    space.axes.push_back({"train.attention", {"\"auto\"", "\"unfused\""}});
  }
  return space;
}

class SwitchSpaces : public testing::TestWithParam<std::uint32_t> {};

TEST_P(SwitchSpaces, FindTheWinnerAndTheFrontThatBruteForceFinds) {
  const SmallSpace small = switch_space(GetParam());
  const std::vector<Fitting> all = brute_force(small);
  EXPECT_FALSE(all.empty());
  const Space space = space_of(small);
  expect_as_by_brute_force(plan(space, {}), all);

  // Each value of each switch is that of a candidate.
  std::set<std::pair<std::string, std::string>> seen;
  for (std::int64_t c = 0; c < space.size(); ++c) {
    if (!std::holds_alternative<Scenario>(candidate(space, c))) continue;
    const std::vector<std::size_t> at = space.values_of(c);
    for (std::size_t a = 0; a < space.axes.size(); ++a)
      seen.emplace(space.axes[a].name, space.axes[a].values[at[a]].text);
  }
  for (const Switch& each : switches_of(GetParam()))
    for (const std::string& value : each.values)
      EXPECT_TRUE(seen.contains({"runtime.switches." + each.key, value})) << each.key << " = " << value;
}
INSTANTIATE_TEST_SUITE_P(Plan, SwitchSpaces, testing::Range(0U, spaces_of_megatron + spaces_of_pytorch, seed_step()));

TEST(SwitchSpaces, HaveEverySwitchThatReadersKnow) {
  const auto requested = [](auto read) {
    const TomlTable nothing;
    Problems problems("nothing.toml");
    TomlReader reader(&nothing, {}, "switches", problems);
    read(reader);
    std::set<std::string, std::less<>> names(reader.requested().begin(), reader.requested().end());
    for (const std::string_view flag : expert_switches) names.erase(std::string(flag));  // SmallSpacesOfParts
    names.erase("distribute-saved-activations");  // beside other keys, and run in full
    for (const std::string_view name :
         {"pin_memory", "modules", "torch_compile", "overlap-p2p-communication-warmup-flush"})
      names.erase(std::string(name));  // the same
    // Of other optimizers, and of modules that are fused.
    for (const std::string_view name :
         {"adafactor", "beta1", "quantize_embeddings", "rank", "use_liger_kernel", "liger_kernel_config",
          "fast_kernels", "neftune_noise_alpha", "autocast", "enable_input_require_grads"})
      names.erase(std::string(name));
    for (const std::string_view flag : deferral_switches) names.erase(std::string(flag));   // so are these
    for (const std::string_view flag : optimizer_switches) names.erase(std::string(flag));  // and these
    for (const std::string_view flag : module_offload_switches) names.erase(std::string(flag));
    for (const std::string_view flag : tensor_overlap_switches) names.erase(std::string(flag));
    return names;
  };
  const auto searched = [](std::uint32_t first, std::uint32_t count) {
    std::set<std::string, std::less<>> names;
    for (std::uint32_t seed = first; seed < first + count; ++seed)
      for (const Switch& each : switches_of(seed)) names.insert(each.key);
    return names;
  };
  EXPECT_EQ(searched(0, spaces_of_megatron), requested([](TomlReader& reader) {
              RuntimeChoice choice;
              read_own_switches(reader, choice);
              (void)read_chunk_group(reader);
            }));
  EXPECT_EQ(searched(spaces_of_megatron, spaces_of_pytorch),
            requested([](TomlReader& reader) { (void)read_pytorch_switches(reader, runtime_kind("pytorch"), {}); }));
}

}  // namespace
}  // namespace tidemark::tests::plan_switches_test
