#include "kernels/math/elements.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/math/half.hpp"
#include "kernels/math/walk.hpp"

namespace tidemark::math {
namespace {

struct Bf16 {
  using Bits = std::uint16_t;
  static float value(Bits bits) { return from_bf16(bits); }
  static Bits bits(auto value) { return to_bf16(static_cast<float>(value)); }
};
struct Fp16 {
  using Bits = std::uint16_t;
  static float value(Bits bits) { return from_fp16(bits); }
  static Bits bits(auto value) { return to_fp16(static_cast<float>(value)); }
};
template <class Float>
struct Plain {
  using Bits = Float;
  static Float value(Float bits) { return bits; }
  static Float bits(auto value) { return static_cast<Float>(value); }
};
template <class Integer>
struct Whole {
  using Bits = Integer;
  static std::int64_t value(Bits bits) { return bits; }
  static Bits bits(std::int64_t value) { return static_cast<Bits>(value); }
  static Bits bits(double value) {  // what the type does not hold, NaN for one, is its smallest, as the processor does
    constexpr double end = -static_cast<double>(std::numeric_limits<Bits>::min());
    return std::fabs(value) < end ? static_cast<Bits>(value) : std::numeric_limits<Bits>::min();
  }
  static Bits bits(float value) { return bits(static_cast<double>(value)); }
};
struct Truth {
  using Bits = std::uint8_t;
  static std::uint8_t value(Bits bits) { return bits != 0; }
  static Bits bits(auto value) { return value != 0; }
};

// Calls `use` with how the elements of a type are stored.
template <class Use>
void with_elements(DType dtype, Storage storage, Use&& use) {
  const bool wide = storage == Storage::Wide;
  switch (dtype) {
    case DType::BF16:
      return wide ? use(Plain<double>{}) : use(Bf16{});
    case DType::FP16:
      return wide ? use(Plain<double>{}) : use(Fp16{});
    case DType::FP32:
      return wide ? use(Plain<double>{}) : use(Plain<float>{});
    case DType::INT32:
      return use(Whole<std::int32_t>{});
    case DType::INT64:
      return use(Whole<std::int64_t>{});
    case DType::BOOL:
      return use(Truth{});
  }
}

template <class Element, class Value>
void load(const std::byte* from, std::int64_t distance, std::int64_t count, Value* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    typename Element::Bits bits;
    std::memcpy(&bits, from + i * distance, sizeof bits);
    to[i] = static_cast<Value>(Element::value(bits));
  }
}

template <class Element, class Value>
void store(std::byte* to, std::int64_t distance, std::int64_t count, const Value* from) {
  for (std::int64_t i = 0; i < count; ++i) {
    const typename Element::Bits bits = Element::bits(from[i]);
    std::memcpy(to + i * distance, &bits, sizeof bits);
  }
}

}  // namespace

template <class Value>
std::vector<Value> read(const Array& array, Storage storage, const Shape& sizes) {
  std::vector<Value> values(static_cast<std::size_t>(elements_of(sizes)));
  if (!array.there()) return values;
  with_elements(array.view.dtype, storage, [&](auto element) {
    using Element = decltype(element);
    constexpr std::int64_t side_by_side = sizeof(typename Element::Bits);
    const std::int64_t apart = size_of(array.view.dtype).count() * spread(storage);
    Value* to = values.data();
    walk(sizes, broadcast_strides(array.view.sizes, array.view.strides, sizes),
         [&](std::int64_t offset, std::int64_t count, std::int64_t stride) {
           const std::byte* const from = array.first + offset * apart;
           if (stride * apart == side_by_side)  // a distance that the compiler knows
             load<Element>(from, side_by_side, count, to);
           else
             load<Element>(from, stride * apart, count, to);
           to += count;
         });
  });
  return values;
}

template <class Value>
void write(const Array& array, Storage storage, std::span<const Value> values) {
  if (!array.there()) return;
  const View& view = array.view;
  ensure(elements_of(view.sizes) == static_cast<std::int64_t>(values.size()), "a kernel writes all of its output");
  with_elements(view.dtype, storage, [&](auto element) {
    using Element = decltype(element);
    constexpr std::int64_t side_by_side = sizeof(typename Element::Bits);
    const std::int64_t apart = size_of(view.dtype).count() * spread(storage);
    const Value* from = values.data();
    walk(view.sizes, view.strides, [&](std::int64_t offset, std::int64_t count, std::int64_t stride) {
      std::byte* const to = array.first + offset * apart;
      if (stride * apart == side_by_side)
        store<Element>(to, side_by_side, count, from);
      else
        store<Element>(to, stride * apart, count, from);
      from += count;
    });
  });
}

template std::vector<float> read(const Array&, Storage, const Shape&);
template std::vector<double> read(const Array&, Storage, const Shape&);
template std::vector<std::int64_t> read(const Array&, Storage, const Shape&);
template void write(const Array&, Storage, std::span<const float>);
template void write(const Array&, Storage, std::span<const double>);
template void write(const Array&, Storage, std::span<const std::int64_t>);

}  // namespace tidemark::math
