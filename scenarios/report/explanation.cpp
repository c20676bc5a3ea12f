#include "scenarios/report/explanation.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "parallel/frameworks/megatron/training.hpp"
#include "parallel/frameworks/pytorch/training.hpp"
#include "parallel/job/mesh.hpp"
#include "parallel/job/stages.hpp"
#include "parallel/schedule/schedule.hpp"
#include "parallel/torch/record.hpp"
#include "scenarios/formats/format.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/predict/prediction.hpp"
#include "scenarios/predict/reported_replay.hpp"
#include "scenarios/predict/role_program.hpp"
#include "scenarios/report/model_layers.hpp"
#include "sim/program/text/program_text.hpp"

namespace tidemark::scenarios {
namespace {

// A rank's memory, and how it is shown op by op.
struct Shown {
  MemoryRecord memory;
  ReplayOptions options;
};

// As `predict` reports it: on the device, whose allocator gives its cache back before it gives up, and without a limit
// where memory runs out. Only blocks that other streams use ask for a clock.
Shown memory_of(const Job& job, Rank rank, const Program& program, const DriverCosts& costs) {
  const Bytes capacity = job.scenario.cluster.device.capacity;
  const ReplayOptions on_device{.capacity = capacity, .allocator = allocator_options_of(job.scenario)},
      unlimited = without_device(on_device);
  const auto shown = [&](const auto& run) -> Shown {
    MemoryRecord whole = run(unlimited);
    if (whole.device.bytes <= capacity && !on_device.allocator.memory_limit()) return {std::move(whole), unlimited};
    MemoryRecord limited = run(on_device);
    return limited.failure ? Shown{std::move(whole), unlimited} : Shown{std::move(limited), on_device};
  };
  if (!job.asks_the_clock) return shown([&](const ReplayOptions& options) { return replay(program, costs, options); });
  const Trace trace = simulate_time(job);
  const RoleProgram its(job, job.role_of(rank));
  const ProgramTimes times = its.times(trace, rank);
  return shown([&](ReplayOptions options) {
    options.cross_stream = reported_replay(job, trace, times).cross_stream;
    return replay(its.program(), costs, options);
  });
}

// A rank's program, and what is live in it at the moment asked for.
struct LiveSet {
  Program program;
  Moment at;
  std::vector<LiveBuffer> buffers;
  Bytes allocated;
  Bytes pooled;        ///< free blocks that PyTorch keeps pinned
  Composition device;  ///< at its peak: what the allocator holds, and what lies outside of it
  bool on_host = false;

  LiveSet(const Job& job, Rank rank, const RequestedMoment& wanted)
      : program(lower_role(job.lowering(), job.role_of(rank))) {
    const DriverCosts& costs = job.costs.of(rank);
    const auto [memory, options] = memory_of(job, rank, program, costs);
    switch (wanted.kind) {
      case RequestedMoment::Kind::DevicePeak:
        at = memory.device.at;
        device = memory.device.composition;
        break;
      case RequestedMoment::Kind::AllocatedPeak:
        at = memory.allocated.at;
        break;
      case RequestedMoment::Kind::HostPeak:
        on_host = true;
        if (memory.host.bytes == Bytes{})
          throw InputError(Problem{.file = "--at",
                                   .message = fmt::format("rank {} keeps no tensors on its host", rank.value),
                                   .hint = "peak, allocated, end, or the number of an op"});
        at = memory.host.at;
        break;
      case RequestedMoment::Kind::End:
        at.op = program.ops.size() - 1;
        break;
      case RequestedMoment::Kind::OpIndex:
        if (wanted.op >= program.ops.size())
          throw InputError(Problem{.file = "--at",
                                   .message = fmt::format("there is no op {}", wanted.op),
                                   .hint = fmt::format("rank {} has ops 0 to {}", rank.value, program.ops.size() - 1)});
        at.op = wanted.op;
        break;
    }
    for (std::size_t i = 0; i <= at.op; ++i)
      if (const Mark* mark = std::get_if<Mark>(&program.ops[i])) at.mark = *mark;
    buffers = on_host ? live_on_host(program, costs, at.op) : live_buffers(program, costs, at.op, options);
    for (const LiveBuffer& b : buffers) allocated += b.block;
    if (on_host) pooled = memory.host.bytes - allocated;
  }
};

}  // namespace

namespace {

// Micro-batches whose forward passes have saved what is live now.
std::int64_t micro_batches_saved(const LiveSet& live) {
  std::vector<std::size_t> births;
  for (const LiveBuffer& b : live.buffers)
    if (b.category == Category::SavedActivations) births.push_back(b.allocated_at);
  std::ranges::sort(births);
  std::set<std::pair<std::int32_t, std::int32_t>> found;
  Mark mark;
  for (std::size_t i = 0, next = 0; i < live.program.ops.size() && next < births.size(); ++i) {
    if (const Mark* its = std::get_if<Mark>(&live.program.ops[i])) mark = *its;
    for (; next < births.size() && births[next] == i; ++next)
      if (mark.micro_batch >= 0) found.insert({mark.step, mark.micro_batch});
  }
  return static_cast<std::int64_t>(found.size());
}

// What stays from step to step, what waits for backward passes, and what the moment itself takes.
std::string why(const Job& job, Rank rank, const LiveSet& live) {
  Composition its;
  for (const LiveBuffer& b : live.buffers) its[b.category] += b.block;
  Bytes stays;
  for (const Category c :
       {Category::Parameters, Category::Gradients, Category::OptimizerMaster, Category::OptimizerMoments,
        Category::Adapters, Category::Quantization, Category::Workspaces})
    stays += its[c];
  const Bytes saved = its[Category::SavedActivations];
  const std::string rest =
      fmt::format("{} itself takes {}\n", live.program[live.at.mark.label], gib(live.allocated - stays - saved));
  if (saved == Bytes{}) return fmt::format("why: {} stay from step to step, and {}", gib(stays), rest);
  const std::int64_t batches = micro_batches_saved(live);
  const Layout& layout = job.scenario.layout;
  std::string ahead;
  if (layout.pipeline > 1 && batches > 1)
    ahead = fmt::format(" ({}: stage {} of {} runs ahead of the last)", traits_of(layout.schedule).name,
                        coordinates(layout, rank).pipeline, layout.pipeline);
  return fmt::format(
      "why: {} that {} micro-batch{} saved for backward passes{}\n  on top of {} that stay from step to step, and {}",
      gib(saved), batches, batches == 1 ? "" : "es", ahead, gib(stays), rest);
}

// What a device holds at its peak besides tensors, and whether it can.
std::string on_device(const Job& job, const LiveSet& live) {
  const Bytes holds = live.device.total(), has = job.scenario.cluster.device.capacity;
  std::string out = fmt::format(
      "the device holds {}: {} of them in the allocator's free blocks, {} outside of it (context, NCCL)\n", gib(holds),
      gib(live.device[Category::Fragmentation]), gib(live.device[Category::Nccl] + live.device[Category::Context]));
  if (holds > has)
    out += fmt::format("it has {}: the job runs out of memory before, and these are the figures without that limit\n",
                       gib(has));
  return out;
}

}  // namespace

Rank fullest_rank(const Job& job, RequestedMoment::Kind moment, const Progress& progress) {
  const PredictOptions options{.reported = PredictionDetail::Figures};
  const Prediction prediction = predict(job, simulate_time(job), progress, options);
  return (moment == RequestedMoment::Kind::HostPeak ? prediction.highest_on_host() : prediction.highest())
      .ranks.front();
}

std::string live_text(const Job& job, Rank rank, const RequestedMoment& wanted, Detail detail) {
  const LiveSet live(job, rank, wanted);
  struct Line {
    Category category = Category::Temporaries;
    MemorySpace space = MemorySpace::Device;
    std::size_t count = 0;
    Bytes bytes;
  };
  std::map<std::tuple<std::string, Category, MemorySpace>, Line> lines;
  for (const LiveBuffer& b : live.buffers) {
    const Label& its = live.program.labels[b.label.index()];
    const std::string label = detail == Detail::ByRole ? without_layer(its) : its.text;
    Line& line = lines[{label, b.category, b.space}];
    line.category = b.category;
    line.space = b.space;
    ++line.count;
    line.bytes += b.block;
  }
  std::vector<std::pair<std::string, Line>> sorted;
  Composition composition;
  for (const auto& [key, line] : lines) {
    sorted.emplace_back(std::get<std::string>(key), line);
    composition[line.category] += line.bytes;
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });

  std::string out = fmt::format("rank {}: {} {} in {} tensors after op {} of {}\n{}\n", rank.value, mib(live.allocated),
                                live.on_host ? "on the host" : "allocated", live.buffers.size(), live.at.op,
                                live.program.ops.size(), where(live.at, live.program[live.at.mark.label]));
  const bool of_peak =
      wanted.kind == RequestedMoment::Kind::DevicePeak || wanted.kind == RequestedMoment::Kind::AllocatedPeak;
  if (wanted.kind == RequestedMoment::Kind::DevicePeak) out += on_device(job, live);
  if (of_peak) out += why(job, rank, live);
  out += "\nby category\n";
  std::vector<std::vector<std::string>> rows;
  for (std::size_t c = 0; c < category_count; ++c)
    if (composition.bytes[c] != Bytes{0}) rows.push_back({std::string(category_names[c]), mib(composition.bytes[c])});
  out += table(rows);
  if (live.on_host)
    out += fmt::format("also {} of free blocks that PyTorch keeps pinned; blocks of pinned memory are powers of two\n",
                       mib(live.pooled));
  out += "\ntensors, largest first\n";
  rows = {{"tensor", "category", "count", "each", "together"}};
  if (live.on_host) rows.front().insert(rows.front().begin() + 2, "memory");
  for (const auto& [label, line] : sorted) {
    rows.push_back({label, std::string(name(line.category)), std::to_string(line.count),
                    mib(line.bytes / static_cast<std::int64_t>(line.count)), mib(line.bytes)});
    if (live.on_host) rows.back().insert(rows.back().begin() + 2, std::string(name(line.space)));
  }
  return out + table(rows);
}

std::string live_json(const Job& job, Rank rank, const RequestedMoment& wanted) {
  const LiveSet live(job, rank, wanted);
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const LiveBuffer& b : live.buffers) {
    tensors.push_back({{"tensor", live.program[b.label]},
                       {"category", name(b.category)},
                       {"requested_bytes", b.requested.count()},
                       {"block_bytes", b.block.count()},
                       {"allocated_at_op", b.allocated_at}});
    if (live.on_host) tensors.back()["memory"] = name(b.space);
  }
  const Mark& mark = live.at.mark;
  const nlohmann::ordered_json out = {
      {"schema", "tidemark.live/1"},
      {"rank", rank.value},
      {"op_index", live.at.op},
      {"at",
       {{"step", mark.step},
        {"phase", name(mark.phase)},
        {"micro_batch",
         mark.micro_batch < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(mark.micro_batch)},
        {"op", live.program[mark.label]},
        {"time_s", nullptr}}},
      {live.on_host ? "host_bytes" : "allocated_bytes", live.allocated.count()},
      {"tensors", std::move(tensors)}};
  return out.dump(1) + '\n';
}

namespace {

torch::Recording recording_of(const Scenario& wanted) {
  const Scenario scenario = resolved_scenario(wanted);
  const Runtime runtime = runtime_of(scenario);
  const BuiltModel built = build_model(scenario.model, model_options_of(scenario));
  return runtime.framework->first_forward({built, scenario.layout, scenario.train, runtime});
}

}  // namespace

std::string model_text(const Scenario& scenario) {
  std::string out = torch::text(recording_of(scenario), scenario.model.name);
  out.insert(out.find('\n') + 1, layers_text(scenario.model));
  if (!scenario.model.experts()) return out;
  const std::int64_t active = active_parameter_count(build_model(scenario.model, {}));
  return out.insert(out.find('\n'), fmt::format(", {} of them active for a token", active));
}

std::string schedule_text(const Job& job) {
  const Layout& layout = job.scenario.layout;
  const Train& train = job.scenario.train;
  const auto micro_batches = static_cast<std::int32_t>(micro_batches_of(train, layout));
  const auto layers = static_cast<std::int32_t>(job.built.model.layers.size());
  std::string out;
  for (std::int32_t s = 0; s < layout.pipeline; ++s) {
    std::string held;
    for (const Stage& stage : chunks_of_rank(layers, layout, s))
      held += fmt::format("{}{}{}{}", held.empty() ? "" : "; ", stage.embedding ? "embedding, " : "",
                          stage.layers() == 0 ? "no layers" : fmt::format("layers {}-{}", stage.first, stage.last - 1),
                          stage.head ? ", head and loss" : "");
    out += fmt::format("stage {}: {}\n  {}\n", s, held, text(schedule_of(layout, s, micro_batches)));
  }
  return out;
}

std::string communicators_text(const Job& job, Rank rank) {
  std::string out;
  for (std::size_t slot = 0; slot < job.communicators().size(); ++slot) {
    const Communicator& communicator = job.communicators()[slot];
    if (!is_member(communicator, rank)) continue;
    out += fmt::format("g{} {}: {} ranks, rank {} is with {}\n", slot, communicator.name, group_size(communicator),
                       rank.value, rank_list(group_members(communicator, rank)));
  }
  return out;
}

std::string program_text(const Job& job, Rank rank) { return text(lower_role(job.lowering(), job.role_of(rank))); }

std::string costs_text(const Job& job, Rank rank) {
  const DriverCosts& costs = job.costs.of(rank);
  std::vector<std::vector<std::string>> rows{{"what", "bytes", "low", "high", "source"}};
  const auto add = [&](const std::string& what, const Estimate& e) {
    rows.push_back({what, mib(e.bytes), mib(e.low), mib(e.high), e.source});
  };
  add("context", costs.context);
  add("modules", costs.modules);
  add("nccl_kernels", costs.nccl_kernels);
  for (std::size_t slot = 0; slot < costs.communicators.size(); ++slot)
    if (const Communicator& its = job.communicators()[slot]; group_size(its) > 1)
      add("communicator " + its.name, costs.communicators[slot]);
  return table(rows, LastColumn::Words);
}

}  // namespace tidemark::scenarios
