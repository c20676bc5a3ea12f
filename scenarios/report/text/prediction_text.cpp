#include "scenarios/report/text/prediction_text.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "parallel/job/sharing.hpp"
#include "parallel/runtime/runtimes.hpp"
#include "scenarios/formats/format.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/predict/assumptions/assumed.hpp"
#include "scenarios/predict/measured/measured_ranges.hpp"
#include "scenarios/report/remedies.hpp"
#include "scenarios/report/run_cost.hpp"
#include "scenarios/report/step_range.hpp"
#include "scenarios/scenario/names.hpp"

namespace tidemark::scenarios {
namespace {

// What is there throughout a step, as its highest moment has it.
Bytes lasting_bytes(const MemoryRecord& memory) {
  Bytes sum;
  for (const Category its : {Category::Parameters, Category::Gradients, Category::OptimizerMaster,
                             Category::OptimizerMoments, Category::Adapters, Category::Quantization})
    sum += memory.allocated.composition[its];
  return sum;
}

std::string verdict(const Prediction& p, const AcceptedChanges* accepted) {
  if (p.deadlock) return deadlock_text(*p.deadlock);
  const Bytes capacity = p.scenario.cluster.device.capacity;
  const Bytes upper = p.most_required().required.upper + p.scenario.runtime.headroom;
  const std::string headroom =
      p.scenario.runtime.headroom > Bytes{0} ? fmt::format(" with {} headroom", gib(p.scenario.runtime.headroom)) : "";
  const std::string device = fmt::format("the fullest device lacks {}", gib(upper - capacity));
  const bool lacks = upper > capacity;
  std::string out;
  if (!p.not_judged.empty())
    out = not_judged_text(p.not_judged);
  else if (p.exceeds_host())
    out = fmt::format("no, it does not fit{}: the host of node {} lacks {}{}{}\n", lacks ? headroom : "",
                      p.fullest_node.node, gib(p.fullest_node.bytes - p.scenario.cluster.host.memory),
                      lacks ? ", and " : "", lacks ? device : "");
  else if (p.fits)
    out = fmt::format("yes, it fits{}: {} to spare on the fullest device\n", headroom, gib(capacity - upper));
  else if (p.open_below)
    out = fmt::format("cannot say whether it fits{}: {}, but parts that are only bounded may need less\n", headroom,
                      device);
  else if (p.open && lacks)
    out =
        fmt::format("cannot say whether it fits{}: {} at the upper ends of estimates, and nothing at the lower ends\n",
                    headroom, device);
  else if (p.open && !p.may_exceed_host())
    out =
        "cannot say whether it fits: its allocator succeeds at the upper ends of estimates, but not at central "
        "values\n";
  else if (p.open)
    out = fmt::format(
        "cannot say whether it fits: a host lacks {} where pinned memory waits for its copies, NCCL's included\n",
        gib(p.fullest_node.upper - p.scenario.cluster.host.memory));
  else
    out = fmt::format("no, it does not fit{}: {}\n", headroom, device);
  // On how many devices is the question: what was taken for it where nothing says it stands beside the answer.
  for (const std::string& assumed : p.assumptions)
    if (assumed.starts_with("gpus")) out += fmt::format("  {}\n", printable(assumed));
  out += bounds_text(p.bounds);
  if (p.completed && p.retries_per_step() > 0)
    out += fmt::format(
        "  completes with {} retries a step: its allocator waits for the device and returns cached memory\n",
        p.retries_per_step());
  for (const RankGroup& group : p.groups) {
    if (!group.failure) continue;
    out +=
        fmt::format("  out of memory on rank {}: {}: {} asked, {} free\n", group.ranks.front().value,
                    where(group.failure->at, group.failed_op), mib(group.failure->requested), mib(group.failure->free));
    // Where what stays on the device is too much by itself, nothing that is made in a pass is worth a word.
    const Bytes states = lasting_bytes(group.memory), room = p.scenario.cluster.device.capacity;
    const bool too_much = states > room;
    const Phase phase = too_much ? Phase::OptimizerStep : group.failure->at.mark.phase;
    if (const std::vector<std::string> remedies = remedies_of(phase, p.scenario, accepted); !remedies.empty())
      out +=
          fmt::format("  what helps {}, {}:\n    {}\n",
                      too_much ? fmt::format("against {} of parameters, gradients and optimizer state on a device of "
                                             "{}",
                                             gib(states), gib(room))
                               : fmt::format("in that phase ({})", name(phase)),
                      accepted != nullptr ? "each simulated by `tidemark advise`"
                                          : "where the scenario takes it; `tidemark advise` simulates that",
                      fmt::join(remedies, "\n    "));
    break;
  }
  return out;
}

std::string schedule_words(const Layout& layout) {
  if (layout.pipeline == 1) return {};
  const std::string chunks = layout.chunks > 1 ? fmt::format(" of {} chunks a rank", layout.chunks) : "";
  return fmt::format("schedule {}{}; ", word(schedule_names, layout.schedule), chunks);
}

std::string precision_words(const Train& train) {
  if (train.gradient_dtype == train.precision) return std::string(word(precision_names, train.precision));
  return fmt::format("{} with gradients in {}", word(precision_names, train.precision),
                     word(precision_names, train.gradient_dtype));
}

std::string recompute_words(const Scenario& s) {
  const Recomputation& again = s.train.recompute;
  switch (again.kind) {
    case Recompute::None:
      return "no recomputation";
    case Recompute::Full:
      if (runtime_kind(s.runtime.name).eager()) return "full recomputation";
      return fmt::format("full recomputation, {} of {}", word(recompute_method_names, again.method), again.layers);
    case Recompute::Selective:
      break;
  }
  const auto modules = words(recomputed_module_names, again.modules);
  return modules.empty() ? "selective recomputation"
                         : fmt::format("selective recomputation of {}", fmt::join(modules, ", "));
}

std::string question(const Prediction& p) {
  const Scenario& s = p.scenario;
  std::string layout = fmt::format("tensor {}{}", s.layout.tensor, s.layout.sequence_parallel ? " + sequence" : "");
  if (s.layout.context > 1)
    layout += runtime_kind(s.runtime.name).eager()
                  ? fmt::format(", context {}", s.layout.context)
                  : fmt::format(", context {} ({})", s.layout.context, word(context_kind_names, s.layout.context_kind));
  layout += fmt::format(", pipeline {}, data {}", s.layout.pipeline, s.layout.data);
  if (s.model.experts()) {
    layout += fmt::format(", expert {}", s.layout.expert);
    if (s.layout.expert_tensor_parallel() != s.layout.tensor)
      layout += fmt::format(" x tensor {}", s.layout.expert_tensor_parallel());
  }
  if (s.layout.sharding == Sharding::Zero1) layout += ", optimizer sharded (zero1)";
  if (s.layout.sharding == Sharding::Zero2) layout += ", optimizer and gradients sharded (zero2)";
  if (s.layout.sharding == Sharding::Zero3) layout += ", fully sharded (zero3)";
  if (s.layout.sharding != Sharding::None && (s.layout.shard_group != 0 || s.layout.context > 1))
    layout += fmt::format(" over {}", sharing(s.layout));
  std::string trained;
  if (p.trained < p.parameters)
    trained = fmt::format(", {:.2f} M of them trained", static_cast<double>(p.trained) / 1e6);
  return fmt::format(
      "{}: {} ({:.2f} B parameters{}) on {} x {}\n  {}; {} tokens, micro-batch {}, global batch {}\n  {}{}, {}\n",
      s.name, s.model.name, static_cast<double>(p.parameters) / 1e9, trained, s.gpus, s.cluster.device.name, layout,
      s.train.sequence_length, s.train.micro_batch, s.train.global_batch, schedule_words(s.layout),
      precision_words(s.train), recompute_words(s));
}

// What a peak is made of, most first.
struct Part {
  Bytes bytes;
  std::string_view name;
  double percent = 0;
};
std::vector<Part> parts_of(const Peak& peak) {
  std::vector<Part> parts;
  for (std::size_t c = 0; c < category_count; ++c)
    if (const Bytes its = peak.composition.bytes[c]; its != Bytes{0})
      parts.push_back(
          {its, category_names[c], 100.0 * static_cast<double>(its.count()) / static_cast<double>(peak.bytes.count())});
  std::ranges::stable_sort(parts, std::ranges::greater(), &Part::bytes);
  return parts;
}

// The peak of allocated has a moment of its own, so what is in tensors at the device's is told here: what is reserved
// and free beside those is the composition's fragmentation.
std::string allocated_then(const Peak& device) {
  const Composition& its = device.composition;
  const Bytes free = its[Category::Fragmentation];
  const Bytes allocated = its.total() - free - its[Category::Nccl] - its[Category::Context];
  return fmt::format("  at that moment {} are allocated, and {} reserved and free\n", gib(allocated), gib(free));
}

std::string composition_table(const Peak& peak) {
  std::vector<std::vector<std::string>> rows;
  for (const Part& part : parts_of(peak))
    rows.push_back({std::string(part.name), mib(part.bytes), fmt::format("{:.1f} %", part.percent)});
  return table(rows);
}

// "saved_activations 30 %, gradients 16 %, 9 others 54 %".
std::string composition_line(const Peak& peak) {
  std::string out;
  double rest = 100;
  const std::vector<Part> parts = parts_of(peak);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i == 5 && parts.size() > 6) return out + fmt::format(", {} others {:.0f} %", parts.size() - i, rest);
    out += fmt::format("{}{} {:.0f} %", i == 0 ? "" : ", ", parts[i].name, parts[i].percent);
    rest -= parts[i].percent;
  }
  return out;
}

// Reserved memory is highest when the last segment comes, which may be long after tensors took the most. Where what is
// free by then is the largest part, the other moment says what the memory is for.
std::string tensors_at_most(const RankGroup& of) {
  const Composition& at_device_peak = of.memory.device.composition;
  if (std::ranges::max(at_device_peak.bytes) > at_device_peak[Category::Fragmentation]) return {};
  const Peak& most = of.memory.allocated;
  return fmt::format("  at the peak of allocated, {} at {}:\n  {}\n", gib(most.bytes),
                     where(most.at, of.allocated_peak_op), composition_line(most));
}

std::string peak(const Prediction& p) {
  const RankGroup& top = p.highest();
  const MemoryRecord& m = top.memory;
  const Bytes capacity = p.scenario.cluster.device.capacity;
  const std::string context = p.scenario.layout.context > 1 ? fmt::format("cp {}, ", top.coordinates.context) : "";
  std::string out = fmt::format(
      "\npeak on rank {} (pp {}, dp {}, {}tp {}), at {}\n"
      "  device     {:>9}  (up to {}) of {}\n"
      "  must have  {:>9}  (up to {}): its allocator would return the rest before failing\n"
      "  reserved   {:>9}  held by the allocator\n"
      "  allocated  {:>9}  in tensors, highest at {}\n{}\nmade of\n",
      top.ranks.front().value, top.coordinates.pipeline, top.coordinates.data, context, top.coordinates.tensor,
      where(m.device.at, top.device_peak_op), gib(m.device.bytes), gib(m.peak_device_upper), gib(capacity),
      gib(top.required.bytes), gib(top.required.upper), gib(m.peak_reserved), gib(m.allocated.bytes),
      where(m.allocated.at, top.allocated_peak_op), allocated_then(m.device));
  if (m.managed > Bytes{}) {
    const std::size_t before = out.rfind("\n\nmade of");
    out.insert(before, fmt::format("\n  managed    {:>9}  in addition, {} of it on the device while there is room",
                                   gib(m.managed), gib(p.resident(m, m.device.bytes))));
  }

  return out + composition_table(m.device) + tensors_at_most(top);
}

// Of the rank that holds most on its host, and of the node whose ranks do.
std::string host(const Prediction& p) {
  if (p.fullest_node.bytes == Bytes{}) return {};
  const RankGroup& top = p.highest_on_host();
  const MemoryRecord& m = top.memory;
  const Bytes memory = p.scenario.cluster.host.memory;
  std::string out = fmt::format(
      "\non the host, node {}: {}{} of {}\n", p.fullest_node.node, gib(p.fullest_node.bytes),
      p.fullest_node.upper > p.fullest_node.bytes ? fmt::format(" (up to {})", gib(p.fullest_node.upper)) : "",
      memory > Bytes{} ? gib(memory) : "an amount that the cluster file does not give");
  // Of managed memory alone, which is on the host where the device has no room, there is no more to say.
  if (m.host.bytes > Bytes{})
    out += fmt::format("  rank {}: {}, at {}; pinned {} (in powers of two), pageable {}\n", top.ranks.front().value,
                       gib(m.host.bytes), where(m.host.at, top.host_peak_op), gib(m.pinned.peak), gib(m.pageable.peak));
  if (p.fullest_node.nvme > Bytes{}) {
    const auto most = std::ranges::max(p.groups, {}, [](const RankGroup& group) { return group.memory.nvme; });
    out += fmt::format("  in files on NVMe: {} of a rank, {} of a node\n", gib(most.memory.nvme),
                       gib(p.fullest_node.nvme));
  }
  return out + composition_table(m.host);
}

enum class StageDetail : std::uint8_t { Figures, Moments };

// The highest of each stage's ranks; of many stages, where moments do not matter, the four that reach highest.
std::string stages(const Prediction& p, StageDetail detail) {
  std::map<std::int32_t, std::vector<const RankGroup*>> by_stage;
  for (const RankGroup& group : p.groups) by_stage[group.coordinates.pipeline].push_back(&group);
  std::vector<std::vector<std::string>> rows{
      {"stage", "ranks", "allocated", "reserved", "device", "would fill", "must have", "to spare"}};
  if (detail == StageDetail::Moments) rows.front().emplace_back("peak of allocated at");
  std::vector<Bytes> uppers;
  for (const auto& [stage, groups] : by_stage)
    uppers.push_back(
        std::ranges::max(groups, {}, [](const RankGroup* g) { return g->required.upper; })->required.upper);
  constexpr std::size_t most = 8, shown = 4;
  std::ranges::sort(uppers, std::ranges::greater());
  const bool all = detail == StageDetail::Moments || uppers.size() <= most;
  for (const auto& [stage, groups] : by_stage) {
    std::size_t ranks = 0;
    Bytes reserved, device, fills, required;
    const RankGroup* most_allocated = groups.front();
    for (const RankGroup* group : groups) {
      const MemoryRecord& m = group->memory;
      ranks += group->ranks.size();
      reserved = std::max(reserved, m.peak_reserved);
      device = std::max(device, m.device.bytes);
      fills = std::max(fills, p.filled(*group));
      required = std::max(required, group->required.upper);
      if (m.allocated.bytes > most_allocated->memory.allocated.bytes) most_allocated = group;
    }
    const Peak& allocated = most_allocated->memory.allocated;
    if (!all && (required < uppers[shown - 1] || rows.size() > shown)) continue;
    rows.push_back({std::to_string(stage), std::to_string(ranks), gib(allocated.bytes), gib(reserved), gib(device),
                    gib(fills), gib(required),
                    gib(p.scenario.cluster.device.capacity - p.scenario.runtime.headroom - required)});
    if (detail == StageDetail::Moments) rows.back().push_back(where(allocated.at, most_allocated->allocated_peak_op));
  }
  const std::string others =
      all ? "" : fmt::format("  the other {} stages reach no higher\n", by_stage.size() + 1 - rows.size());
  return "\nby pipeline stage, highest of its ranks\n" + table(rows) + others;
}

// Where generation takes turns with training.
std::string phases(const Prediction& p) {
  if (!p.scenario.train.rollout) return {};
  const MemoryRecord& m = p.highest().memory;
  std::vector<std::vector<std::string>> rows{{"phase", "allocated", "parameters", "kv_cache", "activations", ""}};
  for (std::size_t phase = 0; phase < phase_count; ++phase) {
    const Peak& its = m.allocated_by_phase[phase];
    const Composition& of = its.composition;
    rows.push_back({std::string(name(static_cast<Phase>(phase))), gib(its.bytes), gib(of[Category::Parameters]),
                    gib(of[Category::KvCache]),
                    gib(of[Category::SavedActivations] + of[Category::Recompute] + of[Category::Temporaries] +
                        of[Category::LogitsLoss]),
                    its.bytes == m.allocated.bytes ? "the highest" : ""});
  }
  return fmt::format("\nby phase, on rank {}\n{}", p.highest().ranks.front().value, table(rows));
}

std::string step_line(const Prediction& p) {
  const double seconds = static_cast<double>(p.step.step.count()) / static_cast<double>(picoseconds_per_second);
  const StepRange range = step_range(p.step, p.scenario.cluster.device.efficiency);
  const auto end = [&](Duration d) {
    return static_cast<double>(d.count()) / static_cast<double>(picoseconds_per_second);
  };
  return fmt::format(
      "a step takes {:.3f} s ({:.3f} to {:.3f}): {:.0f} tokens/s per device, MFU {:.1f} %\n{}", seconds, end(range.low),
      end(range.high), p.step.tokens_per_s_per_device, 100 * p.step.mfu,
      p.scenario.train.rollout ? "  without its rollout: how long engines generate is not modelled\n" : "");
}

std::string step(const Prediction& p) {
  if (p.deadlock) return {};
  std::vector<std::vector<std::string>> rows;
  const double step = static_cast<double>(p.step.step.count());
  for (std::size_t cause = 0; cause < step_cause_count; ++cause) {
    const auto part = static_cast<double>(p.step.causes[cause].count());
    if (part > 0)
      rows.push_back({std::string(name(static_cast<StepCause>(cause))), fmt::format("{:.3f} ms", part / 1e9),
                      fmt::format("{:.1f} %", 100 * part / step)});
  }
  return '\n' + step_line(p) + run_cost_text(p) + table(rows) +
         fmt::format("  HFU {:.1f} %, recomputation included; by stage: explain --show time\n", 100 * p.step.hfu);
}

// The command that most people go on with.
std::string next_command(const Prediction& p, const std::string& file) {
  const bool in_file = !file.empty();
  const std::string named = in_file ? file : "job.toml";
  std::string out = in_file ? "" : "the same with --print-scenario > job.toml, then ";
  if (p.deadlock) return out + fmt::format("tidemark explain {} --show schedule", named);
  if (!p.fits && p.not_judged.empty()) return out + fmt::format("tidemark advise {}", named);
  return out + fmt::format("tidemark explain {}", named);
}

}  // namespace

std::string verdict_text(const Prediction& p, const AcceptedChanges* accepted) { return verdict(p, accepted); }
std::string question_text(const Prediction& p) { return question(p); }

std::string bounds_text(const std::vector<MemoryBound>& bounds) {
  std::string out;
  for (const MemoryBound& its : bounds)
    out += fmt::format("  {}{}: not simulated, {} in the upper ends: {}\n",
                       its.line > 0 ? fmt::format("{}:{}: ", printable(its.file), its.line) : "", its.what,
                       its.more == Bytes{}         ? std::string("and no more")
                       : its.more < Bytes{1 << 20} ? std::string("up to 1 MiB more")
                                                   : fmt::format("up to {} more", gib(its.more)),
                       its.why);
  return out;
}

std::string not_judged_text(const std::vector<NotJudged>& names) {
  if (names.empty()) return {};
  std::string out = fmt::format("cannot say: {} that the launch file asks for {} not judged here\n",
                                names.size() == 1 ? "one thing" : fmt::format("{} things", names.size()),
                                names.size() == 1 ? "is" : "are");
  for (const NotJudged& its : names)
    out += its.line > 0 ? fmt::format("  {}:{}: {}: {}\n", printable(its.file), its.line, its.what, its.why)
                        : fmt::format("  {}: {}\n", its.what, its.why);
  return out +
         "  the figures below leave them out, unless their line says otherwise; --ignore NAME gives a verdict, for a "
         "name "
         "that has no effect\n";
}

std::string with_not_judged(std::string json, const std::vector<NotJudged>& names) {
  const std::size_t brace = json.find('{');
  if (names.empty() || brace == std::string::npos) return json;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const NotJudged& its : names)
    list.push_back({{"what", its.what}, {"why", its.why}, {"file", its.file}, {"line", its.line}});
  return json.insert(brace + 1, fmt::format("\n  \"not_judged\": {},",
                                            list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
}

std::string prediction_text(const Prediction& p, const AcceptedChanges* accepted) {
  std::string out = verdict(p, accepted) + question(p) + peak(p) + host(p) + stages(p, StageDetail::Moments) +
                    phases(p) + step(p) + assumed(p.assumptions);
  out += "not modelled\n";
  for (const std::string& line : p.not_modelled) out += "  " + line + '\n';
  return out;
}

std::string brief_text(const Prediction& p, const std::string& file, const AcceptedChanges* accepted) {
  std::string out = verdict(p, accepted) + question(p);
  if (!p.deadlock) {
    const RankGroup& top = p.highest();
    const MemoryRecord& m = top.memory;
    out += step_line(p) + run_cost_text(p) + stages(p, StageDetail::Figures);
    out +=
        fmt::format("\npeak on rank {} (stage {}), at {}\n{}  {}\n", top.ranks.front().value, top.coordinates.pipeline,
                    where(m.device.at, top.device_peak_op), allocated_then(m.device), composition_line(m.device));
    out += tensors_at_most(top);
    if (p.fullest_node.bytes > Bytes{})
      out += fmt::format("on the host, node {}: up to {}{}\n", p.fullest_node.node, gib(p.fullest_node.upper),
                         p.scenario.cluster.host.memory > Bytes{} ? " of " + gib(p.scenario.cluster.host.memory) : "");
  }
  if (const std::string what = not_calibrated(p.scenario); !what.empty()) out += "not calibrated for " + what + '\n';
  return out + fmt::format("\nnext: {}\nfor details, {} assumptions and what is not modelled: -v\n",
                           next_command(p, file), p.assumptions.size());
}

}  // namespace tidemark::scenarios
