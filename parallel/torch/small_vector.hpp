#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace tidemark::parallel::torch {

/// A vector whose first `Room` elements lie in place.
template <class T, std::size_t Room>
class SmallVector {
 public:
  SmallVector() = default;
  explicit SmallVector(std::size_t count) {
    reserve(count);
    while (size_ < count) emplace_back();
  }
  SmallVector(std::initializer_list<T> values) {
    reserve(values.size());
    for (const T& value : values) emplace_back(value);
  }
  SmallVector(std::vector<T> values) {  // NOLINT: code that has a vector may give it
    reserve(values.size());
    for (T& value : values) emplace_back(std::move(value));
  }
  SmallVector(const SmallVector& other) {
    reserve(other.size_);
    for (const T& value : other) emplace_back(value);
  }
  SmallVector(SmallVector&& other) noexcept { take(other); }
  SmallVector& operator=(SmallVector other) noexcept {
    clear();
    take(other);
    return *this;
  }
  ~SmallVector() { clear(); }
  operator std::vector<T>() const { return {begin(), end()}; }  // NOLINT: … and may take one

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] T* begin() { return first_; }
  [[nodiscard]] T* end() { return first_ + size_; }
  [[nodiscard]] const T* begin() const { return first_; }
  [[nodiscard]] const T* end() const { return first_ + size_; }
  [[nodiscard]] T& operator[](std::size_t i) { return first_[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const { return first_[i]; }
  [[nodiscard]] T& front() { return *first_; }
  [[nodiscard]] const T& front() const { return *first_; }
  [[nodiscard]] T& back() { return first_[size_ - 1]; }
  [[nodiscard]] const T& back() const { return first_[size_ - 1]; }

  template <class... Arguments>
  T& emplace_back(Arguments&&... arguments) {
    if (size_ == capacity_) reserve(2 * capacity_);
    return *std::construct_at(first_ + size_++, std::forward<Arguments>(arguments)...);
  }
  void push_back(T value) { emplace_back(std::move(value)); }
  /// From the first to the last.
  void clear() {
    std::destroy_n(first_, std::exchange(size_, 0));
    if (capacity_ > Room) std::allocator<T>().deallocate(first_, capacity_);
    first_ = in_place();
    capacity_ = Room;
  }

 private:
  T* in_place() { return reinterpret_cast<T*>(place_); }
  void reserve(std::size_t count) {
    if (count <= capacity_) return;
    T* const wide = std::allocator<T>().allocate(count);
    std::uninitialized_move_n(first_, size_, wide);
    const std::size_t kept = size_;
    clear();
    first_ = wide, capacity_ = count, size_ = kept;
  }
  // What the other has, which is left empty; this is.
  void take(SmallVector& other) {
    if (other.capacity_ > Room) {
      first_ = std::exchange(other.first_, other.in_place());
      capacity_ = std::exchange(other.capacity_, Room);
    } else {
      std::uninitialized_move_n(other.first_, other.size_, first_);
      std::destroy_n(other.first_, other.size_);
    }
    size_ = std::exchange(other.size_, 0);
  }

  T* first_ = in_place();
  std::size_t size_ = 0, capacity_ = Room;
  alignas(T) std::byte place_[Room * sizeof(T)];
};

}  // namespace tidemark::parallel::torch
