// Python pickles that hold plain data: None, booleans, integers of 64 bits, floats, strings, bytes, lists, tuples, sets
// and dicts, as torch.cuda.memory._dump_snapshot writes them. Opcodes that name a class or call something are refused,
// so reading runs no code; bytes from anywhere are either read or rejected, in time proportional to their number, and
// in memory that is too, up to a limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

struct PickleNone {
  friend bool operator==(PickleNone, PickleNone) = default;
};
/// Places in a Pickle. Python objects that were shared are one place, and so are equal texts. Lists, tuples, dicts and
/// sets count together.
struct PickleText {
  std::uint32_t index = 0;
  friend bool operator==(PickleText, PickleText) = default;
};
struct PickleList {
  std::uint32_t index = 0;
  friend bool operator==(PickleList, PickleList) = default;
};
struct PickleTuple {
  std::uint32_t index = 0;
  friend bool operator==(PickleTuple, PickleTuple) = default;
};
struct PickleDict {
  std::uint32_t index = 0;
  friend bool operator==(PickleDict, PickleDict) = default;
};
/// Bytes, or a bytearray.
struct PickleBytes {
  std::uint32_t index = 0;
  friend bool operator==(PickleBytes, PickleBytes) = default;
};
/// A set, or a frozenset, in the order written.
struct PickleSet {
  std::uint32_t index = 0;
  friend bool operator==(PickleSet, PickleSet) = default;
};
using PickleValue = std::variant<PickleNone, bool, std::int64_t, double, PickleText, PickleList, PickleTuple,
                                 PickleDict, PickleBytes, PickleSet>;

/// What a pickle may cost, whatever it says. Of a snapshot, whose events are not kept, these are far above what a file
/// of several GB has: one container and two numbers of the memo for each event.
struct PickleLimits {
  std::size_t nesting = 64;            ///< containers within containers; a snapshot has 6
  std::size_t values = 1UL << 26;      ///< items of all containers, of 16 bytes
  std::size_t containers = 1UL << 27;  ///< of 24 bytes
  std::size_t stack = 1UL << 24;       ///< values that are in no container yet: Python writes 1000 items at a time
  std::size_t texts = 1UL << 22;       ///< that differ, and bytes
  std::size_t memo = 1UL << 28;        ///< of 5 bytes
};

/// The values of one pickle. Values refer to it and have no meaning without it.
class Pickle {
 public:
  [[nodiscard]] const PickleValue& root() const { return root_; }
  [[nodiscard]] std::size_t byte_count() const { return byte_count_; }
  [[nodiscard]] std::size_t container_count() const { return containers_.size(); }
  /// At least the number of items of all containers, each counted once however often it is shared.
  [[nodiscard]] std::size_t value_count() const { return values_.size(); }

  /// As stored: meant to be UTF-8, not checked.
  [[nodiscard]] std::string_view text(PickleText text) const { return texts_[text.index]; }
  [[nodiscard]] std::string_view bytes(PickleBytes bytes) const { return texts_[bytes.index]; }
  [[nodiscard]] std::span<const PickleValue> items(PickleList list) const { return items(containers_[list.index]); }
  [[nodiscard]] std::span<const PickleValue> items(PickleTuple tuple) const { return items(containers_[tuple.index]); }
  [[nodiscard]] std::span<const PickleValue> items(PickleSet set) const { return items(containers_[set.index]); }
  /// Key, value, key, value, ... in the order written. Of equal keys, the last one counts.
  [[nodiscard]] std::span<const PickleValue> entries(PickleDict dict) const { return items(containers_[dict.index]); }
  /// The value of a text key, or null.
  [[nodiscard]] const PickleValue* find(PickleDict dict, std::string_view key) const {
    return find(entries(dict), key);
  }
  [[nodiscard]] const PickleValue* find(std::span<const PickleValue> entries, std::string_view key) const;

  /// Lets a list share the memory of one that holds the same, if that saves anything: nothing else was read since.
  void share(PickleList list, PickleList same);

 private:
  friend class PickleReader;

  struct Container {
    std::size_t first = 0;  // in values_
    std::size_t count = 0;
    std::size_t capacity = 0;
  };

  [[nodiscard]] std::span<const PickleValue> items(const Container& c) const {
    return {values_.data() + c.first, c.count};
  }

  std::size_t byte_count_ = 0;
  std::deque<std::string> texts_;
  std::vector<Container> containers_;
  std::vector<PickleValue> values_;
  PickleValue root_;
};

/// "None", "a boolean", "an integer", ...: for messages.
std::string_view kind_of(const PickleValue& value);

/// Up to `most` bytes of a pickle go to `into`; their number, 0 at the end.
using ByteSource = std::function<std::size_t(char* into, std::size_t most)>;

/// Takes the dicts out of lists of dicts as soon as each is complete, so that the pickle need not hold them: those of
/// the lists in the list that `key` names in the outermost dict. They are read as Python writes them: complete, with
/// all that they hold, before the next one begins, and referred to from nowhere else. A pickle that does otherwise is
/// rejected. Afterwards these lists are empty.
struct PickleConsumer {
  std::string_view key;
  /// `value` is item number `item` of list number `list`; `entries` are those of a dict, and of nothing else. What of
  /// the pickle is there already it may let share.
  std::function<void(Pickle& so_far, std::size_t list, std::size_t item, const PickleValue& value,
                     std::span<const PickleValue> entries)>
      take;
};

/// Reads a pickle of protocol 2 to 5: every opcode that Python writes there for plain data. Throws InputError, which
/// names `file` and the byte, if it is anything else.
Pickle read_pickle(const ByteSource& source, const std::string& file = {}, const PickleLimits& limits = {},
                   const PickleConsumer* consumer = nullptr);
Pickle read_pickle(std::string_view bytes, const std::string& file = {}, const PickleLimits& limits = {},
                   const PickleConsumer* consumer = nullptr);

}  // namespace tidemark::scenarios
