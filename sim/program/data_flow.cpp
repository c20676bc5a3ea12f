#include "sim/program/data_flow.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "sim/base/ensure.hpp"
#include "sim/program/byte_sets.hpp"
#include "sim/program/stream_order.hpp"

namespace tidemark::sim {
namespace {

// What a kernel writes for a backward pass whether or not there will be one: its interface leaves no choice.
constexpr std::array by_products{std::string_view("mean"),        std::string_view("rstd"), std::string_view("mask"),
                                 std::string_view("lse"),         std::string_view("seed"), std::string_view("offset"),
                                 std::string_view("total_weight")};

constexpr StreamId compute_stream{0};

// Interned words: what happens alike in every layer has one number.
class Words {
 public:
  std::int32_t operator()(std::string_view text) {
    const auto [found, added] = ids_.try_emplace(std::string(text), static_cast<std::int32_t>(texts_.size()));
    if (added) texts_.push_back(found->first);
    return found->second;
  }
  [[nodiscard]] const std::string& operator[](std::int32_t id) const { return texts_[static_cast<std::size_t>(id)]; }

 private:
  std::map<std::string, std::int32_t> ids_;
  std::vector<std::string> texts_;
};

class Follower {
 public:
  Follower(const Workload& workload, std::size_t program)
      : workload_(workload),
        program_(workload.programs[program]),
        buffers_(static_cast<std::size_t>(program_.buffers)),
        labels_(program_.labels.size(), -1),
        streams_(program_) {
    const auto first = std::ranges::find(workload.program_of_rank, static_cast<std::int32_t>(program));
    ensure(first != workload.program_of_rank.end(), "a program of a workload is some rank's");
    rank_ = {static_cast<std::int32_t>(first - workload.program_of_rank.begin())};
  }

  std::vector<FlowFinding> findings() && {
    for (at_ = 0; at_ < program_.ops.size(); ++at_) {
      follow(program_.ops[at_]);
      streams_.note(program_.ops[at_]);
    }
    std::vector<FlowFinding> all;
    for (auto& [site, finding] : found_) all.push_back(std::move(finding));
    std::ranges::stable_sort(all, {}, &FlowFinding::op);
    return all;
  }

 private:
  using Set = ByteSets::Id;

  // Who wrote what nobody has read yet. Sets of one buffer have no byte in common.
  struct Write {
    Set bytes = ByteSets::empty;
    std::int32_t by = 0;
    std::size_t op = 0;
    Mark mark;
    bool by_product = false;
  };
  struct Buffer {
    Bytes size;
    LabelId label;
    Category category = Category::Temporaries;
    Set whole = ByteSets::empty, written = ByteSets::empty, unread = ByteSets::empty;
    std::vector<Write> writes;
    std::vector<std::pair<Set, StreamOrder::Moment>> written_at;  // no byte in common
    // Its last use: by what, where, and how often memory had been asked for by then.
    std::int32_t used_by = -1;
    std::size_t used_op = 0;
    Mark used_at;
    std::int64_t requested = 0;
    // No kernel has touched it: a number of the host, as long as collectives alone do.
    bool of_host = true;
    std::optional<Write> unwritten;  // that it was read before, should a kernel come
  };

  void follow(const Op& op) {
    std::visit(Overloaded{
                   [&](const Alloc& o) { allocate(o); },
                   [&](const Free& o) { free(o); },
                   [&](const Launch& o) { launch(o); },
                   [&](const Collective& o) { collective(o); },
                   [&](const Exchange& o) { exchange(o); },
                   [&](const Memcpy& o) {
                     const std::int32_t by = words_("memcpy");
                     const auto its = [&](const Operand& side) {
                       return bytes_.stretch(program_[side.offset], program_[side.offset] + o.size);
                     };
                     touch(buffer(o.from.buffer)), touch(buffer(o.to.buffer));
                     read(o.from.buffer, its(o.from), by, o.stream);
                     write(o.to.buffer, its(o.to), by, o.stream);
                   },
                   [&](const CrossStreamUse& o) { use(buffer(o.buffer), words_("borrow")); },
                   [&](const Bind& o) { variable_ = o.name; },
                   [&](const Unbind& o) { variable_ = o.name; },
                   [&](const Mark& o) { mark_ = o; },
                   Ignored<Record, Wait, Sync, CreateDriver, CreateCommunicator>{},
               },
               op);
  }

  void allocate(const Alloc& o) {
    ++requested_;
    Buffer& its = buffer(o.buffer);
    its = {};
    its.size = o.size, its.label = o.label, its.category = o.category;
    its.whole = bytes_.stretch({}, o.size);
    its.requested = requested_;
    its.used_by = words_("alloc"), its.used_op = at_, its.used_at = mark_;
  }

  void free(const Free& o) {
    Buffer& its = buffer(o.buffer);
    for (const Write& write : its.writes)
      if (!its.of_host && (!write.by_product || its.requested < requested_)) unread(its, write, write.bytes);
    if (its.requested < requested_) {
      FlowFinding& found = note(FlowKind::Kept, its, its.used_by, its.used_at, its.used_op, its.size);
      if (variable_.valid() && found.keeper.empty()) found.keeper = program_[variable_];
    }
    its.writes.clear(), its.writes.shrink_to_fit();
    its.written_at.clear(), its.written_at.shrink_to_fit();
  }

  void launch(const Launch& o) {
    const Kernel& kernel = program_[o.kernel];
    const OperationFacts& facts = facts_of(kernel.operation);
    for_each_operand(program_, o, [&](BufferId b) { touch(buffer(b)); });
    // Groups of operands lie one after another.
    const auto each = [&](OperandList list, const std::vector<ViewId>& views, const std::vector<OperandFacts>& operands,
                          auto&& take) {
      const std::span<const Operand> given = program_[list];
      const bool many = std::ranges::any_of(operands, &OperandFacts::many);
      std::size_t next = 0;
      for (std::size_t i = 0; i < views.size(); ++i) {
        if (!views[i].valid()) continue;
        const OperandFacts& its = operands[many ? std::min(i, operands.size() - 1) : i % operands.size()];
        take(given[next++], views[i], its.name);
      }
    };
    each(o.inputs, kernel.inputs, facts.inputs, [&](const Operand& operand, ViewId view, std::string_view what) {
      read(operand.buffer, seen(operand, view), by(kernel.operation, what), o.stream);
    });
    for (const Operand& operand : program_[o.scratch]) {  // holds nothing before or after
      Buffer& its = buffer(operand.buffer);
      its.written = its.unread = ByteSets::empty;
      its.writes.clear();
      use(its, by(kernel.operation, "scratch"));
    }
    each(o.outputs, kernel.outputs, facts.outputs, [&](const Operand& operand, ViewId view, std::string_view what) {
      write(operand.buffer, seen(operand, view), by(kernel.operation, what), o.stream,
            std::ranges::count(by_products, what) > 0);
    });
  }

  void collective(const Collective& o) {
    const Communicator& communicator = workload_.communicators[o.comm.index()];
    const std::vector<Rank> members = group_members(communicator, rank_);
    const auto n = static_cast<std::int64_t>(members.size());
    const std::int64_t me = std::ranges::find(members, rank_) - members.begin();
    const std::int32_t by = words_(name(o.kind));
    Bytes in = o.size, out = o.size, before = me * (o.size / n);
    if (o.row.valid()) {
      const MatrixRow& row = program_[o.row];
      const auto sum = [](std::span<const Bytes> parts) {
        Bytes all;
        for (const Bytes part : parts) all += part;
        return all;
      };
      const auto mine = static_cast<std::size_t>(me);
      const bool gathers = o.kind == CollectiveKind::AllGather;
      in = gathers ? row.sends[mine] : sum(row.sends);
      out = o.kind == CollectiveKind::ReduceScatter ? row.receives[mine] : sum(row.receives);
      before = sum(std::span(gathers ? row.receives : row.sends).first(mine));
    } else if (o.kind == CollectiveKind::AllGather) {
      in = o.size / n;
    } else if (o.kind == CollectiveKind::ReduceScatter) {
      out = o.size / n;
    }
    // In place, the smaller side is this member's part of the larger one.
    const bool in_place = o.in.buffer == o.out.buffer;
    const Bytes from = program_[o.in.offset] + (in_place && in < out ? before : Bytes{});
    const Bytes to = program_[o.out.offset] + (in_place && out < in ? before : Bytes{});
    if (o.in.buffer != o.out.buffer) touch(buffer(o.in.buffer)), touch(buffer(o.out.buffer));
    const bool sends = o.kind != CollectiveKind::Broadcast || me == 0,
               receives = o.kind != CollectiveKind::Broadcast || me > 0;
    if (sends) read(o.in.buffer, bytes_.stretch(from, from + in), by, o.stream);
    if (receives) write(o.out.buffer, bytes_.stretch(to, to + out), by, o.stream);
  }

  void exchange(const Exchange& o) {
    for (const Direction direction : {Direction::Send, Direction::Receive})
      for (const Transfer& t : program_[o.transfers]) {
        if (t.direction != direction) continue;
        touch(buffer(t.buffer));
        const Bytes size = t.size(buffer(t.buffer).size);
        const Set its = bytes_.stretch(t.part * size, (t.part + 1) * size);
        if (t.direction == Direction::Send)
          read(t.buffer, its, words_("send"), o.stream);
        else
          write(t.buffer, its, words_("receive"), o.stream);
      }
  }

  // Something other than a collective in place comes to it.
  void touch(Buffer& its) {
    if (its.of_host && its.unwritten) {
      const Write& early = *its.unwritten;
      note(FlowKind::Unwritten, its, early.by, early.mark, early.op, bytes_.size(early.bytes));
    }
    its.of_host = false;
  }

  void use(Buffer& its, std::int32_t by) {
    its.used_by = by, its.used_op = at_, its.used_at = mark_, its.requested = requested_;
  }

  void read(BufferId id, Set bytes, std::int32_t by, StreamId stream) {
    Buffer& its = buffer(id);
    use(its, by);
    const bool early = std::ranges::any_of(its.written_at, [&](const auto& written) {
      return !streams_.lies_before(written.second, stream) && bytes_.common(written.first, bytes) != ByteSets::empty;
    });
    if (early) note(FlowKind::Early, its, by, mark_, at_, bytes_.size(bytes));
    if (const Set missing = bytes_.without(bytes, its.written); missing != ByteSets::empty) {
      if (its.of_host)
        its.unwritten = Write{missing, by, at_, mark_};
      else
        note(FlowKind::Unwritten, its, by, mark_, at_, bytes_.size(missing));
      its.written = bytes_.united(its.written, missing);  // said once
    }
    take(its, bytes);
  }

  void write(BufferId id, Set bytes, std::int32_t by, StreamId stream, bool by_product = false) {
    Buffer& its = buffer(id);
    use(its, by);
    note_writer(its, bytes, stream);
    if (bytes_.common(its.unread, bytes) != ByteSets::empty) {
      for (const Write& write : its.writes)
        if (const Set lost = bytes_.common(write.bytes, bytes); lost != ByteSets::empty) unread(its, write, lost);
      take(its, bytes);
    }
    its.written = bytes_.united(its.written, bytes);
    its.unread = bytes_.united(its.unread, bytes);
    its.writes.push_back({bytes, by, at_, mark_, by_product});
  }

  // Work of the compute stream is one after another, and others wait for all of it; of other streams each is waited for
  // by itself.
  void note_writer(Buffer& its, Set bytes, StreamId stream) {
    auto& all = its.written_at;
    if (all.size() == 1 && all.front().second.stream == compute_stream && stream == compute_stream) {
      all.front() = {bytes_.united(all.front().first, bytes), streams_.next_of(stream)};
      return;
    }
    for (auto& [written, moment] : all) {
      if (moment.stream == compute_stream && stream == compute_stream) bytes = bytes_.united(written, bytes);
      written = bytes_.without(written, bytes);
    }
    std::erase_if(all, [](const auto& written) { return written.first == ByteSets::empty; });
    all.emplace_back(bytes, streams_.next_of(stream));
  }

  // From now on nobody waits for these bytes to be read.
  void take(Buffer& its, Set bytes) {
    const Set rest = bytes_.without(its.unread, bytes);
    if (rest == its.unread) return;
    its.unread = rest;
    if (rest == ByteSets::empty) return its.writes.clear();
    const auto same = std::ranges::find(its.writes, bytes, &Write::bytes);
    if (same != its.writes.end()) {
      its.writes.erase(same);
      return;
    }
    for (Write& write : its.writes) write.bytes = bytes_.without(write.bytes, bytes);
    std::erase_if(its.writes, [](const Write& write) { return write.bytes == ByteSets::empty; });
  }

  void unread(const Buffer& its, const Write& write, Set bytes) {
    note(FlowKind::Unread, its, write.by, write.mark, write.op, bytes_.size(bytes));
  }

  // ---- what is said

  FlowFinding& note(FlowKind kind, const Buffer& its, std::int32_t by, const Mark& at, std::size_t op, Bytes bytes) {
    const bool ends = kind == FlowKind::Unread || kind == FlowKind::Kept;
    const Site site{kind,
                    without_layer(its.label),
                    by,
                    at.phase,
                    without_layer(at.label),
                    mark_.phase,
                    ends ? without_layer(mark_.label) : -1};
    const auto [entry, added] = found_.try_emplace(site);
    FlowFinding& found = entry->second;
    if (added) {
      const auto word = [&](std::int32_t id) { return id < 0 ? std::string() : words_[id]; };
      found = {.kind = kind,
               .tensor = word(without_layer(its.label)),
               .by = words_[by],
               .at = {at.phase, word(without_layer(at.label))},
               .until = ends ? FlowPlace{mark_.phase, word(without_layer(mark_.label))} : FlowPlace{},
               .keeper = {},
               .category = its.category,
               .op = op,
               .step = at.step,
               .first = program_[its.label]};
    }
    ++found.times;
    found.largest = std::max(found.largest, bytes);
    return found;
  }

  std::int32_t without_layer(LabelId label) {
    if (!label.valid()) return -1;
    std::int32_t& known = labels_[label.index()];
    if (known < 0) {
      const Label& its = program_.labels[label.index()];
      std::string text = its.layer < 0 ? its.text : std::string(its.layer_text());
      if (its.layer >= 0)
        text = text.substr(0, text.find_last_not_of("0123456789") + 1) + "*" + std::string(its.within_layer());
      known = words_(text);
    }
    return known;
  }

  std::int32_t by(Operation operation, std::string_view operand) {
    std::int32_t& known = by_[{operation, operand}];
    if (known == 0) known = words_(fmt::format("{} {}", name(operation), operand)) + 1;
    return known - 1;
  }

  Set seen(const Operand& operand, ViewId view) {
    const auto [found, added] = seen_.try_emplace({view, operand.offset});
    if (added) found->second = bytes_.seen(program_[view], program_[operand.offset]);
    return found->second;
  }
  Buffer& buffer(BufferId id) { return buffers_[id.index()]; }

  using Site = std::tuple<FlowKind, std::int32_t, std::int32_t, Phase, std::int32_t, Phase, std::int32_t>;

  const Workload& workload_;
  const Program& program_;
  Rank rank_;
  ByteSets bytes_;
  Words words_;
  std::vector<Buffer> buffers_;
  std::vector<std::int32_t> labels_;  // by label: without its layer's number, as a word
  std::map<std::pair<Operation, std::string_view>, std::int32_t> by_;  // 0: not known yet
  std::map<std::pair<ViewId, OffsetId>, Set> seen_;
  std::map<Site, FlowFinding> found_;
  StreamOrder streams_;
  Mark mark_;
  NameId variable_;  // that a name was given to, or taken from, last
  std::int64_t requested_ = 0;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<FlowFinding> data_flow(const Workload& workload, std::size_t program) {
  return Follower(workload, program).findings();
}

}  // namespace tidemark::sim
