#include "scenarios/recordings/pickle/pickle.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <type_traits>
#include <unordered_map>

#include "scenarios/recordings/pickle/pickle_bytes.hpp"
#include "scenarios/recordings/pickle/pickle_memo.hpp"
#include "scenarios/recordings/pickle/pickle_nesting.hpp"
#include "scenarios/recordings/pickle/pickle_opcodes.hpp"

namespace tidemark::scenarios {

/// Runs the opcodes of one pickle on a stack of values, as Python's unpickler does.
class PickleReader {
 public:
  PickleReader(const ByteSource& source, const std::string& file, const PickleLimits& limits,
               const PickleConsumer* consumer)
      : limits_(limits), bytes_(source, file), consumer_(consumer) {}

  Pickle read() {
    read_header();
    while (step()) continue;
    if (stack_.size() != 1 || !marks_.empty()) {
      reject(std::to_string(stack_.size()) + " values are left on the stack at STOP, where one is the result");
    }
    pickle_.root_ = stack_.back();
    pickle_.byte_count_ = bytes_.count();
    if (consumer_ != nullptr) check_consumed();
    check_nesting();
    return std::move(pickle_);
  }

 private:
  [[noreturn]] void reject(const std::string& message, std::string hint = {}) const {
    bytes_.reject(message, std::move(hint));
  }

  // Texts and bytes alike: which of them it is stands in the value.
  std::uint32_t take_string(std::size_t length) {
    const std::string_view text = bytes_.take(length);
    if (const auto known = text_numbers_.find(text); known != text_numbers_.end()) return known->second;
    if (pickle_.texts_.size() >= limits_.texts) reject_more_than(limits_.texts, "texts");
    const auto number = static_cast<std::uint32_t>(pickle_.texts_.size());
    text_numbers_.emplace(pickle_.texts_.emplace_back(text), number);
    return number;
  }

  // -- the stack ------------------------------------------------------------------------------------------------------

  void push(const PickleValue& value) {
    if (stack_.size() >= limits_.stack) reject_more_than(limits_.stack, "values in no list or dict");
    stack_.push_back(value);
  }

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

  void pop() {
    if (!marks_.empty() && marks_.back() == stack_.size()) {
      marks_.pop_back();
    } else {
      need(1);
      stack_.pop_back();
    }
  }

  // -- the containers -------------------------------------------------------------------------------------------------

  std::uint32_t new_container() {
    if (pickle_.containers_.size() >= limits_.containers) reject_more_than(limits_.containers, "containers");
    pickle_.containers_.push_back({});
    return static_cast<std::uint32_t>(pickle_.containers_.size() - 1);
  }

  [[noreturn]] void reject_more_than(std::size_t limit, const std::string& what) const {
    reject("more than " + std::to_string(limit) + ' ' + what, "no memory snapshot has so many");
  }

  void append(std::uint32_t index, std::span<const PickleValue> items) {
    if (is_given_out(index)) {
      reject("what a dict in " + std::string(consumer_->key) + " holds is changed after that was complete");
    }
    Pickle::Container& container = pickle_.containers_[index];
    std::vector<PickleValue>& values = pickle_.values_;
    if (container.count + items.size() > container.capacity) {
      const std::size_t capacity = std::max(container.count + items.size(), 2 * container.capacity);
      if (container.first + container.capacity != values.size()) {  // not the last one: it moves to the end
        const std::size_t first = values.size();
        if (first + capacity > limits_.values) reject_more_than(limits_.values, "values");
        values.resize(first + capacity);
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(container.first), container.count,
                    values.begin() + static_cast<std::ptrdiff_t>(first));
        container.first = first;
      } else {
        if (container.first + capacity > limits_.values) reject_more_than(limits_.values, "values");
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
    if constexpr (std::is_same_v<Kind, PickleSet>) check_hashable(items);
    check_unconsumed(items);
    append(container, items);
    stack_.resize(stack_.size() - values);
    push(Kind{container});
  }

  // Appends the last `values` to the list, dict or set below them.
  template <class Kind>
  void extend(std::size_t values) {
    need(values + 1);
    const PickleValue& target = stack_[stack_.size() - values - 1];
    if (!std::holds_alternative<Kind>(target)) {
      reject("expected " + std::string(kind_of(Kind{})) + " to add to, found " + std::string(kind_of(target)));
    }
    if constexpr (std::is_same_v<Kind, PickleDict>) check_entries(top(values));
    if constexpr (std::is_same_v<Kind, PickleSet>) check_hashable(top(values));
    if (consumer_ == nullptr || !consume(std::get<Kind>(target), top(values))) {
      append(std::get<Kind>(target).index, top(values));
    }
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

  void check_hashable(std::span<const PickleValue> items) const {
    for (const PickleValue& item : items) {
      if (std::holds_alternative<PickleList>(item) || std::holds_alternative<PickleDict>(item)) {
        reject(std::string(kind_of(item)) + " cannot be in a set");
      }
    }
  }

  // -- dicts that are not kept ----------------------------------------------------------------------------------------

  static constexpr std::uint32_t consumed_bit = 1U << 31;  // no container has so high a number
  static bool is_consumed(const PickleValue& value) {
    const auto* dict = std::get_if<PickleDict>(&value);
    return dict != nullptr && (dict->index & consumed_bit) != 0;
  }

  struct Consumed {
    std::uint32_t number = 0;  // of its dict
    std::size_t list = 0;
    std::size_t item = 0;
    bool complete = false;
  };

  // What a value that is pushed now will become an item of, as Python writes lists: behind a mark above the list, or
  // alone right above it. Behind a second mark it will be in a tuple or a dict first.
  template <class Accept>
  std::optional<std::size_t> offset_in(Accept accept) const {
    const bool second = marks_.size() > 1 && marks_[marks_.size() - 2] == marks_.back();
    if (!marks_.empty() && !second && marks_.back() > 0 && accept(stack_[marks_.back() - 1]))
      return stack_.size() - marks_.back();
    if (!stack_.empty() && stack_.size() > floor() && accept(stack_.back())) return 0;
    return std::nullopt;
  }

  // The list of lists: the value of the consumer's key in the dict at the bottom of the stack.
  [[nodiscard]] bool begins_consumed_lists() const {
    if (stack_.size() < 2 || !std::holds_alternative<PickleDict>(stack_.front())) return false;
    const auto* key = std::get_if<PickleText>(&stack_.back());
    const bool behind_key =
        marks_.empty() ? stack_.size() == 2 : marks_.size() == 1 && marks_.front() == 1 && stack_.size() % 2 == 0;
    return behind_key && key != nullptr && pickle_.text(*key) == consumer_->key;
  }

  PickleList new_list() {
    const PickleList list{new_container()};
    if (consumer_ == nullptr) return list;
    if (begins_consumed_lists()) {
      if (outer_) reject(std::string(consumer_->key) + " is there twice");
      outer_ = list.index;
    } else if (outer_ && offset_in([&](const PickleValue& v) { return v == PickleValue(PickleList{*outer_}); })) {
      inner_.emplace(list.index, Inner{inner_.size(), 0});
    }
    return list;
  }

  PickleDict new_dict() {
    if (consumer_ == nullptr || inner_.empty()) return {new_container()};
    const Inner* inner = nullptr;
    const std::optional<std::size_t> offset = offset_in([&](const PickleValue& v) {
      const auto* list = std::get_if<PickleList>(&v);
      const auto found = list == nullptr ? inner_.end() : inner_.find(list->index);
      if (found == inner_.end()) return false;
      inner = &found->second;
      return true;
    });
    if (!offset) return {new_container()};
    if (dicts_consumed_ >= consumed_bit) reject_more_than(consumed_bit, "dicts");
    const auto number = static_cast<std::uint32_t>(dicts_consumed_++);
    waiting_.push_back({number, inner->number, inner->items + *offset});
    return {number | consumed_bit};
  }

  // Entries of a dict that is not kept, or items of its list: they go to the consumer.
  bool consume(PickleDict dict, std::span<const PickleValue> entries) {
    check_unconsumed(entries);
    if ((dict.index & consumed_bit) == 0) return false;
    for (auto waiting = waiting_.rbegin(); waiting != waiting_.rend(); ++waiting) {
      if (waiting->number != (dict.index & ~consumed_bit)) continue;
      if (std::exchange(waiting->complete, true)) break;
      p2p(waiting->list, waiting->item, dict, entries);
      return true;
    }
    reject("a dict in " + std::string(consumer_->key) + " is not written in one piece");
  }

  void p2p(std::size_t list, std::size_t item, const PickleValue& value, std::span<const PickleValue> entries) {
    for (const PickleValue& entry : entries) give_out(entry);
    pickle_.byte_count_ = bytes_.count();
    consumer_->take(pickle_, list, item, value, entries);
  }

  // The consumer has seen a container, and all that is in it: nothing of that may change any more.
  void give_out(const PickleValue& value) {
    std::vector<PickleValue> left{value};
    while (!left.empty()) {
      const std::optional<PickleContainer> container = container_of(pickle_, left.back());
      left.pop_back();
      if (!container || is_given_out(container->index)) continue;
      if (container->index >= given_out_.size()) given_out_.resize(pickle_.containers_.size());
      given_out_[container->index] = true;
      left.insert(left.end(), container->items.begin(), container->items.end());
    }
  }
  [[nodiscard]] bool is_given_out(std::uint32_t index) const { return index < given_out_.size() && given_out_[index]; }

  bool consume(PickleSet, std::span<const PickleValue> items) {
    check_unconsumed(items);
    return false;
  }

  bool consume(PickleList list, std::span<const PickleValue> items) {
    const auto found = inner_.find(list.index);
    if (found == inner_.end()) {
      check_unconsumed(items);
      if (outer_ == list.index) check_inner(items);
      return false;
    }
    Inner& inner = found->second;
    for (const PickleValue& item : items) {
      if (!is_consumed(item)) {
        const auto* dict = std::get_if<PickleDict>(&item);  // one that is there for other reasons too
        if (dict != nullptr) give_out(item);
        p2p(inner.number, inner.items, item, dict == nullptr ? std::span<const PickleValue>{} : pickle_.entries(*dict));
      } else {
        const Consumed& next = waiting_.empty() ? Consumed{} : waiting_.front();
        if (waiting_.empty() || next.number != (std::get<PickleDict>(item).index & ~consumed_bit) ||
            next.list != inner.number || next.item != inner.items) {
          reject("a dict in " + std::string(consumer_->key) + " is out of order");
        }
        if (!next.complete) p2p(inner.number, inner.items, item, {});
        waiting_.pop_front();
      }
      ++inner.items;
    }
    return true;
  }

  // Lists are numbered as they begin.
  void check_inner(std::span<const PickleValue> lists) {
    for (const PickleValue& value : lists) {
      const auto* list = std::get_if<PickleList>(&value);
      const auto inner = list == nullptr ? inner_.end() : inner_.find(list->index);
      if (list != nullptr && (inner == inner_.end() || inner->second.number != lists_placed_)) {
        reject("a list in " + std::string(consumer_->key) + " is out of order");
      }
      if (list != nullptr) ++lists_placed_;
    }
  }

  void check_unconsumed(std::span<const PickleValue> values) const {
    if (consumer_ == nullptr || waiting_.empty()) return;
    if (std::any_of(values.begin(), values.end(), is_consumed)) {
      reject("a dict in " + std::string(consumer_->key) + " is used elsewhere too");
    }
  }

  void check_consumed() const {
    const auto* root = std::get_if<PickleDict>(&pickle_.root_);
    const PickleValue* found = nullptr;
    if (root != nullptr && !is_consumed(pickle_.root_)) found = pickle_.find(*root, consumer_->key);
    const bool in_place = !outer_ || (found != nullptr && *found == PickleValue(PickleList{*outer_}));
    if (!in_place || !waiting_.empty() || is_consumed(pickle_.root_) || lists_placed_ != inner_.size()) {
      reject(std::string(consumer_->key) + " is not laid out as Python writes it");
    }
  }

  // -- the memo -------------------------------------------------------------------------------------------------------

  void memoize(std::uint64_t index) {
    need(1);
    // Python numbers what it memoizes one after the other, and nothing here makes room for more.
    if (index > 2 * memo_.count() + 65'536) reject("memo number " + std::to_string(index) + " is out of order");
    if (index >= limits_.memo) reject_more_than(limits_.memo, "numbers of the memo");
    memo_.set(static_cast<std::size_t>(index), stack_.back());
  }

  void recall(std::uint64_t index) {
    const std::optional<PickleValue> value = memo_.get(static_cast<std::size_t>(index));
    if (!value) reject("memo number " + std::to_string(index) + " was never set");
    push_again(*value);
  }

  void push_again(const PickleValue& value) {
    if (consumer_ != nullptr) {
      const auto* list = std::get_if<PickleList>(&value);
      if (is_consumed(value) || (list != nullptr && (outer_ == list->index || inner_.contains(list->index)))) {
        reject("what is in " + std::string(consumer_->key) + " is used elsewhere too");
      }
    }
    push(value);
  }

  // -- the opcodes ----------------------------------------------------------------------------------------------------

  void read_header() {
    if (!bytes_.begins_as_pickle()) {
      reject("the file does not start with a pickle header (0x80 and a protocol number)",
             "write snapshots with torch.cuda.memory._dump_snapshot");
    }
    bytes_.take(1);
    check_protocol();
  }

  void check_protocol() {
    const std::uint64_t protocol = bytes_.take_unsigned(1);
    if (protocol < 2 || protocol > 5) reject("protocol " + std::to_string(protocol) + " is not one of 2, 3, 4, 5");
  }

  // Runs one opcode; false after STOP.
  bool step() {
    bytes_.begin_opcode();
    const auto opcode = static_cast<PickleOpcode>(bytes_.take(1)[0]);
    if (opcode == PickleOpcode::Stop) return false;
    if (!arranges(opcode) && !pushes_scalar(opcode) && !builds_container(opcode) && !remembers(opcode)) refuse(opcode);
    return true;
  }

  // Each runs an opcode of its kind; false where it is of another kind.
  bool arranges(PickleOpcode opcode) {
    switch (opcode) {
      case PickleOpcode::Proto:
        check_protocol();
        return true;
      case PickleOpcode::Frame:
        bytes_.take(8);
        return true;
      case PickleOpcode::Mark:
        if (marks_.size() >= limits_.stack) reject_more_than(limits_.stack, "marks");
        marks_.push_back(stack_.size());
        return true;
      case PickleOpcode::Pop:
        pop();
        return true;
      case PickleOpcode::PopMark:
        stack_.resize(stack_.size() - values_above_mark());
        return true;
      case PickleOpcode::Dup:
        push_again(PickleValue(top(1).front()));
        return true;
      default:
        return false;
    }
  }

  bool pushes_scalar(PickleOpcode opcode) {
    switch (opcode) {
      case PickleOpcode::None:
        push(PickleNone{});
        return true;
      case PickleOpcode::NewTrue:
        push(true);
        return true;
      case PickleOpcode::NewFalse:
        push(false);
        return true;
      case PickleOpcode::BinInt:
        push(bytes_.take_signed(4));
        return true;
      case PickleOpcode::BinInt1:
        push(static_cast<std::int64_t>(bytes_.take_unsigned(1)));
        return true;
      case PickleOpcode::BinInt2:
        push(static_cast<std::int64_t>(bytes_.take_unsigned(2)));
        return true;
      case PickleOpcode::Long1:
        push(bytes_.take_long(bytes_.take_unsigned(1)));
        return true;
      case PickleOpcode::Long4:
        push(bytes_.take_long(bytes_.take_length(4)));
        return true;
      case PickleOpcode::BinFloat:
        push(bytes_.take_double());
        return true;
      case PickleOpcode::ShortBinString:  // a text of Python 2
      case PickleOpcode::ShortBinUnicode:
        push(PickleText{take_string(bytes_.take_unsigned(1))});
        return true;
      case PickleOpcode::BinString:
        push(PickleText{take_string(bytes_.take_length(4))});
        return true;
      case PickleOpcode::BinUnicode:
        push(PickleText{take_string(bytes_.take_unsigned(4))});
        return true;
      case PickleOpcode::BinUnicode8:
        push(PickleText{take_string(bytes_.take_unsigned(8))});
        return true;
      case PickleOpcode::ShortBinBytes:
        push(PickleBytes{take_string(bytes_.take_unsigned(1))});
        return true;
      case PickleOpcode::BinBytes:
        push(PickleBytes{take_string(bytes_.take_unsigned(4))});
        return true;
      case PickleOpcode::BinBytes8:
      case PickleOpcode::ByteArray8:
        push(PickleBytes{take_string(bytes_.take_unsigned(8))});
        return true;
      default:
        return false;
    }
  }

  bool builds_container(PickleOpcode opcode) {
    switch (opcode) {
      case PickleOpcode::EmptyList:
        push(new_list());
        return true;
      case PickleOpcode::EmptyTuple:
        push(PickleTuple{new_container()});
        return true;
      case PickleOpcode::EmptyDict:
        push(new_dict());
        return true;
      case PickleOpcode::EmptySet:
        push(PickleSet{new_container()});
        return true;
      case PickleOpcode::FrozenSet:
        build<PickleSet>(values_above_mark());
        return true;
      case PickleOpcode::AddItems:
        extend<PickleSet>(values_above_mark());
        return true;
      case PickleOpcode::List:
        build<PickleList>(values_above_mark());
        return true;
      case PickleOpcode::Tuple:
        build<PickleTuple>(values_above_mark());
        return true;
      case PickleOpcode::Dict:
        build<PickleDict>(values_above_mark());
        return true;
      case PickleOpcode::Tuple1:
        build<PickleTuple>(1);
        return true;
      case PickleOpcode::Tuple2:
        build<PickleTuple>(2);
        return true;
      case PickleOpcode::Tuple3:
        build<PickleTuple>(3);
        return true;
      case PickleOpcode::Append:
        extend<PickleList>(1);
        return true;
      case PickleOpcode::Appends:
        extend<PickleList>(values_above_mark());
        return true;
      case PickleOpcode::SetItem:
        extend<PickleDict>(2);
        return true;
      case PickleOpcode::SetItems:
        extend<PickleDict>(values_above_mark());
        return true;
      default:
        return false;
    }
  }

  bool remembers(PickleOpcode opcode) {
    switch (opcode) {
      case PickleOpcode::Memoize:
        memoize(memo_.count());
        return true;
      case PickleOpcode::BinPut:
        memoize(bytes_.take_unsigned(1));
        return true;
      case PickleOpcode::LongBinPut:
        memoize(bytes_.take_unsigned(4));
        return true;
      case PickleOpcode::BinGet:
        recall(bytes_.take_unsigned(1));
        return true;
      case PickleOpcode::LongBinGet:
        recall(bytes_.take_unsigned(4));
        return true;
      default:
        return false;
    }
  }

  [[noreturn]] void refuse(PickleOpcode opcode) const {
    reject("opcode " + opcode_name(opcode) + " is refused: " + std::string(reason_to_refuse(opcode)),
           "snapshots hold plain data only: numbers, texts, lists, tuples and dicts; a file with anything else was not "
           "written by torch.cuda.memory._dump_snapshot");
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

  const PickleLimits& limits_;
  PickleBytesReader bytes_;
  Pickle pickle_;
  std::unordered_map<std::string_view, std::uint32_t> text_numbers_;
  std::vector<PickleValue> stack_;
  std::vector<std::size_t> marks_;  // stack heights
  PickleMemo memo_;

  struct Inner {
    std::size_t number = 0;
    std::size_t items = 0;
  };
  const PickleConsumer* consumer_;
  std::optional<std::uint32_t> outer_;              // container of the list of lists
  std::unordered_map<std::uint32_t, Inner> inner_;  // its lists, by container
  std::size_t lists_placed_ = 0;                    // of which are its items already
  std::size_t dicts_consumed_ = 0;
  std::deque<Consumed> waiting_;  // begun, and not yet an item
  std::vector<bool> given_out_;   // by container
};

Pickle read_pickle(const ByteSource& source, const std::string& file, const PickleLimits& limits,
                   const PickleConsumer* consumer) {
  return PickleReader(source, file, limits, consumer).read();
}

Pickle read_pickle(std::string_view bytes, const std::string& file, const PickleLimits& limits,
                   const PickleConsumer* consumer) {
  const ByteSource source = [&](char* into, std::size_t most) {
    const std::size_t n = std::min(most, bytes.size());
    bytes.copy(into, n);
    bytes.remove_prefix(n);
    return n;
  };
  return read_pickle(source, file, limits, consumer);
}

const PickleValue* Pickle::find(std::span<const PickleValue> entries, std::string_view key) const {
  for (std::size_t i = entries.size(); i >= 2; i -= 2) {
    const auto* candidate = std::get_if<PickleText>(&entries[i - 2]);
    if (candidate != nullptr && text(*candidate) == key) return &entries[i - 1];
  }
  return nullptr;
}

void Pickle::share(PickleList list, PickleList same) {
  Container& container = containers_[list.index];
  const Container& other = containers_[same.index];
  if (container.first == other.first || container.first + container.capacity != values_.size()) return;
  values_.resize(container.first);
  container = {.first = other.first, .count = other.count};  // without room to grow in: what grows, moves
}

std::string_view kind_of(const PickleValue& value) {
  static constexpr std::array<std::string_view, std::variant_size_v<PickleValue>> names = {
      "None", "a boolean", "an integer", "a float", "a text", "a list", "a tuple", "a dict", "bytes", "a set"};
  return names[value.index()];
}

}  // namespace tidemark::scenarios
