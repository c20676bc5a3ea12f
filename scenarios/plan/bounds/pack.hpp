#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "scenarios/namespace.hpp"
#include "sim/base/ensure.hpp"

namespace tidemark::scenarios {

/// Writes numbers and texts one after the other; `Unpack` reads them in the same order. Of one machine's make.
class Pack {
 public:
  template <class T>
  requires(std::is_trivially_copyable_v<T>) Pack& operator<<(const T& value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Pack& operator<<(const std::string& text) {
    *this << static_cast<std::uint64_t>(text.size());
    text_ += text;
    return *this;
  }
  [[nodiscard]] std::string text() && { return std::move(text_); }

 private:
  std::string text_;
};

class Unpack {
 public:
  explicit Unpack(std::string_view text) : text_(text) {}
  template <class T>
  requires(std::is_trivially_copyable_v<T>) Unpack& operator>>(T& value) {
    ensure(text_.size() >= sizeof value, "what is unpacked was packed");
    std::memcpy(&value, text_.data(), sizeof value);
    text_.remove_prefix(sizeof value);
    return *this;
  }
  Unpack& operator>>(std::string& text) {
    std::uint64_t size = 0;
    *this >> size;
    ensure(text_.size() >= size, "what is unpacked was packed");
    text = text_.substr(0, size);
    text_.remove_prefix(size);
    return *this;
  }

 private:
  std::string_view text_;
};

}  // namespace tidemark::scenarios
