// Writes Python pickles of plain data, as pickle.loads and the viewer of PyTorch's memory snapshots read them.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// Values go out in the order of the calls: those between begin_ and end_ are a list's or a tuple's items, or a dict's
/// keys and values in turn. Protocol 4, the highest that the viewer takes; memory goes by the number of different
/// texts, not by what is written.
class PickleWriter {
 public:
  /// An object that was written before, for others to share.
  using Place = std::uint32_t;

  explicit PickleWriter(std::ostream& out);

  void none();
  void boolean(bool value);
  void integer(std::int64_t value);
  void number(double value);
  /// UTF-8. Equal texts are written once and shared, as Python shares keys.
  void text(std::string_view value);

  void begin_list();
  void end_list();
  void begin_tuple();
  void end_tuple();
  void begin_dict();
  void end_dict();
  /// A key of the dict that is open; its value comes next.
  void key(std::string_view name) { text(name); }

  /// The list or dict that was begun by the last call, so that it can be used again once it is ended.
  [[nodiscard]] Place remember();
  void again(Place place);

  /// Ends the pickle. It holds one value by now, and nothing is open.
  void finish();

 private:
  enum class Kind : std::uint8_t { List, Tuple, Dict };
  struct Open {
    Kind kind = Kind::List;
    std::int32_t in_batch = 0;
  };

  void value();
  void end(Kind kind);
  void byte(unsigned value) { page_.push_back(static_cast<char>(value)); }
  void little_endian(std::uint64_t value, int bytes);
  void get(Place place);
  [[nodiscard]] Place put();

  std::ostream& out_;
  std::string page_;
  std::vector<Open> open_;
  std::unordered_map<std::string, Place> texts_;
  Place next_ = 0;
};

}  // namespace tidemark::scenarios
