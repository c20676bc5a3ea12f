#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace tidemark::sim {

/// A whole number of one unit. Quantities of different units do not mix; a quantity scales by plain integers.
template <class Unit>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(std::int64_t count) : count_(count) {}

  /// The bare number. For edges only: formatting, a C API, an array index.
  [[nodiscard]] constexpr std::int64_t count() const { return count_; }

  constexpr Quantity& operator+=(Quantity other) {
    count_ += other.count_;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    count_ -= other.count_;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity{a.count_ + b.count_}; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity{a.count_ - b.count_}; }
  friend constexpr Quantity operator-(Quantity a) { return Quantity{-a.count_}; }
  friend constexpr Quantity operator*(Quantity a, std::int64_t n) { return Quantity{a.count_ * n}; }
  friend constexpr Quantity operator*(std::int64_t n, Quantity a) { return Quantity{a.count_ * n}; }
  friend constexpr Quantity operator/(Quantity a, std::int64_t n) { return Quantity{a.count_ / n}; }
  friend constexpr std::int64_t operator/(Quantity a, Quantity b) { return a.count_ / b.count_; }
  friend constexpr Quantity operator%(Quantity a, Quantity b) { return Quantity{a.count_ % b.count_}; }
  friend constexpr auto operator<=>(Quantity, Quantity) = default;

 private:
  std::int64_t count_ = 0;
};

/// Memory. Signed, so that differences are safe.
using Bytes = Quantity<struct ByteUnit>;

/// `n` rounded up to a whole number of `step`s; `step` > 0.
template <class Unit>
constexpr Quantity<Unit> round_up(Quantity<Unit> n, Quantity<Unit> step) {
  return Quantity<Unit>{(n.count() + step.count() - 1) / step.count() * step.count()};
}
constexpr std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

namespace literals {
constexpr Bytes operator""_B(unsigned long long n) { return Bytes{static_cast<std::int64_t>(n)}; }
constexpr Bytes operator""_KiB(unsigned long long n) { return Bytes{static_cast<std::int64_t>(n) << 10}; }
constexpr Bytes operator""_MiB(unsigned long long n) { return Bytes{static_cast<std::int64_t>(n) << 20}; }
constexpr Bytes operator""_GiB(unsigned long long n) { return Bytes{static_cast<std::int64_t>(n) << 30}; }
}  // namespace literals

/// A name for one thing of a kind: an index that cannot be mistaken for another kind's.
template <class Kind>
struct Id {
  std::int32_t value = -1;

  [[nodiscard]] constexpr std::size_t index() const { return static_cast<std::size_t>(value); }
  [[nodiscard]] constexpr bool valid() const { return value >= 0; }
  friend constexpr auto operator<=>(Id, Id) = default;
};

using Rank = Id<struct RankKind>;          ///< a process of the job
using StreamId = Id<struct StreamKind>;    ///< a stream of one rank
using BufferId = Id<struct BufferKind>;    ///< an allocation of one program
using EventId = Id<struct EventKind>;      ///< a CUDA event of one program
using NameId = Id<struct NameKind>;        ///< a variable of the framework's frames and modules
using LabelId = Id<struct LabelKind>;      ///< an interned text of one program
using KernelId = Id<struct KernelKind>;    ///< an interned kernel of one program
using ViewId = Id<struct ViewKind>;        ///< an interned view of one program
using OffsetId = Id<struct OffsetKind>;    ///< an interned offset of one program
using CommSlot = Id<struct CommSlotKind>;  ///< "my pipeline group": a communicator, seen from a rank
using MatrixId = Id<struct MatrixKind>;    ///< who sends how much to whom, among the members of a group
using RowId = Id<struct RowKind>;          ///< one program's row of a matrix

}  // namespace tidemark::sim

template <class Kind>
struct std::hash<tidemark::sim::Id<Kind>> {
  std::size_t operator()(tidemark::sim::Id<Kind> id) const noexcept { return std::hash<std::int32_t>{}(id.value); }
};
