#include "scenarios/calibrate/host_tasks.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "kernels/arithmetic/op_clock.hpp"
#include "kernels/cost/calibrated_kernel.hpp"
#include "kernels/math/engine/calculator.hpp"
#include "scenarios/calibrate/reference_benchmarks.hpp"
#include "scenarios/calibrate/small_programs.hpp"
#include "scenarios/cluster/calibration_names.hpp"
#include "scenarios/predict/job.hpp"
#include "scenarios/validate/arithmetic/rank_training.hpp"

namespace tidemark::scenarios {
namespace {

using execute::Group;
using execute::World;

constexpr std::array<std::int64_t, 5> product_sizes{16, 48, 128, 384, 1024};
constexpr std::int64_t most_multiply_adds = std::int64_t{1} << 28;  // some 5 ms of a core
constexpr std::array<std::int64_t, 4> sequences{16, 64, 256, 1024};
constexpr std::array<std::int64_t, 3> widths{8, 32, 128};
constexpr std::int64_t attention_heads = 4;

std::vector<Bytes> transfer_sizes(bool brief) {
  std::vector<Bytes> sizes;
  const std::int64_t most = brief ? 1024 : std::int64_t{16} << 20;
  for (std::int64_t size = 64; size <= most; size *= 2) sizes.emplace_back(size);
  return sizes;
}

/// How long each timed place of a program took, warm-up left out, on this rank.
std::vector<Duration> times_of(const SmallProgram& small, const std::vector<Group>& groups, World& world,
                               std::size_t warm_up) {
  execute::OpClock clock;
  math::HostCalculator host;
  execute::ArithmeticRank rank(small.program, groups, world, host, math::Storage::Native,
                               {.initial = [](const Mark&, std::string_view, std::int64_t) { return 0.01; },
                                .route = {},
                                .draws = {},
                                .before_mark = {},
                                .after_launch = {},
                                .after_op = clock.hook()});
  world.barrier();
  clock.start();
  rank.run();
  std::vector<Duration> times;
  for (std::size_t i = warm_up; i < small.timed.size(); ++i) {
    const auto at = [&](std::size_t op) { return clock.times().begin() + static_cast<std::ptrdiff_t>(op); };
    times.push_back(std::accumulate(at(small.timed[i].begin), at(small.timed[i].end), Duration{}));
  }
  return times;
}

Group group_of(std::int32_t members, Rank rank, std::int32_t stride = 1) {
  const Workload workload{{}, {}, {{"measured", {{members, stride, 1}}}}};
  return execute::groups_of(workload, rank).front();
}

std::int32_t node_size(const HostTasks& requested, const World& world) {
  return requested.ranks_per_node > 0 ? requested.ranks_per_node : world.size();
}

// How many nodes each group of neighbouring ranks is on; nothing where groups differ.
std::optional<std::int32_t> nodes_of(std::int32_t members, std::int32_t node) {
  if (node % members == 0) return 1;
  if (members % node == 0) return members / node;
  return std::nullopt;
}

std::vector<Point> products(const std::vector<std::string>& words, const HostTasks& requested, World& world) {
  const DType dtype = value_of(calibrated_types, words[1]);
  const std::int64_t m = std::stoll(words[2]);
  std::vector<Point> points;
  for (const std::int64_t n : product_sizes)
    for (const std::int64_t k : product_sizes) {
      if (m * n * k > most_multiply_adds) continue;
      const std::vector<Duration> ways = times_of(product_program(dtype, m, n, k, requested.repeats + 1), {}, world, 3);
      std::vector<Duration> times;
      for (std::size_t i = 0; i + 2 < ways.size(); i += 3) times.push_back((ways[i] + ways[i + 1] + ways[i + 2]) / 3);
      points.push_back(point_of(fmt::format("kernel matmul {} 1 {} {} {}", words[1], m, n, k), std::move(times)));
    }
  return points;
}

std::vector<Point> attentions(const std::vector<std::string>& words, const HostTasks& requested, World& world) {
  const DType dtype = value_of(calibrated_types, words[1]);
  const std::int64_t width = std::stoll(words[2]);
  std::vector<Point> points;
  for (const std::int64_t s : sequences) {
    if (attention_heads * s * s * width > most_multiply_adds) continue;
    const std::vector<Duration> both =
        times_of(attention_program(dtype, 1, attention_heads, s, width, requested.repeats + 1), {}, world, 2);
    std::array<std::vector<Duration>, 2> passes;
    for (std::size_t i = 0; i < both.size(); ++i) passes[i % 2].push_back(both[i]);
    const std::string sizes = fmt::format("{} 1 {} {} {} {} 1", words[1], attention_heads, s, s, width);
    points.push_back(point_of("kernel attention " + sizes, passes[0]));
    points.push_back(point_of("kernel attention_backward " + sizes, passes[1]));
  }
  return points;
}

std::vector<Point> collectives(const std::vector<std::string>& words, const HostTasks& requested, World& world) {
  const CollectiveKind kind = value_of(collective_kind_names, words[1]);
  const auto members = static_cast<std::int32_t>(std::stol(words[2]));
  const std::int32_t node = node_size(requested, world);
  const bool apart = words.size() > 3;  // a member a node
  const std::int32_t nodes = apart ? members : nodes_of(members, node).value();
  std::vector<Point> points;
  for (const Bytes size : transfer_sizes(requested.brief))
    points.push_back(point_of(fmt::format("collective {} {} {} {}", words[1], members, nodes, size.count()),
                              times_of(collective_program(kind, members, size, requested.repeats + 1),
                                       {group_of(members, world.rank(), apart ? node : 1)}, world, 1)));
  return points;
}

// Of a way there and back, half: neighbours on a node, all pairs at once; between nodes their first ranks, because a
// message's time is that of one alone. Others, such as an odd rank out, have nobody to talk to.
std::vector<Point> messages(const HostTasks& requested, World& world, bool between_nodes) {
  const std::int32_t node = node_size(requested, world), stride = between_nodes ? node : 1;
  const std::int32_t rank = world.rank().value, place = rank / stride % 2;
  const std::int32_t first = rank - place * stride, second = first + stride;
  const bool talks = second < world.size() && (between_nodes ? rank % node == 0 : first / node == second / node);
  std::vector<Point> points;
  for (const Bytes size : transfer_sizes(requested.brief)) {
    if (!talks) {
      world.barrier();
      continue;
    }
    std::vector<Duration> times = times_of(message_program(place == 0, size, requested.repeats + 1),
                                           {group_of(2, world.rank(), stride)}, world, 1);
    for (Duration& time : times) time = time / 2;
    points.push_back(point_of(fmt::format("message {} {}", between_nodes ? 1 : 0, size.count()), std::move(times)));
  }
  return points;
}

std::vector<Point> copies(const HostTasks& requested, World& world) {
  std::vector<Point> points;
  for (const bool to_device : {true, false})
    for (const Bytes size : transfer_sizes(requested.brief))
      points.push_back(point_of(fmt::format("copy {} {}", to_device ? 1 : 0, size.count()),
                                times_of(copy_program(to_device, size, requested.repeats + 1), {}, world, 1)));
  return points;
}

// Several jobs of fewer ranks run side by side, each in a world of its own ranks.
class PartOfWorld final : public World {
 public:
  PartOfWorld(World& whole, std::int32_t size) : whole_(whole), size_(size) {}
  [[nodiscard]] Rank rank() const override { return {whole_.rank().value % size_}; }
  [[nodiscard]] std::int32_t size() const override { return size_; }
  void exchange(std::span<const execute::Message> messages, const std::string& doing) override {
    std::vector<execute::Message> of_whole(messages.begin(), messages.end());
    for (execute::Message& m : of_whole) m.peer.value += whole_.rank().value / size_ * size_;
    whole_.exchange(of_whole, doing);
  }
  void listen() override { whole_.listen(); }
  void report_failure(const std::string& why) override { whole_.report_failure(why); }

 private:
  World& whole_;
  std::int32_t size_;
};

// How long each launch of the last steps took, with freeing the results that are its alone.
std::map<std::size_t, Duration> times_of_launches(const Program& program, const std::vector<Duration>& times) {
  std::vector<std::size_t> writer(static_cast<std::size_t>(program.buffers));  // op + 1; 0: nobody yet
  std::map<std::size_t, Duration> launches;
  std::int32_t step = 0;
  for (std::size_t op = 0; op < program.ops.size(); ++op) {
    if (const auto* const mark = std::get_if<Mark>(&program.ops[op])) step = mark->step;
    if (const auto* const alloc = std::get_if<Alloc>(&program.ops[op])) writer[alloc->buffer.index()] = 0;
    if (const auto* const launch = std::get_if<Launch>(&program.ops[op]); launch != nullptr) {
      for (const Operand& output : program[launch->outputs])
        if (writer[output.buffer.index()] == 0) writer[output.buffer.index()] = op + 1;
      if (step > 1) launches[op] = times[op];
    }
    if (const auto* const free = std::get_if<Free>(&program.ops[op]))
      if (const auto its = launches.find(writer[free->buffer.index()] - 1); its != launches.end())
        its->second += times[op];
  }
  return launches;
}

// Kernels where they stand in a job, in its last steps: each with what giving its results' memory back takes, which is
// theirs alone.
std::vector<Point> kernels_in_place(const std::string& name, const HostTasks& requested, World& world) {
  const Scenario scenario = reference_benchmark(name, requested.data_root);
  const Job job(scenario);
  PartOfWorld part(world, scenario.gpus);
  const RankTraining training(job, part.rank(), job);
  const Program& program = training.program();
  math::HostCalculator host;
  std::map<std::string, std::vector<Duration>> found;
  for (std::int64_t repeat = 0; repeat <= std::max<std::int64_t>(requested.repeats / 3, 2); ++repeat) {
    world.barrier();
    const std::vector<Duration> times = training.op_times(part, host, math::Storage::Native);
    if (repeat == 0) continue;  // it finds the memory
    const std::map<std::size_t, Duration> launches = times_of_launches(program, times);
    // Of one kernel's launches in a run, the mean: steps are made of all of them, first and cold ones too.
    struct Sum {
      Duration all;
      std::int64_t times = 0;
    };
    std::map<std::string, Sum> sums;
    for (const auto& [op, time] : launches) {
      const Kernel& kernel = program[std::get<Launch>(program.ops[op]).kernel];
      const bool draws =
          (kernel.operation == Operation::Attention || kernel.operation == Operation::AttentionBackward) &&
          kernel.attributes[2] > 0;
      if (draws) continue;
      Sum& sum = sums[fmt::format("kernel {} {} {}", sim::name(kernel.operation),
                                  sim::name(kernels::calibrated_type(program, kernel)),
                                  fmt::join(kernels::calibrated_sizes(program, kernel), " "))];
      sum.all += time;
      ++sum.times;
    }
    for (const auto& [what, sum] : sums) found[what].push_back(sum.all / sum.times);
  }
  std::vector<Point> points;
  for (auto& [what, times] : found) points.push_back(point_of(what, std::move(times)));
  return points;
}

}  // namespace

std::vector<std::string> task_list(const HostTasks& requested, const World& world) {
  std::vector<std::string> tasks{"idle"};
  for (const std::string_view dtype : {"fp32", "bf16"}) {
    if (requested.brief && dtype == "bf16") continue;
    for (const std::int64_t m : product_sizes)
      if (!requested.brief || m <= 48) tasks.push_back(fmt::format("products {} {}", dtype, m));
    for (const std::int64_t width : widths)
      if (!requested.brief || width <= 8) tasks.push_back(fmt::format("attention {} {}", dtype, width));
  }
  if (!requested.brief)
    for (const std::int64_t m : product_sizes) tasks.push_back(fmt::format("products fp64 {}", m));
  tasks.emplace_back("copies");
  const std::int32_t node = node_size(requested, world), nodes = world.size() / node;
  if (node > 1) tasks.emplace_back("messages");
  if (nodes > 1) tasks.emplace_back("messages between nodes");
  for (const auto& kind : collective_kind_names) {
    for (std::int32_t members = 2; members <= world.size(); ++members)
      if (world.size() % members == 0 && nodes_of(members, node))
        tasks.push_back(fmt::format("collectives {} {}", kind.text, members));
    for (std::int32_t members = 2; members <= nodes && node > 1; ++members)
      if (nodes % members == 0) tasks.push_back(fmt::format("collectives {} {} apart", kind.text, members));
  }
  for (const std::string& name : reference_benchmark_names(world.size(), requested.brief))
    tasks.push_back("kernels of " + name);
  for (const std::string& file : requested.scenarios) tasks.push_back("kernels of " + file);
  return tasks;
}

std::vector<Point> measured(const std::string& task, const HostTasks& requested, World& world) {
  const std::vector<std::string> words = words_of(task);
  if (words[0] == "idle") return {point_of("op", times_of(idle_program(200), {}, world, 1))};
  if (words[0] == "products") return products(words, requested, world);
  if (words[0] == "attention") return attentions(words, requested, world);
  if (words[0] == "copies") return copies(requested, world);
  if (words[0] == "messages") return messages(requested, world, words.size() > 1);
  if (words[0] == "collectives") return collectives(words, requested, world);
  constexpr std::string_view of = "kernels of ";
  ensure(task.starts_with(of), "tasks are those of the list");
  return kernels_in_place(task.substr(of.size()), requested, world);
}

}  // namespace tidemark::scenarios
