#include "scenarios/io/pickle.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <type_traits>

#include "scenarios/io/input_error.hpp"
#include "scenarios/io/pickle_nesting.hpp"
#include "scenarios/io/pickle_opcodes.hpp"

namespace tidemark {

/// Runs the opcodes of one pickle on a stack of values, as Python's unpickler does.
class PickleReader {
 public:
  PickleReader(std::string bytes, const std::string& file, const PickleLimits& limits) : file_(file), limits_(limits) {
    pickle_.bytes_ = std::move(bytes);
  }

  Pickle read() {
    read_header();
    while (step()) continue;
    if (stack_.size() != 1 || !marks_.empty()) {
      reject(std::to_string(stack_.size()) + " values are left on the stack at STOP, where one is the result");
    }
    pickle_.root_ = stack_.back();
    check_nesting();
    return std::move(pickle_);
  }

 private:
  [[noreturn]] void reject(const std::string& message, std::string hint = {}) const {
    throw InputError(Problem{.file = file_,
                             .line = 0,
                             .column = 0,
                             .message = "not a readable pickle: at byte " + std::to_string(start_) + ": " + message,
                             .hint = std::move(hint)});
  }

  // -- the bytes ------------------------------------------------------------------------------------------------------

  [[nodiscard]] std::size_t left() const { return pickle_.bytes_.size() - next_; }

  std::string_view take(std::size_t n) {
    if (n > left()) {
      reject("the data ends " + std::to_string(n - left()) + " bytes too early",
             "the file was probably not written or copied completely");
    }
    const std::string_view taken = std::string_view(pickle_.bytes_).substr(next_, n);
    next_ += n;
    return taken;
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

  std::int64_t take_long() {
    const auto n = static_cast<std::size_t>(take_unsigned(1));
    if (n <= 8) return take_signed(n);
    const std::int64_t value = take_signed(8);
    for (const char byte : take(n - 8)) {
      if (byte != (value < 0 ? '\xff' : '\0')) reject("an integer needs more than 64 bits");
    }
    return value;
  }

  double take_double() {
    std::uint64_t bits = 0;
    for (const char byte : take(8)) bits = bits << 8 | static_cast<unsigned char>(byte);
    return std::bit_cast<double>(bits);
  }

  PickleText take_text(std::size_t length) {
    const std::size_t offset = next_;
    take(length);
    if (pickle_.texts_.size() >= limits_.values) reject_size();
    pickle_.texts_.push_back({offset, length});
    return {static_cast<std::uint32_t>(pickle_.texts_.size() - 1)};
  }

  // -- the stack ------------------------------------------------------------------------------------------------------

  void push(const PickleValue& value) { stack_.push_back(value); }

  // What an opcode may reach: the values above the last mark.
  [[nodiscard]] std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  void need(std::size_t values) const {
    if (stack_.size() - floor() < values) reject("too few values on the stack");
  }

  std::span<const PickleValue> top(std::size_t values) const {
    need(values);
    return std::span(stack_).last(values);
  }

  std::size_t values_above_mark() {
    if (marks_.empty()) reject("there is no mark on the stack");
    const std::size_t values = stack_.size() - marks_.back();
    marks_.pop_back();
    return values;
  }

  // -- the containers -------------------------------------------------------------------------------------------------

  std::uint32_t new_container() {
    if (pickle_.containers_.size() >= limits_.values) reject_size();
    pickle_.containers_.push_back({});
    return static_cast<std::uint32_t>(pickle_.containers_.size() - 1);
  }

  [[noreturn]] void reject_size() const { reject("more than " + std::to_string(limits_.values) + " values"); }

  void append(std::uint32_t index, std::span<const PickleValue> items) {
    Pickle::Container& container = pickle_.containers_[index];
    std::vector<PickleValue>& values = pickle_.values_;
    if (container.count + items.size() > container.capacity) {
      const std::size_t capacity = std::max(container.count + items.size(), 2 * container.capacity);
      if (container.first + container.capacity != values.size()) {  // not the last one: it moves to the end
        const std::size_t first = values.size();
        if (first + capacity > limits_.values) reject_size();
        values.resize(first + capacity);
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(container.first), container.count,
                    values.begin() + static_cast<std::ptrdiff_t>(first));
        container.first = first;
      } else {
        if (container.first + capacity > limits_.values) reject_size();
        values.resize(container.first + capacity);
      }
      container.capacity = capacity;
    }
    std::copy(items.begin(), items.end(),
              values.begin() + static_cast<std::ptrdiff_t>(container.first + container.count));
    container.count += items.size();
  }

  template <class Kind>
  void build(std::size_t values) {
    const std::uint32_t container = new_container();
    const std::span<const PickleValue> items = top(values);
    if constexpr (std::is_same_v<Kind, PickleDict>) check_entries(items);
    append(container, items);
    stack_.resize(stack_.size() - values);
    push(Kind{container});
  }

  // Appends the last `values` to the list or dict below them.
  template <class Kind>
  void extend(std::size_t values) {
    need(values + 1);
    const PickleValue& target = stack_[stack_.size() - values - 1];
    if (!std::holds_alternative<Kind>(target)) {
      reject("expected " + std::string(kind_of(Kind{})) + " to add to, found " + std::string(kind_of(target)));
    }
    if constexpr (std::is_same_v<Kind, PickleDict>) check_entries(top(values));
    append(std::get<Kind>(target).index, top(values));
    stack_.resize(stack_.size() - values);
  }

  void check_entries(std::span<const PickleValue> entries) const {
    if (entries.size() % 2 != 0) reject("a dict key has no value");
    for (std::size_t i = 0; i < entries.size(); i += 2) {
      if (std::holds_alternative<PickleList>(entries[i]) || std::holds_alternative<PickleDict>(entries[i])) {
        reject(std::string(kind_of(entries[i])) + " cannot be a dict key");
      }
    }
  }

  // -- the memo -------------------------------------------------------------------------------------------------------

  void memoize(std::uint64_t index) {
    need(1);
    // Nothing numbers more values than there are bytes, and nothing here makes room for it to.
    if (index >= start_) reject("memo number " + std::to_string(index) + " is out of order");
    if (index >= memo_.size()) memo_.resize(index + 1);
    if (!memo_[index]) ++memoized_;
    memo_[index] = stack_.back();
  }

  void recall(std::uint64_t index) {
    if (index >= memo_.size() || !memo_[index]) reject("memo number " + std::to_string(index) + " was never set");
    push(*memo_[index]);
  }

  // -- the opcodes ----------------------------------------------------------------------------------------------------

  void read_header() {
    if (left() < 2 || pickle_.bytes_[0] != '\x80') {
      reject("the file does not start with a pickle header (0x80 and a protocol number)",
             "write snapshots with torch.cuda.memory._dump_snapshot");
    }
    next_ = 1;
    check_protocol();
  }

  void check_protocol() {
    const std::uint64_t protocol = take_unsigned(1);
    if (protocol < 2 || protocol > 5) reject("protocol " + std::to_string(protocol) + " is not one of 2, 3, 4, 5");
  }

  // Runs one opcode; false after STOP.
  bool step() {
    start_ = next_;
    const auto opcode = static_cast<PickleOpcode>(take(1)[0]);
    switch (opcode) {
      case PickleOpcode::Stop:
        return false;
      case PickleOpcode::Proto:
        check_protocol();
        break;
      case PickleOpcode::Frame:
        take(8);
        break;
      case PickleOpcode::Mark:
        marks_.push_back(stack_.size());
        break;

      case PickleOpcode::None:
        push(PickleNone{});
        break;
      case PickleOpcode::NewTrue:
        push(true);
        break;
      case PickleOpcode::NewFalse:
        push(false);
        break;
      case PickleOpcode::BinInt:
        push(take_signed(4));
        break;
      case PickleOpcode::BinInt1:
        push(static_cast<std::int64_t>(take_unsigned(1)));
        break;
      case PickleOpcode::BinInt2:
        push(static_cast<std::int64_t>(take_unsigned(2)));
        break;
      case PickleOpcode::Long1:
        push(take_long());
        break;
      case PickleOpcode::BinFloat:
        push(take_double());
        break;
      case PickleOpcode::ShortBinUnicode:
        push(take_text(take_unsigned(1)));
        break;
      case PickleOpcode::BinUnicode:
        push(take_text(take_unsigned(4)));
        break;

      case PickleOpcode::EmptyList:
        push(PickleList{new_container()});
        break;
      case PickleOpcode::EmptyTuple:
        push(PickleTuple{new_container()});
        break;
      case PickleOpcode::EmptyDict:
        push(PickleDict{new_container()});
        break;
      case PickleOpcode::List:
        build<PickleList>(values_above_mark());
        break;
      case PickleOpcode::Tuple:
        build<PickleTuple>(values_above_mark());
        break;
      case PickleOpcode::Dict:
        build<PickleDict>(values_above_mark());
        break;
      case PickleOpcode::Tuple1:
        build<PickleTuple>(1);
        break;
      case PickleOpcode::Tuple2:
        build<PickleTuple>(2);
        break;
      case PickleOpcode::Tuple3:
        build<PickleTuple>(3);
        break;
      case PickleOpcode::Append:
        extend<PickleList>(1);
        break;
      case PickleOpcode::Appends:
        extend<PickleList>(values_above_mark());
        break;
      case PickleOpcode::SetItem:
        extend<PickleDict>(2);
        break;
      case PickleOpcode::SetItems:
        extend<PickleDict>(values_above_mark());
        break;

      case PickleOpcode::Memoize:
        memoize(memoized_);
        break;
      case PickleOpcode::BinPut:
        memoize(take_unsigned(1));
        break;
      case PickleOpcode::LongBinPut:
        memoize(take_unsigned(4));
        break;
      case PickleOpcode::BinGet:
        recall(take_unsigned(1));
        break;
      case PickleOpcode::LongBinGet:
        recall(take_unsigned(4));
        break;
      default:
        refuse(opcode);
    }
    return true;
  }

  [[noreturn]] void refuse(PickleOpcode opcode) const {
    reject("opcode " + opcode_name(opcode) + " is refused: it is not plain data",
           "snapshots hold only numbers, texts, lists, tuples and dicts; a file with anything else was not written by "
           "torch.cuda.memory._dump_snapshot");
  }

  void check_nesting() const {
    switch (nesting(pickle_, limits_.nesting)) {
      case Nesting::Bounded:
        return;
      case Nesting::TooDeep:
        reject("containers are nested more than " + std::to_string(limits_.nesting) + " deep");
      case Nesting::Cyclic:
        reject("a container holds itself");
    }
  }

  const std::string& file_;
  const PickleLimits& limits_;
  Pickle pickle_;
  std::size_t next_ = 0;   // byte to read
  std::size_t start_ = 0;  // of the opcode being run
  std::vector<PickleValue> stack_;
  std::vector<std::size_t> marks_;  // stack heights
  std::vector<std::optional<PickleValue>> memo_;
  std::size_t memoized_ = 0;
};

Pickle read_pickle(std::string bytes, const std::string& file, const PickleLimits& limits) {
  return PickleReader(std::move(bytes), file, limits).read();
}

std::string_view Pickle::text(PickleText text) const {
  const Text& place = texts_[text.index];
  return std::string_view(bytes_).substr(place.offset, place.length);
}

const PickleValue* Pickle::find(PickleDict dict, std::string_view key) const {
  const std::span<const PickleValue> all = entries(dict);
  for (std::size_t i = all.size(); i >= 2; i -= 2) {
    const auto* candidate = std::get_if<PickleText>(&all[i - 2]);
    if (candidate != nullptr && text(*candidate) == key) return &all[i - 1];
  }
  return nullptr;
}

std::string_view kind_of(const PickleValue& value) {
  static constexpr std::array<std::string_view, std::variant_size_v<PickleValue>> names = {
      "None", "a boolean", "an integer", "a float", "a text", "a list", "a tuple", "a dict"};
  return names[value.index()];
}

}  // namespace tidemark
