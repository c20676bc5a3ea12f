#include "kernels/math/elements.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/math/engine/engine.hpp"
#include "kernels/math/half.hpp"
#include "kernels/math/walk.hpp"

namespace tidemark::math {
namespace {

struct Bf16 {
  using Bits = std::uint16_t;
  static TIDEMARK_EVERYWHERE float value(Bits bits) { return from_bf16(bits); }
  static TIDEMARK_EVERYWHERE Bits bits(auto value) { return to_bf16(static_cast<float>(value)); }
};
struct Fp16 {
  using Bits = std::uint16_t;
  static TIDEMARK_EVERYWHERE float value(Bits bits) { return from_fp16(bits); }
  static TIDEMARK_EVERYWHERE Bits bits(auto value) { return to_fp16(static_cast<float>(value)); }
};
template <class Float>
struct Plain {
  using Bits = Float;
  static TIDEMARK_EVERYWHERE Float value(Float bits) { return bits; }
  static TIDEMARK_EVERYWHERE Float bits(auto value) { return static_cast<Float>(value); }
};
template <class Integer>
struct Whole {
  using Bits = Integer;
  static constexpr Bits least = std::numeric_limits<Bits>::min();
  static TIDEMARK_EVERYWHERE std::int64_t value(Bits bits) { return bits; }
  static TIDEMARK_EVERYWHERE Bits bits(std::int64_t value) { return static_cast<Bits>(value); }
  static TIDEMARK_EVERYWHERE Bits bits(double value) {
    // What the type does not hold, NaN for one, is its smallest, as the processor does.
    return std::fabs(value) < -static_cast<double>(least) ? static_cast<Bits>(value) : least;
  }
  static TIDEMARK_EVERYWHERE Bits bits(float value) { return bits(static_cast<double>(value)); }
};
struct E4m3 {
  using Bits = std::uint8_t;
  static TIDEMARK_EVERYWHERE float value(Bits bits) { return from_e4m3(bits); }
  static TIDEMARK_EVERYWHERE Bits bits(auto value) { return to_e4m3(static_cast<float>(value)); }
};
// Of no sign, which Whole has its range from.
struct Byte {
  using Bits = std::uint8_t;
  static TIDEMARK_EVERYWHERE std::int64_t value(Bits bits) { return bits; }
  static TIDEMARK_EVERYWHERE Bits bits(auto value) { return static_cast<Bits>(static_cast<std::int64_t>(value)); }
};
struct Truth {
  using Bits = std::uint8_t;
  static TIDEMARK_EVERYWHERE std::uint8_t value(Bits bits) { return bits != 0; }
  static TIDEMARK_EVERYWHERE Bits bits(auto value) { return value != 0; }
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
    case DType::INT16:
      return use(Whole<std::int16_t>{});
    case DType::E4M3:  // in the room of a float
      return wide ? use(Plain<float>{}) : use(E4m3{});
    case DType::UINT8:
      return use(Byte{});
    case DType::FP64:
      return use(Plain<double>{});
  }
}

template <class Element>
TIDEMARK_EVERYWHERE auto value_at(const std::byte* place) {
  typename Element::Bits bits;
  std::memcpy(&bits, place, sizeof bits);
  return Element::value(bits);
}

template <class Element>
struct Load {
  template <class Value>
  TIDEMARK_EVERYWHERE void operator()(std::byte* from, std::int64_t distance, std::int64_t count, Value* to) const {
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<Value>(value_at<Element>(from + i * distance));
  }
};
template <class Element>
struct Store {
  template <class Value>
  TIDEMARK_EVERYWHERE void operator()(std::byte* to, std::int64_t distance, std::int64_t count, Value* from) const {
    for (std::int64_t i = 0; i < count; ++i) {
      const typename Element::Bits bits = Element::bits(from[i]);
      std::memcpy(to + i * distance, &bits, sizeof bits);
    }
  }
};

// Moves values from or to elements of an array that lie in runs.
template <class Element, class Move, class Engine, class Value>
void move(Engine& engine, const Array& array, std::int64_t apart, const Runs& runs, Values<Value> values, Move move) {
  std::byte* const first = array.first;
  engine.ranges(values.count, [=] TIDEMARK_EVERYWHERE(std::int64_t begin, std::int64_t end) {
    runs.walk(begin, end, [&](std::int64_t element, std::int64_t offset, std::int64_t count, std::int64_t stride) {
      constexpr std::int64_t side_by_side = sizeof(typename Element::Bits);
      std::byte* const place = first + offset * apart;
      if (stride * apart == side_by_side)  // a distance that the compiler knows
        move(place, side_by_side, count, values.first + element);
      else
        move(place, stride * apart, count, values.first + element);
    });
  });
}

// Leaves a mark where there is one.
template <class Element, class Engine>
void look_for_nan(Engine& engine, const Array& array, std::int64_t apart, Values<std::int64_t> found) {
  const Runs runs(array.view.sizes, array.view.strides);
  const std::byte* const first = array.first;
  engine.ranges(elements_of(array.view.sizes), [=] TIDEMARK_EVERYWHERE(std::int64_t begin, std::int64_t end) {
    runs.walk(begin, end, [&](std::int64_t, std::int64_t offset, std::int64_t count, std::int64_t stride) {
      bool wrong = false;  // without an early end the loop is vectorized
      for (std::int64_t i = 0; i < count; ++i) {
        const auto value = value_at<Element>(first + (offset + i * stride) * apart);
        wrong |= value != value;
      }
      if (wrong) found[0] = 1;
    });
  });
}

std::int64_t bytes_apart(const Array& array, Storage storage) {
  return size_of(array.view.dtype).count() * spread(storage);
}

}  // namespace

template <class Value, class Engine>
Values<Value> read(Engine& engine, const Array& array, Storage storage, const Shape& sizes) {
  const Values<Value> values = room_of<Value>(engine, elements_of(sizes));
  if (!array.there()) {
    engine.ranges(values.count, [=] TIDEMARK_EVERYWHERE(std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) values[i] = 0;
    });
    return values;
  }
  const Runs runs(sizes, broadcast_strides(array.view.sizes, array.view.strides, sizes));
  with_elements(array.view.dtype, storage, [&](auto element) {
    using Element = decltype(element);
    move<Element>(engine, array, bytes_apart(array, storage), runs, values, Load<Element>{});
  });
  return values;
}

template <class Engine, class Value>
void write(Engine& engine, const Array& array, Storage storage, Values<Value> values) {
  if (!array.there()) return;
  const View& view = array.view;
  ensure(elements_of(view.sizes) == values.count, "a kernel writes all of its output");
  with_elements(view.dtype, storage, [&](auto element) {
    using Element = decltype(element);
    move<Element>(engine, array, bytes_apart(array, storage), {view.sizes, view.strides}, values, Store<Element>{});
  });
}

template <class Engine>
bool all_numbers(Engine& engine, const Array& array, Storage storage) {
  const View& view = array.view;
  if (view.dtype == DType::INT64 || view.dtype == DType::BOOL) return true;
  std::int64_t any = 0;
  const Values<std::int64_t> found = room_of<std::int64_t>(engine, 1);
  engine.copy(found.first, &any, sizeof any);
  with_elements(view.dtype, storage, [&](auto element) {
    look_for_nan<decltype(element)>(engine, array, bytes_apart(array, storage), found);
  });
  engine.copy(&any, found.first, sizeof any);
  return any == 0;
}

template bool all_numbers(ThisEngine&, const Array&, Storage);
template Values<float> read(ThisEngine&, const Array&, Storage, const Shape&);
template Values<double> read(ThisEngine&, const Array&, Storage, const Shape&);
template Values<std::int64_t> read(ThisEngine&, const Array&, Storage, const Shape&);
template void write(ThisEngine&, const Array&, Storage, Values<float>);
template void write(ThisEngine&, const Array&, Storage, Values<double>);
template void write(ThisEngine&, const Array&, Storage, Values<std::int64_t>);

}  // namespace tidemark::math
