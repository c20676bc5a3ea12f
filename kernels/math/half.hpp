#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/math/namespace.hpp"
#include "kernels/math/values.hpp"

// The two 16-bit types and E4M3 by their bits, rounded to nearest even.

namespace tidemark::math {

TIDEMARK_EVERYWHERE inline float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

TIDEMARK_EVERYWHERE inline std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Rounding could carry a NaN's bits over to infinity.
  if (value != value) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

TIDEMARK_EVERYWHERE inline float from_fp16(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16, exponent = (bits >> 10) & 0x1fU, fraction = bits & 0x3ffU;
  if (exponent == 0) {  // in steps of 2^-24
    const float size = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -size : size;
  }
  const std::uint32_t widened = exponent == 0x1fU ? 0xffU : exponent + 112;
  return std::bit_cast<float>(sign | widened << 23 | fraction << 13);
}

TIDEMARK_EVERYWHERE inline std::uint16_t to_fp16(float value) {
  const auto sign = static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(value) >> 16) & 0x8000U);
  const float size = std::fabs(value);
  const auto with_sign = [sign](std::uint32_t bits) { return static_cast<std::uint16_t>(sign | bits); };
  if (value != value) return with_sign(0x7e00U);
  if (size >= 65520) return with_sign(0x7c00U);  // half way from the largest to 2^16: infinity
  // Below 2^-14 in steps of 2^-24; the sum rounds to them.
  if (size < 0x1p-14F) return with_sign(std::bit_cast<std::uint32_t>(size + 0.5F) - std::bit_cast<std::uint32_t>(0.5F));
  const auto bits = std::bit_cast<std::uint32_t>(size);
  return with_sign(((bits + 0xfffU + ((bits >> 13) & 1U)) >> 13) - (112U << 10));
}

// Without infinities: what is larger than 448 is 448. Below 2^-6 in steps of 2^-9.
TIDEMARK_EVERYWHERE inline float from_e4m3(std::uint8_t bits) {
  const std::uint32_t exponent = (bits >> 3) & 0xfU, fraction = bits & 7U;
  float size = static_cast<float>(fraction) * 0x1p-9F;
  if (exponent != 0) size = std::bit_cast<float>((exponent + 120) << 23 | fraction << 20);
  if ((bits & 0x7fU) == 0x7fU) size = std::bit_cast<float>(0x7fc00000U);
  return (bits & 0x80U) != 0 ? -size : size;
}

TIDEMARK_EVERYWHERE inline std::uint8_t to_e4m3(float value) {
  const auto sign = static_cast<std::uint8_t>((std::bit_cast<std::uint32_t>(value) >> 24) & 0x80U);
  const float size = std::fabs(value);
  const auto with_sign = [sign](std::uint32_t bits) { return static_cast<std::uint8_t>(sign | bits); };
  if (value != value) return with_sign(0x7fU);
  if (size >= 448) return with_sign(0x7eU);
  if (size < 0x1p-6F)
    return with_sign(std::bit_cast<std::uint32_t>(size + 0x1p14F) - std::bit_cast<std::uint32_t>(0x1p14F));
  const auto bits = std::bit_cast<std::uint32_t>(size);
  return with_sign(((bits + 0x7ffffU + ((bits >> 20) & 1U)) >> 20) - (120U << 3));
}

}  // namespace tidemark::math
