#include "sim/program/program_text.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <optional>
#include <type_traits>

#include <fmt/format.h>

#include "sim/base/overloaded.hpp"
#include "sim/program/program_builder.hpp"

namespace tidemark::sim {
namespace {

constexpr std::array<std::string_view, 10> streaming_names = {"fill",       "copy", "lookup", "norm",   "rotary",
                                                              "activation", "add",  "loss",   "reduce", "update"};

// Whoever follows a program holds a row for each number up to the largest, and a square of them for streams: a word of
// a text is not to cost gigabytes. What is numbered takes a line of its own, so that a text has more bytes than
// numbers.
constexpr std::size_t always_within_reach = 1 << 16;
constexpr std::size_t most_streams = 256;
constexpr std::int32_t farthest_step = 1 << 28;     // within a group: so that sums of them fit
constexpr Bytes most_bytes{std::int64_t{1} << 40};  // from a member of a group to another one: likewise

using Out = std::back_insert_iterator<std::string>;

void write(Out out, const Kernel& kernel) {
  std::visit(Overloaded{
                 [&](const Gemm& k) { fmt::format_to(out, "gemm {}x{}x{} {}", k.m, k.n, k.k, name(k.dtype)); },
                 [&](const Attention& k) {
                   fmt::format_to(out, "attention {} {}x{}x{}x{}x{} {}",
                                  k.pass == Pass::Forward ? "forward" : "backward", k.batch, k.sequence, k.heads,
                                  k.kv_heads, k.head_dim, name(k.dtype));
                 },
                 [&](const Stream& k) {
                   fmt::format_to(out, "{} {}+{}", streaming_names[static_cast<std::size_t>(k.kind)], k.read.count(),
                                  k.written.count());
                 },
             },
             kernel);
}

void write(Out out, const MatrixRow& row) {
  fmt::format_to(out, " m{} sends", row.matrix.value);
  for (const Bytes n : row.sends) fmt::format_to(out, " {}", n.count());
  fmt::format_to(out, " receives");
  for (const Bytes n : row.receives) fmt::format_to(out, " {}", n.count());
}

void write(Out out, const Program& program, const Op& op) {
  std::visit(Overloaded{
                 [&](const Alloc& o) {
                   fmt::format_to(out, "alloc b{} {} {} s{} {}", o.buffer.value, o.size.count(), name(o.category),
                                  o.stream.value, program[o.label]);
                   if (o.space != MemorySpace::Device) fmt::format_to(out, " {}", name(o.space));
                 },
                 [&](const Free& o) { fmt::format_to(out, "free b{}", o.buffer.value); },
                 [&](const Borrow& o) { fmt::format_to(out, "borrow b{} s{}", o.buffer.value, o.stream.value); },
                 [&](const Launch& o) {
                   fmt::format_to(out, "launch s{} ", o.stream.value);
                   write(out, program[o.kernel]);
                   for (const BufferId b : program[o.inputs]) fmt::format_to(out, " b{}", b.value);
                   fmt::format_to(out, " ->");
                   for (const BufferId b : program[o.outputs]) fmt::format_to(out, " b{}", b.value);
                 },
                 [&](const Collective& o) {
                   fmt::format_to(out, "collective s{} g{} {} {} b{} -> b{}", o.stream.value, o.comm.value,
                                  name(o.kind), o.size.count(), o.in.value, o.out.value);
                   if (o.row.valid()) write(out, program[o.row]);
                 },
                 [&](const Exchange& o) {
                   fmt::format_to(out, "exchange s{} g{}", o.stream.value, o.comm.value);
                   for (const Transfer& t : program[o.transfers])
                     fmt::format_to(out, " {} {:+} b{}", t.direction == Direction::Send ? "send" : "receive", t.step,
                                    t.buffer.value);
                 },
                 [&](const Memcpy& o) {
                   fmt::format_to(out, "memcpy s{} {} b{} -> b{}", o.stream.value, o.size.count(), o.from.value,
                                  o.to.value);
                 },
                 [&](const Record& o) { fmt::format_to(out, "record e{} s{}", o.event.value, o.stream.value); },
                 [&](const Wait& o) { fmt::format_to(out, "wait s{} e{}", o.stream.value, o.event.value); },
                 [&](const Sync& o) { fmt::format_to(out, "sync e{}", o.event.value); },
                 [&](const CreateDriver& o) { fmt::format_to(out, "create {}", name(o.resource)); },
                 [&](const CreateCommunicator& o) { fmt::format_to(out, "create communicator g{}", o.comm.value); },
                 [&](const Bind& o) { fmt::format_to(out, "bind {} b{}", program[o.name], o.buffer.value); },
                 [&](const Unbind& o) { fmt::format_to(out, "unbind {}", program[o.name]); },
                 [&](const Mark& o) {
                   fmt::format_to(out, "mark {} {} {} {}", name(o.phase), o.step, o.micro_batch, program[o.label]);
                 },
             },
             op);
}

// Reads one line word by word; every failure names the line and what was expected.
class LineReader {
 public:
  /// `reach`: no buffer, event or communicator has so high a number.
  LineReader(std::string_view line, int number, std::size_t reach) : rest_(line), number_(number), reach_(reach) {}

  [[noreturn]] void fail(const std::string& what) const { throw ProgramTextError(number_, what); }

  bool at_end() {
    const std::size_t start = rest_.find_first_not_of(" \t\r");
    rest_.remove_prefix(start == std::string_view::npos ? rest_.size() : start);
    return rest_.empty();
  }

  /// Of a line that is not at its end.
  [[nodiscard]] bool at_comment() const { return rest_.starts_with('#'); }

  std::string_view word(std::string_view what) {
    if (at_end()) fail(fmt::format("{} is missing", what));
    const std::string_view found = rest_.substr(0, rest_.find_first_of(" \t\r"));
    rest_.remove_prefix(found.size());
    return found;
  }

  void expect(std::string_view literal) {
    if (const std::string_view found = word(literal); found != literal)
      fail(fmt::format("'{}' where '{}' was expected", found, literal));
  }

  template <class Integer>
  Integer number(std::string_view digits, std::string_view what) const {
    Integer value{};
    if (digits.starts_with('+')) digits.remove_prefix(1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc{} || end != digits.data() + digits.size()) fail(fmt::format("'{}' is no {}", digits, what));
    return value;
  }
  template <class Integer>
  Integer number(std::string_view what) {
    return number<Integer>(word(what), what);
  }

  /// An id such as b7: its letter, then a number from 0.
  template <class Kind>
  Kind id(char letter, std::string_view what) {
    const std::string_view found = word(what);
    if (found.size() < 2 || found[0] != letter) fail(fmt::format("'{}' is no {}", found, what));
    const Kind value{number<std::int32_t>(found.substr(1), what)};
    if (value.value < 0) fail(fmt::format("'{}' is no {}", found, what));
    const std::size_t reach = std::is_same_v<Kind, StreamId> ? most_streams : reach_;
    if (value.index() >= reach)
      fail(fmt::format("'{}' is out of reach: the number of a {} has to be below {}", found, what, reach));
    return value;
  }
  BufferId buffer() { return id<BufferId>('b', "buffer"); }
  StreamId stream() { return id<StreamId>('s', "stream"); }
  CommSlot comm() { return id<CommSlot>('g', "communicator"); }
  EventId event() { return id<EventId>('e', "event"); }
  MatrixId matrix() { return id<MatrixId>('m', "matrix"); }
  Bytes bytes() { return Bytes{number<std::int64_t>("number of bytes")}; }

  template <class Enum>
  Enum one_of(std::string_view found, int count, std::string_view what) const {
    for (int i = 0; i < count; ++i)
      if (name(static_cast<Enum>(i)) == found) return static_cast<Enum>(i);
    fail(fmt::format("'{}' is no {}", found, what));
  }

  std::vector<std::int64_t> extents(std::size_t count) {
    std::string_view found = word("shape");
    std::vector<std::int64_t> sizes;
    for (std::size_t start = 0; start <= found.size();) {
      const std::size_t end = std::min(found.find('x', start), found.size());
      sizes.push_back(number<std::int64_t>(found.substr(start, end - start), "size"));
      start = end + 1;
    }
    if (sizes.size() != count)
      fail(fmt::format("'{}' has {} sizes where {} were expected", found, sizes.size(), count));
    return sizes;
  }
  DType dtype() { return one_of<DType>(word("dtype"), 5, "dtype"); }

  Kernel kernel() {
    const std::string_view kind = word("kernel");
    if (kind == "gemm") {
      const std::vector<std::int64_t> s = extents(3);
      return Gemm{s[0], s[1], s[2], dtype()};
    }
    if (kind == "attention") {
      const std::string_view pass = word("pass");
      if (pass != "forward" && pass != "backward") fail(fmt::format("'{}' is no pass", pass));
      const std::vector<std::int64_t> s = extents(5);
      return Attention{pass == "forward" ? Pass::Forward : Pass::Backward, s[0], s[1], s[2], s[3], s[4], dtype()};
    }
    for (std::size_t i = 0; i < streaming_names.size(); ++i) {
      if (streaming_names[i] != kind) continue;
      const std::string_view traffic = word("bytes read and written");
      const std::size_t plus = traffic.find('+');
      if (plus == std::string_view::npos) fail(fmt::format("'{}' is not READ+WRITTEN", traffic));
      return Stream{static_cast<Streaming>(i), Bytes{number<std::int64_t>(traffic.substr(0, plus), "number of bytes")},
                    Bytes{number<std::int64_t>(traffic.substr(plus + 1), "number of bytes")}};
    }
    fail(fmt::format("'{}' is no kernel", kind));
  }

  /// After its buffers, up to the end of the line.
  MatrixRow row() {
    MatrixRow found{matrix(), {}, {}};
    expect("sends");
    while (!at_end() && !rest_.starts_with("receives")) found.sends.push_back(count());
    expect("receives");
    while (!at_end()) found.receives.push_back(count());
    return found;
  }

  std::vector<BufferId> buffers_until_arrow() {
    std::vector<BufferId> list;
    while (!at_end() && !rest_.starts_with("->")) list.push_back(buffer());
    expect("->");
    return list;
  }
  std::vector<BufferId> buffers_until_end() {
    std::vector<BufferId> list;
    while (!at_end()) list.push_back(buffer());
    return list;
  }

 private:
  // What a member sends another one: sums of a whole group's fit into 64 bits.
  Bytes count() {
    const Bytes found = bytes();
    if (found < Bytes{} || found > most_bytes) fail(fmt::format("nobody sends {} bytes", found.count()));
    return found;
  }

  std::string_view rest_;
  int number_;
  std::size_t reach_;
};

void read_op(LineReader& in, ProgramBuilder& program) {
  const std::string_view kind = in.word("op");
  if (kind == "alloc") {
    const BufferId buffer = in.buffer();
    const Bytes size = in.bytes();
    const std::string_view category = in.word("category");
    const std::optional<Category> known = category_of(category);
    if (!known) in.fail(fmt::format("'{}' is no category", category));
    const StreamId stream = in.stream();
    const LabelId label = program.label(in.word("label"));
    const MemorySpace space = in.at_end() ? MemorySpace::Device : in.one_of<MemorySpace>(in.word("space"), 3, "space");
    program.alloc(buffer, size, *known, label, stream, space);
  } else if (kind == "free") {
    program.push(Free{in.buffer()});
  } else if (kind == "borrow") {
    const BufferId buffer = in.buffer();
    program.push(Borrow{buffer, in.stream()});
  } else if (kind == "launch") {
    const StreamId stream = in.stream();
    const Kernel kernel = in.kernel();
    const std::vector<BufferId> inputs = in.buffers_until_arrow();
    program.launch(kernel, inputs, in.buffers_until_end(), stream);
  } else if (kind == "collective") {
    const StreamId stream = in.stream();
    const CommSlot comm = in.comm();
    const CollectiveKind what = in.one_of<CollectiveKind>(in.word("collective"), 5, "collective");
    const Bytes size = in.bytes();
    const BufferId from = in.buffer();
    in.expect("->");
    const BufferId to = in.buffer();
    if (in.at_end()) return program.collective(comm, what, from, to, size, stream);
    const MatrixRow row = in.row();
    if (size != larger_side(what, row))
      in.fail(fmt::format("the larger side holds {} bytes, not {}", larger_side(what, row).count(), size.count()));
    program.collective(comm, what, from, to, row, stream);
  } else if (kind == "exchange") {
    const StreamId stream = in.stream();
    const CommSlot comm = in.comm();
    std::vector<Transfer> transfers;
    while (!in.at_end()) {
      const std::string_view way = in.word("direction");
      if (way != "send" && way != "receive") in.fail(fmt::format("'{}' is neither send nor receive", way));
      const std::int32_t step = in.number<std::int32_t>("step");
      if (step < -farthest_step || step > farthest_step) in.fail(fmt::format("a step of {} leads nowhere", step));
      transfers.push_back({way == "send" ? Direction::Send : Direction::Receive, step, in.buffer()});
    }
    program.exchange(comm, transfers, stream);
  } else if (kind == "memcpy") {
    const StreamId stream = in.stream();
    const Bytes size = in.bytes();
    const BufferId from = in.buffer();
    in.expect("->");
    program.push(Memcpy{stream, from, in.buffer(), size});
  } else if (kind == "record") {
    const EventId event = in.event();
    program.push(Record{event, in.stream()});
  } else if (kind == "wait") {
    const StreamId stream = in.stream();
    program.push(Wait{stream, in.event()});
  } else if (kind == "sync") {
    program.push(Sync{in.event()});
  } else if (kind == "create") {
    const std::string_view what = in.word("resource");
    if (what == "communicator")
      program.push(CreateCommunicator{in.comm()});
    else
      program.push(CreateDriver{in.one_of<DriverResource>(what, 4, "driver resource")});
  } else if (kind == "bind") {
    const NameId name = program.name(in.word("name"));
    program.bind(name, in.buffer());
  } else if (kind == "unbind") {
    program.unbind(program.name(in.word("name")));
  } else if (kind == "mark") {
    const Phase phase = in.one_of<Phase>(in.word("phase"), 5, "phase");
    const std::int32_t step = in.number<std::int32_t>("step");
    const std::int32_t micro_batch = in.number<std::int32_t>("micro-batch");
    program.mark(phase, step, micro_batch, program.label(in.word("label")));
  } else {
    in.fail(fmt::format("'{}' is no op", kind));
  }
  if (!in.at_end()) in.fail("more words than the op has");
}

}  // namespace

std::string text(const Kernel& kernel) {
  std::string out;
  write(std::back_inserter(out), kernel);
  return out;
}

std::string text(const Program& program, const Op& op) {
  std::string out;
  write(std::back_inserter(out), program, op);
  return out;
}

std::string text(const Program& program) {
  std::string out;
  for (const Op& op : program.ops) {
    write(std::back_inserter(out), program, op);
    out += '\n';
  }
  return out;
}

Program parse_program(std::string_view text) {
  ProgramBuilder program;
  const std::size_t reach = std::max(text.size(), always_within_reach);
  int number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    LineReader in(line, ++number, reach);
    if (in.at_end() || in.at_comment()) continue;
    read_op(in, program);
  }
  return std::move(program).finish();
}

}  // namespace tidemark::sim
