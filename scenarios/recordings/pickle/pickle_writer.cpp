#include "scenarios/recordings/pickle/pickle_writer.hpp"

#include <bit>
#include <limits>
#include <ostream>

#include "sim/base/ensure.hpp"

namespace tidemark::scenarios {
namespace {

// Opcodes of Python's pickle.py.
constexpr unsigned proto = 0x80, stop = '.', mark = '(', empty_list = ']', appends = 'e', empty_dict = '}',
                   set_items = 'u', tuple = 't', none_ = 'N', true_ = 0x88, false_ = 0x89, int4 = 'J', int1 = 'K',
                   int2 = 'M', long1 = 0x8a, float8 = 'G', short_text = 0x8c, long_text = 'X', put1 = 'q', put4 = 'r',
                   get1 = 'h', get4 = 'j';

// As CPython does; the viewer passes a batch as the arguments of one call, and its stack is limited.
constexpr std::int32_t most_in_batch = 1000;
constexpr std::size_t page_size = 1 << 20;

}  // namespace

PickleWriter::PickleWriter(std::ostream& out) : out_(out) {
  byte(proto);
  byte(4);
}

// Before every value: what is open takes its items in batches.
void PickleWriter::value() {
  if (page_.size() > page_size) {
    out_.write(page_.data(), static_cast<std::streamsize>(page_.size()));
    page_.clear();
  }
  if (open_.empty() || open_.back().kind == Kind::Tuple) return;
  Open& to = open_.back();
  const std::int32_t most = to.kind == Kind::Dict ? 2 * most_in_batch : most_in_batch;
  if (to.in_batch == most) {
    byte(to.kind == Kind::Dict ? set_items : appends);
    to.in_batch = 0;
  }
  if (to.in_batch++ == 0) byte(mark);
}

void PickleWriter::little_endian(std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) byte(static_cast<unsigned>(value >> (8 * i) & 0xff));
}

void PickleWriter::none() {
  value();
  byte(none_);
}

void PickleWriter::boolean(bool value_) {
  value();
  byte(value_ ? true_ : false_);
}

void PickleWriter::integer(std::int64_t n) {
  value();
  if (n >= 0 && n < 1 << 8) {
    byte(int1);
    return little_endian(static_cast<std::uint64_t>(n), 1);
  }
  if (n >= 0 && n < 1 << 16) {
    byte(int2);
    return little_endian(static_cast<std::uint64_t>(n), 2);
  }
  if (n >= std::numeric_limits<std::int32_t>::min() && n <= std::numeric_limits<std::int32_t>::max()) {
    byte(int4);
    return little_endian(static_cast<std::uint64_t>(n), 4);
  }
  // Two's complement in as few bytes as hold the sign too.
  const std::uint64_t magnitude = static_cast<std::uint64_t>(n < 0 ? ~n : n);
  const int bytes = static_cast<int>(std::bit_width(magnitude)) / 8 + 1;
  byte(long1);
  byte(static_cast<unsigned>(bytes));
  little_endian(static_cast<std::uint64_t>(n), bytes);
}

void PickleWriter::number(double x) {
  value();
  byte(float8);
  const auto bits = std::bit_cast<std::uint64_t>(x);
  for (int i = 7; i >= 0; --i) byte(static_cast<unsigned>(bits >> (8 * i) & 0xff));
}

void PickleWriter::text(std::string_view words) {
  value();
  const auto [known, is_new] = texts_.try_emplace(std::string(words), next_);
  if (!is_new) return get(known->second);
  ensure(words.size() <= std::numeric_limits<std::uint32_t>::max(), "a text is shorter than 4 GiB");
  const bool is_short = words.size() < 256;
  byte(is_short ? short_text : long_text);
  little_endian(words.size(), is_short ? 1 : 4);
  page_.append(words);
  (void)put();
}

void PickleWriter::begin_list() {
  value();
  byte(empty_list);
  open_.push_back({Kind::List});
}
void PickleWriter::begin_dict() {
  value();
  byte(empty_dict);
  open_.push_back({Kind::Dict});
}
void PickleWriter::begin_tuple() {
  value();
  byte(mark);
  open_.push_back({Kind::Tuple});
}

void PickleWriter::end_list() { end(Kind::List); }
void PickleWriter::end_dict() { end(Kind::Dict); }
void PickleWriter::end_tuple() { end(Kind::Tuple); }

void PickleWriter::end(Kind kind) {
  ensure(!open_.empty() && open_.back().kind == kind, "what is ended is what was begun last");
  ensure(kind != Kind::Dict || open_.back().in_batch % 2 == 0, "every key of a dict has a value");
  if (kind == Kind::Tuple)
    byte(tuple);
  else if (open_.back().in_batch > 0)
    byte(kind == Kind::Dict ? set_items : appends);
  open_.pop_back();
}

PickleWriter::Place PickleWriter::remember() {
  ensure(!open_.empty() && open_.back().kind != Kind::Tuple && open_.back().in_batch == 0,
         "a list or dict is remembered before its first item");
  return put();
}

void PickleWriter::again(Place place) {
  value();
  get(place);
}

PickleWriter::Place PickleWriter::put() {
  const bool is_short = next_ < 256;
  byte(is_short ? put1 : put4);
  little_endian(next_, is_short ? 1 : 4);
  return next_++;
}

void PickleWriter::get(Place place) {
  const bool is_short = place < 256;
  byte(is_short ? get1 : get4);
  little_endian(place, is_short ? 1 : 4);
}

void PickleWriter::finish() {
  ensure(open_.empty(), "nothing is open at the end of a pickle");
  byte(stop);
  out_.write(page_.data(), static_cast<std::streamsize>(page_.size()));
  page_.clear();
}

}  // namespace tidemark::scenarios
