#include <algorithm>
#include <iterator>

#include "parallel/runtime/runtimes.hpp"
#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/read_again.hpp"
#include "scenarios/convert/torchtitan/flavors.hpp"
#include "scenarios/convert/torchtitan/pipeline.hpp"
#include "scenarios/scenario/cpu_offload.hpp"
#include "scenarios/scenario/names.hpp"

// A scenario as torchtitan's configuration.

namespace tidemark::scenarios {
namespace {

std::string long_name(DType dtype) {
  return dtype == DType::FP32 ? "float32" : dtype == DType::FP16 ? "float16" : "bfloat16";
}

TomlKey key(std::string name, Content content) { return {std::move(name), {}, {std::move(content), {}}}; }
TomlTable table_of(std::vector<TomlKey> keys) {
  std::ranges::sort(keys, {}, &TomlKey::name);
  return {std::move(keys)};
}

}  // namespace

TomlTable titan_config(const Scenario& scenario) {
  Scenario s = scenario;
  if (!runtime_kind(s.runtime.name).eager()) {  // whose switches none of torchtitan's follow from
    s.runtime.name = "torchtitan";
    s.runtime.eager = usual_runtime(s).eager;
  }
  const TitanSettings& titan = s.runtime.eager.titan;
  const std::string file = "models/" + s.model.name + ".json";
  const auto* known = std::ranges::find(titan_flavors, file, &TitanFlavor::model);
  std::vector<TomlKey> model;
  if (known != titan_flavors.end() && known->name != "llama2")  // which today's torchtitan has not
    model = {key("name", std::string(known->name)), key("flavor", std::string(known->flavor))};
  // It has replicas alone along one axis only.
  const bool cut = s.layout.tensor * s.layout.pipeline * s.layout.context > 1;
  const std::int64_t sharded = s.layout.sharding == Sharding::None && !cut ? 1 : s.layout.data;
  const std::int64_t group = s.layout.shard_group > 0 ? s.layout.shard_group : sharded;
  std::vector<TomlKey> checkpoint{key("mode", std::string(word(recompute_names, s.train.recompute.kind)))};
  if (s.train.recompute.kind == Recompute::Selective)
    checkpoint.push_back(key("selective_ac_option", titan.checkpointed_layers == 0
                                                        ? std::string("op")
                                                        : std::to_string(titan.checkpointed_layers)));
  if (titan.memory_budget < 1)
    checkpoint = {key("mode", std::string("memory_budget")), key("memory_budget", titan.memory_budget)};
  if (titan.early_stop) checkpoint.push_back(key("early_stop", true));
  std::vector<TomlValue> parts;
  if (titan.compile_layers) parts.push_back({std::string("model"), {}});
  if (titan.compile_loss) parts.push_back({std::string("loss"), {}});
  std::vector<TomlKey> compile{key("enable", !parts.empty())};
  if (parts.size() == 1) compile.push_back(key("components", parts));
  const std::int64_t passes = s.layout.pipeline > 1 ? s.train.global_batch / (s.train.micro_batch * s.layout.data) : 1;
  std::vector<TomlKey> training{key("local_batch_size", s.train.micro_batch * passes),
                                key("seq_len", s.train.sequence_length),
                                key("dtype", long_name(s.train.master_dtype)),
                                key("mixed_precision_param", long_name(s.train.precision)),
                                key("mixed_precision_reduce", long_name(s.runtime.eager.fully_shard.reduce_dtype)),
                                key("enable_cpu_offload", cpu_offload(scenario.runtime).parameters)};
  if (s.train.global_batch != s.train.micro_batch * s.layout.data * passes)
    training.push_back(key("global_batch_size", s.train.global_batch));
  std::vector<TomlKey> parallelism{
      key("data_parallel_replicate_degree", std::int64_t{s.layout.data / std::max<std::int64_t>(group, 1)}),
      key("data_parallel_shard_degree", std::int64_t{group}),
      key("fsdp_reshard_after_forward", std::string(word(reshard_policy_names, titan.reshard))),
      key("tensor_parallel_degree", std::int64_t{s.layout.tensor}),
      key("disable_loss_parallel", !titan.loss_parallel),
      key("pipeline_parallel_degree", std::int64_t{s.layout.pipeline}),
      key("context_parallel_degree", std::int64_t{s.layout.context})};
  std::ranges::move(titan_pipeline_keys(s), std::back_inserter(parallelism));
  if (s.layout.expert > 1) {
    parallelism.push_back(key("expert_parallel_degree", std::int64_t{s.layout.expert}));
    parallelism.push_back(key("expert_tensor_parallel_degree", std::int64_t{s.layout.expert_tensor_parallel()}));
  }
  return table_of(
      {key("model", table_of(std::move(model))), key("training", table_of(std::move(training))),
       key("parallelism", table_of(std::move(parallelism))),
       key("activation_checkpoint", table_of(std::move(checkpoint))), key("compile", table_of(std::move(compile))),
       key("optimizer",
           table_of({key("name", std::string("AdamW")),
                     key("implementation", std::string(word(optimizer_kernel_names, s.runtime.eager.optimizer))),
                     key("weight_decay", s.runtime.eager.weight_decay)}))});
}

}  // namespace tidemark::scenarios
