#pragma once

#include <cstdint>
#include <string_view>

#include "sim/base/units.hpp"

namespace tidemark::sim {

/// Element types of tensors.
enum class DType : std::uint8_t { BF16, FP16, FP32, INT32, INT64, BOOL, INT16, E4M3, UINT8, FP64 };
constexpr int dtypes = 10;

constexpr Bytes size_of(DType type) {
  switch (type) {
    case DType::BOOL:
    case DType::E4M3:
    case DType::UINT8:
      return Bytes{1};
    case DType::BF16:
    case DType::FP16:
    case DType::INT16:
      return Bytes{2};
    case DType::FP32:
    case DType::INT32:
      return Bytes{4};
    case DType::INT64:
    case DType::FP64:
      return Bytes{8};
  }
  return Bytes{0};
}

constexpr std::string_view name(DType type) {
  switch (type) {
    case DType::BF16:
      return "bf16";
    case DType::FP16:
      return "fp16";
    case DType::FP32:
      return "fp32";
    case DType::INT32:
      return "int32";
    case DType::INT64:
      return "int64";
    case DType::BOOL:
      return "bool";
    case DType::INT16:
      return "int16";
    case DType::E4M3:
      return "e4m3";
    case DType::UINT8:
      return "uint8";
    case DType::FP64:
      return "fp64";
  }
  return "?";
}

constexpr bool is_floating(DType type) {
  switch (type) {
    case DType::BF16:
    case DType::FP16:
    case DType::FP32:
    case DType::E4M3:
    case DType::FP64:
      return true;
    case DType::INT32:
    case DType::INT64:
    case DType::BOOL:
    case DType::INT16:
    case DType::UINT8:
      return false;
  }
  return false;
}

}  // namespace tidemark::sim
