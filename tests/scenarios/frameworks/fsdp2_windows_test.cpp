#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/lowering/lower.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/namespace.hpp"

// What fully_shard holds of layers besides their shards, in bytes for each element n of a layer, which is what follows
// from _fsdp_param_group.py and _fsdp_collectives.py: going forward what a layer is computed with and what it was
// gathered into, or the latter and what the next one is gathered into (4n in 16 bits); going back what it is computed
// with, what the layer before it was gathered into, its gradients, and those of the layer behind it in fp32 while they
// are reduced (2n + 2n + 2n + 4n).

namespace tidemark::tests::fsdp2_windows_test {
namespace {

const std::filesystem::path source = TIDEMARK_SOURCE_DIR;
constexpr std::int64_t layers = 6, ranks = 8;
constexpr std::int64_t n = 218'112'000;  // of a layer of Llama 3.1 8B; eight ranks share out all of its tensors' rows

Program program_of(const std::string& layout, const std::string& switches, const std::string& train = "") {
  const Job job(parse_scenario(
      fmt::format("model = \"models/llama-3.1-8b.json\"\ncluster = \"clusters/h100-sxm-80g.toml\"\ngpus = {}\n"
                  "[model_override]\nnum_hidden_layers = {}\n[layout]\n{}\n[train]\nsequence_length = 128\n"
                  "micro_batch = 1\n{}\n[runtime]\nname = \"fsdp2\"\n[runtime.switches]\nuse_cache = false\n{}\n",
                  ranks, layers, layout, train, switches),
      "job.toml", {source, source / "scenarios"}));
  return lower_role(job.lowering(), job.roles.front());
}

/// Bytes of layers, not of the root, that communication makes: what is gathered, and gradients until they are reduced.
bool counts(std::string_view label, Category category) {
  if (!label.starts_with("layers.")) return false;
  const bool kept = label.ends_with(".parameter") || label.ends_with(".reduce_scatter_output");
  return label.ends_with(".all_gather_output") || label.ends_with(".unsharded") || label.ends_with(".after_forward") ||
         label.ends_with(".reduce_scatter_input") || (category == Category::Gradients && !kept);
}

struct Held {
  std::int64_t forward = 0, backward = 0;  ///< at most, in the second step
};

Held held_by(const Program& program) {
  Held held;
  std::unordered_map<std::int64_t, std::int64_t> sizes;
  std::int64_t live = 0, step = 0;
  Phase phase = Phase::Construction;
  for (const Op& op : program.ops) {
    if (const auto* const mark = std::get_if<Mark>(&op)) {
      step = mark->step, phase = mark->phase;
    } else if (const auto* const alloc = std::get_if<Alloc>(&op)) {
      if (!counts(program[alloc->label], alloc->category)) continue;
      sizes[alloc->buffer.value] = alloc->size.count();
      live += alloc->size.count();
      if (step != 2) continue;
      if (phase == Phase::Forward) held.forward = std::max(held.forward, live);
      if (phase == Phase::Backward) held.backward = std::max(held.backward, live);
    } else if (const auto* const free = std::get_if<Free>(&op)) {
      const auto found = sizes.find(free->buffer.value);
      if (found == sizes.end()) continue;
      live -= found->second;
      sizes.erase(found);
    }
  }
  EXPECT_EQ(live, 0);
  return held;
}

TEST(Fsdp2Windows, FourBytesAnElementForwardAndTenBackward) {
  const Held held = held_by(program_of("", ""));
  EXPECT_EQ(held.forward, 4 * n);
  EXPECT_EQ(held.backward, 10 * n);
}

TEST(Fsdp2Windows, AreTheSameWhereLayersRunAgain) {
  const Held held = held_by(program_of("", "", "recompute = \"full\""));
  EXPECT_EQ(held.forward, 4 * n);
  EXPECT_EQ(held.backward, 10 * n);
}

// Nothing is gathered again: all layers but those that are done, one's gradients, and those of the one behind it.
TEST(Fsdp2Windows, WhatIsKeptIsNotGatheredAgain) {
  const Held held = held_by(program_of("sharding = \"zero2\"", ""));
  EXPECT_EQ(held.forward, 2 * layers * n + 2 * n);
  EXPECT_EQ(held.backward, std::max(2 * layers * n + 2 * n, 2 * (layers - 1) * n + 6 * n));
}

// A part of each layer stays where a few ranks have all of it between them; the last layer's first parameter is there
// besides, when its part is copied.
TEST(Fsdp2Windows, OfFewerRanksPartsStay) {
  constexpr std::int64_t few = 4, part = 2 * n / few, first_parameter = 4096 * 4096;
  const Held held = held_by(program_of("", fmt::format("reshard_after_forward = {}", few)));
  EXPECT_EQ(held.forward, 4 * n + (layers - 1) * part + 2 * first_parameter / few);
  EXPECT_EQ(held.backward, 10 * n + (layers - 2) * part);
}

// Each layer that is gathered ahead takes another 2n.
TEST(Fsdp2Windows, EachLayerGatheredAheadTakesAnother) {
  for (const std::int64_t ahead : {1, 2}) {
    const std::string switches =
        fmt::format("num_to_forward_prefetch = {}\nnum_to_backward_prefetch = {}", ahead, ahead);
    const Held held = held_by(program_of("", switches));
    EXPECT_EQ(held.forward, (4 + 2 * ahead) * n);
    EXPECT_EQ(held.backward, (10 + 2 * (ahead - 1)) * n);
  }
}

}  // namespace
}  // namespace tidemark::tests::fsdp2_windows_test
