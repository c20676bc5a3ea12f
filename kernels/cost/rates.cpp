#include "kernels/cost/rates.hpp"

#include <algorithm>

namespace tidemark::kernels {

// Between two kernels of a stream, from the last block of one to the first of the next: 2 to 3 us since Volta.
Duration start_of_large(const Device& device) { return std::min(device.kernel_latency, Duration{2'500'000}); }

OperationRate peak_rate(const Device& device, DType dtype) {
  switch (dtype) {
    case DType::BF16:
      return device.peak.bf16;
    case DType::FP16:
      return device.peak.fp16;
    case DType::FP32:
    case DType::INT32:
    case DType::INT64:
    case DType::BOOL:
    case DType::INT16:
    case DType::E4M3:
    case DType::UINT8:
      return device.peak.fp32;
    case DType::FP64:
      return device.peak.fp64;
  }
  return device.peak.fp32;
}

Duration time_of(Wide operations, OperationRate rate) {
  const Wide picoseconds = (operations * picoseconds_per_second + rate.count() - 1) / rate.count();
  return Duration{static_cast<std::int64_t>(picoseconds)};
}

Duration time_of(Bytes traffic, const Device& device) {
  return traffic / scaled(device.memory_bandwidth, device.efficiency.memory);
}

}  // namespace tidemark::kernels
