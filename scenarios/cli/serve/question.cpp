#include "scenarios/cli/serve/question.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "scenarios/cli/detail/job_options.hpp"
#include "scenarios/cli/serve/detail/page_job.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/convert/convert.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"

namespace tidemark::cli {
namespace {

constexpr std::size_t longest_field = 200, longest_text = 1U << 20;

std::optional<std::int64_t> number_in(const Fields& fields, std::string_view name) {
  const auto found = fields.find(name);
  if (found == fields.end()) return {};
  std::int64_t value = 0;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    throw InputError(Problem{.file = std::string(name),
                             .message = fmt::format("{} is not a whole number", in_quotes(text)),
                             .hint = "write digits alone"});
  return value;
}

std::string word_in(const Fields& fields, std::string_view name) {
  const auto found = fields.find(name);
  return found == fields.end() ? std::string() : found->second;
}

// What a scenario's own keys say, of fields that no option has.
std::vector<std::string> overrides_of(const Fields& fields, bool all) {
  std::vector<std::string> out;
  for (const FormField& field : form_fields()) {
    if (field.key.empty()) continue;
    const bool has_option = field.name != "schedule" && field.name != "offload" && field.name != "optimizer";
    const std::string value = word_in(fields, field.name);
    if (value.empty() || (has_option && !all)) continue;
    if (field.name == "offload") {
      if (value == "none") continue;
      out.push_back(fmt::format("offload.{}=cpu", value));
      if (value == "parameters") out.emplace_back("offload.optimizer=cpu");
    } else {
      out.push_back(fmt::format("{}={}", field.key, field.control == Control::Check ? "true" : value));
    }
  }
  return out;
}

// The file that a pasted model or cluster becomes: checkpoints have JSON.
std::string saved_name(std::string_view pasted, const Fields& fields) {
  if (pasted == pasted_cluster) return "cluster.toml";
  const std::string text = word_in(fields, pasted);
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != std::string::npos && text[begin] == '{' ? "config.json" : "model.toml";
}

LaunchOptions job_in(const Fields& fields) {
  LaunchOptions job;
  job.model = fields.contains(pasted_model) ? saved_name(pasted_model, fields) : word_in(fields, "model");
  job.cluster = fields.contains(pasted_cluster) ? saved_name(pasted_cluster, fields) : word_in(fields, "cluster");
  job.gpus = number_in(fields, "gpus");
  job.sequence = number_in(fields, "sequence");
  job.micro_batch = number_in(fields, "micro_batch");
  job.global_batch = number_in(fields, "global_batch");
  return job;
}

LayoutOptions layout_in(const Fields& fields) {
  LayoutOptions options;
  options.tensor = number_in(fields, "tensor");
  options.context = number_in(fields, "context");
  options.expert = number_in(fields, "expert");
  options.pipeline = number_in(fields, "pipeline");
  options.chunks = number_in(fields, "chunks");
  options.sequence_parallel = fields.contains("sequence_parallel");
  options.sharding = word_in(fields, "sharding");
  options.precision = word_in(fields, "precision");
  options.recompute = word_in(fields, "recompute");
  if (const std::string runtime = word_in(fields, "runtime"); !runtime.empty()) options.runtime = runtime;
  return options;
}

void refuse_missing(const LaunchOptions& job) {
  std::string missing;
  for (const auto& [name, given] :
       {std::pair("model", !job.model.empty()), std::pair("cluster", !job.cluster.empty()),
        std::pair("gpus", job.gpus.has_value()), std::pair("sequence", job.sequence.has_value())})
    if (!given) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
  if (!missing.empty())
    throw InputError(Problem{.file = "the form",
                             .message = fmt::format("{} not filled in", missing),
                             .hint = "a job needs a model, a cluster, a number of GPUs and a sequence length"});
}

void save(const std::string& name, const std::string& text) {
  std::ofstream file(name, std::ios::binary);
  file << text;
  if (!file.flush()) throw std::system_error(errno, std::generic_category(), name);
}

JobWords words_of_text(const Fields& fields, const std::string& text) {
  const std::string kind = word_in(fields, pasted_kind);
  if (std::ranges::find(pasted_kinds(), kind) == pasted_kinds().end())
    throw InputError(Problem{.file = std::string(pasted_kind),
                             .message = fmt::format("{} is not a kind of file", in_quotes(kind)),
                             .hint = "choose one of the list"});
  JobWords words{.file = "pasted" + kind, .beside = {}, .launch = {}};
  save(words.file, text);
  const LaunchOptions job = job_in(fields);
  if (is_foreign(words.file)) {
    words.launch = job;
    Fields layout = fields;
    for (const std::string_view said : {"sequence", "micro_batch", "global_batch"}) layout.erase(std::string(said));
    words.beside = overrides_of(layout, true);
  } else {
    words.beside = overrides_of(fields, true);
    if (job.gpus) words.beside.push_back(fmt::format("gpus={}", *job.gpus));
    if (!job.model.empty()) words.beside.push_back("model=" + job.model);
    if (!job.cluster.empty())
      words.beside.push_back("cluster=" +
                             (fields.contains(pasted_cluster) ? job.cluster : "clusters/" + job.cluster + ".toml"));
  }
  return words;
}

// A pasted model or cluster lies in this folder, which whoever copies the scenario has elsewhere.
void name_from_here(TomlTable& document) {
  const std::string here = std::filesystem::current_path().string() + '/';
  for (TomlKey& key : document.keys)
    if (auto* text = std::get_if<std::string>(&key.value.value); text != nullptr && text->starts_with(here))
      text->erase(0, here.size());
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '_' || c == '.' || c == '~' || c == '/';
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace

const std::vector<FormField>& form_fields() {
  static const std::vector<FormField> fields{
      {"model", "Model", "a name such as llama-3.1-70b or Qwen/Qwen3-32B", Control::Name},
      {"cluster", "Cluster", "the GPUs, their nodes and network", Control::Name},
      {"gpus", "GPUs", "of the whole job"},
      {"runtime",
       "Framework",
       "",
       Control::Choice,
       {"megatron", "torchtitan", "fsdp2", "fsdp", "deepspeed", "pytorch"}},
      {"sequence", "Sequence length", "tokens", Control::Number, {}, "train.sequence_length"},
      {"micro_batch", "Micro-batch", "sequences of one pass", Control::Number, {}, "train.micro_batch"},
      {"global_batch", "Global batch", "global batch size in sequences", Control::Number, {}, "train.global_batch"},
      {"tensor", "Tensor parallel (TP)", "", Control::Number, {}, "layout.tensor"},
      {"sequence_parallel", "Sequence parallel (SP)", "", Control::Check, {}, "layout.sequence_parallel"},
      {"pipeline", "Pipeline parallel (PP)", "stages", Control::Number, {}, "layout.pipeline"},
      {"schedule",
       "Schedule",
       "",
       Control::Choice,
       {"1f1b", "interleaved", "gpipe", "zb-h1", "looped-bfs", "interleaved-zb", "zb-v", "dualpipe-v"},
       "layout.schedule"},
      {"chunks", "Virtual stages", "chunks of a rank", Control::Number, {}, "layout.chunks"},
      {"context", "Context parallel (CP)", "", Control::Number, {}, "layout.context"},
      {"expert", "Expert parallel (EP)", "", Control::Number, {}, "layout.expert"},
      {"sharding",
       "Sharding over data-parallel ranks",
       "",
       Control::Choice,
       {"", "none", "zero1", "zero2", "zero3"},
       "layout.sharding"},
      {"recompute", "Recomputation", "", Control::Choice, {"none", "selective", "full"}, "train.recompute"},
      {"offload", "CPU offload", "", Control::Choice, {"none", "optimizer", "parameters", "activations"}, "offload"},
      {"precision", "Precision", "", Control::Choice, {"bf16", "fp16", "fp32"}, "train.precision"},
  };
  return fields;
}

const std::vector<std::string>& pasted_kinds() {
  static const std::vector<std::string> kinds{".sh", ".toml", ".yaml", ".json", ".py"};
  return kinds;
}

Fields checked(Fields fields) {
  std::erase_if(fields, [](const auto& field) { return field.second.empty(); });
  if (!fields.contains(pasted_text)) fields.erase(std::string(pasted_kind));
  // Browsers end a form's lines with \r\n, and a shell takes \r for a character.
  for (const std::string_view name : {pasted_text, pasted_model, pasted_cluster})
    if (const auto at = fields.find(name); at != fields.end())
      for (std::size_t end = 0; (end = at->second.find("\r\n", end)) != std::string::npos;) at->second.erase(end, 1);
  for (const auto& [name, value] : fields) {
    const bool pasted = name == pasted_text || name == pasted_model || name == pasted_cluster;
    const bool known = pasted || name == pasted_kind ||
                       std::ranges::any_of(form_fields(), [&](const FormField& f) { return f.name == name; });
    if (!known)
      throw InputError(
          Problem{.file = "the form", .message = fmt::format("{} is not a field of it", in_quotes(name)), .hint = ""});
    const std::size_t most = pasted ? longest_text : longest_field;
    if (value.size() > most)
      throw InputError(Problem{.file = name,
                               .message = fmt::format("is longer than {} bytes", most),
                               .hint = "use the command line: tidemark predict FILE"});
  }
  // What a field means where it is empty needs no saying twice: two forms of one question are one.
  for (const FormField& field : form_fields())
    if (const auto at = fields.find(field.name); field.control == Control::Choice && at != fields.end() &&
                                                 at->second == field.choices.front() && !fields.contains(pasted_text))
      fields.erase(at);
  return fields;
}

JobWords words_of(const Fields& fields) {
  for (const std::string_view pasted : {pasted_model, pasted_cluster})
    if (const auto text = fields.find(pasted); text != fields.end()) save(saved_name(pasted, fields), text->second);
  if (const auto text = fields.find(pasted_text); text != fields.end()) return words_of_text(fields, text->second);
  JobWords words{.file = {}, .beside = overrides_of(fields, false), .launch = job_in(fields)};
  words.layout = layout_in(fields);
  words.verb = "serve";
  refuse_missing(words.launch);
  return words;
}

JobRequest job_of(const JobWords& words) {
  JobRequest made = requested_job(words);
  name_from_here(made.document);
  return made;
}

std::vector<Fields> neighbours(const Fields& fields) {
  std::vector<Fields> out;
  if (fields.contains(pasted_text)) return out;
  const auto with = [&](std::string_view name, const std::string& value) {
    Fields next = fields;
    if (value.empty())
      next.erase(std::string(name));
    else
      next[std::string(name)] = value;
    if (next = checked(std::move(next)); next != fields && std::ranges::find(out, next) == out.end())
      out.push_back(std::move(next));
  };
  for (const std::string_view name :
       {"micro_batch", "tensor", "pipeline", "gpus", "context", "expert", "chunks", "sequence", "global_batch"}) {
    const auto at = fields.find(name);
    std::int64_t value = 1;
    if (at != fields.end()) {
      const std::string& text = at->second;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc() || end != text.data() + text.size()) continue;
    } else if (name == "sequence" || name == "gpus" || name == "global_batch") {
      continue;
    }
    if (value > 0 && value < (std::int64_t{1} << 30)) with(name, std::to_string(2 * value));
    if (value > 1) with(name, std::to_string(value / 2));
  }
  for (const FormField& field : form_fields())
    if (field.control == Control::Choice && field.name != "runtime")
      for (const std::string& choice : field.choices) with(field.name, choice);
  with("sequence_parallel", fields.contains("sequence_parallel") ? "" : "on");
  for (const FormField& field : form_fields())
    if (field.name == "runtime")
      for (const std::string& choice : field.choices) with(field.name, choice);
  return out;
}

std::string query_of(const Fields& fields) {
  std::string out;
  for (const auto& [name, value] : fields)
    if (name != pasted_text && name != pasted_kind && name != pasted_model && name != pasted_cluster)
      out += fmt::format("{}{}={}", out.empty() ? "" : "&", escaped(name), escaped(value));
  return out;
}

}  // namespace tidemark::cli
