#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/base/dtype.hpp"
#include "sim/base/shape.hpp"
#include "sim/base/units.hpp"
#include "sim/program/operation.hpp"

namespace tidemark::sim {

/// How a kernel sees memory: elements of one type, dimension by dimension, as a tensor. Where it begins in a buffer is
/// said by the operand.
struct View {
  DType dtype = DType::BF16;
  Shape sizes;
  Shape strides;  ///< elements; 0 in dimensions that are expanded

  /// Elements of memory behind it: an expanded dimension has one for all its places.
  [[nodiscard]] std::int64_t stored() const;
  [[nodiscard]] Bytes bytes() const { return stored() * size_of(dtype); }
  /// From its first byte to behind its last.
  [[nodiscard]] Bytes extent() const;
  bool operator==(const View&) const = default;
};

/// The elements of all its places.
[[nodiscard]] std::int64_t elements_of(const Shape& sizes);
/// Strides of sizes laid out one after another, the last dimension innermost.
[[nodiscard]] Shape contiguous_strides(const Shape& sizes);

/// Who computes. The host thread runs what it computes itself, to its end, and on its own memory only.
enum class Processor : std::uint8_t { Device, Host };

/// A kernel that a compiler made of several operations is launched as these, one after another, so that each can be
/// carried out. The first of them takes the time of all, the others none; but products of one kernel take their shares,
/// of which the first has its start.
struct FusedStep {
  bool follows = false;  ///< another step, which is the first or follows it itself
  Bytes traffic;         ///< of the first: what the whole kernel reads from memory and writes there
  bool operator==(const FusedStep&) const = default;
};

/// What is launched, but for the buffers: an operation on operands of given types and sizes. Views are in the order of
/// the operation's operands, group after group; one that is absent is invalid.
struct Kernel {
  Operation operation = Operation::Fill;
  Attributes attributes{};
  std::vector<ViewId> inputs, outputs;
  Processor processor = Processor::Device;
  std::optional<FusedStep> fused{};

  /// It is a part of what was launched before: the host thread takes no longer for it, nor does the device, but for
  /// products.
  [[nodiscard]] bool follows() const { return fused && fused->follows; }
  bool operator==(const Kernel&) const = default;
};

}  // namespace tidemark::sim
