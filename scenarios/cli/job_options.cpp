#include "scenarios/cli/detail/job_options.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/shipped_names.hpp"
#include "scenarios/formats/quantity.hpp"

namespace tidemark::cli {
namespace {

template <class T>
void add(TomlTable& table, const char* name, T value) {
  table.keys.push_back({name, {}, {std::move(value), {}}});
}
void add_given(TomlTable& table, const char* name, const std::optional<std::int64_t>& value) {
  if (value) add(table, name, *value);
}
void add_given(TomlTable& table, const char* name, const std::string& value) {
  if (!value.empty()) add(table, name, value);
}
void add_table(TomlTable& document, const char* name, TomlTable table) {
  std::ranges::sort(table.keys, {}, &TomlKey::name);
  if (!table.keys.empty()) add(document, name, std::move(table));
}

}  // namespace

bool LayoutOptions::any() const {
  return runtime != "megatron" || !headroom.empty() || tensor || context || expert || pipeline || chunks ||
         sequence_parallel || !sharding.empty() || !precision.empty() || !recompute.empty();
}

void add_layout_options(CLI::App& verb, LayoutOptions& options) {
  const std::string group = "Without a file, in addition to the options above";
  const auto number = [&](const char* name, std::optional<std::int64_t>& value, const char* what) {
    verb.add_option(name, value, what)->type_name("N")->group(group);
  };
  const auto word = [&](const char* name, std::string& value, const char* type, const char* what) {
    verb.add_option(name, value, what)->type_name(type)->group(group);
  };
  word("--runtime", options.runtime, "NAME", "megatron (the default), pytorch, fsdp, fsdp2, torchtitan or deepspeed");
  number("--tensor", options.tensor, "tensor-parallel size");
  verb.add_flag("--sequence-parallel", options.sequence_parallel,
                "split activations along the sequence where matrices are not split")
      ->group(group);
  number("--context", options.context, "context-parallel size");
  number("--expert", options.expert, "expert-parallel size");
  number("--pipeline", options.pipeline, "pipeline-parallel size");
  number("--chunks", options.chunks, "model chunks of a pipeline rank (virtual pipeline stages)");
  word("--sharding", options.sharding, "KIND", "what data-parallel ranks shard: none, zero1, zero2 or zero3");
  word("--precision", options.precision, "KIND", "bf16 (the default), fp16 or fp32");
  word("--recompute", options.recompute, "KIND", "none, full or selective");
  word("--headroom", options.headroom, "SIZE", "memory to keep free on every device, such as \"2 GiB\"");
}

TomlTable document_of(const LaunchOptions& job, const LayoutOptions& o, const std::string& verb) {
  std::string missing;
  for (const auto& [name, given] :
       {std::pair("--model", !job.model.empty()), std::pair("--cluster", !job.cluster.empty()),
        std::pair("--gpus", job.gpus.has_value()), std::pair("--sequence", job.sequence.has_value())})
    if (!given) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
  if (!missing.empty())
    refuse("tidemark " + verb, fmt::format("neither a scenario file nor {}", missing),
           fmt::format("name a file, or give --model --cluster --gpus --sequence; see tidemark {} --help", verb));

  TomlTable layout, train, runtime, document;
  add_given(layout, "tensor", o.tensor);
  if (o.sequence_parallel) add(layout, "sequence_parallel", true);
  add_given(layout, "context", o.context);
  add_given(layout, "expert", o.expert);
  add_given(layout, "pipeline", o.pipeline);
  add_given(layout, "chunks", o.chunks);
  add_given(layout, "sharding", o.sharding);
  add(train, "sequence_length", *job.sequence);
  add(train, "micro_batch", job.micro_batch.value_or(1));
  add_given(train, "global_batch", job.global_batch);
  add_given(train, "precision", o.precision);
  add_given(train, "recompute", o.recompute);
  if (o.runtime == "megatron") {
    // What large models train with today: no dropout, Transformer Engine's loss.
    add(train, "cross_entropy", std::string("te"));
    add(train, "hidden_dropout", 0.0);
    add(train, "attention_dropout", 0.0);
  }
  add(runtime, "name", o.runtime);
  if (!o.headroom.empty()) add(runtime, "headroom", text(requested_size("--headroom", o.headroom)));

  std::vector<Problem> problems;
  std::string model = named_in_scenario("--model", job.model, models_shipped, problems);
  std::string cluster = named_in_scenario("--cluster", job.cluster, clusters_shipped, problems);
  if (!problems.empty()) throw InputError(std::move(problems));
  add(document, "cluster", std::move(cluster));
  add(document, "gpus", *job.gpus);
  add_table(document, "layout", std::move(layout));
  add(document, "model", std::move(model));
  add_table(document, "runtime", std::move(runtime));
  add_table(document, "train", std::move(train));
  return document;
}

}  // namespace tidemark::cli
