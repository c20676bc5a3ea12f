#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/recordings/pickle/pickle.hpp"

namespace tidemark::scenarios {

/// The bytes of a pickle, in order, and the numbers that they are.
class PickleBytesReader {
 public:
  PickleBytesReader(const ByteSource& source, const std::string& file) : file_(file), source_(source) {}

  /// Throws InputError about the opcode that was begun last.
  [[noreturn]] void reject(const std::string& message, std::string hint = {}) const {
    throw InputError(Problem{.file = file_,
                             .line = 0,
                             .column = 0,
                             .message = "not a readable pickle: at byte " + std::to_string(start_) + ": " + message,
                             .hint = std::move(hint)});
  }

  // Until the next call.
  std::string_view take(std::size_t n) {
    if (n > filled_ - used_ && !refill(n)) {
      reject("the data ends " + std::to_string(n - (filled_ - used_)) + " bytes too early",
             "the file was probably not written or copied completely");
    }
    const std::string_view taken(window_.data() + used_, n);
    used_ += n;
    next_ += n;
    return taken;
  }

  // A length that is a lie costs no more than there are bytes.
  [[nodiscard]] bool refill(std::size_t n) {
    constexpr std::size_t piece = 1 << 18;
    std::copy(window_.begin() + static_cast<std::ptrdiff_t>(used_),
              window_.begin() + static_cast<std::ptrdiff_t>(filled_), window_.begin());
    filled_ -= used_;
    used_ = 0;
    while (filled_ < n) {
      if (filled_ == window_.size()) window_.resize(std::clamp<std::size_t>(2 * filled_, 4096, filled_ + piece));
      const std::size_t got = source_(window_.data() + filled_, window_.size() - filled_);
      if (got == 0) return false;
      filled_ += got;
    }
    return true;
  }

  // An unsigned little-endian number of n <= 8 bytes.
  std::uint64_t take_unsigned(std::size_t n) {
    std::uint64_t value = 0;
    std::size_t shift = 0;
    for (const char byte : take(n)) {
      value |= static_cast<std::uint64_t>(static_cast<unsigned char>(byte)) << shift;
      shift += 8;
    }
    return value;
  }

  std::int64_t take_signed(std::size_t n) {
    if (n == 0) return 0;
    const std::size_t unused = 64 - 8 * n;
    return static_cast<std::int64_t>(take_unsigned(n) << unused) >> unused;  // extends the sign
  }

  std::int64_t take_long(std::size_t n) {
    if (n <= 8) return take_signed(n);
    const std::int64_t value = take_signed(8);
    for (const char byte : take(n - 8)) {
      if (byte != (value < 0 ? '\xff' : '\0')) reject("an integer needs more than 64 bits");
    }
    return value;
  }

  // A length that the format stores with a sign.
  std::size_t take_length(std::size_t n) {
    const std::int64_t length = take_signed(n);
    if (length < 0) reject("a length of " + std::to_string(length));
    return static_cast<std::size_t>(length);
  }

  double take_double() {
    std::uint64_t bits = 0;
    for (const char byte : take(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
    return std::bit_cast<double>(bits);
  }

  /// Whether it begins with the opcode of protocols 2 and later.
  [[nodiscard]] bool begins_as_pickle() { return refill(2) && window_[0] == '\x80'; }
  void begin_opcode() { start_ = next_; }
  /// So many have been read.
  [[nodiscard]] std::size_t count() const { return next_; }

 private:
  const std::string& file_;
  const ByteSource& source_;
  std::string window_;      // on the bytes
  std::size_t filled_ = 0;  // of the window
  std::size_t used_ = 0;    // of what is filled
  std::size_t next_ = 0;    // byte to read
  std::size_t start_ = 0;   // of the opcode being run
};

}  // namespace tidemark::scenarios
