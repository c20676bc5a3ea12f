#include "scenarios/validate/arithmetic/seeds.hpp"

#include <cmath>
#include <functional>
#include <numbers>

#include "kernels/math/half.hpp"
#include "sim/base/hash.hpp"

namespace tidemark::scenarios {

double uniform(std::string_view name, std::int64_t place) {
  const std::uint64_t seed = std::hash<std::string_view>{}(name);
  const std::uint64_t bits = mixed(seed ^ mixed(static_cast<std::uint64_t>(place) + 1));
  return (static_cast<double>(bits >> 11U) + 0.5) * 0x1p-53;  // 53 bits are what a double holds
}

// Box and Muller 1958.
double normal(std::string_view name, std::int64_t place) {
  return std::sqrt(-2 * std::log(uniform(name, 2 * place))) *
         std::cos(2 * std::numbers::pi * uniform(name, 2 * place + 1));
}

// bf16 has the fewest digits.
double in_any_type(double number) { return math::from_bf16(math::to_bf16(static_cast<float>(number))); }

}  // namespace tidemark::scenarios
