#include "sim/program/structure/shared_passes.hpp"

#include <algorithm>
#include <tuple>
#include <type_traits>
#include <utility>

#include "sim/base/overloaded.hpp"
#include "sim/program/structure/of_memory.hpp"
#include "sim/program/structure/timing.hpp"

namespace tidemark::sim {
// Whether ops of `state` are those of `whole`, one after the other, which numbers its buffers and events otherwise.
class SharedPasses::Compare {
 public:
  Compare(const Program& state, const Program& whole)
      : state_(state),
        whole_(whole),
        buffers_(static_cast<std::size_t>(state.buffers)),
        events_(static_cast<std::size_t>(state.events)) {}

  bool operator()(const Op& of_state, const Op& of_whole) {
    return of_state.index() == of_whole.index() &&
           std::visit([&](const auto& a) { return alike(a, std::get<std::remove_cvref_t<decltype(a)>>(of_whole)); },
                      of_state);
  }
  /// What `whole` calls it.
  [[nodiscard]] BufferId operator[](BufferId buffer) const { return buffers_[buffer.index()]; }

 private:
  bool alike(const Alloc& a, const Alloc& b) {
    buffers_[a.buffer.index()] = b.buffer;
    return std::tie(a.size, a.category, a.stream, a.space) == std::tie(b.size, b.category, b.stream, b.space) &&
           state_[a.label] == whole_[b.label];
  }
  bool alike(const Free& a, const Free& b) const { return same(a.buffer, b.buffer); }
  bool alike(const CrossStreamUse& a, const CrossStreamUse& b) const {
    return same(a.buffer, b.buffer) && a.stream == b.stream && a.recorded == b.recorded;
  }
  bool alike(const Launch& a, const Launch& b) const {
    return a.stream == b.stream && equal(state_, a.kernel, whole_, b.kernel) && same(a.inputs, b.inputs) &&
           same(a.outputs, b.outputs) && same(a.scratch, b.scratch);
  }
  bool alike(const Collective& a, const Collective& b) const {
    return std::tie(a.stream, a.comm, a.kind, a.dtype, a.reduction, a.size) ==
               std::tie(b.stream, b.comm, b.kind, b.dtype, b.reduction, b.size) &&
           same(a.in, b.in) && same(a.out, b.out) && !a.row.valid() && !b.row.valid();
  }
  bool alike(const Exchange& a, const Exchange& b) const {
    return a.stream == b.stream && a.comm == b.comm &&
           std::ranges::equal(state_[a.transfers], whole_[b.transfers], [&](const Transfer& s, const Transfer& w) {
             return std::tie(s.direction, s.step, s.part, s.parts) == std::tie(w.direction, w.step, w.part, w.parts) &&
                    same(s.buffer, w.buffer);
           });
  }
  bool alike(const Memcpy& a, const Memcpy& b) const {
    return a.stream == b.stream && a.size == b.size && same(a.from, b.from) && same(a.to, b.to);
  }
  bool alike(const Record& a, const Record& b) {
    events_[a.event.index()] = b.event;
    return a.stream == b.stream;
  }
  bool alike(const Wait& a, const Wait& b) const { return a.stream == b.stream && events_[a.event.index()] == b.event; }
  bool alike(const Sync& a, const Sync& b) const { return events_[a.event.index()] == b.event; }
  static bool alike(const CreateDriver& a, const CreateDriver& b) { return a == b; }
  static bool alike(const CreateCommunicator& a, const CreateCommunicator& b) { return a == b; }
  bool alike(const Bind& a, const Bind& b) const {
    return state_[a.name] == whole_[b.name] && same(a.buffer, b.buffer);
  }
  bool alike(const Unbind& a, const Unbind& b) const { return state_[a.name] == whole_[b.name]; }
  bool alike(const Mark& a, const Mark& b) const {
    return std::tie(a.phase, a.step, a.micro_batch, a.empties_cache) ==
               std::tie(b.phase, b.step, b.micro_batch, b.empties_cache) &&
           state_[a.label] == whole_[b.label];
  }

  [[nodiscard]] bool same(BufferId a, BufferId b) const { return buffers_[a.index()] == b; }
  [[nodiscard]] bool same(const Operand& a, const Operand& b) const {
    return same(a.buffer, b.buffer) && state_[a.offset] == whole_[b.offset];
  }
  [[nodiscard]] bool same(OperandList a, OperandList b) const {
    return std::ranges::equal(state_[a], whole_[b], [&](const Operand& s, const Operand& w) { return same(s, w); });
  }

  const Program& state_;
  const Program& whole_;
  std::vector<BufferId> buffers_;
  std::vector<EventId> events_;
};

std::optional<SharedPasses> SharedPasses::of(const Program& whole, const Program& state) {
  SharedPasses found(whole, state);
  if (!found.split()) return std::nullopt;
  found.find_used();
  found.itself_ = *timed_like(whole, whole);
  found.find_those_of_memory();
  for (std::size_t l = whole.labels.size(); l-- > 0;)
    found.labels_[whole.labels[l].text] = LabelId{static_cast<std::int32_t>(l)};
  for (std::size_t n = whole.names.size(); n-- > 0;)
    found.names_[whole.names[n]] = NameId{static_cast<std::int32_t>(n)};
  return found;
}

bool SharedPasses::split() {
  Compare alike(*state_, *whole_);
  const std::vector<Op>& ops = whole_->ops;
  // At its end it says what variables still hold; of passes, too.
  std::size_t end = state_->ops.size();
  while (end > 0 && std::holds_alternative<Bind>(state_->ops[end - 1])) --end;
  bool in_pass = false;
  std::size_t marks = 0;
  std::set<CommSlot> opened;  // by passes so far
  // What passes have opened, `state` opens where it first needs it. Its place is behind the op before it.
  const auto pass_over_opened = [&] {
    while (place_of_.size() < state_->ops.size()) {
      const auto* create = std::get_if<CreateCommunicator>(&state_->ops[place_of_.size()]);
      if (create == nullptr || !opened.contains(create->comm)) return;
      opened_.insert(create->comm);
      place_of_.push_back(place_of_.empty() ? 0 : place_of_.back());
    }
  };
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const auto* mark = std::get_if<Mark>(&ops[i]);
    if (mark != nullptr) {
      const bool begins = !in_pass && mark->micro_batch >= 0;
      if (begins && place_of_.size() == state_->ops.size()) return false;
      in_pass = mark->micro_batch >= 0;
      if (begins) passes_.push_back({i, i, marks});
    }
    if (in_pass) {
      passes_.back().last = i + 1;
      if (const auto* create = std::get_if<CreateCommunicator>(&ops[i])) opened.insert(create->comm);
      continue;
    }
    pass_over_opened();
    if (place_of_.size() == state_->ops.size() || !alike(state_->ops[place_of_.size()], ops[i])) {
      if (place_of_.size() < end || !std::holds_alternative<Bind>(ops[i])) return false;
      kept_.push_back(i);
      continue;
    }
    place_of_.push_back(static_cast<std::uint32_t>(i));
    marks += mark != nullptr ? 1 : 0;
    if (const auto* record = std::get_if<Record>(&ops[i])) events_.push_back(record->event);
  }
  pass_over_opened();
  if (place_of_.size() != state_->ops.size()) return false;
  place_of_.push_back(static_cast<std::uint32_t>(ops.size()));
  return true;
}

std::vector<std::optional<SharedPasses::Made>> SharedPasses::made_in(const Program& state) {
  std::vector<std::optional<Made>> made(static_cast<std::size_t>(state.buffers));
  std::map<Made, std::int32_t> before;
  std::size_t marks = 0;
  for (const Op& op : state.ops) {
    if (std::holds_alternative<Mark>(op)) ++marks;
    const auto* alloc = std::get_if<Alloc>(&op);
    if (alloc == nullptr) continue;
    Made its{marks, state[alloc->label], alloc->size.count(), 0};
    its.before = before[its]++;
    made[alloc->buffer.index()] = its;
  }
  return made;
}

void SharedPasses::find_used() {
  std::vector<char> by_passes(static_cast<std::size_t>(whole_->buffers), 0);
  for (const Passes& passes : passes_)
    for (std::size_t i = passes.first; i < passes.last; ++i) {
      const auto use = [&](BufferId buffer) { by_passes[buffer.index()] = 1; };
      for_each_operand(*whole_, whole_->ops[i], use);
      if (const auto* free = std::get_if<Free>(&whole_->ops[i])) use(free->buffer);
      if (const auto* bind = std::get_if<Bind>(&whole_->ops[i])) use(bind->buffer);
    }
  const std::vector<std::optional<Made>> made = made_in(*state_);
  for (std::size_t i = 0; i < state_->ops.size(); ++i) {
    const auto* alloc = std::get_if<Alloc>(&state_->ops[i]);
    if (alloc == nullptr) continue;
    const BufferId in_whole = std::get<Alloc>(whole_->ops[place_of_[i]]).buffer;
    if (by_passes[in_whole.index()] != 0) used_.emplace(*made[alloc->buffer.index()], in_whole);
  }
}

void SharedPasses::find_those_of_memory() {
  for (Passes& passes : passes_) {
    passes.first_of_memory = of_memory_.size();
    for (std::size_t i = passes.first; i < passes.last; ++i) {
      if (!is_of_memory(whole_->ops[i])) continue;
      of_memory_.push_back(whole_->ops[i]);
      of_memory_at_.push_back(itself_[i]);
    }
    passes.last_of_memory = of_memory_.size();
  }
}

// Passes come in front of a mark: what comes before that, and has no fellow, has them as the next thing.
std::uint32_t SharedPasses::place(const Op& own, std::uint32_t of_state) const {
  const bool follows = of_state > 0 && of_state < state_->ops.size() && !std::holds_alternative<Mark>(own);
  return follows ? place_of_[of_state - 1] + 1 : place_of_[of_state];
}

// Writes a program as `whole` has its passes, whose tables and numbers stay; what else there is comes after them.
class SharedPasses::Splice {
 public:
  Splice(const SharedPasses& shared, const Program& own, Ops which) : shared_(shared), own_(own), which_(which) {
    out_.labels = shared.whole_->labels;
    out_.buffers = shared.whole_->buffers, out_.events = shared.whole_->events;
    for (const Label& label : own.labels) {
      const auto known = shared.labels_.find(label.text);
      labels_.push_back(known != shared.labels_.end() ? known->second : added(out_.labels, label));
    }
    number_buffers();
    if (which == Ops::All) add_tables();
  }

  std::optional<Spliced> run(const std::vector<std::uint32_t>& places) && {
    if (missing_ > 0 || !number_events()) return std::nullopt;
    Spliced all;
    const std::size_t of_passes = which_ == Ops::All ? shared_.whole_->ops.size() : shared_.of_memory_.size();
    all.places.reserve(of_passes + own_.ops.size());
    out_.ops.reserve(of_passes + own_.ops.size());
    std::size_t marks = 0;
    auto next = shared_.passes_.begin();
    const auto add_passes = [&] {
      for (; next != shared_.passes_.end() && next->mark == marks; ++next) add(*next, all.places);
    };
    for (std::size_t i = 0; i < own_.ops.size(); ++i) {
      if (std::holds_alternative<Mark>(own_.ops[i])) {
        add_passes();
        ++marks;
      }
      if (which_ == Ops::OfMemory && !is_of_memory(own_.ops[i])) continue;
      if (const auto* create = std::get_if<CreateCommunicator>(&own_.ops[i]))
        if (shared_.opened_.contains(create->comm)) continue;
      std::visit([&](const auto& op) { out_.ops.emplace_back(copied(op)); }, own_.ops[i]);
      all.places.push_back(shared_.place(own_.ops[i], places[i]));
    }
    if (which_ == Ops::All)
      for (const std::size_t bind : shared_.kept_) copy(bind, bind + 1, all.places);
    all.program = std::move(out_);
    return all;
  }

 private:
  // Of kernels, names, and what both refer to.
  void add_tables() {
    const Program &whole = *shared_.whole_, &own = own_;
    out_.operands.reserve(whole.operands.size() + own.operands.size());
    out_.operands = whole.operands, out_.transfers = whole.transfers;
    out_.kernels = whole.kernels, out_.views = whole.views, out_.offsets = whole.offsets, out_.rows = whole.rows;
    out_.names = whole.names;
    for (const std::string& name : own.names) {
      const auto known = shared_.names_.find(name);
      names_.push_back(known != shared_.names_.end() ? known->second : added_name(name));
    }
    const auto offset = [&](OffsetId id) { return id.valid() ? later(id, whole.offsets.size()) : id; };
    for (Kernel kernel : own.kernels) {
      for (std::vector<ViewId>* views : {&kernel.inputs, &kernel.outputs})
        for (ViewId& view : *views)
          if (view.valid()) view = later(view, whole.views.size());
      out_.kernels.push_back(std::move(kernel));
    }
    out_.views.insert(out_.views.end(), own.views.begin(), own.views.end());
    out_.offsets.insert(out_.offsets.end(), own.offsets.begin(), own.offsets.end());
    for (const Operand& operand : own.operands) out_.operands.emplace_back(now(operand.buffer), offset(operand.offset));
    for (Transfer transfer : own.transfers) {
      transfer.buffer = now(transfer.buffer);
      out_.transfers.push_back(transfer);
    }
  }

  static LabelId added(std::vector<Label>& labels, const Label& label) {
    labels.push_back(label);
    return {static_cast<std::int32_t>(labels.size()) - 1};
  }
  NameId added_name(const std::string& name) {
    out_.names.push_back(name);
    return {static_cast<std::int32_t>(out_.names.size()) - 1};
  }
  template <class Id>
  static Id later(Id id, std::size_t by) {
    return {id.value + static_cast<std::int32_t>(by)};
  }

  void number_buffers() {
    missing_ = shared_.used_.size();
    buffers_.reserve(static_cast<std::size_t>(own_.buffers));
    for (const std::optional<Made>& made : made_in(own_)) {
      const auto used = made ? shared_.used_.find(*made) : shared_.used_.end();
      if (used != shared_.used_.end()) --missing_;
      buffers_.push_back(used != shared_.used_.end() ? used->second : BufferId{out_.buffers++});
    }
  }
  // Events are those that `state` records, one after the other.
  bool number_events() {
    events_.resize(static_cast<std::size_t>(own_.events));
    std::size_t recorded = 0;
    for (const Op& op : own_.ops)
      if (const auto* record = std::get_if<Record>(&op)) {
        if (recorded == shared_.events_.size()) return false;
        events_[record->event.index()] = shared_.events_[recorded++];
      }
    return recorded == shared_.events_.size();
  }

  void add(const Passes& passes, std::vector<std::uint32_t>& places) {
    if (which_ == Ops::All) return copy(passes.first, passes.last, places);
    const auto part = [&](const auto& all, auto& to) {
      to.insert(to.end(), all.begin() + static_cast<std::ptrdiff_t>(passes.first_of_memory),
                all.begin() + static_cast<std::ptrdiff_t>(passes.last_of_memory));
    };
    part(shared_.of_memory_, out_.ops);
    part(shared_.of_memory_at_, places);
  }
  void copy(std::size_t first, std::size_t last, std::vector<std::uint32_t>& places) {
    const auto from = shared_.whole_->ops.begin();
    out_.ops.insert(out_.ops.end(), from + static_cast<std::ptrdiff_t>(first),
                    from + static_cast<std::ptrdiff_t>(last));
    for (std::size_t i = first; i < last; ++i) places.push_back(shared_.itself_[i]);
  }

  [[nodiscard]] BufferId now(BufferId own) const { return buffers_[own.index()]; }
  [[nodiscard]] EventId now(EventId own) const { return events_[own.index()]; }
  [[nodiscard]] LabelId now(LabelId own) const { return labels_[own.index()]; }
  [[nodiscard]] NameId now(NameId own) const { return names_[own.index()]; }
  [[nodiscard]] Operand now(const Operand& own) const {
    return {now(own.buffer), own.offset.valid() ? later(own.offset, shared_.whole_->offsets.size()) : own.offset};
  }
  [[nodiscard]] OperandList now(OperandList own) const {
    return {own.first + static_cast<std::uint32_t>(shared_.whole_->operands.size()), own.count};
  }

  Alloc copied(const Alloc& o) const { return {now(o.buffer), o.size, o.category, o.stream, now(o.label), o.space}; }
  Free copied(const Free& o) const { return {now(o.buffer)}; }
  CrossStreamUse copied(const CrossStreamUse& o) const { return {now(o.buffer), o.stream, o.recorded}; }
  Launch copied(const Launch& o) const {
    return {o.stream, later(o.kernel, shared_.whole_->kernels.size()), now(o.inputs), now(o.outputs), now(o.scratch)};
  }
  Collective copied(const Collective& o) const {
    Collective made = o;
    made.in = now(o.in), made.out = now(o.out);
    return made;
  }
  Exchange copied(const Exchange& o) const {
    const auto before = static_cast<std::uint32_t>(shared_.whole_->transfers.size());
    return {o.stream, o.comm, {o.transfers.first + before, o.transfers.count}};
  }
  Memcpy copied(const Memcpy& o) const { return {o.stream, now(o.from), now(o.to), o.size}; }
  Record copied(const Record& o) const { return {now(o.event), o.stream}; }
  Wait copied(const Wait& o) const { return {o.stream, now(o.event)}; }
  Sync copied(const Sync& o) const { return {now(o.event)}; }
  static CreateDriver copied(const CreateDriver& o) { return o; }
  static CreateCommunicator copied(const CreateCommunicator& o) { return o; }
  Bind copied(const Bind& o) const { return {now(o.name), now(o.buffer)}; }
  Unbind copied(const Unbind& o) const { return {now(o.name)}; }
  Mark copied(const Mark& o) const { return {o.phase, o.step, o.micro_batch, now(o.label), o.empties_cache}; }

  const SharedPasses& shared_;
  const Program& own_;
  const Ops which_;
  Program out_;
  std::vector<BufferId> buffers_;  // by number in `own_`, as are events, labels and names
  std::vector<EventId> events_;
  std::vector<LabelId> labels_;
  std::vector<NameId> names_;
  std::size_t missing_ = 0;  // of what passes use
};

std::optional<SharedPasses::Spliced> SharedPasses::in(const Program& own_state, Ops which) const {
  if (!own_state.rows.empty()) return std::nullopt;
  const std::optional<std::vector<std::uint32_t>> places = timed_like(*state_, own_state);
  if (!places) return std::nullopt;
  return Splice(*this, own_state, which).run(*places);
}

}  // namespace tidemark::sim
