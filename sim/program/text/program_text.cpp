#include "sim/program/text/program_text.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <iterator>
#include <optional>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sim/base/overloaded.hpp"
#include "sim/program/program_builder.hpp"

namespace tidemark::sim {
namespace {

// Whoever follows a program holds a row for each number up to the largest, and a square of them for streams: a word of
// a text is not to cost gigabytes. What is numbered takes a line of its own, so that a text has more bytes than
// numbers.
constexpr std::size_t always_within_reach = 1 << 16;
constexpr std::size_t most_streams = 256;
constexpr std::int32_t farthest_step = 1 << 28;     // within a group: so that sums of them fit
constexpr Bytes most_bytes{std::int64_t{1} << 40};  // from a member of a group to another one: likewise

// Neither what a view has of elements nor how far it reaches leaves 64 bits.
bool within_memory(const Shape& sizes, const Shape& strides) {
  std::int64_t elements = 1, reach = 0;
  const auto fits = [](std::int64_t n, std::int64_t times) { return times == 0 || n <= most_bytes.count() / times; };
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] < 0 || strides[d] < 0 || !fits(elements, sizes[d]) || !fits(strides[d], sizes[d])) return false;
    elements *= sizes[d];
    reach += strides[d] * sizes[d];
  }
  return reach <= most_bytes.count();
}

using Out = std::back_insert_iterator<std::string>;

void write(Out out, const View& view) {
  fmt::format_to(out, "{}[{}", name(view.dtype), fmt::join(view.sizes, "x"));
  if (view.strides != contiguous_strides(view.sizes)) fmt::format_to(out, "/{}", fmt::join(view.strides, "x"));
  fmt::format_to(out, "]");
}

void write(Out out, const Kernel& kernel) {
  const OperationFacts& facts = facts_of(kernel.operation);
  if (kernel.fused)
    fmt::format_to(out, "fused={} ", kernel.follows() ? "-" : fmt::to_string(kernel.fused->traffic.count()));
  fmt::format_to(out, "{}", facts.name);
  for (std::size_t i = 0; i < facts.attributes.size(); ++i)
    if (i < facts.required || kernel.attributes[i] != 0)
      fmt::format_to(out, "{}{}={}", i == 0 ? "(" : ",", facts.attributes[i], kernel.attributes[i]);
  if (!facts.attributes.empty()) fmt::format_to(out, ")");
}

void write(Out out, const Program& program, const Operand& operand) {
  fmt::format_to(out, " b{}", operand.buffer.value);
  if (operand.offset.valid()) fmt::format_to(out, "+{}", program[operand.offset].count());
}

// Operands are those that are there.
void write(Out out, const Program& program, std::span<const Operand> operands, const std::vector<ViewId>& views) {
  std::size_t next = 0;
  for (const ViewId view : views) {
    if (!view.valid()) {
      fmt::format_to(out, " -");
      continue;
    }
    write(out, program, operands[next++]);
    fmt::format_to(out, ":");
    write(out, program[view]);
  }
}

void write(Out out, const MatrixRow& row) {
  fmt::format_to(out, " m{} sends", row.matrix.value);
  for (const Bytes n : row.sends) fmt::format_to(out, " {}", n.count());
  fmt::format_to(out, " receives");
  for (const Bytes n : row.receives) fmt::format_to(out, " {}", n.count());
}

void write(Out out, const Program& program, const Launch& o) {
  const Kernel& kernel = program[o.kernel];
  if (o.stream.valid())
    fmt::format_to(out, "launch s{} ", o.stream.value);
  else
    fmt::format_to(out, "compute ");
  write(out, kernel);
  write(out, program, program[o.inputs], kernel.inputs);
  fmt::format_to(out, " ->");
  write(out, program, program[o.outputs], kernel.outputs);
  if (o.scratch.count > 0) fmt::format_to(out, " ~");
  for (const Operand& operand : program[o.scratch]) write(out, program, operand);
}

void write(Out out, const Program& program, const Collective& o) {
  fmt::format_to(out, "collective s{} g{} {} ", o.stream.value, o.comm.value, name(o.kind));
  if (reduces(o.kind)) fmt::format_to(out, "{} ", name(o.reduction));
  fmt::format_to(out, "{} {}", name(o.dtype), o.size.count());
  write(out, program, o.in);
  fmt::format_to(out, " ->");
  write(out, program, o.out);
  if (o.row.valid()) write(out, program[o.row]);
}

void write(Out out, const Program& program, const Exchange& o) {
  fmt::format_to(out, "exchange s{} g{}", o.stream.value, o.comm.value);
  for (const Transfer& t : program[o.transfers]) {
    fmt::format_to(out, " {} {:+} b{}", t.direction == Direction::Send ? "send" : "receive", t.step, t.buffer.value);
    if (t.parts > 1) fmt::format_to(out, "[{}/{}]", t.part, t.parts);
  }
}

void write(Out out, const Program& program, const Op& op) {
  std::visit(Overloaded{
                 [&](const Alloc& o) {
                   fmt::format_to(out, "alloc b{} {} {} s{} {}", o.buffer.value, o.size.count(), name(o.category),
                                  o.stream.value, program[o.label]);
                   if (o.space != MemorySpace::Device) fmt::format_to(out, " {}", name(o.space));
                 },
                 [&](const Free& o) { fmt::format_to(out, "free b{}", o.buffer.value); },
                 [&](const CrossStreamUse& o) {
                   fmt::format_to(out, "borrow b{} s{}{}", o.buffer.value, o.stream.value,
                                  o.recorded ? "" : " unrecorded");
                 },
                 [&](const Launch& o) { write(out, program, o); },
                 [&](const Collective& o) { write(out, program, o); },
                 [&](const Exchange& o) { write(out, program, o); },
                 [&](const Memcpy& o) {
                   fmt::format_to(out, "memcpy s{} {}", o.stream.value, o.size.count());
                   write(out, program, o.from);
                   fmt::format_to(out, " ->");
                   write(out, program, o.to);
                 },
                 [&](const Record& o) { fmt::format_to(out, "record e{} s{}", o.event.value, o.stream.value); },
                 [&](const Wait& o) { fmt::format_to(out, "wait s{} e{}", o.stream.value, o.event.value); },
                 [&](const Sync& o) { fmt::format_to(out, "sync e{}", o.event.value); },
                 [&](const CreateDriver& o) { fmt::format_to(out, "create {}", name(o.resource)); },
                 [&](const CreateCommunicator& o) { fmt::format_to(out, "create communicator g{}", o.comm.value); },
                 [&](const Bind& o) { fmt::format_to(out, "bind {} b{}", program[o.name], o.buffer.value); },
                 [&](const Unbind& o) { fmt::format_to(out, "unbind {}", program[o.name]); },
                 [&](const Mark& o) {
                   fmt::format_to(out, "mark {} {} {} {}{}", name(o.phase), o.step, o.micro_batch, program[o.label],
                                  o.empties_cache ? " empty_cache" : "");
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
    return id<Kind>(word(what), letter, what);
  }
  template <class Kind>
  Kind id(std::string_view found, char letter, std::string_view what) const {
    if (found.size() < 2 || found[0] != letter) fail(fmt::format("'{}' is no {}", found, what));
    const Kind value{number<std::int32_t>(found.substr(1), what)};
    if (value.value < 0) fail(fmt::format("'{}' is no {}", found, what));
    const std::size_t reach = std::is_same_v<Kind, StreamId> ? most_streams : reach_;
    if (value.index() >= reach)
      fail(fmt::format("'{}' is out of reach: the number of a {} has to be below {}", found, what, reach));
    return value;
  }
  BufferId buffer() { return id<BufferId>('b', "buffer"); }
  /// "b7", or "b7[1/2]".
  Transfer part_of_buffer() {
    const std::string_view found = word("buffer");
    const std::size_t bracket = std::min(found.find('['), found.size()),
                      slash = std::min(found.find('/'), found.size());
    Transfer its;
    its.buffer = id<BufferId>(found.substr(0, bracket), 'b', "buffer");
    if (bracket == found.size()) return its;
    if (slash < bracket || slash == found.size() || !found.ends_with(']'))
      fail(fmt::format("'{}' is no part of a buffer, such as b0[1/2]", found));
    its.part = number<std::int32_t>(found.substr(bracket + 1, slash - bracket - 1), "part");
    its.parts = number<std::int32_t>(found.substr(slash + 1, found.size() - slash - 2), "number of parts");
    if (its.part < 0 || its.part >= its.parts) fail(fmt::format("'{}' is none of the buffer's parts", found));
    return its;
  }
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

  DType dtype() { return dtype(word("dtype")); }
  DType dtype(std::string_view found) const { return one_of<DType>(found, dtypes, "dtype"); }

  /// "4096x4096"; nothing of a scalar.
  Shape extents(std::string_view digits) const {
    Shape sizes;
    for (std::size_t start = 0; start < digits.size();) {
      const std::size_t end = std::min(digits.find('x', start), digits.size());
      if (sizes.size() == Shape::most) fail(fmt::format("'{}' has more than {} sizes", digits, Shape::most));
      sizes.push_back(number<std::int64_t>(digits.substr(start, end - start), "size"));
      start = end + 1;
    }
    return sizes;
  }

  /// "scale(factor=0.5)"; "fused=4096 add" begins a fused kernel that moves so many bytes, "fused=- silu" goes on in
  /// it.
  Computation computation() {
    std::optional<FusedStep> fused;
    std::string_view found = word("operation");
    constexpr std::string_view says_fused = "fused=";
    if (found.starts_with(says_fused)) {
      found.remove_prefix(says_fused.size());
      const bool follows = found == "-";
      fused = FusedStep{follows, follows ? Bytes{} : Bytes{number<std::int64_t>(found, "bytes")}};
      if (fused->traffic < Bytes{} || fused->traffic > most_bytes)
        fail(fmt::format("no kernel moves {} bytes", fused->traffic.count()));
      found = word("operation");
    }
    const std::string_view called = found.substr(0, found.find('('));
    const auto all = all_operations();
    const auto its = std::ranges::find(all, called, &OperationFacts::name);
    if (its == all.end()) fail(fmt::format("'{}' is no operation", called));
    Computation made(static_cast<Operation>(its - all.begin()));
    made.fused = fused;
    std::string_view rest = found.substr(called.size());
    for (std::size_t i = 0; i < its->attributes.size(); ++i) {
      const std::string expected = fmt::format("{}{}=", i == 0 ? "(" : ",", its->attributes[i]);
      if (i >= its->required && !rest.starts_with(expected)) continue;
      if (!rest.starts_with(expected))
        fail(fmt::format("{} takes {}, not '{}'", called, fmt::join(its->attributes, ", "), found));
      rest.remove_prefix(expected.size());
      const std::size_t end = std::min(rest.find_first_of(",)"), rest.size());
      made.attributes[i] = number<double>(rest.substr(0, end), "number");
      rest.remove_prefix(end);
    }
    if (rest != (its->attributes.empty() ? "" : ")")) fail(fmt::format("'{}' is more than {} takes", found, called));
    return made;
  }

  /// "b7", "b7+512"; what comes behind a colon is left in `word`.
  Operand operand(ProgramBuilder& program, std::string_view& word) const {
    const std::size_t colon = std::min(word.find(':'), word.size());
    const std::string_view its = word.substr(0, colon);
    word.remove_prefix(colon);
    const std::size_t plus = its.find('+');
    const BufferId buffer = id<BufferId>(its.substr(0, plus), 'b', "buffer");
    if (plus == std::string_view::npos) return buffer;
    const auto from = number<std::int64_t>(its.substr(plus + 1), "offset");
    if (from < 0 || from > most_bytes.count()) fail(fmt::format("'{}' begins in no buffer", its));
    return {buffer, program.offset(Bytes{from})};
  }
  Operand operand(ProgramBuilder& program) {
    std::string_view found = word("buffer");
    const Operand its = operand(program, found);
    if (!found.empty()) fail(fmt::format("'{}' where a buffer alone was expected", found));
    return its;
  }

  /// "b7:bf16[4096x8192/1x4096]", or "-" of one that is absent.
  ViewedOperand viewed(ProgramBuilder& program) {
    std::string_view found = word("operand");
    if (found == "-") return {};
    const std::string_view whole = found;
    const Operand its = operand(program, found);
    const std::size_t bracket = found.find('[');
    if (!found.starts_with(':') || bracket == std::string_view::npos || !found.ends_with(']'))
      fail(fmt::format("'{}' says no type and sizes, such as b0:bf16[8x16]", whole));
    const DType type = dtype(found.substr(1, bracket - 1));
    const std::string_view inside = found.substr(bracket + 1, found.size() - bracket - 2);
    const std::size_t slash = inside.find('/');
    const Shape sizes = extents(inside.substr(0, slash));
    const Shape strides =
        slash == std::string_view::npos ? contiguous_strides(sizes) : extents(inside.substr(slash + 1));
    if (strides.size() != sizes.size())
      fail(fmt::format("'{}' has {} sizes and {} strides", whole, sizes.size(), strides.size()));
    if (!within_memory(sizes, strides)) fail(fmt::format("'{}' is larger than any memory", whole));
    return {its, program.view(type, sizes, strides)};
  }
  std::vector<ViewedOperand> viewed_until(ProgramBuilder& program, std::string_view end) {
    std::vector<ViewedOperand> list;
    while (!at_end() && !rest_.starts_with(end)) list.push_back(viewed(program));
    return list;
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

void read_alloc(LineReader& in, ProgramBuilder& program) {
  const BufferId buffer = in.buffer();
  const Bytes size = in.bytes();
  const std::string_view category = in.word("category");
  const std::optional<Category> known = category_of(category);
  if (!known) in.fail(fmt::format("'{}' is no category", category));
  const StreamId stream = in.stream();
  const LabelId label = program.label(in.word("label"));
  const MemorySpace space = in.at_end() ? MemorySpace::Device : in.one_of<MemorySpace>(in.word("space"), 7, "space");
  program.alloc(buffer, size, *known, label, stream, space);
}

void read_cross_stream_use(LineReader& in, ProgramBuilder& program) {
  const BufferId buffer = in.buffer();
  const StreamId stream = in.stream();
  const bool recorded = in.at_end();
  if (!recorded) in.expect("unrecorded");
  program.push(CrossStreamUse{buffer, stream, recorded});
}

enum class Where : std::uint8_t { Device, Host };

void read_computation(LineReader& in, ProgramBuilder& program, Where where) {
  const StreamId stream = where == Where::Device ? in.stream() : StreamId{};
  const Computation what = in.computation();
  const std::vector<ViewedOperand> inputs = in.viewed_until(program, "->");
  in.expect("->");
  const std::vector<ViewedOperand> outputs = in.viewed_until(program, "~");
  std::vector<BufferId> scratch;
  if (!in.at_end()) in.expect("~");
  while (!in.at_end()) scratch.push_back(in.buffer());
  program.launch(what, inputs, outputs, scratch, stream);
}

void read_collective(LineReader& in, ProgramBuilder& program) {
  const StreamId stream = in.stream();
  const CommSlot comm = in.comm();
  const CollectiveKind what = in.one_of<CollectiveKind>(in.word("collective"), 5, "collective");
  const Reduction reduction =
      reduces(what) ? in.one_of<Reduction>(in.word("reduction"), 3, "reduction") : Reduction::Sum;
  const CollectiveOp call(what, in.dtype(), reduction);
  const Bytes size = in.bytes();
  const Operand from = in.operand(program);
  in.expect("->");
  const Operand to = in.operand(program);
  if (in.at_end()) return program.collective(comm, call, from, to, size, stream);
  const MatrixRow row = in.row();
  if (size != larger_side(what, row))
    in.fail(fmt::format("the larger side holds {} bytes, not {}", larger_side(what, row).count(), size.count()));
  program.collective(comm, call, from, to, row, stream);
}

void read_exchange(LineReader& in, ProgramBuilder& program) {
  const StreamId stream = in.stream();
  const CommSlot comm = in.comm();
  std::vector<Transfer> transfers;
  while (!in.at_end()) {
    const std::string_view way = in.word("direction");
    if (way != "send" && way != "receive") in.fail(fmt::format("'{}' is neither send nor receive", way));
    const std::int32_t step = in.number<std::int32_t>("step");
    if (step < -farthest_step || step > farthest_step) in.fail(fmt::format("a step of {} leads nowhere", step));
    transfers.push_back(in.part_of_buffer());
    transfers.back().direction = way == "send" ? Direction::Send : Direction::Receive;
    transfers.back().step = step;
  }
  program.exchange(comm, transfers, stream);
}

void read_memcpy(LineReader& in, ProgramBuilder& program) {
  const StreamId stream = in.stream();
  const Bytes size = in.bytes();
  const Operand from = in.operand(program);
  in.expect("->");
  program.push(Memcpy{stream, from, in.operand(program), size});
}

void read_create(LineReader& in, ProgramBuilder& program) {
  const std::string_view what = in.word("resource");
  if (what == "communicator")
    program.push(CreateCommunicator{in.comm()});
  else
    program.push(CreateDriver{in.one_of<DriverResource>(what, 4, "driver resource")});
}

void read_mark(LineReader& in, ProgramBuilder& program) {
  const Phase phase = in.one_of<Phase>(in.word("phase"), 6, "phase");
  const std::int32_t step = in.number<std::int32_t>("step");
  const std::int32_t micro_batch = in.number<std::int32_t>("micro-batch");
  const LabelId label = program.label(in.word("label"));
  const bool empties_cache = !in.at_end() && !in.at_comment();
  if (empties_cache) in.expect("empty_cache");
  program.mark(phase, step, micro_batch, label, empties_cache);
}

void read_op(LineReader& in, ProgramBuilder& program) {
  const std::string_view kind = in.word("op");
  if (kind == "alloc") {
    read_alloc(in, program);
  } else if (kind == "free") {
    program.push(Free{in.buffer()});
  } else if (kind == "borrow") {
    read_cross_stream_use(in, program);
  } else if (kind == "launch") {
    read_computation(in, program, Where::Device);
  } else if (kind == "compute") {
    read_computation(in, program, Where::Host);
  } else if (kind == "collective") {
    read_collective(in, program);
  } else if (kind == "exchange") {
    read_exchange(in, program);
  } else if (kind == "memcpy") {
    read_memcpy(in, program);
  } else if (kind == "record") {
    const EventId event = in.event();
    program.push(Record{event, in.stream()});
  } else if (kind == "wait") {
    const StreamId stream = in.stream();
    program.push(Wait{stream, in.event()});
  } else if (kind == "sync") {
    program.push(Sync{in.event()});
  } else if (kind == "create") {
    read_create(in, program);
  } else if (kind == "bind") {
    const NameId name = program.name(in.word("name"));
    program.bind(name, in.buffer());
  } else if (kind == "unbind") {
    program.unbind(program.name(in.word("name")));
  } else if (kind == "mark") {
    read_mark(in, program);
  } else {
    in.fail(fmt::format("'{}' is no op", kind));
  }
  if (!in.at_end()) in.fail("more words than the op has");
}

}  // namespace

std::string text(const Program& program, const Kernel& kernel) {
  std::string out;
  const Out to = std::back_inserter(out);
  write(to, kernel);
  const auto views = [&](const std::vector<ViewId>& all) {
    for (const ViewId view : all) {
      fmt::format_to(to, " ");
      if (view.valid())
        write(to, program[view]);
      else
        fmt::format_to(to, "-");
    }
  };
  views(kernel.inputs);
  fmt::format_to(to, " ->");
  views(kernel.outputs);
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
