#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "sim/program/program.hpp"

namespace tidemark::sim {

/// Numbers of one program as another has them; -1: not seen.
class Renumbered {
 public:
  explicit Renumbered(std::int32_t count) : others_(static_cast<std::size_t>(count), -1) {}
  /// Whether one is the other's wherever it was seen.
  bool same(std::int32_t number, std::int32_t other) {
    std::int32_t& its = others_[static_cast<std::size_t>(number)];
    if (its < 0) its = other;
    return its == other;
  }
  [[nodiscard]] std::int32_t operator[](std::int32_t number) const { return others_[static_cast<std::size_t>(number)]; }

 private:
  std::vector<std::int32_t> others_;
};

/// Writes ops of several programs as one, which numbers things as they come and has the other rank's tables of sizes.
class SizedWriter {
 public:
  explicit SizedWriter(const Program& sizes) : sizes_(sizes) {
    out_.kernels = sizes.kernels, out_.views = sizes.views, out_.offsets = sizes.offsets, out_.rows = sizes.rows;
  }

  /// A program that ops come from, and what they are called from now on. What it has not made, `elsewhere` knows.
  class Source {
   public:
    Source(SizedWriter& writer, const Program& its)
        : program(its), buffers(its.buffers), events(its.events), names(static_cast<std::int32_t>(its.names.size())) {
      for (const Label& label : its.labels) labels.push_back(writer.label(label));
    }
    const Program& program;
    Renumbered buffers, events, names;
    std::vector<LabelId> labels;
  };

  /// An op as it stands there, with the sizes of an op of the other rank's, of the same kind.
  template <class Elsewhere>
  void write(Source& from, const Op& op, const Op& as, Elsewhere elsewhere) {
    std::visit([&](const auto& o) { write(from, o, std::get<std::decay_t<decltype(o)>>(as), elsewhere); }, op);
  }

  void reserve(std::size_t ops, std::size_t operands) { out_.ops.reserve(ops), out_.operands.reserve(operands); }
  [[nodiscard]] std::size_t ops() const { return out_.ops.size(); }
  [[nodiscard]] bool all_have_bounds() const { return all_have_bounds_; }
  Program program() && {
    out_.buffers = buffers_, out_.events = events_;
    return std::move(out_);
  }

 private:
  LabelId label(const Label& label) {
    const auto [known, added] = labels_.try_emplace(label.text, LabelId{static_cast<std::int32_t>(out_.labels.size())});
    if (added) out_.labels.push_back(label);
    return known->second;
  }
  static LabelId now(const Source& from, LabelId id) { return id.valid() ? from.labels[id.index()] : id; }
  NameId now(Source& from, NameId id) {
    if (const std::int32_t known = from.names[id.value]; known >= 0) return {known};
    const std::string& name = from.program[id];
    const auto [known, added] = names_.try_emplace(name, static_cast<std::int32_t>(out_.names.size()));
    if (added) out_.names.push_back(name);
    from.names.same(id.value, known->second);
    return {known->second};
  }
  template <class Id, class Elsewhere>
  Id now(Renumbered& numbers, Id id, Elsewhere elsewhere) {
    if (numbers[id.value] < 0) {
      const Id its = elsewhere(id);
      all_have_bounds_ &= its.valid();
      if (its.valid()) numbers.same(id.value, its.value);
    }
    return {numbers[id.value]};
  }

  template <class Elsewhere>
  void write(Source& from, const Alloc& o, const Alloc& as, Elsewhere) {
    from.buffers.same(o.buffer.value, buffers_);
    out_.ops.emplace_back(Alloc{{buffers_++}, as.size, o.category, o.stream, now(from, o.label), o.space});
  }
  template <class Elsewhere>
  void write(Source& from, const Free& o, const Free&, Elsewhere elsewhere) {
    out_.ops.emplace_back(Free{now(from.buffers, o.buffer, elsewhere)});
  }
  template <class Elsewhere>
  void write(Source& from, const CrossStreamUse& o, const CrossStreamUse&, Elsewhere elsewhere) {
    out_.ops.emplace_back(CrossStreamUse{now(from.buffers, o.buffer, elsewhere), o.stream, o.recorded});
  }
  template <class Elsewhere>
  void write(Source& from, const Launch& o, const Launch& as, Elsewhere elsewhere) {
    const auto all = [&](OperandList list, OperandList sized) {
      const OperandList made{static_cast<std::uint32_t>(out_.operands.size()), list.count};
      for (std::uint32_t i = 0; i < list.count; ++i)
        out_.operands.emplace_back(now(from.buffers, from.program.operands[list.first + i].buffer, elsewhere),
                                   sizes_.operands[sized.first + i].offset);
      return made;
    };
    const OperandList inputs = all(o.inputs, as.inputs), outputs = all(o.outputs, as.outputs),
                      scratch = all(o.scratch, as.scratch);
    out_.ops.emplace_back(Launch{o.stream, as.kernel, inputs, outputs, scratch});
  }
  template <class Elsewhere>
  void write(Source& from, const Collective& o, const Collective& as, Elsewhere elsewhere) {
    Collective made = o;
    made.in = {now(from.buffers, o.in.buffer, elsewhere), as.in.offset};
    made.out = {now(from.buffers, o.out.buffer, elsewhere), as.out.offset};
    made.row = as.row, made.size = as.size;
    out_.ops.emplace_back(made);
  }
  template <class Elsewhere>
  void write(Source& from, const Exchange& o, const Exchange&, Elsewhere elsewhere) {
    const TransferList list{static_cast<std::uint32_t>(out_.transfers.size()), o.transfers.count};
    for (Transfer transfer : from.program[o.transfers]) {
      transfer.buffer = now(from.buffers, transfer.buffer, elsewhere);
      out_.transfers.push_back(transfer);
    }
    out_.ops.emplace_back(Exchange{o.stream, o.comm, list});
  }
  template <class Elsewhere>
  void write(Source& from, const Memcpy& o, const Memcpy& as, Elsewhere elsewhere) {
    out_.ops.emplace_back(Memcpy{o.stream,
                                 {now(from.buffers, o.from.buffer, elsewhere), as.from.offset},
                                 {now(from.buffers, o.to.buffer, elsewhere), as.to.offset},
                                 as.size});
  }
  template <class Elsewhere>
  void write(Source& from, const Record& o, const Record&, Elsewhere) {
    if (from.events[o.event.value] < 0) from.events.same(o.event.value, events_++);
    out_.ops.emplace_back(Record{{from.events[o.event.value]}, o.stream});
  }
  template <class Elsewhere>
  void write(Source& from, const Wait& o, const Wait&, Elsewhere elsewhere) {
    out_.ops.emplace_back(Wait{o.stream, now(from.events, o.event, elsewhere)});
  }
  template <class Elsewhere>
  void write(Source& from, const Sync& o, const Sync&, Elsewhere elsewhere) {
    out_.ops.emplace_back(Sync{now(from.events, o.event, elsewhere)});
  }
  template <class Elsewhere>
  void write(Source&, const CreateDriver& o, const CreateDriver&, Elsewhere) {
    out_.ops.emplace_back(o);
  }
  template <class Elsewhere>
  void write(Source&, const CreateCommunicator& o, const CreateCommunicator&, Elsewhere) {
    out_.ops.emplace_back(o);
  }
  template <class Elsewhere>
  void write(Source& from, const Bind& o, const Bind&, Elsewhere elsewhere) {
    const NameId name = now(from, o.name);
    out_.ops.emplace_back(Bind{name, now(from.buffers, o.buffer, elsewhere)});
  }
  template <class Elsewhere>
  void write(Source& from, const Unbind& o, const Unbind&, Elsewhere) {
    out_.ops.emplace_back(Unbind{now(from, o.name)});
  }
  template <class Elsewhere>
  void write(Source& from, const Mark& o, const Mark&, Elsewhere) {
    out_.ops.emplace_back(Mark{o.phase, o.step, o.micro_batch, now(from, o.label), o.empties_cache});
  }

  const Program& sizes_;
  Program out_;
  std::int32_t buffers_ = 0, events_ = 0;
  std::map<std::string, LabelId> labels_;
  std::map<std::string, std::int32_t> names_;
  bool all_have_bounds_ = true;
};

}  // namespace tidemark::sim
