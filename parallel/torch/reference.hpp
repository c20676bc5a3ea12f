#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

// Counted references as PyTorch's intrusive_ptr, and memory that is used again: a program is written by making and
// dropping millions of tensors and nodes.

namespace tidemark::parallel::torch {

/// Counts the references to it, and is told when none is left.
class Counted {
 public:
  virtual ~Counted() = default;
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 protected:
  Counted() = default;
  virtual void unreferenced() = 0;

 private:
  template <class T>
  friend class Ref;
  std::int32_t references_ = 0;
};

/// A reference to a counted object; one of a type that is not yet known can be held and copied.
template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}  // NOLINT: as pointers do
  explicit Ref(T* object) : object_(object) { retain(); }
  Ref(const Ref& other) : object_(other.object_) { retain(); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_ != nullptr && --object_->references_ == 0) object_->unreferenced();
  }

  [[nodiscard]] T* get() const { return static_cast<T*>(object_); }
  T* operator->() const { return get(); }
  T& operator*() const { return *get(); }
  explicit operator bool() const { return object_ != nullptr; }
  [[nodiscard]] std::int32_t use_count() const { return object_ == nullptr ? 0 : object_->references_; }
  bool operator==(const Ref& other) const { return object_ == other.object_; }
  bool operator==(std::nullptr_t) const { return object_ == nullptr; }

 private:
  void retain() {
    if (object_ != nullptr) ++object_->references_;
  }
  Counted* object_ = nullptr;
};

/// Makes objects where others were before.
template <class T>
class Pool {
 public:
  Pool() = default;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  template <class... Arguments>
  [[nodiscard]] T* make(Arguments&&... arguments) {
    if (spare_ == nullptr) grow();
    Slot* const slot = spare_;
    spare_ = slot->next;
    return std::construct_at(reinterpret_cast<T*>(slot->object), std::forward<Arguments>(arguments)...);
  }
  void recycle(T* object) {
    std::destroy_at(object);
    Slot* const slot = reinterpret_cast<Slot*>(object);
    slot->next = spare_;
    spare_ = slot;
  }

 private:
  union Slot {
    Slot* next;
    alignas(T) std::byte object[sizeof(T)];
  };
  void grow() {
    constexpr std::size_t count = 128;
    blocks_.push_back(std::make_unique_for_overwrite<Slot[]>(count));
    for (std::size_t i = count; i-- > 0;) {
      blocks_.back()[i].next = spare_;
      spare_ = &blocks_.back()[i];
    }
  }

  std::vector<std::unique_ptr<Slot[]>> blocks_;
  Slot* spare_ = nullptr;
};

/// A function that lies in place where it takes no more than `Room` bytes; it is neither copied nor moved.
template <class Signature, std::size_t Room>
class Closure;
template <class Result, class... Arguments, std::size_t Room>
class Closure<Result(Arguments...), Room> {
 public:
  Closure() = default;
  ~Closure() { *this = nullptr; }
  Closure(const Closure&) = delete;
  Closure& operator=(const Closure&) = delete;

  template <class Function>
  requires std::invocable<Function&, Arguments...> Closure& operator=(Function function) {
    *this = nullptr;
    if constexpr (sizeof(Function) <= Room && alignof(Function) <= alignof(std::max_align_t)) {
      std::construct_at(reinterpret_cast<Function*>(place_), std::move(function));
      call_ = [](std::byte* at, Arguments... arguments) -> Result {
        return (*reinterpret_cast<Function*>(at))(std::forward<Arguments>(arguments)...);
      };
      destroy_ = [](std::byte* at) { std::destroy_at(reinterpret_cast<Function*>(at)); };
    } else {
      *this = [boxed = std::make_unique<Function>(std::move(function))](Arguments... arguments) -> Result {
        return (*boxed)(std::forward<Arguments>(arguments)...);
      };
    }
    return *this;
  }
  Closure& operator=(std::nullptr_t) {
    if (call_ != nullptr) destroy_(place_);
    call_ = nullptr;
    return *this;
  }

  explicit operator bool() const { return call_ != nullptr; }
  Result operator()(Arguments... arguments) { return call_(place_, std::forward<Arguments>(arguments)...); }

 private:
  Result (*call_)(std::byte*, Arguments...) = nullptr;
  void (*destroy_)(std::byte*) = nullptr;
  alignas(std::max_align_t) std::byte place_[Room];
};

}  // namespace tidemark::parallel::torch
