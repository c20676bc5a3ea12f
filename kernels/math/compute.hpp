#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <vector>

#include "kernels/math/namespace.hpp"
#include "sim/program/program.hpp"

// Kernels that compute: every operation of the instruction set with real numbers. A kernel reads its inputs and writes
// its outputs, and touches nothing else.

namespace tidemark::math {

/// How elements lie in memory.
enum class Storage : std::uint8_t {
  Native,  ///< as on a device
  /// Elements of floating-point types are doubles, so that a whole program runs in float64. What lies at byte o on a
  /// device lies at byte 4 o here: the two bytes of a half make room for the eight of a double. Elements of the other
  /// types keep their sizes, at the same places.
  Wide,
};

/// How far apart storage lays what lies a byte apart on a device.
constexpr std::int64_t spread(Storage storage) { return storage == Storage::Wide ? 4 : 1; }

/// An operand: memory from its first element on, as a kernel sees it.
struct Array {
  std::byte* first = nullptr;  ///< none: the operand is absent
  View view;

  [[nodiscard]] bool there() const { return first != nullptr; }
};

/// What a kernel is told besides its operands and attributes.
struct Setting {
  Storage storage = Storage::Native;
  std::uint64_t key = 0;  ///< of the random numbers it draws: by launch
  std::int64_t step = 1;  ///< of training, from 1 on, for an optimizer whose steps the host counts
  /// Where an element of a tensor that is drawn at random stands in the tensor that this one is a rank's part of, so
  /// that ranks draw what one rank would; none: where it stands in this one. Elements count row by row.
  std::function<std::int64_t(std::int64_t)> place = {};
  /// What `initialize` writes, by output and element; none: normal numbers of deviation 0.02, and integers 0 or 1.
  std::function<double(std::size_t, std::int64_t)> initial = {};
  /// Which expert a token takes with one of its choices, where `top_k` is routed; none: that of the largest scores.
  std::function<std::int64_t(std::int64_t token, std::int64_t choice)> route = {};
};

/// An index points outside of what it is looked up in.
class WrongIndex : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Carries an operation out on the host. Operands are in its order, absent ones included, group after group; they may
/// lie on one another: of each group, all is read before anything is written. In native storage arithmetic is in fp32,
/// sums over many elements in fp64, and results are rounded once, to nearest even, when they are stored; integers are
/// computed with exactly up to 2^53, and copied exactly.
void compute(Operation operation, const Attributes& attributes, std::span<const Array> inputs,
             std::span<const Array> outputs, const Setting& setting = {});

/// What a launch of a program reads and writes, for `compute`; `memory` says where a buffer begins.
struct Operands {
  std::vector<Array> in, out;
};
[[nodiscard]] Operands operands_of(const Program& program, const Launch& launch,
                                   const std::function<std::byte*(BufferId)>& memory, Storage storage);

}  // namespace tidemark::math
