#include "scenarios/reader/rollout_reader.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "parallel/generation/engine.hpp"
#include "parallel/job/built_model.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/format.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

constexpr IntegerRange prompt_count{1, 1 << 20};
constexpr IntegerRange sample_count{1, 1 << 16};
constexpr IntegerRange length{0, 1 << 24};
constexpr IntegerRange block_tokens{1, 1 << 16};
constexpr IntegerRange sleep_levels{0, 2};
// Programs say when each of them comes.
constexpr std::int64_t most_blocks = 1 << 16;
// Far above any device; sums of a few of them stay within 64 bits.
constexpr double largest_cache = 1e15;

std::string each_would_do(std::vector<std::int64_t> values) {
  return fmt::format("{} would do", fmt::join(values, " or "));
}

// Where its programs are made of the training's own.
bool runs_rollouts(RuntimeId id) {
  return id == RuntimeId::Megatron || id == RuntimeId::PyTorch || id == RuntimeId::Fsdp || id == RuntimeId::Fsdp2;
}

void check_engine(TomlReader& table, const Scenario& s, const Rollout& rollout) {
  if (rollout.tensor < 1 || s.model.heads % rollout.tensor != 0 || s.gpus % rollout.tensor != 0) {
    std::vector<std::int64_t> degrees;
    for (std::int64_t ranks = 1; ranks <= s.gpus; ranks *= 2)
      if (s.model.heads % ranks == 0 && s.gpus % ranks == 0) degrees.push_back(ranks);
    table.problem("tensor",
                  fmt::format("tensor = {} of an engine does not divide {} heads and {} devices", rollout.tensor,
                              s.model.heads, s.gpus),
                  each_would_do(std::move(degrees)));
  }
  const bool whole = s.layout.pipeline == 1 && s.layout.sharding != Sharding::Zero3;
  if (rollout.weights == EngineWeights::Shared && !(whole && rollout.tensor == s.layout.tensor))
    table.problem("weights",
                  "weights = \"shared\": the engine would have to hold what the training holds, cut the same way",
                  "\"own\" would do");
}

std::int64_t blocks_of(const Rollout& rollout) {
  return generation::blocks_of(rollout, rollout.prompt_length + rollout.response_length);
}

// A part of the device that holds the engine's weights and one answer at least.
void check_room(TomlReader& table, const Scenario& s, const Rollout& rollout) {
  Bytes weights;
  if (rollout.weights == EngineWeights::Own)
    for (const std::int64_t elements : generation::weight_parts(build_model(s.model, {}), rollout))
      weights += elements * size_of(s.train.precision);
  const Bytes answer = generation::cache_of_token(s.model, rollout) * rollout.block_size * blocks_of(rollout);
  if (rollout.reserved >= weights + answer) return;
  const double enough = std::ceil(100 * static_cast<double>((weights + answer).count()) /
                                  static_cast<double>(s.cluster.device.capacity.count())) /
                        100;
  table.problem("memory_fraction",
                fmt::format("memory_fraction = {:g}: {} do not hold {} of weights and one answer of {}",
                            rollout.memory_fraction, gib(rollout.reserved), gib(weights), gib(answer)),
                enough < 1 ? fmt::format("{:g} would do", enough) : "more ranks of the engine (tensor) would do");
}

}  // namespace

FrozenModels read_frozen_models(TomlReader& table) {
  FrozenModels models;
  for (const auto& [key, role] : frozen_model_keys)
    if (table.boolean(key).value_or(false)) models.push_back({role});
  return models;
}

std::optional<Rollout> read_rollout(TomlReader& table) {
  if (!table.present()) return {};
  Rollout rollout;
  rollout.batch = table.integer("batch", prompt_count, Presence::Required).value_or(1);
  rollout.samples = table.integer("samples", sample_count).value_or(1);
  rollout.prompt_length = table.integer("prompt_length", length, Presence::Required).value_or(0);
  rollout.response_length = table.integer("response_length", length, Presence::Required).value_or(0);
  rollout.block_size = table.integer("block_size", block_tokens).value_or(rollout.block_size);
  rollout.kv_dtype = read_name(table, "kv_dtype", kv_dtype_names).value_or(DType::BF16);
  rollout.tensor = static_cast<std::int32_t>(table.integer("tensor", rank_count).value_or(0));
  constexpr Ratio none{}, all{std::int64_t{1'000'000}};
  if (const std::optional<Ratio> given = table.ratio("memory_fraction", none, all)) {
    rollout.memory_fraction = static_cast<double>(given->count()) / static_cast<double>(all.count());
    if (*given == none)
      table.problem("memory_fraction", "memory_fraction = 0: the engine would have nothing",
                    "leave it out, so that it takes blocks as they fill");
  }
  rollout.sleep = static_cast<EngineSleep>(table.integer("sleep", sleep_levels).value_or(0));
  rollout.weights = read_name(table, "weights", engine_weights_names).value_or(EngineWeights::Own);
  table.refuse("value_model", "a critic, which trains beside the policy, is", {"false"});
  table.refuse_unknown_keys();
  return rollout;
}

void settle_rollout(TomlReader& table, Scenario& scenario, const ScenarioTables& tables) {
  std::optional<Rollout>& requested = scenario.train.rollout;
  if (!requested) return;
  if (requested->tensor == 0) requested->tensor = scenario.layout.tensor;
  const RuntimeKind& kind = runtime_kind(scenario.runtime.name);
  if (!runs_rollouts(kind.id))
    table.problem("batch", not_modelled(fmt::format("generation beside training by {} is not modelled yet", kind.name)),
                  "name = \"megatron\", \"pytorch\", \"fsdp\" or \"fsdp2\" in [runtime]");
  const std::int64_t tokens = requested->prompt_length + requested->response_length;
  if (tokens == 0)
    table.problem("response_length", "neither prompts nor responses have a token", "response_length = 4096");
  if (tokens / requested->block_size > most_blocks)
    table.problem("block_size", fmt::format("{} tokens are more than {} blocks", tokens, most_blocks),
                  fmt::format("block_size = {} would do", (tokens + most_blocks - 1) / most_blocks));
  if (!tables.model_sound || !tables.layout.sound("tensor")) return;
  check_engine(table, scenario, *requested);
  const double answer = static_cast<double>(requested->block_size) * static_cast<double>(blocks_of(*requested)) *
                        static_cast<double>(generation::cache_of_token(scenario.model, *requested).count());
  if (answer * static_cast<double>(requested->batch) * static_cast<double>(requested->samples) > largest_cache)
    table.problem("batch", "the cache of so many answers would take more than 1000 TB", "fewer answers would do");
  if (requested->memory_fraction == 0 || !tables.cluster_sound || !table.sound("tensor")) return;
  requested->reserved = Bytes{static_cast<std::int64_t>(
      std::floor(requested->memory_fraction * static_cast<double>(scenario.cluster.device.capacity.count())))};
  check_room(table, scenario, *requested);
}

}  // namespace tidemark::scenarios
