#include "kernels/cost/roofline.hpp"

#include <cmath>
#include <optional>

#include "kernels/cost/attention_time.hpp"
#include "kernels/cost/calibrated_kernel.hpp"
#include "kernels/cost/memory_time.hpp"
#include "kernels/cost/product_time.hpp"
#include "kernels/cost/rates.hpp"
#include "kernels/cost/scan_time.hpp"

namespace tidemark::kernels {
namespace {

// PyTorch's FlashAttention is the second: of all fused attentions, the one that keeps seed and offset in one tensor of
// two.
TensorInstructions instructions_of(const Program& program, ViewId seed) {
  const bool pair = seed.valid() && program[seed].sizes == Shape{2};
  return pair ? TensorInstructions::Ampere : TensorInstructions::OfDevice;
}

}  // namespace

Duration kernel_time(const Program& program, const Kernel& kernel, const Device& device) {
  const auto view = [&](std::size_t input) -> const View& { return program[kernel.inputs[input]]; };
  const bool causal = kernel.attributes[1] != 0;
  if (kernel.follows() && kernel.operation != Operation::Matmul) return {};
  switch (kernel.operation) {
    case Operation::Matmul:
      return product_time(product_of(program, kernel), device);
    case Operation::Attention:
      return attention_time(view(0), view(1), view(2), causal, AttentionPass::Forward, device,
                            instructions_of(program, kernel.outputs[2]));
    case Operation::AttentionBackward:
      return attention_time(view(1), view(2), view(3), causal, AttentionPass::Backward, device,
                            instructions_of(program, kernel.inputs[6]));
    case Operation::SsdScan:
    case Operation::SsdScanBackward:
      return scan_time(program, kernel, device);
    default:  // the others are bound by memory
      return memory_time(program, kernel, device);
  }
}

Duration host_time(const Program& program, const Kernel& kernel, const Cluster& cluster) {
  return traffic_of(program, kernel) / Bandwidth{cluster.host.memory_bandwidth.count() / cluster.node.devices};
}

namespace {

/// What a limit leaves of the rates of cores in a step, between 0 and one.
Ratio left_by(const PowerLimit& power) {
  const auto number = [](auto quantity) { return static_cast<double>(quantity.count()); };
  const double exponent = number(power.exponent) / number(one);
  return Ratio{std::llround(std::pow(number(power.limit) / number(power.sustained_at), exponent) * number(one))};
}

}  // namespace

Device under_load(Device device) {
  Efficiency& reached = device.efficiency;
  const Ratio left = device.power ? scaled(reached.sustained, left_by(*device.power)) : reached.sustained;
  for (Ratio* of_cores : {&reached.gemm, &reached.attention, &reached.attention_backward})
    *of_cores = scaled(*of_cores, left);
  reached.sustained = one;
  device.power.reset();
  return device;
}

std::vector<Duration> kernel_times(const Program& program, const Device& device) {
  std::vector<Duration> times;
  times.reserve(program.kernels.size());
  const Device loaded = under_load(device);
  for (const Kernel& kernel : program.kernels) times.push_back(kernel_time(program, kernel, loaded));
  return times;
}

std::vector<TimeByPoints> sourced_kernel_times(const Program& program, const Cluster& cluster) {
  std::vector<TimeByPoints> times;
  times.reserve(program.kernels.size());
  const Device loaded = under_load(cluster.device);
  std::optional<CalibratedKernels> calibrated;
  if (cluster.calibration.there()) calibrated.emplace(*cluster.calibration.get(), loaded);
  for (const Kernel& kernel : program.kernels) {
    const bool on_host = kernel.processor == Processor::Host;
    std::optional<TimeByPoints> time;
    if (calibrated && !on_host && !kernel.follows()) time = calibrated->time(program, kernel);
    if (!time) time = {on_host ? host_time(program, kernel, cluster) : kernel_time(program, kernel, loaded)};
    times.push_back(*time);
  }
  return times;
}

std::vector<Duration> kernel_times(const Program& program, const Cluster& cluster) {
  std::vector<Duration> times;
  times.reserve(program.kernels.size());
  for (const TimeByPoints& its : sourced_kernel_times(program, cluster)) times.push_back(its.time);
  return times;
}

std::vector<Duration> second_waves(const Program& program, const Device& device, const std::vector<Duration>& times) {
  std::vector<Duration> waves(times.size());
  bool any = false;
  for (std::size_t k = 0; k < times.size(); ++k) {
    const Kernel& kernel = program.kernels[k];
    if (kernel.operation != Operation::Matmul || kernel.processor == Processor::Host) continue;
    if (kernel.attributes[1] > 0) continue;  // it leaves them to the collective from the start
    waves[k] = second_wave(times[k], device);
    any |= waves[k] > Duration{};
  }
  return any ? waves : std::vector<Duration>{};
}

}  // namespace tidemark::kernels
