#include "scenarios/validate/validation.hpp"

#include <algorithm>
#include <array>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "kernels/execute/executor.hpp"
#include "kernels/execute/gpu/device_job.hpp"
#include "kernels/execute/host_backend.hpp"
#include "kernels/execute/host_times.hpp"
#include "kernels/execute/process_memory.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/prediction.hpp"
#include "sim/program/liveness.hpp"

namespace tidemark::scenarios {
namespace {

// Resident memory of this process beyond what it held before the run.
class ResidentProbe {
 public:
  ResidentProbe() : anonymous_(resident_anonymous()) {
    reset_resident_peak();
    before_ = resident_by_kind();
  }
  [[nodiscard]] Bytes now() const { return resident_anonymous() - anonymous_; }
  void step_ended() {}
  // Pages of programs and of what MPI shares between processes come to be resident too, and stay.
  [[nodiscard]] Bytes peak() {
    const ResidentByKind kinds = resident_by_kind();
    const Bytes grown = kinds.file + kinds.shared - before_.file - before_.shared;
    reset_resident_peak();
    return kinds.peak - before_.all - grown;
  }

 private:
  Bytes anonymous_;
  ResidentByKind before_;
};

std::string host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

// Throws on all ranks alike.
void refuse_if_any(World& world, const std::string& mine) {
  const std::string first = world.first_said(mine);
  if (!first.empty())
    throw InputError(Problem{
        .file = "validate", .message = first.substr(0, first.find('\n')), .hint = first.substr(first.find('\n') + 1)});
}

// What ranks of one machine need together must be there before any of them starts to fill it.
void refuse_what_does_not_fit(World& world, const MemoryPoints& predicted, const PageScale& scale) {
  const std::string mine = fmt::format("{} {}", predicted.peak.resident.count(), host_name());
  std::string all;
  for (const std::string& one : world.gather(mine)) all += one + '\n';
  all = world.broadcast(all);
  std::int64_t needed = 0;
  for (std::size_t start = 0; start < all.size();) {
    const std::size_t end = all.find('\n', start), space = all.find(' ', start);
    if (all.substr(space + 1, end - space - 1) == host_name()) needed += std::stoll(all.substr(start, space - start));
    start = end + 1;
  }
  const std::int64_t available = available_memory().count();
  const double mib = 1 << 20;
  std::string why;
  if (needed > available / 10 * 9)
    why = fmt::format("the ranks on {} would hold {:.0f} MiB together, and {:.0f} MiB are available\ntry --scale {}",
                      host_name(), static_cast<double>(needed) / mib, static_cast<double>(available) / mib,
                      scale.divisor * (needed / (available / 2) + 1));
  refuse_if_any(world, why);
}

// Every peer once, so that connections are there before memory is measured.
void warm_up(World& world) {
  std::vector<char> sent(1 << 16), received(1 << 16);
  for (std::int32_t step = 1; step < world.size(); ++step) {
    const Rank to{(world.rank().value + step) % world.size()};
    const Rank from{(world.rank().value + world.size() - step) % world.size()};
    for (const std::size_t bytes : {std::size_t{1}, sent.size()})
      world.exchange(std::array{Message{Direction::Send, to, World::first_payload_tag, sent.data(), bytes},
                                Message{Direction::Receive, from, World::first_payload_tag, received.data(), bytes}},
                     "warming up");
  }
  world.barrier();
}

// Where no rank has found anything to spoil; it is enough that one has.
void refuse_if_none(World& world, Mutation mutation, bool found) {
  if (!world.first_said(found ? "found" : "").empty()) return;
  throw InputError(Problem{.file = "--mutate",
                           .message = fmt::format("{} has nothing to change in this job",
                                                  mutation_names[static_cast<std::size_t>(mutation)]),
                           .hint = "more ranks, axes, experts' ranks or larger buffers give it something"});
}

void refuse_allocator_settings(const Scenario& scenario) {
  if (scenario.runtime.allocator.empty()) return;
  throw InputError(Problem{.file = scenario.name,
                           .message = "validate runs the allocator with its default settings",
                           .hint = "leave allocator out of [runtime]"});
}

}  // namespace

bool Validation::memory_agrees() const { return std::ranges::all_of(ranks, &RankAgreement::agrees); }
bool Validation::flows() const {
  return std::ranges::none_of(flow, [](const FlowNote& note) { return note.reason.empty(); });
}
bool Validation::agrees() const { return memory_agrees() && flows() && std::ranges::all_of(math, &MathCheck::agrees); }

std::string device_job_file(const Scenario& scenario) {
  refuse_allocator_settings(scenario);
  const Job job(executed(scenario));
  DeviceJob device_job{job.scenario.name, lower(job.lowering()), job.costs};
  return text(device_job);
}

std::vector<RankAgreement> run_and_compare(const Workload& workload, World& world, const ValidateOptions& options) {
  const Rank me = world.rank();
  Workload written = workload;
  Program predicted = written.program(me);
  for (Program& program : written.programs) program = without_frees(std::move(program));
  const Expectation expectation(written, options.scale);
  const std::vector<std::size_t> moments = sample_moments(predicted, options.scale);

  // What runs, and what is predicted: the same, unless something is wrong on purpose.
  Program executed = written.program(me);
  std::vector<Group> groups = groups_of(written, me);
  if (spoils_prediction(options.mutation)) {
    std::optional<Program> wrong = mutated_prediction(predicted, options.mutation, options.scale, moments);
    refuse_if_none(world, options.mutation, wrong.has_value());
    if (wrong) predicted = std::move(*wrong);
  } else if (options.mutation == Mutation::DropCollective) {
    const std::optional<Workload> wrong = without_a_collective(written);
    refuse_if_none(world, options.mutation, wrong.has_value());
    if (wrong) executed = wrong->program(me);
  } else if (options.mutation == Mutation::WrongCount) {
    const std::optional<GroupCall> dispatch = first_dispatch(written);
    refuse_if_none(world, options.mutation, dispatch.has_value());
    if (dispatch) executed = with_wrong_count(written, *dispatch, me);
  } else if (options.mutation != Mutation::None && !is_of_meaning(options.mutation)) {
    std::optional<std::vector<Group>> wrong = mutated_groups(written, me, options.mutation);
    refuse_if_none(world, options.mutation, wrong.has_value());
    if (wrong) groups = std::move(*wrong);
  }

  RankAgreement mine;
  mine.rank = me;
  mine.host = host_name();
  mine.predicted = predicted_points(predicted, options.scale, moments);
  refuse_what_does_not_fit(world, mine.predicted, options.scale);

  HostBackend backend(world, executed.buffers, options.scale,
                      {.reading =
                           [&](std::size_t op, BufferId buffer) {
                             return fmt::format("{} read by {}", describe(executed, buffer), describe(executed, op));
                           },
                       .author = [&](std::uint64_t word) { return expectation.author(word); }});
  warm_up(world);
  const HostRates rates = measured_host_rates(world);
  ResidentProbe probe;
  Executor executor(executed, groups, expectation, me, backend, probe);
  executor.progress = options.progress;
  RunRecord run = executor.run(moments);
  mine.measured = std::move(run.memory);
  mine.measured_steps = std::move(run.steps);
  mine.findings = std::move(run.findings);

  const std::vector<std::string> records = world.gather(text(mine));
  if (records.empty()) return {std::move(mine)};
  std::vector<RankAgreement> ranks;
  for (const std::string& record : records) ranks.push_back(parse_agreement(record));
  const std::vector<std::vector<Duration>> steps = host_step_times(workload, options.scale, rates);
  for (std::size_t r = 0; r < steps.size(); ++r) ranks[r].predicted_steps = steps[r];
  return ranks;
}

Validation validate(const Scenario& scenario, World& world, const ValidateOptions& options) {
  refuse_allocator_settings(scenario);
  const Job job(executed(scenario));
  const Workload workload = lower(job.lowering());
  Validation answer{job.scenario, options, run_and_compare(workload, world, options), false, {}, {}, {}, {}};
  if (world.rank().value == 0) answer.flow = flow_check(workload, flows_of(job.runtime));
  const auto here = std::count_if(answer.ranks.begin(), answer.ranks.end(),
                                  [](const RankAgreement& rank) { return rank.host == host_name(); });
  answer.oversubscribed = here > static_cast<std::ptrdiff_t>(std::thread::hardware_concurrency());
  return answer;
}

}  // namespace tidemark::scenarios
