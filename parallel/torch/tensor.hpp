#pragma once

#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "parallel/namespace.hpp"
#include "parallel/torch/reference.hpp"
#include "parallel/torch/small_vector.hpp"
#include "sim/base/category.hpp"
#include "sim/base/dtype.hpp"
#include "sim/base/shape.hpp"
#include "sim/base/units.hpp"
#include "sim/program/kernel.hpp"

// Tensors as PyTorch has them, without their elements: sizes and strides over a storage that the last reference frees.

namespace tidemark::parallel::torch {

class Session;
class Node;

/// Memory that tensors view. The program says that it is given up when the last tensor that views it goes, which is
/// when PyTorch's reference count comes to zero.
class Storage final : public Counted {
 public:
  Storage(Session& session, BufferId buffer) : session_(session), buffer_(buffer) {}

  [[nodiscard]] BufferId buffer() const { return buffer_; }

 private:
  friend class Session;
  void unreferenced() override;

  Session& session_;
  BufferId buffer_;  ///< none while it is discarded
};

/// Where the gradient of a tensor goes: input `input` of a node of the autograd graph.
struct Edge {
  Ref<Node> node;
  std::size_t input = 0;
};

struct Tensor {
  Ref<Storage> storage;
  Shape sizes;
  Shape strides;            ///< elements
  std::int64_t offset = 0;  ///< elements from the storage's beginning
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

/// A gradient for each output of an operation, or for each input; undefined where none is needed.
using Gradients = SmallVector<Tensor, 3>;

/// A tensor that an operation is handed; one that is moved in is referred to for the last time, until the operation is
/// over. It may be undefined: the operation goes without.
class TensorOperand {
 public:
  TensorOperand(const Tensor& its)  // NOLINT: {x, &y} are operands
      : tensor_(&its), buffer_(its.defined() ? its.buffer() : BufferId{}) {}
  TensorOperand(const Tensor* its) : TensorOperand(*its) {}  // NOLINT
  TensorOperand(Tensor&& its)                                // NOLINT
      : TensorOperand(static_cast<const Tensor&>(its)) {
    last_ = std::move(its.storage);
  }
  TensorOperand(const TensorOperand&) = delete;
  TensorOperand& operator=(const TensorOperand&) = delete;
  ~TensorOperand() = default;

  /// Its sizes, strides and type; `buffer()` is its memory.
  [[nodiscard]] const Tensor& tensor() const { return *tensor_; }
  [[nodiscard]] BufferId buffer() const { return buffer_; }

 private:
  const Tensor* tensor_;
  BufferId buffer_;
  Ref<Storage> last_;
};

/// Tensors that a function is handed, wherever they lie: it reads them while it runs, and keeps none.
class Operands {
 public:
  using Operand = TensorOperand;
  Operands() = default;
  Operands(std::initializer_list<Operand> list) : listed_(std::data(list)), size_(list.size()) {}
  Operands(std::span<const Operand> list) : listed_(list.data()), size_(list.size()) {}  // NOLINT: any of them will do
  Operands(const std::vector<Tensor>& all) : in_row_(all.data()), size_(all.size()) {}   // NOLINT
  Operands(const Gradients& all) : in_row_(all.begin()), size_(all.size()) {}            // NOLINT

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] const Tensor& operator[](std::size_t i) const {
    return listed_ != nullptr ? listed_[i].tensor() : in_row_[i];
  }
  /// Of the i-th; none of one that is undefined.
  [[nodiscard]] BufferId buffer(std::size_t i) const {
    if (listed_ != nullptr) return listed_[i].buffer();
    return in_row_[i].defined() ? in_row_[i].buffer() : BufferId{};
  }
  [[nodiscard]] const Tensor& front() const { return (*this)[0]; }

  class Iterator {
   public:
    Iterator(const Operands& all, std::size_t at) : all_(all), at_(at) {}
    const Tensor& operator*() const { return all_[at_]; }
    Iterator& operator++() {
      ++at_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return at_ != other.at_; }

   private:
    const Operands& all_;
    std::size_t at_;
  };
  [[nodiscard]] Iterator begin() const { return {*this, 0}; }
  [[nodiscard]] Iterator end() const { return {*this, size_}; }

 private:
  const Operand* listed_ = nullptr;
  const Tensor* in_row_ = nullptr;
  std::size_t size_ = 0;
};

// Views of the same memory, outside the autograd graph.
/// Other sizes that need no copy.
[[nodiscard]] Tensor sized(Tensor x, const Shape& sizes);
/// Of one dimension.
[[nodiscard]] inline Tensor flattened(const Tensor& x) { return sized(x, {x.elements()}); }
/// Of a dimension of one more, behind the others.
[[nodiscard]] Tensor with_last_dimension(const Tensor& x);
/// A part of a dimension; negative dimensions count from the last.
[[nodiscard]] Tensor narrowed(Tensor x, int dimension, std::int64_t begin, std::int64_t size);
[[nodiscard]] Tensor swapped(Tensor x, int a, int b);
/// (batch, heads, sequence, width) by (batch, sequence, heads, width), or the other way.
[[nodiscard]] inline Tensor by_sequence(Tensor x) { return swapped(std::move(x), 1, 2); }
/// Broadcast to sizes: dimensions that it has not, or of which it has one place, are expanded.
[[nodiscard]] Tensor expanded(Tensor x, const Shape& sizes);

/// The shape that operands have together (ATen ExpandUtils.cpp infer_size).
[[nodiscard]] Shape broadcast(const Shape& a, const Shape& b);
/// Strides under which a tensor has other sizes without being copied (ATen TensorUtils.cpp computeStride); empty where
/// there are none.
[[nodiscard]] Shape strides_of_view(const Tensor& tensor, const Shape& sizes);
/// The strides that an elementwise operation gives its output: dimensions stay in the order in which the operands'
/// lie in memory (ATen TensorIterator.cpp reorder_dimensions).
[[nodiscard]] Shape elementwise_strides(Operands operands, const Shape& sizes);

}  // namespace tidemark::parallel::torch
