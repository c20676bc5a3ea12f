#include "scenarios/calibrate/calibrate.hpp"

#include <algorithm>
#include <memory>
#include <sstream>

#include <fmt/format.h>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/text_file.hpp"
#include "scenarios/plan/journal.hpp"
#include "scenarios/plan/tasks.hpp"

namespace tidemark::scenarios {
namespace {

using execute::World;

// Rank 0 names a task, everyone does it, and rank 0 hears what came of it.
class WorldRunner final : public TaskRunner {
 public:
  WorldRunner(World& world, const HostTasks& requested) : world_(world), requested_(requested) {}

  std::vector<std::string> run(const std::vector<std::string>& tasks, const Done& done) override {
    std::vector<std::string> results;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const std::string task = world_.broadcast(tasks[i]);
      std::vector<std::vector<Point>> ranks;
      for (const std::string& one : world_.gather(text(measured(task, requested_, world_))))
        ranks.push_back(parse_points(one));
      results.push_back(text(merged(ranks)));
      if (done) done(i, results.back());
    }
    return results;
  }

  // Until rank 0 has no more.
  void serve() {
    for (;;) {
      const std::string task = world_.broadcast({});
      if (task.empty()) return;
      static_cast<void>(world_.gather(text(measured(task, requested_, world_))));
    }
  }

 private:
  World& world_;
  const HostTasks& requested_;
};

}  // namespace

namespace {

// By rank; at every rank.
std::vector<std::string> host_of_rank(World& world, const std::string& mine) {
  std::string all;
  for (const std::string& one : world.gather(mine)) all += one + '\n';
  std::istringstream lines(world.broadcast(all));
  std::vector<std::string> hosts;
  for (std::string line; std::getline(lines, line);) hosts.push_back(line);
  return hosts;
}

std::vector<std::string> each_once(const std::vector<std::string>& all) {
  std::vector<std::string> found;
  for (const std::string& one : all)
    if (std::find(found.begin(), found.end(), one) == found.end()) found.push_back(one);
  return found;
}

}  // namespace

std::vector<std::string> hosts_of(World& world, const std::string& mine) {
  return each_once(host_of_rank(world, mine));
}

std::int32_t ranks_per_host(World& world, const std::string& mine) {
  const std::vector<std::string> of_rank = host_of_rank(world, mine), hosts = each_once(of_rank);
  const std::size_t each = of_rank.size() / hosts.size();
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank)
    if (rank / each >= hosts.size() || of_rank[rank] != hosts[rank / each]) return 0;
  return static_cast<std::int32_t>(each);
}

std::optional<std::vector<Point>> calibrate(World& world, const CalibrateOptions& options,
                                            const std::vector<std::string>& hosts, const PlanProgress& progress) {
  WorldRunner everyone(world, options.tasks);
  if (world.rank().value != 0) {
    everyone.serve();
    return std::nullopt;
  }
  const std::vector<std::string> tasks = task_list(options.tasks, world);
  std::vector<std::string> results;
  try {
    std::unique_ptr<TaskRunner> journal;
    if (!options.journal.empty()) {
      Question question{
          fmt::format("calibrate\n{} ranks on {}{}\n{} repeats\n{}\n", world.size(), fmt::join(hosts, ", "),
                      options.tasks.ranks_per_node > 0 ? fmt::format(", {} a node", options.tasks.ranks_per_node) : "",
                      options.tasks.repeats, fmt::join(tasks, "\n")),
          {},
          options.release};
      for (const std::string& file : options.tasks.scenarios) question.files.emplace(file, read_text(file));
      journal = journal_runner(everyone, options.journal, question);
    }
    TaskRunner& runner = journal ? *journal : everyone;
    std::int64_t done = 0;
    results = runner.run(tasks, [&](std::size_t, const std::string&) {
      if (progress) progress("measuring", ++done, static_cast<std::int64_t>(tasks.size()));
    });
  } catch (const InputError&) {
    static_cast<void>(world.broadcast({}));  // the others go home
    throw;
  }
  static_cast<void>(world.broadcast({}));
  // What two tasks measured counts once, with both.
  std::vector<std::vector<Point>> all;
  for (const std::string& result : results) all.push_back(parse_points(result));
  return merged(all);
}

}  // namespace tidemark::scenarios
