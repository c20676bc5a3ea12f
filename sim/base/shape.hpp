#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "sim/base/ensure.hpp"

namespace tidemark::sim {

/// Sizes or strides of a tensor, dimension by dimension, in place: no tensor of a model has more dimensions.
class Shape {
 public:
  static constexpr std::size_t most = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> values) : Shape(values.begin(), values.end()) {}
  Shape(std::size_t dimensions, std::int64_t value) { resize(dimensions, value); }
  template <class Iterator>
  Shape(Iterator first, Iterator last) {
    for (; first != last; ++first) push_back(*first);
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::int64_t* begin() { return values_.data(); }
  [[nodiscard]] std::int64_t* end() { return values_.data() + size_; }
  [[nodiscard]] const std::int64_t* begin() const { return values_.data(); }
  [[nodiscard]] const std::int64_t* end() const { return values_.data() + size_; }
  [[nodiscard]] std::int64_t& operator[](std::size_t d) { return values_[d]; }
  [[nodiscard]] std::int64_t operator[](std::size_t d) const { return values_[d]; }
  [[nodiscard]] std::int64_t& front() { return values_[0]; }
  [[nodiscard]] std::int64_t front() const { return values_[0]; }
  [[nodiscard]] std::int64_t& back() { return values_[size_ - 1]; }
  [[nodiscard]] std::int64_t back() const { return values_[size_ - 1]; }

  void push_back(std::int64_t value) { insert(end(), value); }
  void insert(const std::int64_t* before, std::int64_t value) {
    const auto at = static_cast<std::size_t>(before - begin());
    resize(size_ + 1, 0);
    std::copy_backward(begin() + at, end() - 1, end());
    values_[at] = value;
  }
  void erase(const std::int64_t* dimension) {
    std::copy(dimension + 1, static_cast<const std::int64_t*>(end()), begin() + (dimension - begin()));
    values_[--size_] = 0;
  }

  bool operator==(const Shape&) const = default;

 private:
  void resize(std::size_t dimensions, std::int64_t value) {
    ensure(dimensions <= most, "a tensor has at most six dimensions");
    for (; size_ < dimensions; ++size_) values_[size_] = value;
  }

  std::array<std::int64_t, most> values_{};  // zeros from `size_` on, so that shapes compare as they are
  std::size_t size_ = 0;
};

}  // namespace tidemark::sim
