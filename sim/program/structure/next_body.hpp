#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "sim/program/program.hpp"

namespace tidemark::sim {

/// How long a program is.
struct Extent {
  std::size_t ops = 0, operands = 0, transfers = 0;
};
inline Extent extent_of(const Program& program) {
  return {program.ops.size(), program.operands.size(), program.transfers.size()};
}

/// Ops that come again and again, as they come next: their numbers change by as much as they did from the last but one
/// to the last.
class NextBody {
 public:
  /// Both of them end the program, and are as much of it as came since `before_last`; they are alike but for numbers.
  NextBody(const Program& program, const Extent& before_last)
      : ops_(program.ops.begin() + at(before_last.ops), program.ops.end()),
        operands_(program.operands.begin() + at(before_last.operands), program.operands.end()),
        transfers_(program.transfers.begin() + at(before_last.transfers), program.transfers.end()) {
    const auto earlier = [](const auto& all, const auto& last) { return std::span(all).last(2 * last.size()); };
    const auto before = earlier(program.ops, ops_);
    for (std::size_t i = 0; i < ops_.size(); ++i)
      std::visit([&](auto& o) { change(o, std::get<std::decay_t<decltype(o)>>(before[i])); }, ops_[i]);
    for (std::size_t i = 0; i < operands_.size(); ++i)
      operands_by_.push_back(operands_[i].buffer.value - earlier(program.operands, operands_)[i].buffer.value);
    for (std::size_t i = 0; i < transfers_.size(); ++i)
      change(transfers_[i].buffer, earlier(program.transfers, transfers_)[i].buffer);
  }
  NextBody(const NextBody&) = delete;  // changes are of its own ops
  NextBody& operator=(const NextBody&) = delete;

  /// The next one, or at first the one after the last.
  void go_on() {
    for (const Change& change : changes_) *change.number += change.by;
    for (std::uint32_t* const first : operand_lists_) *first += static_cast<std::uint32_t>(operands_.size());
    for (std::uint32_t* const first : transfer_lists_) *first += static_cast<std::uint32_t>(transfers_.size());
    for (std::size_t i = 0; i < operands_.size(); ++i) operands_[i].buffer.value += operands_by_[i];
  }

  [[nodiscard]] std::span<const Op> ops() const { return ops_; }
  void append_to(Program& program) const {
    program.ops.insert(program.ops.end(), ops_.begin(), ops_.end());
    program.operands.insert(program.operands.end(), operands_.begin(), operands_.end());
    program.transfers.insert(program.transfers.end(), transfers_.begin(), transfers_.end());
  }

 private:
  struct Change {
    std::int32_t* number;
    std::int32_t by;
  };

  static std::ptrdiff_t at(std::size_t index) { return static_cast<std::ptrdiff_t>(index); }

  void change(std::int32_t& number, std::int32_t before) {
    if (number != before) changes_.push_back({&number, number - before});
  }
  template <class Kind>
  void change(Id<Kind>& its, Id<Kind> before) {
    change(its.value, before.value);
  }
  void change(Alloc& o, const Alloc& before) { change(o.buffer, before.buffer); }
  void change(Free& o, const Free& before) { change(o.buffer, before.buffer); }
  void change(CrossStreamUse& o, const CrossStreamUse& before) { change(o.buffer, before.buffer); }
  void change(Launch& o, const Launch&) {
    operand_lists_.push_back(&o.inputs.first);
    operand_lists_.push_back(&o.outputs.first);
    operand_lists_.push_back(&o.scratch.first);
  }
  void change(Collective& o, const Collective& before) {
    change(o.in.buffer, before.in.buffer);
    change(o.out.buffer, before.out.buffer);
  }
  void change(Exchange& o, const Exchange&) { transfer_lists_.push_back(&o.transfers.first); }
  void change(Memcpy& o, const Memcpy& before) {
    change(o.from.buffer, before.from.buffer);
    change(o.to.buffer, before.to.buffer);
  }
  void change(Record& o, const Record& before) { change(o.event, before.event); }
  void change(Wait& o, const Wait& before) { change(o.event, before.event); }
  void change(Sync& o, const Sync& before) { change(o.event, before.event); }
  void change(CreateDriver&, const CreateDriver&) {}              // no body
  void change(CreateCommunicator&, const CreateCommunicator&) {}  // has any
  void change(Bind& o, const Bind& before) {
    change(o.name, before.name);
    change(o.buffer, before.buffer);
  }
  void change(Unbind& o, const Unbind& before) { change(o.name, before.name); }
  void change(Mark& o, const Mark& before) { change(o.micro_batch, before.micro_batch); }

  std::vector<Op> ops_;
  std::vector<Operand> operands_;
  std::vector<std::int32_t> operands_by_;
  std::vector<Transfer> transfers_;
  std::vector<Change> changes_;
  std::vector<std::uint32_t*> operand_lists_, transfer_lists_;
};

}  // namespace tidemark::sim
