#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "scenarios/cli/arguments.hpp"
#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/terminal/detail/help.hpp"
#include "scenarios/cli/terminal/detail/usage.hpp"
#include "scenarios/cli/terminal/output.hpp"
#include "scenarios/cli/verbs/detail/verbs.hpp"
#include "scenarios/formats/output_file.hpp"
#include "scenarios/recordings/snapshot_replay.hpp"
#include "scenarios/report/text/replay_text.hpp"

namespace tidemark::cli {
namespace {

struct ReplayArguments {
  SnapshotQuestion snapshot;
  std::string capacity, json;
};

int run(const ReplayArguments& requested) {
  SnapshotQuestion question = requested.snapshot;
  if (!requested.capacity.empty()) question.capacity = requested_size("--capacity", requested.capacity);
  if (const std::optional<double> fraction = question.memory_fraction; fraction && !(*fraction >= 0 && *fraction <= 1))
    refuse("--memory-fraction", fmt::format("{:g} is not a part of the device", *fraction), "between 0 and 1");
  check_outputs({{"--json", requested.json}}, {question.path});
  const SnapshotReplay replayed = replay_snapshot(question);
  answer(replay_text(replayed), requested.json, [&] { return replay_json(replayed); });
  return replayed.yes() ? yes : no;
}

}  // namespace

Verb replay_verb(CLI::App& app) {
  const auto requested = std::make_shared<ReplayArguments>();
  SnapshotQuestion& snapshot = requested->snapshot;
  CLI::App* verb = app.add_subcommand(
      "replay", "replay a PyTorch memory snapshot through the emulated allocator under other settings");
  verb->add_option("SNAPSHOT", snapshot.path,
                   "file of torch.cuda.memory._dump_snapshot, or the same compressed with gzip")
      ->required();
  add_json(*verb, requested->json);
  verb->add_option("--device", snapshot.device, "device to replay (default: the one with a trace)")->type_name("N");
  verb->add_option("--alloc-conf", snapshot.allocator_conf, "value of PYTORCH_CUDA_ALLOC_CONF to replay with")
      ->type_name("TEXT");
  verb->add_option("--capacity", requested->capacity, "device memory that the allocator can get, such as \"79.1 GiB\"")
      ->type_name("SIZE");
  verb->add_option("--memory-fraction", snapshot.memory_fraction, "fraction of it that the process may use")
      ->type_name("F");
  add_examples(*verb, {{"predict llama-3.1-8b-8xh100 --snapshot snapshot.pickle",
                        "writes a snapshot to compare with, without a real run"},
                       {"replay snapshot.pickle --alloc-conf expandable_segments:True",
                        "shows what the allocator would reserve with other settings"}});
  return {verb, [requested] { return run(*requested); }, nullptr};
}

}  // namespace tidemark::cli
