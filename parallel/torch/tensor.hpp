#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/namespace.hpp"
#include "sim/base/category.hpp"
#include "sim/base/dtype.hpp"
#include "sim/base/units.hpp"

// Tensors as PyTorch has them, without their elements: sizes and strides over a storage that the last reference frees.

namespace tidemark::parallel::torch {

class Session;
struct Node;

using Shape = std::vector<std::int64_t>;

/// Memory that tensors view. The program says that it is given up when the last tensor that views it goes, which is
/// when PyTorch's reference count comes to zero.
class Storage {
 public:
  Storage(Session& session, BufferId buffer) : session_(session), buffer_(buffer) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  [[nodiscard]] BufferId buffer() const { return buffer_; }

 private:
  Session& session_;
  BufferId buffer_;
};

/// Where the gradient of a tensor goes: input `input` of a node of the autograd graph.
struct Edge {
  std::shared_ptr<Node> node;
  std::size_t input = 0;
};

struct Tensor {
  std::shared_ptr<Storage> storage;
  Shape sizes;
  Shape strides;  ///< elements
  DType dtype = DType::BF16;
  Edge gradient;      ///< no node: it needs none
  bool view = false;  ///< of another tensor, which it holds

  [[nodiscard]] bool defined() const { return storage != nullptr; }
  [[nodiscard]] bool requires_grad() const { return gradient.node != nullptr; }
  [[nodiscard]] std::int64_t size(int dimension) const;
  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] Bytes bytes() const { return elements() * size_of(dtype); }
  [[nodiscard]] bool contiguous() const;
  /// Whether it fills a storage of its own without gaps, in whatever order of dimensions.
  [[nodiscard]] bool dense() const;
  [[nodiscard]] BufferId buffer() const { return storage->buffer(); }
  /// The same memory, outside the autograd graph.
  [[nodiscard]] Tensor detached() const;
};

[[nodiscard]] std::int64_t elements_of(const Shape& sizes);
/// Strides of sizes laid out one after another, the last dimension innermost.
[[nodiscard]] Shape contiguous_strides(const Shape& sizes);
/// The shape that operands have together (ATen ExpandUtils.cpp infer_size).
[[nodiscard]] Shape broadcast(const Shape& a, const Shape& b);
/// Strides under which a tensor has other sizes without being copied (ATen TensorUtils.cpp computeStride); empty where
/// there are none.
[[nodiscard]] Shape strides_of_view(const Tensor& tensor, const Shape& sizes);
/// The strides that an elementwise operation gives its output: dimensions stay in the order in which the operands'
/// lie in memory (ATen TensorIterator.cpp reorder_dimensions).
[[nodiscard]] Shape elementwise_strides(const std::vector<const Tensor*>& operands, const Shape& sizes);

}  // namespace tidemark::parallel::torch
