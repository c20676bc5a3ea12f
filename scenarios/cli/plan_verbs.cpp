#include "scenarios/cli/detail/plan_verbs.hpp"

#include <filesystem>
#include <ostream>
#include <utility>

#include <fmt/format.h>

#include "scenarios/cli/output.hpp"
#include "scenarios/cli/progress.hpp"
#include "scenarios/io/input_error.hpp"
#include "scenarios/plan/plan.hpp"
#include "scenarios/plan/space.hpp"
#include "scenarios/report/plan_text.hpp"

namespace tidemark {
namespace {

constexpr int yes = 0, no = 1;

TomlKey key(std::string name, std::int64_t n) { return {std::move(name), {}, {n, {}}}; }
TomlKey key(std::string name, double x) { return {std::move(name), {}, {x, {}}}; }
TomlKey key(std::string name, std::string text) { return {std::move(name), {}, {std::move(text), {}}}; }
TomlKey key(std::string name, TomlTable table) { return {std::move(name), {}, {std::move(table), {}}}; }

// A name alone is one of those that come along; anything else is a path from here.
std::string file_asked(const std::string& text, const char* folder, const char* ending) {
  if (std::filesystem::exists(text)) return std::filesystem::absolute(text).string();
  const std::filesystem::path shipped = std::filesystem::path(folder) / (text + ending);
  if (std::filesystem::exists(data_root() / shipped)) return shipped.string();
  return text;
}

// What large models train with today, where the command line does not say: no dropout, Transformer Engine's loss.
TomlTable base_document(const PlanArguments& a) {
  TomlTable train{{key("attention_dropout", 0.0), key("cross_entropy", std::string("te")),
                   key("global_batch", a.global_batch), key("hidden_dropout", 0.0), key("micro_batch", std::int64_t{1}),
                   key("sequence_length", a.sequence)}};
  TomlTable runtime;
  if (!a.headroom.empty()) runtime.keys.push_back(key("headroom", a.headroom));
  runtime.keys.push_back(key("name", std::string("megatron")));
  return {{key("cluster", file_asked(a.cluster, "clusters", ".toml")), key("gpus", a.gpus),
           key("model", file_asked(a.model, "models", ".json")), key("runtime", std::move(runtime)),
           key("train", std::move(train))}};
}

Space asked_space(const PlanArguments& a) {
  if (!a.scenario.empty()) {
    if (!a.model.empty() || !a.cluster.empty() || a.gpus != 0 || a.sequence != 0 || a.global_batch != 0 ||
        !a.headroom.empty())
      throw InputError(Problem{.file = a.scenario,
                               .message = "a scenario, and flags that say what it says",
                               .hint = "change them in the file, or leave the file out"});
    return read_space(a.scenario, data_root());
  }
  std::string missing;
  for (const auto& [name, given] : {std::pair("--model", !a.model.empty()), std::pair("--cluster", !a.cluster.empty()),
                                    std::pair("--gpus", a.gpus != 0), std::pair("--sequence", a.sequence != 0),
                                    std::pair("--global-batch", a.global_batch != 0)})
    if (!given) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
  if (!missing.empty())
    throw InputError(Problem{.file = "plan",
                             .message = fmt::format("{} left out", missing),
                             .hint = "give all five of --model --cluster --gpus --sequence --global-batch, or a file"});
  return space_of(base_document(a), "plan", {std::filesystem::current_path(), data_root()});
}

}  // namespace

CLI::App* add_plan(CLI::App& app, PlanArguments& a) {
  CLI::App* plan = app.add_subcommand("plan", "which layouts fit and which is best; why the others fall");
  plan->add_option("SPACE", a.scenario, "scenario file (TOML), perhaps with a table [space]");
  plan->add_option("--model", a.model, "a config.json, or the name of one that comes along")->type_name("FILE");
  plan->add_option("--cluster", a.cluster, "a cluster file, or the name of one that comes along")->type_name("FILE");
  plan->add_option("--gpus", a.gpus, "devices of the job")->check(CLI::Range(1, 1 << 20))->type_name("N");
  plan->add_option("--sequence", a.sequence, "tokens of a sequence")->check(CLI::Range(1, 1 << 24))->type_name("N");
  plan->add_option("--global-batch", a.global_batch, "sequences of a step")
      ->check(CLI::Range(1, 1 << 24))
      ->type_name("N");
  plan->add_option("--headroom", a.headroom, "what must stay free on every device")->type_name("SIZE");
  plan->add_option("--json", a.json, "write the answer as JSON to FILE, or '-': then text goes to stderr")
      ->type_name("FILE");
  plan->add_option("--csv", a.csv, "write best, front and near misses to FILE")->type_name("FILE");
  plan->add_option("--top", a.top, "how many of the best to list")->check(CLI::Range(1, 10000))->type_name("K");
  plan->add_flag("--show-space", a.show_space, "print the axes, their values and how many combinations they make");
  return plan;
}

int run_plan(const PlanArguments& a) {
  const Space space = asked_space(a);
  if (a.show_space) {
    answer(space_text(space), "", {});
    return yes;
  }
  const Plan found = plan(space, {.top = static_cast<std::size_t>(a.top)});
  if (!a.csv.empty()) write_file(a.csv, [&](std::ostream& file) { file << plan_csv(space, found); });
  answer(plan_text(space, found), a.json, [&] { return plan_json(space, found); });
  return found.best.empty() ? no : yes;
}

}  // namespace tidemark
