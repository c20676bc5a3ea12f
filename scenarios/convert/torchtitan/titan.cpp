#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/torchtitan/flavors.hpp"
#include "scenarios/convert/torchtitan/pipeline.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/scenario/names.hpp"

// torchtitan 0.2.2, torchtitan/config/job_config.py; keys of earlier releases where they were renamed since.

namespace tidemark::scenarios {
namespace {

DType dtype_of(const std::string& text) {
  return text == "float32" ? DType::FP32 : text == "float16" ? DType::FP16 : DType::BF16;
}
std::string short_name(const std::string& text) { return std::string(name(dtype_of(text))); }

TomlTable* table_in(TomlTable& document, std::string_view name) {
  const auto found = std::ranges::find(document.keys, name, &TomlKey::name);
  return found == document.keys.end() ? nullptr : std::get_if<TomlTable>(&found->value.value);
}

// Releases of 2024 had the degrees in [training] and [experimental] (torchtitan/config_manager.py).
TomlTable with_degrees_in_place(TomlTable document) {
  constexpr auto moved = std::to_array<std::string_view>(
      {"tensor_parallel_degree", "data_parallel_degree", "data_parallel_replicate_degree", "data_parallel_shard_degree",
       "pipeline_parallel_degree", "context_parallel_degree", "pipeline_parallel_schedule",
       "pipeline_parallel_split_points", "pipeline_parallel_microbatches", "context_parallel_rotate_method",
       "enable_async_tensor_parallel", "enable_compiled_autograd", "enable_loss_parallel"});
  std::vector<TomlKey> found;
  for (const char* name : {"training", "experimental"})
    if (TomlTable* const its = table_in(document, name))
      std::erase_if(its->keys, [&](const TomlKey& key) {
        const bool is_one = std::ranges::find(moved, std::string_view(key.name)) != moved.end();
        if (is_one) found.push_back(key);
        return is_one;
      });
  if (found.empty()) return document;
  if (table_in(document, "parallelism") == nullptr)
    document.keys.push_back({"parallelism", found.front().place, {TomlTable{}, found.front().place}});
  TomlTable& parallelism = *table_in(document, "parallelism");
  for (TomlKey& key : found) {
    if (key.name == "data_parallel_degree") key.name = "data_parallel_shard_degree";  // of FSDP, its only kind
    if (std::ranges::find(parallelism.keys, key.name, &TomlKey::name) == parallelism.keys.end())
      parallelism.keys.push_back(std::move(key));
  }
  return document;
}

class TitanReader {
 public:
  TitanReader(const TomlTable& document, const ShippedModels& models, Draft& draft)
      : top_(with_degrees_in_place(document).keys, "", draft), models_(models), draft_(draft) {}

  void read() {
    draft_.set("runtime.name", std::string("torchtitan"));
    read_model(top_.table("model"));
    read_training(top_.table("training"));
    read_parallelism(top_.table("parallelism"));
    read_checkpointing(top_.table("activation_checkpoint"));
    read_compilation(top_.table("compile"));
    bound_compilation();
    read_optimizer(top_.table("optimizer"));
    if (Given memory = top_.table("memory_estimation"); !memory.keys().empty())
      memory.no_matter(std::array<std::string_view, 2>{"enable", "disable_fake_mode"}), memory.refuse_the_rest(unknown);
    read_validation(top_.table("validation"));
    if (Given tolerant = top_.table("fault_tolerance"); tolerant.flag("enable").value_or(false))
      tolerant.tell(RemarkKind::NotExpressed, "enable",
                    not_modelled("training in replicas that come and go is not modelled"));
    if (Given debug = top_.table("debug"); debug.flag("deterministic").value_or(false))
      debug.tell(RemarkKind::NotExpressed, "deterministic",
                 not_modelled("deterministic kernels are not modelled with torchtitan"));
    if (Given eighth = top_.table("float8"); eighth.flag("enable_float8_linear").value_or(false))  // of 2024
      eighth.tell_bounded("enable_float8_linear", std::string(of_float8), "float8-linears");
    top_.no_matter(std::array<std::string_view, 3>{"quantize", "float8", "mx"}, "model.converters says whether");
    if (top_.has("comm")) {
      Given comm = top_.table("comm");
      comm.refuse("mode", "a backend that is none is", {"\"default\""});
    }
    if (top_.has("experimental")) read_experimental(top_.table("experimental"));
    top_.no_matter(
        std::array<std::string_view, 7>{"job", "profiling", "metrics", "checkpoint", "lr_scheduler", "comm", "debug"},
        "of what is logged, saved and scheduled");
    top_.no_matter(std::array<std::string_view, 2>{"fault_tolerance", "validation"}, "is off");
    top_.refuse_the_rest(unknown);
  }

 private:
  static constexpr std::string_view of_float8 =
      "the figures are of bf16; in FP8 products take less time, and inputs and weights of the one at work are there "
      "once "
      "more";
  static constexpr std::string_view unknown = "is no key of torchtitan's that is known here";

  // torchtitan/config/job_config.py Experimental.
  void read_experimental(Given table) {
    for (const char* name : {"custom_import", "custom_args_module", "custom_model_path"})
      if (const auto module = table.text(name); module && !module->empty())
        table.tell(RemarkKind::NotJudged, name, "is Python that is not read, and may register a model of its own");
    table.refuse_the_rest(unknown);
  }

  void read_model(Given table) {
    const std::string name = table.text("name").value_or("llama3"),
                      flavor = table.text("flavor").value_or("debugmodel");
    const auto known =
        std::ranges::find_if(titan_flavors, [&](const TitanFlavor& f) { return f.name == name && f.flavor == flavor; });
    if (draft_.find("model") != nullptr) {
      // --model says it.
    } else if (known != titan_flavors.end()) {
      const bool shipped = known->model.starts_with("models/");
      if (shipped)
        draft_.set("model", std::string(known->model), table.place("name"));
      else
        name_checkpoint(models_, std::string(known->model), "model.flavor", table.place("flavor"), draft_);
      if (flavor == "0.6B" || flavor == "1.7B" || flavor == "4B") untie(table, flavor);
      if (flavor == "671B")  // which torchtitan has not
        draft_.set("model_override.num_nextn_predict_layers", std::int64_t{0}, table.place("flavor"));
    } else if (name == "llama3" && flavor == "debugmodel") {
      // torchtitan/models/llama3/__init__.py.
      draft_.set("model", std::string("models/llama-3.1-8b.json"), table.place("flavor"));
      for (const auto& [key, value] : {std::pair{"hidden_size", 256},
                                       {"num_hidden_layers", 6},
                                       {"num_attention_heads", 16},
                                       {"num_key_value_heads", 16},
                                       {"intermediate_size", 768},
                                       {"vocab_size", 2048}})
        draft_.set(std::string("model_override.") + key, std::int64_t{value}, table.place("flavor"));
    } else {
      draft_.remark(RemarkKind::NotExpressed,
                    fmt::format("model.flavor = {} of {}", in_quotes(flavor), in_quotes(name)),
                    not_modelled("is no model of torchtitan's that is known here: give its config.json with --model"),
                    table.place("flavor"));
    }
    if (const TomlValue* converters = table.take("converters")) {
      const auto* list = std::get_if<std::vector<TomlValue>>(&converters->value);
      constexpr auto eighths =
          std::to_array<std::string_view>({R"("float8")", R"("quantize.linear.float8")", R"("quantize.dense.float8")"});
      const bool bounded = list != nullptr && std::ranges::all_of(*list, [&](const TomlValue& its) {
                             return std::ranges::find(eighths, scenarios::text(its)) != eighths.end();
                           });
      if (bounded && !list->empty())
        table.tell_bounded("converters", std::string(of_float8), "float8-linears");
      else if (!bounded)
        table.tell(RemarkKind::NotExpressed, "converters",
                   not_modelled("conversions of linears other than to FP8 are not modelled yet"));
    }
    table.no_matter(
        std::array<std::string_view, 4>{"hf_assets_path", "tokenizer_path", "print_after_conversion", "norm_type"});
    table.refuse_the_rest(unknown);
  }

  void read_training(Given table) {
    constexpr std::int64_t usual_batch = 8, usual_length = 2048;
    const auto batch = table.integer("local_batch_size"), older = table.integer("batch_size");
    draft_.set("train.micro_batch", batch.value_or(older.value_or(usual_batch)),
               table.place(batch ? "local_batch_size" : "batch_size"));
    if (const auto global = table.integer("global_batch_size"); global && *global > 0)
      draft_.set("train.global_batch", *global, table.place("global_batch_size"));
    draft_.set("train.sequence_length", table.integer("seq_len").value_or(usual_length), table.place("seq_len"));
    const auto type = [&](std::string_view key) {
      const std::optional<std::string> its = table.text(key);
      if (its && *its != "bfloat16" && *its != "float32" && *its != "float16")
        table.tell(RemarkKind::NotExpressed, key, "bfloat16, float16 and float32 are types that torchtitan knows");
      return its;
    };
    draft_.set("train.precision", short_name(type("mixed_precision_param").value_or("bfloat16")),
               table.place("mixed_precision_param"));
    if (const auto held = type("dtype")) draft_.set("train.master_dtype", short_name(*held), table.place("dtype"));
    if (const auto reduced = type("mixed_precision_reduce"))
      draft_.set("runtime.switches.mixed_precision_reduce", short_name(*reduced),
                 table.place("mixed_precision_reduce"));
    if (table.flag("enable_cpu_offload").value_or(false))
      draft_.set("offload.parameters", std::string("cpu"), table.place("enable_cpu_offload"));
    if (const TomlValue* norm = table.take("max_norm"))
      draft_.set("runtime.switches.max_norm", norm->value, norm->place);
    if (table.flag("compile").value_or(false))  // of releases before 0.2
      draft_.set("runtime.switches.compile", true, table.place("compile"));
    if (const auto eighth = table.text("fp8_linear"); eighth && !eighth->empty())  // of early 2024
      table.tell_bounded("fp8_linear", std::string(of_float8), "float8-linears");
    table.refuse("deterministic", "deterministic kernels are", {"false"});
    table.no_matter(std::array<std::string_view, 8>{"steps", "dataset", "dataset_path", "gc_freq", "gc_debug", "seed",
                                                    "dataloader", "warmup_steps"});
    table.refuse_the_rest(unknown);
  }

  void read_parallelism(Given table) {
    for (const TomlKey& key : table.keys())
      if (const auto* text = std::get_if<std::string>(&key.value.value);
          text != nullptr && text->empty() && key.name.ends_with("_degree"))
        table.wrong(key, "a whole number");
    const auto copy = [&](std::string_view key, std::string_view path, std::int64_t usual) {
      if (const auto degree = table.integer(key); degree && *degree != usual)
        draft_.set(path, *degree, table.place(key));
    };
    copy("tensor_parallel_degree", "layout.tensor", 1);
    copy("pipeline_parallel_degree", "layout.pipeline", 1);
    copy("context_parallel_degree", "layout.context", 1);
    copy("expert_parallel_degree", "layout.expert", 1);
    if (const auto parts = table.integer("expert_tensor_parallel_degree");
        parts && *parts != 1 && draft_.find("layout.expert") != nullptr)
      draft_.set("layout.expert_tensor", *parts, table.place("expert_tensor_parallel_degree"));
    const std::int64_t replicas = table.integer("data_parallel_replicate_degree").value_or(1);
    const std::int64_t shards = table.integer("data_parallel_shard_degree").value_or(-1);
    const std::int64_t cut =
        product({draft_.integer("layout.tensor").value_or(1), draft_.integer("layout.pipeline").value_or(1),
                 draft_.integer("layout.context").value_or(1)});
    // distributed/parallel_dims.py _validate: -1 takes what is left, and nothing below 1 else means anything.
    for (const std::string_view degree : {"data_parallel_replicate_degree", "data_parallel_shard_degree"})
      if (const std::int64_t n = table.integer(degree).value_or(1);
          n < 1 && (n != -1 || degree != "data_parallel_shard_degree"))
        table.tell(RemarkKind::NotExpressed, degree,
                   "torchtitan stops: 1 and more are degrees, and -1 of shards alone");
    if (shards > 0 && draft_.find("gpus") == nullptr)
      draft_.set("gpus", product({replicas, shards, cut}), table.place("data_parallel_shard_degree"));
    // distributed/parallel_dims.py _validate.
    if (const std::int64_t gpus = draft_.integer("gpus").value_or(0);
        gpus > 0 && shards > 0 && product({replicas, shards, cut}) != gpus)
      table.tell(
          RemarkKind::NotExpressed, "data_parallel_shard_degree",
          fmt::format("torchtitan stops: {} replicas, {} shards and {} ranks that cut the model are not {} GPUs; "
                      "-1 takes what is left",
                      replicas, shards, cut, gpus));
    if (replicas > 1) {
      const std::int64_t gpus = draft_.integer("gpus").value_or(0);
      if (shards == 1 && cut == 1)
        draft_.set("layout.sharding", std::string("none"), table.place("data_parallel_replicate_degree"));
      else if (shards == 1)
        table.tell(RemarkKind::NotExpressed, "data_parallel_replicate_degree",
                   "torchtitan has replicas alone (DistributedDataParallel) along one axis only");
      else if (gpus > 0 && product({replicas, cut}) > 0 && gpus % product({replicas, cut}) == 0)
        draft_.set("layout.shard_group", gpus / product({replicas, cut}),
                   table.place("data_parallel_replicate_degree"));
      else
        table.tell(RemarkKind::NotExpressed, "data_parallel_replicate_degree",
                   "takes the number of GPUs, which is not said");
    }
    if (const auto policy = table.text("fsdp_reshard_after_forward"))
      draft_.set("runtime.switches.fsdp_reshard_after_forward", *policy, table.place("fsdp_reshard_after_forward"));
    if (table.flag("disable_loss_parallel").value_or(false))
      draft_.set("runtime.switches.disable_loss_parallel", true, table.place("disable_loss_parallel"));
    if (const auto parts = table.flag("enable_loss_parallel"))  // of releases before 0.1
      draft_.set("runtime.switches.disable_loss_parallel", !*parts, table.place("enable_loss_parallel"));
    if (table.flag("enable_async_tensor_parallel").value_or(false))
      table.tell_bounded("enable_async_tensor_parallel",
                         "the figures are of products behind their collectives; in pieces they take less time, and "
                         "buffers of their own",
                         "async-tensor");
    table.refuse("enable_compiled_autograd", "compiled autograd is", {"false"});
    table.refuse("expert_parallel_comm_backend", "DeepEP is", {"\"standard\""});
    read_titan_pipeline(table, draft_);
    table.no_matter(std::array<std::string_view, 2>{"context_parallel_rotate_method", "context_parallel_load_balancer"},
                    "there is no context parallelism");
    table.refuse_the_rest(unknown);
  }

  void read_checkpointing(Given table) {
    constexpr double usual_budget = 0.5;
    const std::string mode = table.text("mode").value_or(table.has("mode") ? "none" : "selective");
    if (mode == "full" || mode == "selective")
      draft_.set("train.recompute", mode, table.place("mode"));
    else if (mode == "memory_budget")
      draft_.set("runtime.switches.memory_budget", table.number("memory_budget").value_or(usual_budget),
                 table.place("mode"));
    else if (mode != "none")
      table.tell(RemarkKind::NotExpressed, "mode", "is no way to checkpoint that is known here");
    const TomlValue* option = table.take("selective_ac_option");
    if (mode == "selective") {
      const auto* text = option == nullptr ? nullptr : std::get_if<std::string>(&option->value);
      // "2" is every second layer, which is what it is where it is left out.
      draft_.set("runtime.switches.selective_ac_option",
                 option == nullptr ? Content(std::int64_t{2})
                 : text != nullptr ? typed(*text)
                                   : option->value,
                 table.place("selective_ac_option"));
    } else if (option != nullptr) {
      table.tell(RemarkKind::NoMatter, "selective_ac_option", "is for mode = \"selective\"");
    }
    if (table.flag("early_stop").value_or(false))
      draft_.set("runtime.switches.early_stop", true, table.place("early_stop"));
    table.no_matter(std::array<std::string_view, 5>{"preserve_rng_state", "determinism_check", "debug",
                                                    "visualize_memory_budget_pareto", "memory_budget"});
    if (table.has("per_op_sac_force_recompute_mm_shapes_by_fqns")) {
      const bool requested = mode == "selective";
      table.tell(requested ? RemarkKind::NotExpressed : RemarkKind::NoMatter,
                 "per_op_sac_force_recompute_mm_shapes_by_fqns",
                 requested ? not_modelled("products that run again by their shape are not modelled yet")
                           : "is for mode = \"selective\"");
    }
    table.refuse_the_rest(unknown);
  }

  void read_compilation(Given table) {
    if (table.keys().empty()) return;
    const bool on = table.flag("enable").value_or(false);
    bool model = true, loss = true;
    if (const TomlValue* parts = table.take("components")) {
      const auto* list = std::get_if<std::vector<TomlValue>>(&parts->value);
      const auto has = [&](const char* part) {
        return list != nullptr && std::ranges::any_of(*list, [&](const TomlValue& v) {
                 const auto* text = std::get_if<std::string>(&v.value);
                 return text != nullptr && *text == part;
               });
      };
      model = has("model"), loss = has("loss");
    }
    if (on && (model || loss))
      draft_.set("runtime.switches.compile",
                 model && loss ? Content(true) : Content(std::string(model ? "model" : "loss")), table.place("enable"));
    table.refuse("backend", "another compiler than inductor is", {"\"inductor\""});
    table.refuse_the_rest(unknown);
  }

  // torchtitan/models/qwen3/infra/parallelize.py of 0.2: the head's weight is the embedding's once both are sharded;
  // torchtitan/distributed/fsdp.py of later ones: both ends are one unit.
  void untie(const Given& table, const std::string& flavor) {
    draft_.set("model_override.tie_word_embeddings", false, table.place("flavor"));
    draft_.remark_bounded(fmt::format("model.flavor = {}", in_quotes(flavor)),
                          "its embedding is its head: the figures are of two that are apart, gathered each by itself",
                          "tied-ends", table.place("flavor"));
  }

  // Of the models that torchtitan has, those of experts.
  [[nodiscard]] bool has_experts() const {
    const std::string name = draft_.text("model").value_or("");
    const auto found = std::ranges::find(models_.files, name, &ShippedModel::file);
    return found != models_.files.end() && found->model.experts() != nullptr;
  }

  // What is compiled and cut over ranks, and experts that are, are simulated without the compiler.
  void bound_compilation() {
    const TomlValue* const compiled = draft_.find("runtime.switches.compile");
    if (compiled == nullptr || draft_.find("runtime.switches.memory_budget") != nullptr ||
        (draft_.integer("layout.tensor").value_or(1) == 1 && draft_.integer("layout.context").value_or(1) == 1 &&
         !has_experts()))
      return;
    if (const auto* part = std::get_if<std::string>(&compiled->value); part != nullptr && *part == "loss") return;
    const Place place = compiled->place;
    draft_.erase("runtime.switches.compile");
    draft_.remark_bounded("compile",
                          fmt::format("the figures are of layers that are not compiled, as {}; compiled ones save no "
                                      "more, and take less time",
                                      has_experts() ? "the model has experts" : "the model is cut over ranks"),
                          "compiled-layers", place);
  }

  void read_optimizer(Given table) {
    const std::string name = table.text("name").value_or("AdamW");
    if (name != "AdamW" && name != "Adam")
      table.tell(RemarkKind::NotExpressed, "name", not_modelled("is not modelled: torchtitan's Adam and AdamW are"));
    if (const auto kernels = table.text("implementation"))
      draft_.set("runtime.switches.implementation", *kernels, table.place("implementation"));
    else if (table.has("fused"))  // of releases before 0.2
      draft_.set("runtime.switches.implementation",
                 std::string(table.flag("fused").value_or(false) ? "fused" : "foreach"), table.place("fused"));
    if (const TomlValue* decay = table.take("weight_decay"))
      draft_.set("runtime.switches.weight_decay", decay->value, decay->place);
    // torchtitan/components/optimizer.py OptimizersInBackwardContainer: a step for each parameter as its gradient is
    // there, which goes then.
    if (table.flag("early_step_in_backward").value_or(false))
      table.tell_bounded("early_step_in_backward",
                         "the figures are of a step behind the backward pass, for which all gradients are held",
                         "optimizer-in-backward");
    table.no_matter(std::array<std::string_view, 4>{"lr", "beta1", "beta2", "eps"});
    table.refuse_the_rest(unknown);
  }

  void read_validation(Given table) {
    if (table.flag("enable").value_or(false))
      table.tell(RemarkKind::NotExpressed, "enable", not_modelled("validation between steps is not modelled"));
  }

  Given top_;
  const ShippedModels& models_;
  Draft& draft_;
};

}  // namespace

void read_titan(const TomlTable& document, const ShippedModels& models, Draft& draft) {
  TitanReader(document, models, draft).read();
}

void launch_by_run_train(Draft& draft) {
  constexpr const char* allocator = "expandable_segments:True";
  draft.set("runtime.allocator", std::string(allocator));
  draft.remark(RemarkKind::Assumed, "PYTORCH_ALLOC_CONF",
               fmt::format("{}, as torchtitan's run_train.sh sets it; runtime.allocator=\"\" is the native allocator's "
                           "defaults",
                           allocator));
}

}  // namespace tidemark::scenarios
