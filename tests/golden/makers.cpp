#include "tests/golden/makers.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace tidemark::tests::golden {
namespace {

using Labels = std::vector<std::string_view>;

// Tensors by the end of what they are called. "other": buffers, what DeepSpeed moves and does not train, and its third
// stage's bucket, which is made in no function that recordings know.
const std::map<std::string_view, Labels> by_label{
    {"all_gather_input", {"all_gather_input"}},
    {"all_gather_output", {"all_gather_output"}},
    {"reduce_scatter", {"reduce_scatter_input", "reduce_scatter_output"}},
    {"reduced_gradients", {".gradient", "padded_gradient", "sharded_gradient"}},
    {"receive_buffer", {"received_input", "received_gradient", "probed_input"}},
    {"reduce_bucket", {"ipg_buffer", "allreduce_bucket", ".reduce_scatter"}},
    {"gradients", {"grads_in_partition", ".grad_partition", "grad_partitions"}},
    {"master", {"fp32_partition"}},
    {"parameters", {"after_forward", ".part"}},
    {"other", {"moved", "freqs_cis", "rope_cache", "zero.ipg_buffer", ".secondary"}},
};

// DeepSpeed's first stages copy what they train into one tensor, and others stay as they were made.
bool flattens(const Program& program) {
  return std::ranges::any_of(program.labels, [](const Label& label) { return label == "flat.parameters"; });
}

std::string_view maker_of(const Program& program, const Alloc& alloc, const Mark& mark, bool flat) {
  const std::string_view label = program[alloc.label];
  if (flat && label.ends_with(".parameter")) return "other";
  for (const auto& [made_by, labels] : by_label)
    if (std::ranges::any_of(labels, [&](std::string_view end) { return label.ends_with(end); })) return made_by;
  if (alloc.category == Category::Parameters || alloc.category == Category::Adapters)
    return mark.step == 0 ? "parameters" : "unsharded_parameters";
  return label.find("optimizer.") != std::string_view::npos ? "optimizer" : "other";
}

}  // namespace

MadeBy made_at_peak(const Program& program) {
  std::vector<std::pair<std::string_view, Bytes>> of_buffer(static_cast<std::size_t>(program.buffers));
  MadeBy live, at_peak;
  Bytes now, peak;
  const bool flat = flattens(program);
  Mark mark;
  for (const Op& op : program.ops) {
    if (const auto* next = std::get_if<Mark>(&op)) {
      mark = *next;
    } else if (const auto* alloc = std::get_if<Alloc>(&op); alloc != nullptr && alloc->space == MemorySpace::Device) {
      of_buffer[alloc->buffer.index()] = {maker_of(program, *alloc, mark, flat), alloc->size};
      live[std::string(of_buffer[alloc->buffer.index()].first)] += alloc->size;
      now += alloc->size;
      if (now > peak) peak = now, at_peak = live;
    } else if (const auto* free = std::get_if<Free>(&op)) {
      const auto& [made_by, size] = of_buffer[free->buffer.index()];
      if (size == Bytes{}) continue;
      Bytes& its = live[std::string(made_by)];
      its = its - size;
      now = now - size;
    }
  }
  std::erase_if(at_peak, [](const auto& its) { return its.second == Bytes{}; });
  return at_peak;
}

}  // namespace tidemark::tests::golden
