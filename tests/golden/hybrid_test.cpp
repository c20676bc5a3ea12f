#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "parallel/frameworks/megatron/optimizer/hybrid_device_optimizer.hpp"
#include "parallel/torch/operation.hpp"
#include "sim/memory/replay.hpp"
#include "sim/program/liveness.hpp"
#include "sim/program/verify.hpp"
#include "tests/golden/fake_recordings.hpp"
#include "tests/namespace.hpp"
#include "tests/sim/program/random_program.hpp"

// Megatron's HybridDeviceOptimizer over one rank's shards of a model, recorded alone (tests/ground_truth/
// record_hybrid.py): what its device and its host hold.

namespace tidemark::tests::golden::hybrid_test {
namespace {

using namespace parallel::torch;
using parallel::OptimizerBehavior;
using parallel::megatron::HybridDeviceOptimizer;
using parallel::megatron::Updated;
using Json = nlohmann::json;

// transformers' Llama, in the order of its parameters().
std::vector<Shape> shapes_of(const Json& config) {
  const auto number = [&](const char* key) { return config.at(key).get<std::int64_t>(); };
  const std::int64_t hidden = number("hidden_size"), ffn = number("intermediate_size"), head = number("head_dim");
  const std::int64_t queries = head * number("num_attention_heads"), keys = head * number("num_key_value_heads");
  std::vector<Shape> shapes{{number("vocab_size"), hidden}};
  for (std::int64_t layer = 0; layer < number("num_hidden_layers"); ++layer)
    for (const Shape& shape :
         {Shape{queries, hidden}, Shape{keys, hidden}, Shape{keys, hidden}, Shape{hidden, queries}, Shape{ffn, hidden},
          Shape{ffn, hidden}, Shape{hidden, ffn}, Shape{hidden}, Shape{hidden}})
      shapes.push_back(shape);
  shapes.push_back({hidden});
  shapes.push_back({number("vocab_size"), hidden});
  return shapes;
}

// What the recorder does, step for step.
Program recorded_training(const Json& recording) {
  const Json& settings = recording.at("settings");
  const bool precision_aware = settings.at("precision_aware").get<bool>();
  const auto world = settings.at("world").get<std::int64_t>(), rank = settings.at("rank").get<std::int64_t>();
  OptimizerBehavior behavior;
  behavior.precision_aware = precision_aware;
  behavior.offloaded = settings.at("fraction").get<double>();
  behavior.overlaps_copies = settings.at("overlap").get<bool>();
  behavior.pins_gradients = settings.at("pin_gradients").get<bool>();

  Process process({}, Bytes{});
  {
    Session session(process, {});
    const Session::Scope scope(session, "model");
    process.at(0, -1);
    process.mark(Phase::Construction, "build");
    const auto part = [&](const Tensor& flat) {
      const std::int64_t size = flat.elements() / world;
      return narrowed(sized(flat, {flat.elements()}), 0, rank * size, size);
    };
    std::vector<Updated> whole;
    std::int64_t elements = 0;
    for (const Shape& shape : shapes_of(recording.at("config"))) {
      const std::string name = fmt::format("p{}", whole.size());
      whole.push_back({name, session.empty(shape, DType::BF16, name, Category::Parameters)});
      session.launch(Operation::Initialize, {}, {whole.back().value});
      elements += whole.back().value.elements();
    }
    const Tensor buffer = session.empty({elements}, DType::FP32, "buffer", Category::Gradients);
    session.launch({Operation::Fill, {0}}, {}, {buffer});
    std::vector<Tensor> gradients;
    std::int64_t at = 0;
    for (const Updated& p : whole) {
      gradients.push_back(part(narrowed(buffer, 0, at, p.value.elements())));
      at += p.value.elements();
    }
    std::optional<HybridDeviceOptimizer> first(std::in_place, session, behavior, whole);
    std::vector<Updated> shards;
    for (const Updated& p : whole) {
      Tensor shard = part(p.value);
      if (!precision_aware) {
        const Tensor clone = session.empty(shard.sizes, shard.dtype, "clone", Category::Temporaries);
        session.launch(Operation::Copy, {shard}, {clone});
        shard = session.empty(shard.sizes, DType::FP32, p.name + ".main", Category::OptimizerMaster);
        session.launch(Operation::Copy, {clone}, {shard});
      }
      shards.push_back({p.name + ".shard", shard});
    }
    HybridDeviceOptimizer optimizer(session, behavior, shards);
    for (int step = 1; step <= static_cast<int>(recording.at("steps").size()); ++step) {
      process.at(step, -1);
      process.mark(Phase::OptimizerStep, "step");
      first.reset();
      optimizer.step(gradients);
      process.synchronize();
    }
    session.finish();
  }
  return with_frees(std::move(process).finish());
}

// A recording, and what is predicted less what was recorded.
struct OffBy {
  std::string name;
  std::int64_t device, pinned, pageable, both;
};

class Hybrid : public testing::TestWithParam<OffBy> {};

TEST_P(Hybrid, DevicesAndHostsHoldWhatWasRecorded) {
  const std::filesystem::path folder = std::filesystem::path(TIDEMARK_SOURCE_DIR) / "tests/golden/offload/recordings";
  const Json recording = Json::parse(std::ifstream(folder / (GetParam().name + ".json")));
  const Program program = recorded_training(recording);
  EXPECT_EQ(verify(program), std::vector<std::string>{});
  const MemoryRecord record = replay(program, free_of_charge(), {});

  // Of the last step: by then what construction left has gone, whenever Python finds it.
  const auto count = [](const Json& json, const char* what) {
    return Bytes{json.at("peak").at(what).get<std::int64_t>()};
  };
  HostPeaks peaks;
  const auto reach = [&](const Json& stretch) {
    peaks.pinned = std::max(peaks.pinned, count(stretch, "pinned_held"));
    peaks.pageable = std::max(peaks.pageable, count(stretch, "pageable"));
    peaks.both = std::max(peaks.both, count(stretch, "both_held"));
  };
  reach(recording.at("host").at("set_up"));
  for (const Json& step : recording.at("host").at("steps")) reach(step);
  const Bytes allocated = count(recording.at("steps").back(), "allocated");
  EXPECT_EQ((record.peak_allocated_by_step.back() - allocated).count(), GetParam().device);
  EXPECT_EQ((record.pinned.peak - peaks.pinned).count(), GetParam().pinned);
  EXPECT_EQ((record.pageable.peak - peaks.pageable).count(), GetParam().pageable);
  EXPECT_EQ((record.host.bytes - peaks.both).count(), GetParam().both);
}

INSTANTIATE_TEST_SUITE_P(Recordings, Hybrid,
                         testing::Values(OffBy{"hybrid_8", 0, 0, 0, 0},
                                         OffBy{"hybrid_8_half_overlapped", -14336, 0, 0, 0},
                                         OffBy{"hybrid_8_precision_aware", 0, 0, 0, 0},
                                         OffBy{"hybrid_2_half_precision_aware", -14336, 0, 0, -12},
                                         OffBy{"hybrid_8_pageable_gradients", 0, 0, 0, 0}),
                         [](const testing::TestParamInfo<OffBy>& row) { return row.param.name; });

}  // namespace
}  // namespace tidemark::tests::golden::hybrid_test
