#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/math/compute.hpp"
#include "kernels/math/elements.hpp"
#include "kernels/math/values.hpp"
#include "kernels/math/walk.hpp"

namespace tidemark::math {

/// One group of operands of a kernel, and the engine that carries it out: what the functions of families.hpp are
/// handed. Real is what they compute in, float or double. Operands are read into memory of the engine and written from
/// there.
template <class Engine, class RealType>
struct KernelCall {
  using Real = RealType;

  Engine& engine;
  const Attributes& attributes;
  std::span<const Array> in, out;
  const Setting& setting;
  std::size_t group = 0;

  KernelCall(Engine& its, const Attributes& numbers, std::span<const Array> inputs, std::span<const Array> outputs,
             const Setting& said, std::size_t number)
      : engine(its), attributes(numbers), in(inputs), out(outputs), setting(said), group(number) {}
  KernelCall(const KernelCall&) = delete;  // a body that captured one would take the host's memory along
  KernelCall& operator=(const KernelCall&) = delete;

  [[nodiscard]] const Shape& sizes_in(std::size_t i) const { return in[i].view.sizes; }
  [[nodiscard]] const Shape& sizes_out(std::size_t o) const { return out[o].view.sizes; }

  /// An input row by row, broadcast to sizes; zeros where it is absent.
  [[nodiscard]] Values<Real> read(std::size_t i, const Shape& sizes) const { return read_as<Real>(i, sizes); }
  /// As it is; absent where it is.
  [[nodiscard]] Values<Real> read(std::size_t i) const { return read_as<Real>(i); }
  [[nodiscard]] Values<double> doubles(std::size_t i) const { return read_as<double>(i); }
  [[nodiscard]] Values<std::int64_t> integers(std::size_t i) const { return read_as<std::int64_t>(i); }
  [[nodiscard]] Values<std::int64_t> integers(std::size_t i, const Shape& sizes) const {
    return read_as<std::int64_t>(i, sizes);
  }
  /// Stores all of an output; nothing of one that is absent.
  template <class Value>
  void write(std::size_t o, Values<Value> values) const {
    math::write(engine, out[o], setting.storage, values);
  }

  /// Room for so many numbers, until the kernel is done.
  template <class Value>
  [[nodiscard]] Values<Value> room_of(std::int64_t count) const {
    return math::room_of<Value>(engine, count);
  }
  [[nodiscard]] Values<Real> room(std::int64_t count) const { return room_of<Real>(count); }
  [[nodiscard]] Values<Real> room_for(std::size_t o) const { return room(elements_of(sizes_out(o))); }
  [[nodiscard]] Values<double> sums(std::int64_t count) const { return room_of<double>(count); }

  /// The host's numbers to the engine's memory, and back.
  template <class Value>
  [[nodiscard]] Values<Value> brought(const std::vector<Value>& from) const {
    const Values<Value> to = room_of<Value>(static_cast<std::int64_t>(from.size()));
    engine.copy(to.first, from.data(), from.size() * sizeof(Value));
    return to;
  }
  template <class Value>
  [[nodiscard]] std::vector<Value> fetched(Values<Value> from) const {
    std::vector<Value> to(static_cast<std::size_t>(from.count));
    engine.copy(to.data(), from.first, to.size() * sizeof(Value));
    return to;
  }
  /// By element, the place that random numbers are drawn by; absent where each one's is its own.
  [[nodiscard]] Values<std::int64_t> places(std::int64_t count) const {
    if (!setting.place) return {};
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < count; ++i) all.push_back(setting.place(i));
    return brought(all);
  }

  /// Calls `body(begin, end)` for ranges that are all of [0, count) together, `each` calls `body(i)`. A body captures
  /// by value, and is marked TIDEMARK_EVERYWHERE.
  template <class Body>
  void ranges(std::int64_t count, const Body& body) const {
    engine.ranges(count, body);
  }
  template <class Body>
  void each(std::int64_t count, const Body& body) const {
    engine.ranges(count, [=] TIDEMARK_EVERYWHERE(std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) body(i);
    });
  }

 private:
  template <class Value>
  [[nodiscard]] Values<Value> read_as(std::size_t i, const Shape& sizes) const {
    return math::read<Value>(engine, in[i], setting.storage, sizes);
  }
  template <class Value>
  [[nodiscard]] Values<Value> read_as(std::size_t i) const {
    return in[i].there() ? read_as<Value>(i, sizes_in(i)) : Values<Value>{};
  }
};

/// How many rows there are of the last dimension, and how many elements each has.
struct Rows {
  std::int64_t count, width;
};
inline Rows rows_of(const Shape& sizes) {
  const std::int64_t width = sizes.empty() ? 1 : sizes.back();
  return {width > 0 ? elements_of(sizes) / width : 0, width};
}

/// Of labels, the one that no loss counts (torch.nn.functional.cross_entropy ignore_index, TransformerEngine
/// ignore_idx).
constexpr std::int64_t no_label = -100;

[[noreturn]] void report_index(std::int64_t id, std::int64_t count, const char* of);

/// That each index is one of so many, or the one that goes without; WrongIndex where one is not.
template <class Call>
void check_indices(const Call& c, Values<std::int64_t> ids, std::int64_t count, const char* of,
                   std::int64_t without = 0) {
  const Values<std::int64_t> wrong = c.brought(std::vector<std::int64_t>{0, 0});  // whether one is, and which
  c.each(ids.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) {
    if (ids[i] == without || (ids[i] >= 0 && ids[i] < count) || wrong[0] != 0) return;
    wrong[1] = ids[i];
    wrong[0] = 1;
  });
  if (const std::vector<std::int64_t> found = c.fetched(wrong); found[0] != 0) report_index(found[1], count, of);
}

}  // namespace tidemark::math
