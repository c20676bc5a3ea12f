#pragma once

#include <cstdint>
#include <vector>

#include "sim/base/address.hpp"
#include "sim/base/time.hpp"
#include "sim/base/units.hpp"

namespace tidemark::sim {

/// A state as numbers, to be held against that of another moment: equal numbers go on equally.
class StateWords {
 public:
  template <class... Values>
  void add(const Values&... values) {
    (words_.push_back(word(values)), ...);
  }
  void add(const StateWords& more) { words_.insert(words_.end(), more.words_.begin(), more.words_.end()); }
  bool operator==(const StateWords&) const = default;

 private:
  template <class Value>
  static std::uint64_t word(const Value& value) {
    return static_cast<std::uint64_t>(value);
  }
  static std::uint64_t word(Bytes bytes) { return static_cast<std::uint64_t>(bytes.count()); }
  static std::uint64_t word(Duration time) { return static_cast<std::uint64_t>(time.count()); }
  static std::uint64_t word(Address address) { return static_cast<std::uint64_t>(address.value); }
  static std::uint64_t word(StreamId stream) { return static_cast<std::uint64_t>(stream.value); }

  std::vector<std::uint64_t> words_;
};

}  // namespace tidemark::sim
