#include "scenarios/validate/arithmetic/math_work.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "kernels/math/compute.hpp"
#include "parallel/lowering/lower.hpp"
#include "scenarios/predict/job.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::scenarios {
namespace {

constexpr double elements_of_a_draw = 3;  // that take as long as drawing one at random

// Of attention with so many products of the queries' width and of the values' width.
MathWork attention_work(const View& q, const View& k, const View& v, double of_width, double of_values,
                        double dropout) {
  const auto scores = static_cast<double>(q.sizes[0] * q.sizes[1] * q.sizes[2] * k.sizes[1]);
  return {.multiply_adds =
              scores * (of_width * static_cast<double>(q.sizes[3]) + of_values * static_cast<double>(v.sizes[3])),
          .elements = dropout > 0 ? elements_of_a_draw * scores : 0};
}

MathWork work_beside_operands(const Program& program, const Kernel& kernel) {
  const auto input = [&](std::size_t i) -> const View& { return program[kernel.inputs[i]]; };
  switch (kernel.operation) {
    case Operation::Matmul:
      return {.multiply_adds =
                  static_cast<double>(elements_of(input(0).sizes)) * static_cast<double>(input(1).sizes.back())};
    case Operation::Attention:
      return attention_work(input(0), input(1), input(2), 1, 1, kernel.attributes[2]);
    case Operation::AttentionBackward:  // scores again, then the gradients of these, and of all that they come from
      return attention_work(input(1), input(2), input(3), 3, 2, kernel.attributes[2]);
    case Operation::SsdScan:
    case Operation::SsdScanBackward: {
      const bool backward = kernel.operation == Operation::SsdScanBackward;
      const View &x = input(backward ? 1 : 0), &b = input(backward ? 4 : 3);
      const double state = static_cast<double>(b.sizes[2]) / kernel.attributes[0];
      return {.elements = (backward ? 8 : 3) * static_cast<double>(elements_of(x.sizes)) * state};
    }
    case Operation::Dropout:
    case Operation::BiasDropoutAdd:
      return {.elements =
                  kernel.attributes[0] > 0 ? elements_of_a_draw * static_cast<double>(elements_of(input(0).sizes)) : 0};
    default:
      return {};
  }
}

MathWork work_of(const Program& program, const Kernel& kernel) {
  MathWork work = work_beside_operands(program, kernel);
  for (const auto* const views : {&kernel.inputs, &kernel.outputs})
    for (const ViewId view : *views)
      if (view.valid()) work.elements += static_cast<double>(elements_of(program[view].sizes));
  return work;
}

// Of buffers that kernels, collectives and messages touch: what is scratch memory only is never there.
Bytes most_held(const Program& program) {
  std::vector<Bytes> sizes(static_cast<std::size_t>(program.buffers));
  std::vector<bool> there(sizes.size());
  Bytes now, most;
  const auto touch = [&](BufferId buffer) {
    if (!there[buffer.index()]) now += sizes[buffer.index()];
    there[buffer.index()] = true;
    most = std::max(most, now);
  };
  for (const Op& op : program.ops) {
    if (const auto* const alloc = std::get_if<Alloc>(&op)) {
      sizes[alloc->buffer.index()] = alloc->size;
    } else if (const auto* const free = std::get_if<Free>(&op)) {
      if (there[free->buffer.index()]) now -= sizes[free->buffer.index()];
      there[free->buffer.index()] = false;
    } else if (const auto* const launch = std::get_if<Launch>(&op)) {
      for (const OperandList list : {launch->inputs, launch->outputs})
        for (const Operand& operand : program[list]) touch(operand.buffer);
    } else {
      for_each_operand(program, op, touch);
    }
  }
  return most;
}

}  // namespace

MathWork work_of(const Program& program) {
  std::vector<double> launches(program.kernels.size());
  for (const Op& op : program.ops)
    if (const auto* const launch = std::get_if<Launch>(&op)) ++launches[launch->kernel.index()];
  MathWork all{.memory = most_held(program) * math::spread(math::Storage::Wide)};
  for (std::size_t k = 0; k < launches.size(); ++k) {
    const MathWork one = work_of(program, program.kernels[k]);
    all.multiply_adds += launches[k] * one.multiply_adds;
    all.elements += launches[k] * one.elements;
  }
  return all;
}

namespace {

using namespace literals;

// In float64 and fp32 together, of one core of an AMD EPYC: models of one to four layers, of widths
// from 32 to 512 and sequences to 512, with and without dropout, take 0.4 to 1.1 times what these come to.
constexpr double seconds_of_a_multiply_add = 0.05e-9, seconds_of_an_element = 10e-9;
constexpr double most_seconds = 10;
constexpr Bytes most_memory = 1_GiB;

}  // namespace

MathWork work_of(const Scenario& scenario) {
  const Job job(executed(scenario));
  const Workload workload = lower(job.lowering());
  MathWork all;
  const auto add = [&all](const MathWork& work) {
    all.multiply_adds += work.multiply_adds;
    all.elements += work.elements;
    all.memory += work.memory;
  };
  for (const std::int32_t p : workload.program_of_rank) add(work_of(workload.programs[static_cast<std::size_t>(p)]));
  add(all);  // one rank does as much as all of them, and holds as much
  return all;
}

std::string too_much_arithmetic(const MathWork& work) {
  const double seconds = work.multiply_adds * seconds_of_a_multiply_add + work.elements * seconds_of_an_element;
  if (seconds > most_seconds)
    return fmt::format("they would take some {:.0f} s of a core, more than the {:.0f} s that are spent without --math",
                       seconds, most_seconds);
  const auto gib = [](Bytes bytes) { return static_cast<double>(bytes.count()) / (1 << 30); };
  if (work.memory > most_memory)
    return fmt::format("they would take {:.1f} GiB, more than the {:.0f} GiB that are used without --math",
                       gib(work.memory), gib(most_memory));
  return {};
}

}  // namespace tidemark::scenarios
