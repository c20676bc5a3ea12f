#include <array>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/hugging_face/names.hpp"
#include "scenarios/convert/hugging_face/parts.hpp"

namespace tidemark::scenarios {

using namespace hugging_face;

namespace {

// accelerate/utils/dataclasses.py ParallelismConfig: parameters are shared out among ranks that work on one row, too.
void read_parallelism(Given config) {
  Draft& draft = config.draft();
  const auto degree = [&](std::string_view name) {
    return config.integer(fmt::format("parallelism_config_{}", name)).value_or(1);
  };
  for (const char* name : {"cp_size", "sp_size"})
    draft.part_rows(degree(name), fmt::format("parallelism_config_{} = {}", name, degree(name)),
                    config.place(fmt::format("parallelism_config_{}", name)));
  const std::int64_t replicas = degree("dp_replicate_size"), gpus = draft.integer("gpus").value_or(0);
  if (replicas > 1 && gpus > 0 && gpus % replicas == 0)
    draft.set("layout.shard_group", gpus / replicas, config.place("parallelism_config_dp_replicate_size"));
  else if (replicas > 1)
    config.tell(RemarkKind::NotExpressed, "parallelism_config_dp_replicate_size",
                "how many ranks each replica has is not said");
  if (degree("tp_size") > 1)
    config.tell(RemarkKind::NotExpressed, "parallelism_config_tp_size",
                not_modelled("transformers' tensor parallelism is not modelled"));
  config.no_matter(std::array<std::string_view, 6>{
      "parallelism_config_dp_shard_size", "parallelism_config_cp_comm_strategy", "parallelism_config_sp_backend",
      "parallelism_config_sp_seq_length", "parallelism_config_sp_seq_length_is_variable",
      "parallelism_config_sp_attn_implementation"});
  config.refuse_the_rest("is no key of a parallelism_config that is known here");
}

// accelerate/utils/dataclasses.py DeepSpeedPlugin.
void read_deepspeed_plugin(Given zero) {
  Draft& draft = zero.draft();
  if (const auto file = zero.text("deepspeed_config_file")) read_deepspeed_file(zero, "deepspeed_config_file", *file);
  if (const auto stage = zero.integer("zero_stage"); stage && *stage > 0) {
    draft.set("layout.sharding", fmt::format("zero{}", *stage), zero.place("zero_stage"));
  } else if (!stage && !zero.has("deepspeed_config_file")) {
    draft.set("layout.sharding", std::string("zero2"));
    draft.remark(RemarkKind::Assumed, "zero_stage", "2, which is accelerate's default");  // utils/dataclasses.py
  }
  for (const char* what : {"optimizer", "param"}) {
    const std::string key = fmt::format("offload_{}_device", what);
    if (const auto device = zero.text(key)) {
      draft.set(fmt::format("runtime.switches.offload_{}.device", what), *device, zero.place(key));
      draft.set(fmt::format("runtime.switches.offload_{}.pin_memory", what), true);  // dataclasses.py DeepSpeedPlugin
    }
  }
  if (const auto steps = zero.integer("gradient_accumulation_steps")) draft.accumulation = *steps;
  copy(zero, "gradient_clipping", "runtime.switches.gradient_clipping");
  zero.no_matter(std::array<std::string_view, 6>{"deepspeed_hostfile", "zero3_init_flag", "zero3_save_16bit_model",
                                                 "deepspeed_multinode_launcher", "offload_optimizer_nvme_path",
                                                 "offload_param_nvme_path"});
  zero.refuse_the_rest("is no key of a deepspeed_config that is known here");
}

void read_dynamo(Given dynamo) {
  Draft& draft = dynamo.draft();
  if (dynamo.keys().empty()) return;
  const std::string backend = lower(dynamo.text("dynamo_backend").value_or("no"));
  if (backend == "inductor")
    draft.set("runtime.switches.torch_compile",
              dynamo.flag("dynamo_use_regional_compilation").value_or(false) ? Content(std::string("regional"))
                                                                             : Content(true),
              dynamo.place("dynamo_backend"));
  else if (backend != "no")
    dynamo.tell(RemarkKind::NotExpressed, "dynamo_backend", "inductor is modelled");
  dynamo.no_matter(std::array<std::string_view, 4>{"dynamo_mode", "dynamo_use_dynamic", "dynamo_use_fullgraph",
                                                   "dynamo_use_regional_compilation"});
  dynamo.refuse_the_rest("is no key of a dynamo_config that is known here");
}

}  // namespace

void read_accelerate(Given& config, Draft& draft) {
  const std::string kind = config.text("distributed_type").value_or("NO");
  if (const auto gpus = config.integer("num_processes"); gpus && draft.find("gpus") == nullptr)
    draft.set("gpus", *gpus, config.place("num_processes"));
  const std::int64_t nodes = config.integer("num_machines").value_or(1);
  // accelerate/utils/launch.py prepare_multi_gpu_env: num_processes // num_machines on each.
  if (const auto all = config.integer("num_processes"); nodes < 1 || (all && *all % nodes != 0))
    config.tell(RemarkKind::NotExpressed, "num_machines", "does not divide num_processes, so that others are started");
  else if (nodes > 1)
    draft.each_node = config.integer("num_processes").value_or(0) / nodes;
  const std::string precision = config.text("mixed_precision").value_or("no");
  if (precision == "bf16" || precision == "fp16")
    draft.set("train.precision", precision, config.place("mixed_precision"));
  else if (precision != "no" && precision != "false")  // YAML's own word for no
    config.tell(RemarkKind::NotExpressed, "mixed_precision", not_modelled("FP8 is not modelled yet"));
  if (const auto steps = config.integer("gradient_accumulation_steps")) draft.accumulation = *steps;
  const bool mixed = precision == "bf16" || precision == "fp16";
  draft.mixed_precision |= mixed;
  if (kind == "FSDP") {
    draft.set("runtime.name", std::string("fsdp"), config.place("distributed_type"));
    read_fsdp_config(
        config.table("fsdp_config"),
        {.mixed = mixed, .precision = precision, .wraps = false, .devices_per_node = devices_per_node(draft, nodes)});
  } else if (kind == "DEEPSPEED") {
    draft.set("runtime.name", std::string("deepspeed"), config.place("distributed_type"));
    read_deepspeed_plugin(config.table("deepspeed_config"));
  } else if (kind == "MULTI_GPU" || kind == "NO") {
    draft.set("runtime.name", std::string("pytorch"), config.place("distributed_type"));
    if (config.has("distributed_type") && kind == "NO" && config.integer("num_processes").value_or(1) > 1) {
      draft.set("gpus", std::int64_t{1}, config.place("distributed_type"));
      draft.each_node = 0;
      draft.remark(RemarkKind::Assumed, "distributed_type = NO",
                   "accelerate starts one process, on one device: with more of them visible the Trainer would wrap the "
                   "model in DataParallel, which is not modelled",
                   config.place("distributed_type"));
    }
  } else {
    config.tell(RemarkKind::NotExpressed, "distributed_type",
                kind == "MEGATRON_LM" ? not_modelled("Megatron-LM by accelerate is not modelled")
                                      : ProblemText("FSDP, DEEPSPEED and MULTI_GPU are modelled"));
  }
  read_dynamo(config.table("dynamo_config"));
  config.refuse("downcast_bf16", "bf16 for everything is", {"false", "\"no\""});
  config.refuse("use_cpu", "training on hosts is", {"false"});
  if (config.has("parallelism_config")) read_parallelism(config.table("parallelism_config"));
  config.no_matter(plain_accelerate);
  config.refuse_the_rest("is no key of accelerate's that is known here");
}

}  // namespace tidemark::scenarios
