#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "kernels/math/engine/calculator.hpp"
#include "kernels/math/half.hpp"
#include "tests/namespace.hpp"

// Kernels are handed memory that is laid out in many ways; tests speak of numbers.

namespace tidemark::tests {

/// A tensor's numbers, row by row.
struct Numbers {
  DType dtype = DType::FP32;
  Shape sizes;
  std::vector<double> values;
  bool there = true;
};
using Tensors = std::vector<Numbers>;

inline const Numbers absent{.dtype = {}, .sizes = {}, .values = {}, .there = false};

inline Numbers zeros(Shape sizes, DType dtype = DType::FP32) {
  return {dtype, sizes, std::vector<double>(static_cast<std::size_t>(elements_of(sizes)))};
}

/// Fresh random numbers; every test that makes one draws the same.
class Draw {
 public:
  Numbers operator()(Shape sizes, double low = -2, double high = 2) {
    Numbers made = zeros(sizes);
    std::uniform_real_distribution<double> some(low, high);
    for (double& value : made.values) value = static_cast<float>(some(engine_));
    return made;
  }
  Numbers ids(Shape sizes, std::int64_t below, DType dtype = DType::INT64) {
    Numbers made = zeros(sizes, dtype);
    std::uniform_int_distribution<std::int64_t> some(0, below - 1);
    for (double& value : made.values) value = static_cast<double>(some(engine_));
    return made;
  }
  Numbers truths(Shape sizes) { return ids(sizes, 2, DType::BOOL); }

 private:
  std::mt19937_64 engine_{20240611};
};

/// How a tensor lies in memory.
enum class MatrixLayout { SideBySide, FirstInnermost, Apart, FirstInnermostApart };

/// Numbers in memory, between bytes that are NaN, and that nobody may write.
class Laid {
 public:
  Laid(const Numbers& numbers, math::Storage storage, MatrixLayout layout) : storage_(storage), there_(numbers.there) {
    view_ = {numbers.dtype, numbers.sizes, contiguous_strides(numbers.sizes)};
    if (layout == MatrixLayout::FirstInnermost || layout == MatrixLayout::FirstInnermostApart) {
      std::int64_t stride = layout == MatrixLayout::FirstInnermost ? 1 : 3;
      for (std::size_t d = 0; d < view_.sizes.size(); ++d)
        view_.strides[d] = std::exchange(stride, stride * view_.sizes[d]);
    } else if (layout == MatrixLayout::Apart) {
      for (std::int64_t& stride : view_.strides) stride *= 3;
    }
    bytes_.assign(static_cast<std::size_t>((view_.extent().count() + 2 * margin) * math::spread(storage)),
                  std::byte{0xff});
    for (std::size_t i = 0; i < numbers.values.size(); ++i) put(place(i), numbers.values[i]);
  }

  [[nodiscard]] std::vector<std::byte>& bytes() { return bytes_; }
  [[nodiscard]] math::Array array() { return there_ ? math::Array{at(0), view_} : math::Array{}; }
  [[nodiscard]] Numbers numbers() {
    Numbers all{view_.dtype, view_.sizes, {}, there_};
    for (std::size_t i = 0; there_ && i < static_cast<std::size_t>(elements_of(view_.sizes)); ++i)
      all.values.push_back(get(place(i)));
    return all;
  }
  /// How many bytes are not as they were made, but for the elements themselves.
  [[nodiscard]] std::int64_t strays() {
    for (std::size_t i = 0; there_ && i < static_cast<std::size_t>(elements_of(view_.sizes)); ++i)
      std::memset(place(i), 0xff, element_size());
    return std::ranges::count_if(bytes_, [](std::byte b) { return b != std::byte{0xff}; });
  }

 private:
  static constexpr std::int64_t margin = 16;  // bytes

  std::byte* at(std::int64_t element) {
    return bytes_.data() + (margin + element * size_of(view_.dtype).count()) * math::spread(storage_);
  }
  std::byte* place(std::size_t i) {
    auto rest = static_cast<std::int64_t>(i);
    std::int64_t element = 0;
    for (std::size_t d = view_.sizes.size(); d-- > 0; rest /= view_.sizes[d])
      element += rest % view_.sizes[d] * view_.strides[d];
    return at(element);
  }
  [[nodiscard]] bool wide() const { return storage_ == math::Storage::Wide && is_floating(view_.dtype); }
  [[nodiscard]] std::size_t element_size() const {
    return wide() ? sizeof(double) : static_cast<std::size_t>(size_of(view_.dtype).count());
  }
  template <class Stored>
  static void put_as(std::byte* to, Stored value) {
    std::memcpy(to, &value, sizeof value);
  }
  template <class Stored>
  static Stored get_as(const std::byte* from) {
    Stored value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  void put(std::byte* to, double value) const {
    if (wide()) return put_as(to, value);
    switch (view_.dtype) {
      case DType::BF16:
        return put_as(to, math::to_bf16(static_cast<float>(value)));
      case DType::FP16:
        return put_as(to, math::to_fp16(static_cast<float>(value)));
      case DType::FP32:
        return put_as(to, static_cast<float>(value));
      case DType::INT32:
        return put_as(to, static_cast<std::int32_t>(value));
      case DType::INT64:
        return put_as(to, static_cast<std::int64_t>(value));
      case DType::BOOL:
        return put_as(to, static_cast<std::uint8_t>(value));
      case DType::INT16:
        return put_as(to, static_cast<std::int16_t>(value));
      case DType::E4M3:
        return put_as(to, math::to_e4m3(static_cast<float>(value)));
      case DType::UINT8:
        return put_as(to, static_cast<std::uint8_t>(value));
      case DType::FP64:
        return put_as(to, value);
    }
  }
  [[nodiscard]] double get(const std::byte* from) const {
    if (wide()) return get_as<double>(from);
    switch (view_.dtype) {
      case DType::BF16:
        return math::from_bf16(get_as<std::uint16_t>(from));
      case DType::FP16:
        return math::from_fp16(get_as<std::uint16_t>(from));
      case DType::FP32:
        return get_as<float>(from);
      case DType::INT32:
        return get_as<std::int32_t>(from);
      case DType::INT64:
        return static_cast<double>(get_as<std::int64_t>(from));
      case DType::BOOL:
        return get_as<std::uint8_t>(from);
      case DType::INT16:
        return get_as<std::int16_t>(from);
      case DType::E4M3:
        return math::from_e4m3(get_as<std::uint8_t>(from));
      case DType::UINT8:
        return get_as<std::uint8_t>(from);
      case DType::FP64:
        return get_as<double>(from);
    }
    return 0;
  }

  math::Storage storage_;
  bool there_;
  View view_;
  std::vector<std::byte> bytes_;
};

struct InPlace {
  std::size_t input, output;
};

struct RunOptions {
  math::Storage storage = math::Storage::Wide;
  MatrixLayout layout = MatrixLayout::SideBySide;
  std::optional<InPlace> in_place = {};  ///< the output lies on the input
  math::Setting setting = {};
  math::Calculator* calculator = nullptr;  ///< none: the host's
};

/// What an operation makes of inputs; outputs say their types and sizes. Fills `strays` with how many bytes were
/// written that are no output's.
inline Tensors run(Operation operation, const Attributes& attributes, const Tensors& inputs, const Tensors& outputs,
                   RunOptions options = {}, std::int64_t* strays = nullptr) {
  std::vector<Laid> in, out;
  for (const Numbers& numbers : inputs) in.emplace_back(numbers, options.storage, options.layout);
  const double unwritten = std::numeric_limits<double>::quiet_NaN();
  for (Numbers numbers : outputs) {
    for (double& value : numbers.values) value = is_floating(numbers.dtype) ? unwritten : 77;
    out.emplace_back(numbers, options.storage, options.layout);
  }
  math::HostCalculator host;
  math::Calculator& calculator = options.calculator != nullptr ? *options.calculator : host;
  std::vector<math::Memory> memory;
  const auto arrays = [&](std::vector<Laid>& all) {
    std::vector<math::Array> made;
    for (Laid& laid : all) {
      const std::vector<std::byte>& bytes = laid.bytes();
      memory.push_back(math::memory_of(calculator, bytes.size()));
      calculator.copy(memory.back().get(), bytes.data(), bytes.size());
      made.push_back(laid.array());
      if (made.back().there()) made.back().first = memory.back().get() + (laid.array().first - bytes.data());
    }
    return made;
  };
  std::vector<math::Array> in_arrays = arrays(in), out_arrays = arrays(out);
  if (options.in_place) out_arrays[options.in_place->output] = in_arrays[options.in_place->input];
  options.setting.storage = options.storage;
  calculator.compute(operation, attributes, in_arrays, out_arrays, options.setting);
  std::size_t next = 0;
  for (std::vector<Laid>* all : {&in, &out})
    for (Laid& laid : *all) calculator.copy(laid.bytes().data(), memory[next++].get(), laid.bytes().size());
  Tensors made;
  for (std::size_t o = 0; o < out.size(); ++o)
    made.push_back(options.in_place && options.in_place->output == o ? in[options.in_place->input].numbers()
                                                                     : out[o].numbers());
  if (strays != nullptr) {
    *strays = 0;
    for (std::vector<Laid>* all : {&in, &out})
      for (Laid& laid : *all) *strays += laid.strays();
  }
  return made;
}

/// The largest difference of two tensors' numbers, as a share of the second's largest number; infinite where one is NaN
/// or infinite, and the other is not the same.
inline double difference(const Numbers& a, const Numbers& b) {
  double most = 0, size = 1e-30;
  if (a.values.size() != b.values.size()) return std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    const double x = a.values[i], y = b.values[i];
    if (x == y || (x != x && y != y)) continue;
    if (!std::isfinite(x) || !std::isfinite(y)) return std::numeric_limits<double>::infinity();
    most = std::max(most, std::fabs(x - y));
  }
  for (const double y : b.values)
    if (std::isfinite(y)) size = std::max(size, std::fabs(y));
  return most / size;
}

}  // namespace tidemark::tests
