#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "sim/base/ensure.hpp"
#include "sim/program/detail/definitions.hpp"
#include "sim/program/structure/next_body.hpp"
#include "sim/program/structure/repeats.hpp"

namespace tidemark::sim {
namespace {

using namespace repeating;

// How much of a program has been written.
struct Written {
  Extent extent;
  std::size_t micro_batches = 0;
  std::array<std::int32_t, numbered_kinds> numbers{};  // that it has of each kind
};

// Writes a program out.
class Unroller {
 public:
  explicit Unroller(const RepeatingProgram& program)
      : program_(program), rolled_(program.rolled), definitions_(program.rolled), texts_(rolled_.names.size()) {
    outside_[index(Numbered::Buffer)].resize(static_cast<std::size_t>(rolled_.buffers));
    outside_[index(Numbered::Event)].resize(static_cast<std::size_t>(rolled_.events));
    outside_[index(Numbered::Name)].resize(rolled_.names.size());
  }

  Program run() && {
    reserve();
    out_.labels = rolled_.labels;
    out_.kernels = rolled_.kernels;
    out_.views = rolled_.views;
    out_.offsets = rolled_.offsets;
    out_.rows = rolled_.rows;
    unroll([&](const Repeat& repeat, NextBody& body, std::int64_t times) {
      for (std::int64_t n = 0; n < times; ++n) {
        body.go_on();
        body.append_to(out_);
        repeated_ += repeat.period;
        name_again(repeat);
      }
    });
    out_.buffers = next_[index(Numbered::Buffer)];
    out_.events = next_[index(Numbered::Event)];
    return std::move(out_);
  }

  void tell(const std::function<bool(std::span<const Op>)>& hear) && {
    bool goes_on = true;
    const auto reported = [&] {
      goes_on = goes_on && hear(out_.ops);
      out_.ops.clear();
    };
    unroll([&](const Repeat&, NextBody& body, std::int64_t times) {
      reported();
      for (std::int64_t n = 0; n < times && goes_on; ++n) {
        body.go_on();
        goes_on = hear(body.ops());
      }
    });
    reported();
  }

 private:
  void reserve() {
    std::size_t ops = rolled_.ops.size(), operands = rolled_.operands.size();
    for (const Repeat& repeat : program_.repeats) {
      const auto times = static_cast<std::size_t>(repeat.more);
      ops += times * (repeat.last - repeat.first);
      for (std::size_t i = repeat.first; i < repeat.last; ++i)
        if (const Launch* launch = std::get_if<Launch>(&rolled_.ops[i]))
          operands += times * (launch->inputs.count + launch->outputs.count + launch->scratch.count);
    }
    out_.ops.reserve(ops);
    out_.operands.reserve(operands);
  }

  // Has all bodies that go on as the two before them do written by `more(repeat, body, times)`.
  template <class More>
  void unroll(More more) {
    std::size_t next = 0;
    for (const Repeat& repeat : program_.repeats) {
      copy(next, repeat.last);
      repeat_body(repeat, more);
      next = repeat.last;
    }
    copy(next, rolled_.ops.size());
  }

  [[nodiscard]] Written written() const { return {extent_of(out_), firsts_.size(), next_}; }

  template <class More>
  void repeat_body(const Repeat& repeat, More more) {
    const std::int32_t end = at_.latest + 1, begin = end - repeat.period;
    const auto texts = texts_of(rolled_, definitions_, begin, repeat.period);
    ensure(texts.has_value(), "names of what repeats count micro-batches");
    for (const auto& [name, text] : *texts) texts_[static_cast<std::size_t>(name)] = text;
    const auto later = [&](std::int32_t from, std::int64_t by) {
      for (std::int32_t m = from; m < end; ++m) unrolled_[static_cast<std::size_t>(m)] += static_cast<std::int32_t>(by);
    };
    // Once bodies refer to nothing but what came again, each goes on as the two before it do.
    const std::int64_t resolved_scenario = std::min<std::int64_t>(repeat.more, repeat.distance / repeat.period + 2);
    Written before_last;
    for (std::int64_t n = 1; n <= resolved_scenario; ++n) {
      later(begin - repeat.distance, repeat.period);
      at_.latest = begin - 1;
      repeated_ = n * repeat.period;
      before_last = written();
      copy(repeat.first, repeat.last);
    }
    if (const std::int64_t times = repeat.more - resolved_scenario; times > 0) {
      later(begin - repeat.distance, repeat.period * times);
      number_again(before_last, times);
      NextBody body(out_, before_last.extent);
      more(repeat, body, times);
      repeated_ = repeat.more * repeat.period;
    }
    at_.latest = end - 1;
    // What came as long ago as no body looks back is what it was.
    for (std::int32_t m = begin - repeat.distance; m < end - repeat.distance; ++m)
      unrolled_[static_cast<std::size_t>(m)] -= static_cast<std::int32_t>(repeat.more * repeat.period);
  }

  // What bodies make that come as often as that again, each as much as came since `before_last`.
  void number_again(const Written& before_last, std::int64_t times) {
    const std::size_t begun = firsts_.size() - before_last.micro_batches;
    std::array<std::int32_t, numbered_kinds> made{};
    for (std::size_t k = 0; k < numbered_kinds; ++k) made[k] = next_[k] - before_last.numbers[k];
    const auto add = [&](std::array<std::int32_t, numbered_kinds> numbers, std::int32_t bodies) {
      for (std::size_t k = 0; k < numbered_kinds; ++k) numbers[k] += bodies * made[k];
      return numbers;
    };
    for (std::size_t m = begun * static_cast<std::size_t>(times); m > 0; --m)
      firsts_.push_back(add(firsts_[firsts_.size() - begun], 1));
    next_ = add(next_, static_cast<std::int32_t>(times));
  }

  // The names that a body makes.
  void name_again(const Repeat& repeat) {
    const auto first = std::ranges::lower_bound(definitions_.first_uses, repeat.first);
    for (auto use = first; use != definitions_.first_uses.end() && *use < repeat.last; ++use)
      add_name(static_cast<std::size_t>(use - definitions_.first_uses.begin()));
  }

  void copy(std::size_t from, std::size_t to) {
    for (op_ = from; op_ < to; ++op_) std::visit([&](const auto& op) { copy(op); }, rolled_.ops[op_]);
  }

  void copy(const Alloc& o) {
    out_.ops.emplace_back(Alloc{make<BufferId>(o.buffer), o.size, o.category, o.stream, o.label, o.space});
  }
  void copy(const Free& o) { out_.ops.emplace_back(Free{now(o.buffer)}); }
  void copy(const CrossStreamUse& o) { out_.ops.emplace_back(CrossStreamUse{now(o.buffer), o.stream, o.recorded}); }
  void copy(const Launch& o) {
    const OperandList inputs = now(o.inputs), outputs = now(o.outputs), scratch = now(o.scratch);
    out_.ops.emplace_back(Launch{o.stream, o.kernel, inputs, outputs, scratch});
  }
  void copy(const Collective& o) {
    Collective made = o;
    made.in.buffer = now(o.in.buffer), made.out.buffer = now(o.out.buffer);
    out_.ops.emplace_back(made);
  }
  void copy(const Exchange& o) {
    const TransferList list{static_cast<std::uint32_t>(out_.transfers.size()), o.transfers.count};
    for (const Transfer& t : rolled_[o.transfers])
      out_.transfers.push_back({t.direction, t.step, now(t.buffer), t.part, t.parts});
    out_.ops.emplace_back(Exchange{o.stream, o.comm, list});
  }
  void copy(const Memcpy& o) {
    out_.ops.emplace_back(
        Memcpy{o.stream, {now(o.from.buffer), o.from.offset}, {now(o.to.buffer), o.to.offset}, o.size});
  }
  void copy(const Record& o) { out_.ops.emplace_back(Record{make<EventId>(o.event), o.stream}); }
  void copy(const Wait& o) { out_.ops.emplace_back(Wait{o.stream, now(o.event)}); }
  void copy(const Sync& o) { out_.ops.emplace_back(Sync{now(o.event)}); }
  void copy(const CreateDriver& o) { out_.ops.emplace_back(o); }
  void copy(const CreateCommunicator& o) { out_.ops.emplace_back(o); }
  void copy(const Bind& o) {
    const NameId name = named(o.name);
    out_.ops.emplace_back(Bind{name, now(o.buffer)});
  }
  void copy(const Unbind& o) { out_.ops.emplace_back(Unbind{named(o.name)}); }
  void copy(const Mark& o) {
    const std::int32_t step = at_.step;
    const std::int32_t begun = at_.enter(o);
    for (std::int32_t m = at_.latest - begun + 1; m <= at_.latest; ++m) {
      const bool first_time = static_cast<std::size_t>(m) == unrolled_.size();
      if (first_time) unrolled_.push_back(static_cast<std::int32_t>(firsts_.size()));
      firsts_.push_back(next_);
    }
    if (at_.step != step) {
      repeated_ = 0;
      first_of_step_ = static_cast<std::int32_t>(firsts_.size()) - begun;
    }
    Mark mark = o;
    if (mark.micro_batch >= 0 && at_.in_pass)
      mark.micro_batch = unrolled_[static_cast<std::size_t>(at_.first + o.micro_batch)] - first_of_step_;
    out_.ops.emplace_back(mark);
  }

  [[nodiscard]] std::int32_t number(Numbered kind, std::int32_t rolled) const {
    const Definition definition = definitions_.of(kind, rolled);
    if (definition.since < 0) return outside_[index(kind)][static_cast<std::size_t>(rolled)];
    return firsts_[static_cast<std::size_t>(unrolled_since(kind, definition.since))][index(kind)] + definition.place;
  }
  // In passes a name of another step is that of the same micro-batch there.
  [[nodiscard]] std::int32_t unrolled_since(Numbered kind, std::int32_t since) const {
    const Definitions::MicroBatch& its = definitions_[since];
    const std::int32_t here = at_.first + (since - its.first_of_step);
    if (kind != Numbered::Name || its.step == at_.step || !at_.in_pass || here > at_.latest)
      return unrolled_[static_cast<std::size_t>(since)];
    return unrolled_[static_cast<std::size_t>(here)] - first_of_step_ +
           unrolled_[static_cast<std::size_t>(its.first_of_step)];
  }

  std::int32_t make(Numbered kind, std::int32_t rolled) {
    const std::int32_t made = next_[index(kind)]++;
    if (!at_.in_pass) outside_[index(kind)][static_cast<std::size_t>(rolled)] = made;
    return made;
  }
  template <class Id>
  Id make(Id rolled) {
    return {make(std::is_same_v<Id, BufferId> ? Numbered::Buffer : Numbered::Event, rolled.value)};
  }
  [[nodiscard]] BufferId now(BufferId rolled) const { return {number(Numbered::Buffer, rolled.value)}; }
  [[nodiscard]] EventId now(EventId rolled) const { return {number(Numbered::Event, rolled.value)}; }
  OperandList now(OperandList rolled) {
    const OperandList list{static_cast<std::uint32_t>(out_.operands.size()), rolled.count};
    for (const Operand& o : rolled_[rolled]) out_.operands.emplace_back(now(o.buffer), o.offset);
    return list;
  }
  NameId named(NameId rolled) {
    return makes_name(rolled) ? name_next(rolled) : NameId{number(Numbered::Name, rolled.value)};
  }
  [[nodiscard]] bool makes_name(NameId rolled) const { return definitions_.first_uses[rolled.index()] == op_; }
  NameId name_next(NameId rolled) {
    add_name(rolled.index());
    return {make(Numbered::Name, rolled.value)};
  }
  void add_name(std::size_t rolled) {
    const auto& text = texts_[rolled];
    out_.names.push_back(text ? text->later(repeated_) : rolled_.names[rolled]);
  }

  const RepeatingProgram& program_;
  const Program& rolled_;
  Definitions definitions_;
  std::vector<std::optional<CountingText>> texts_;  // by name, of those that come up in bodies
  Program out_;
  std::size_t op_ = 0;
  Position at_;                // in the rolled program
  std::int64_t repeated_ = 0;  // micro-batches of this step by bodies that came again
  std::int32_t first_of_step_ = 0;
  std::vector<std::int32_t> unrolled_;  // by micro-batch of the rolled program: which of all it is now
  std::vector<std::array<std::int32_t, numbered_kinds>> firsts_;   // numbers, by micro-batch of all
  std::array<std::int32_t, numbered_kinds> next_{};                // numbers
  std::array<std::vector<std::int32_t>, numbered_kinds> outside_;  // of what comes from outside passes
};

}  // namespace

Program unrolled(RepeatingProgram program) {
  return program.repeats.empty() ? std::move(program.rolled) : Unroller(program).run();
}

void tell_unrolled(const RepeatingProgram& program, const std::function<bool(std::span<const Op>)>& hear) {
  if (program.repeats.empty())
    hear(program.rolled.ops);
  else
    Unroller(program).tell(hear);
}

Workload unrolled(const RepeatingWorkload& workload) {
  Workload all{{}, workload.program_of_rank, workload.communicators};
  for (const Outline& program : workload.programs) all.programs.push_back(program.unrolled());
  return all;
}

Shortening::Shortening(const RepeatingWorkload& workload) {
  for (const Outline& program : workload.programs) {
    const auto its = program.get();
    for (const Repeat& repeat : its->repeats) {
      const auto [step, added] = spare_.try_emplace(repeat.step, repeat.more * repeat.period);
      step->second = std::min(step->second, repeat.more * repeat.period);
    }
  }
  for (const Outline& program : workload.programs) {
    const auto its = program.get();
    const auto says_all = [&](std::int32_t step) {
      return std::ranges::none_of(its->repeats, [&](const Repeat& repeat) { return repeat.step == step; });
    };
    std::erase_if(spare_, [&](const auto& step) { return says_all(step.first); });
  }
}

Program Shortening::unrolled(RepeatingProgram program) const {
  for (Repeat& repeat : program.repeats)
    if (const auto its = spare_.find(repeat.step); its != spare_.end()) repeat.more -= its->second / repeat.period;
  return sim::unrolled(std::move(program));
}

}  // namespace tidemark::sim
