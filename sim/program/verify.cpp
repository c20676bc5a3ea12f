#include "sim/program/verify.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "sim/base/overloaded.hpp"
#include "sim/program/kernel_checks.hpp"
#include "sim/program/stream_order.hpp"
#include "sim/program/text/program_text.hpp"

namespace tidemark::sim {
namespace {

constexpr std::size_t most_findings = 20;

class ProgramChecker {
 public:
  explicit ProgramChecker(const Program& program)
      : program_(program),
        state_(static_cast<std::size_t>(program.buffers), State::Unborn),
        sizes_(state_.size()),
        spaces_(state_.size(), MemorySpace::Device),
        bound_(program.names.size()),
        names_of_(static_cast<std::size_t>(program.buffers), 0),
        recorded_(static_cast<std::size_t>(program.events), false),
        checked_(std::make_unique<bool[]>(program.kernels.size())),
        streams_(program) {}

  std::vector<std::string> findings() && {
    for (at_ = 0; at_ < program_.ops.size() && found_.size() < most_findings; ++at_) check(program_.ops[at_]);
    return std::move(found_);
  }

 private:
  enum class State : std::uint8_t { Unborn, Live, Freed };

  void report(const std::string& what) {
    found_.push_back(fmt::format("op {}: {}: {}", at_, text(program_, program_.ops[at_]), what));
  }

  [[nodiscard]] bool is_live(BufferId buffer) const {
    return buffer.index() < state_.size() && state_[buffer.index()] == State::Live;
  }

  void must_live(BufferId buffer) {
    if (!buffer.valid() || buffer.value >= program_.buffers)
      report("names no buffer of the program");
    else if (!is_live(buffer))
      report(fmt::format("b{} is {}", buffer.value,
                         state_[buffer.index()] == State::Freed ? "already freed" : "not allocated yet"));
  }

  // A kernel works where its processor does, communicators on the device; what is not live is told apart from that.
  void must_be_on_device(BufferId buffer) {
    if (buffer.index() >= spaces_.size()) return;
    const MemorySpace space = spaces_[buffer.index()];
    if (is_of_host(space))
      report(fmt::format("b{} is in {} memory of the host", buffer.value, name(space)));
    else if (space == MemorySpace::Nvme)
      report(fmt::format("b{} is in a file", buffer.value));
  }

  void must_be_on_host(BufferId buffer) {
    if (!is_live(buffer)) return;
    const MemorySpace space = spaces_[buffer.index()];
    if (!is_of_host(space))
      report(fmt::format("b{} is {}, where the host thread cannot reach it", buffer.value,
                         space == MemorySpace::Nvme ? "in a file" : "on the device"));
  }

  // What the host thread computes with is there, and nobody else's, by the time it gets to it.
  void check_host(const Launch& o) {
    for_each_operand(program_, o, [&](BufferId b) { must_be_on_host(b); });
    if (!found_.empty()) return;
    for (const Operand& operand : program_[o.inputs])
      if (const auto stream = streams_.still_writing(operand.buffer, {}))
        report(fmt::format("stream s{} may still write b{}", stream->value, operand.buffer.value));
    for (const OperandList list : {o.outputs, o.scratch})
      for (const Operand& operand : program_[list])
        if (const auto stream = streams_.still_copying(operand.buffer))
          report(fmt::format("stream s{} may still copy b{}", stream->value, operand.buffer.value));
  }

  void check_copy(const Memcpy& o) {
    if (!is_live(o.from.buffer) || !is_live(o.to.buffer)) return;  // and said so
    const MemorySpace from = spaces_[o.from.buffer.index()], to = spaces_[o.to.buffer.index()];
    const auto joins = [&](MemorySpace outside) {
      return (from == outside && is_of_host(to)) || (to == outside && is_of_host(from));
    };
    if (!joins(MemorySpace::Device) && !joins(MemorySpace::Nvme))
      report("a copy goes from the device or a file to the host, or back");
    if (o.size <= Bytes{0}) report("size is not positive");
    for (const Operand& side : {o.from, o.to}) must_fit(side, o.size);
  }

  // What is wrong with a kernel is said where it is launched first.
  void check_kernel(const Launch& o) {
    const Kernel& kernel = program_[o.kernel];
    bool& checked = checked_[o.kernel.index()];
    if (!checked)
      if (const auto problem = problem_of(program_, kernel)) report(*problem);
    checked = true;
    check_views(program_[o.inputs], kernel.inputs);
    check_views(program_[o.outputs], kernel.outputs);
  }
  // Operands are those that are there.
  void check_views(std::span<const Operand> operands, const std::vector<ViewId>& views) {
    const auto there = static_cast<std::size_t>(std::ranges::count_if(views, &ViewId::valid));
    if (operands.size() != there)
      return report(fmt::format("{} operands, where its kernel sees {}", operands.size(), there));
    std::size_t next = 0;
    for (const ViewId view : views) {
      if (!view.valid()) continue;
      const Operand& o = operands[next++];
      if (is_live(o.buffer)) must_fit(o, program_[view].extent());
    }
  }
  void must_fit(const Operand& o, Bytes extent) {
    if (const Bytes end = program_[o.offset] + extent; end > sizes_[o.buffer.index()])
      report(fmt::format("reaches to byte {} of b{}, which has {}", end.count(), o.buffer.value,
                         sizes_[o.buffer.index()].count()));
  }

  void check_row(const Collective& o) {
    if (!o.row.valid()) return;
    if (o.row.index() >= program_.rows.size()) return report("names no row of the program");
    const MatrixRow& row = program_[o.row];
    const auto equal = [](const std::vector<Bytes>& parts) {
      return std::ranges::adjacent_find(parts, std::not_equal_to<>()) == parts.end();
    };
    const auto [known, added] = rows_.try_emplace({o.comm, row.matrix}, o.row);
    if (!added && known->second != o.row) report("another row of its matrix came before it");
    if (o.kind == CollectiveKind::AllReduce || o.kind == CollectiveKind::Broadcast)
      report("has no parts that could be uneven");
    else if (o.kind == CollectiveKind::AllGather && !equal(row.sends))
      report("an all-gather sends everyone the same");
    else if (o.kind == CollectiveKind::ReduceScatter && !equal(row.receives))
      report("a reduce-scatter receives as much from everyone");
    else if (o.size != larger_side(o.kind, row))
      report(fmt::format("its larger side holds {} bytes", larger_side(o.kind, row).count()));
  }

  void check_elements(const Collective& o) {
    if (o.size % size_of(o.dtype) != Bytes{})
      report(fmt::format("{} bytes are no elements of {}", o.size.count(), name(o.dtype)));
    if (o.in.buffer != o.out.buffer || !is_live(o.in.buffer)) return;
    must_fit(o.in, o.size);
    if (o.out != o.in) must_fit(o.out, o.size);
  }

  void must_exist(CommSlot comm) {
    if (!created_.contains(comm)) report(fmt::format("communicator g{} is not created yet", comm.value));
  }

  void check(const Op& op) {
    for_each_operand(program_, op, [&](BufferId b) { must_live(b); });
    std::visit(Overloaded{
                   [&](const Alloc& o) {
                     if (o.size <= Bytes{0}) report("size is not positive");
                     if (state_[o.buffer.index()] != State::Unborn) report("allocated twice");
                     state_[o.buffer.index()] = State::Live;
                     sizes_[o.buffer.index()] = o.size;
                     spaces_[o.buffer.index()] = o.space;
                   },
                   [&](const Free& o) {
                     must_live(o.buffer);
                     // Streams are followed in programs that are sound so far.
                     const auto stream = found_.empty() ? streams_.still_using(o.buffer) : std::nullopt;
                     if (stream) report(fmt::format("stream s{} may still use it", stream->value));
                     if (o.buffer.index() >= state_.size()) return;
                     if (names_of_[o.buffer.index()] > 0) report("a name still refers to it");
                     state_[o.buffer.index()] = State::Freed;
                   },
                   [&](const Launch& o) {
                     const bool on_host = program_[o.kernel].processor == Processor::Host;
                     if (on_host == o.stream.valid()) report("goes on a stream just where a device computes");
                     if (on_host)
                       check_host(o);
                     else
                       for_each_operand(program_, op, [&](BufferId b) { must_be_on_device(b); });
                     check_kernel(o);
                   },
                   [&](const Collective& o) {
                     must_exist(o.comm);
                     check_row(o);
                     check_elements(o);
                     for_each_operand(program_, op, [&](BufferId b) { must_be_on_device(b); });
                   },
                   [&](const Exchange& o) {
                     must_exist(o.comm);
                     for_each_operand(program_, op, [&](BufferId b) { must_be_on_device(b); });
                   },
                   [&](const Memcpy& o) { check_copy(o); },
                   [&](const Record& o) { recorded_[o.event.index()] = true; },
                   [&](const Wait& o) { must_be_recorded(o.event); },
                   [&](const Sync& o) { must_be_recorded(o.event); },
                   [&](const CreateCommunicator& o) {
                     if (!created_.insert(o.comm).second) report("created twice");
                   },
                   [&](const Bind& o) {
                     must_live(o.buffer);
                     bind(o.name, o.buffer);
                   },
                   [&](const Unbind& o) {
                     if (!bound_[o.name.index()].valid()) report("the name is not bound");
                     bind(o.name, {});
                   },
                   Ignored<CrossStreamUse, CreateDriver, Mark>{},
               },
               op);
    if (found_.empty()) streams_.note(op);
  }

  void bind(NameId name, BufferId buffer) {
    const BufferId before = std::exchange(bound_[name.index()], buffer);
    for (const auto& [whose, change] : {std::pair(before, -1), std::pair(buffer, 1)})
      if (whose.valid() && whose.index() < names_of_.size()) names_of_[whose.index()] += change;
  }

  void must_be_recorded(EventId event) {
    if (event.value >= program_.events || !recorded_[event.index()]) report("the event is not recorded yet");
  }

  const Program& program_;
  std::vector<State> state_;
  std::vector<Bytes> sizes_;         // by buffer
  std::vector<MemorySpace> spaces_;  // by buffer
  std::map<std::pair<CommSlot, MatrixId>, RowId> rows_;
  std::vector<BufferId> bound_;         // by name
  std::vector<std::int32_t> names_of_;  // by buffer: how many are bound to it
  std::vector<bool> recorded_;
  std::unique_ptr<bool[]> checked_;  // by kernel
  std::set<CommSlot> created_;
  StreamOrder streams_;
  std::vector<std::string> found_;
  std::size_t at_ = 0;
};

// What one program asks of its groups, in order: collectives by slot, messages by slot, direction and step.
struct Traffic {
  using Message = Bytes;
  struct Call {
    CollectiveKind kind = CollectiveKind::AllReduce;
    DType dtype = DType::BF16;
    Reduction reduction = Reduction::Sum;
    Bytes size;       // of an even one
    MatrixId matrix;  // of an uneven one
    bool operator==(const Call&) const = default;
  };
  std::map<CommSlot, std::vector<Call>> collectives;
  std::map<CommSlot, std::map<MatrixId, std::pair<CollectiveKind, MatrixRow>>> rows;
  std::map<std::tuple<CommSlot, Direction, std::int32_t>, std::vector<Message>> messages;

  [[nodiscard]] std::vector<Call> calls(CommSlot comm) const {
    const auto found = collectives.find(comm);
    return found == collectives.end() ? std::vector<Call>{} : found->second;
  }
};

Traffic traffic_of(const Program& program) {
  Traffic traffic;
  std::vector<Bytes> size(static_cast<std::size_t>(program.buffers));
  for (const Op& op : program.ops)
    std::visit(Overloaded{
                   [&](const Alloc& o) { size[o.buffer.index()] = o.size; },
                   [&](const Collective& o) {
                     std::vector<Traffic::Call>& calls = traffic.collectives[o.comm];
                     if (!o.row.valid()) return calls.push_back({o.kind, o.dtype, o.reduction, o.size, {}});
                     const MatrixRow& row = program[o.row];
                     calls.push_back({o.kind, o.dtype, o.reduction, {}, row.matrix});
                     traffic.rows[o.comm].try_emplace(row.matrix, o.kind, row);
                   },
                   [&](const Exchange& o) {
                     for (const Transfer& t : program[o.transfers])
                       traffic.messages[{o.comm, t.direction, t.step}].push_back(t.size(size[t.buffer.index()]));
                   },
                   // ask nobody
                   Ignored<Free, CrossStreamUse, Launch, Memcpy, Record, Wait, Sync, CreateDriver, CreateCommunicator,
                           Bind, Unbind, Mark>{},
               },
               op);
  return traffic;
}

class GroupChecker {
 public:
  GroupChecker(const std::vector<std::int32_t>& program_of_rank, const std::vector<Communicator>& communicators,
               std::vector<Traffic> of_programs)
      : program_of_rank_(program_of_rank), communicators_(communicators), traffic_(std::move(of_programs)) {}

  std::vector<std::string> findings() && {
    for (std::size_t r = 0; r < program_of_rank_.size() && found_.size() < most_findings; ++r)
      check(Rank{static_cast<std::int32_t>(r)});
    return std::move(found_);
  }

 private:
  [[nodiscard]] std::int32_t program_index(Rank rank) const { return program_of_rank_[rank.index()]; }
  [[nodiscard]] const Traffic& traffic(Rank rank) const {
    return traffic_[static_cast<std::size_t>(program_index(rank))];
  }

  // Pairs of programs meet again and again; each meeting in one communicator is checked once.
  bool first_meeting(CommSlot comm, Rank a, Rank b, std::int32_t step) {
    return seen_.insert({comm.value, program_index(a), program_index(b), step}).second;
  }

  void check(Rank rank) {
    const Traffic& mine = traffic(rank);
    for (std::size_t slot = 0; slot < communicators_.size(); ++slot) {
      const CommSlot comm{static_cast<std::int32_t>(slot)};
      const Communicator& communicator = communicators_[slot];
      if (!is_member(communicator, rank)) continue;
      const Rank leader = group_leader(communicator, rank);
      if (leader == rank && mine.rows.contains(comm)) check_matrices(comm, leader);
      if (!first_meeting(comm, leader, rank, 0)) continue;
      if (traffic(leader).calls(comm) != mine.calls(comm))
        found_.push_back(fmt::format("ranks {} and {} do not call the same collectives in communicator {}",
                                     leader.value, rank.value, communicator.name));
    }
    for (const auto& [way, sizes] : mine.messages) {
      const auto& [comm, direction, step] = way;
      const Communicator& communicator = communicators_[comm.index()];
      if (!is_member(communicator, rank)) {
        found_.push_back(fmt::format("rank {} {} in communicator {}, of which it is no member", rank.value,
                                     direction == Direction::Send ? "sends" : "receives", communicator.name));
        continue;
      }
      const Rank peer = group_neighbour(communicator, rank, step);
      if (!first_meeting(comm, rank, peer, step * 2 + (direction == Direction::Send ? 1 : 0))) continue;
      const Direction back = direction == Direction::Send ? Direction::Receive : Direction::Send;
      const auto theirs = traffic(peer).messages.find({comm, back, -step});
      if (theirs == traffic(peer).messages.end() || theirs->second != sizes)
        found_.push_back(fmt::format("what rank {} {} in communicator {} does not match what rank {} {}", rank.value,
                                     direction == Direction::Send ? "sends" : "receives", communicator.name, peer.value,
                                     direction == Direction::Send ? "receives" : "sends"));
    }
  }

  // Rows against columns of everything uneven that a group calls. Groups of the same programs are checked once.
  void check_matrices(CommSlot comm, Rank leader) {
    const Communicator& communicator = communicators_[comm.index()];
    const std::vector<Rank> members = group_members(communicator, leader);
    std::vector<std::int32_t> programs;
    for (const Rank member : members) programs.push_back(program_index(member));
    if (!seen_groups_.insert({comm, programs}).second) return;
    for (const auto& [matrix, call] : traffic(leader).rows.at(comm)) {
      std::vector<const MatrixRow*> rows;
      for (const Rank member : members) {
        const auto of_slot = traffic(member).rows.find(comm);
        if (of_slot == traffic(member).rows.end() || !of_slot->second.contains(matrix)) return;  // told apart by calls
        rows.push_back(&of_slot->second.at(matrix).second);
      }
      check_matrix(communicator, fmt::format("{} m{}", name(call.first), matrix.value), members, rows);
    }
  }

  void check_matrix(const Communicator& communicator, const std::string& call, const std::vector<Rank>& members,
                    const std::vector<const MatrixRow*>& rows) {
    const auto tell = [&](std::size_t place) {
      return fmt::format("rank {} (place {} in communicator {})", members[place].value, place, communicator.name);
    };
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i]->sends.size() == rows.size() && rows[i]->receives.size() == rows.size()) continue;
      found_.push_back(fmt::format("{}: {} sends to {} places and receives from {}, in a group of {}", call, tell(i),
                                   rows[i]->sends.size(), rows[i]->receives.size(), rows.size()));
      return;
    }
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t j = 0; j < rows.size() && found_.size() < most_findings; ++j)
        if (rows[i]->sends[j] != rows[j]->receives[i])
          found_.push_back(fmt::format("{}: {} sends {} bytes to {}, which receives {} from it", call, tell(i),
                                       rows[i]->sends[j].count(), tell(j), rows[j]->receives[i].count()));
  }

  const std::vector<std::int32_t>& program_of_rank_;
  const std::vector<Communicator>& communicators_;
  std::vector<Traffic> traffic_;  // by program
  std::set<std::pair<CommSlot, std::vector<std::int32_t>>> seen_groups_;
  std::set<std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t>> seen_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> verify(const Program& program) { return ProgramChecker(program).findings(); }

namespace {

// One program at a time: `program(i, use)` has `use` look at it.
template <class Each>
std::vector<std::string> verify_each(std::size_t programs, const std::vector<std::int32_t>& program_of_rank,
                                     const std::vector<Communicator>& communicators, Each program) {
  std::vector<Traffic> of_programs;
  for (std::size_t i = 0; i < programs; ++i) {
    std::vector<std::string> found;
    program(i, [&](const Program& its) {
      found = verify(its);
      if (found.empty()) of_programs.push_back(traffic_of(its));
    });
    for (std::string& line : found) line = fmt::format("program {}: {}", i, line);
    if (!found.empty()) return found;
  }
  return GroupChecker(program_of_rank, communicators, std::move(of_programs)).findings();
}

}  // namespace

std::vector<std::string> verify(const std::vector<const Program*>& programs,
                                const std::vector<std::int32_t>& program_of_rank,
                                const std::vector<Communicator>& communicators) {
  return verify_each(programs.size(), program_of_rank, communicators,
                     [&](std::size_t i, auto use) { use(*programs[i]); });
}

std::vector<std::string> verify(const Workload& workload) {
  std::vector<const Program*> programs;
  for (const Program& program : workload.programs) programs.push_back(&program);
  return verify(programs, workload.program_of_rank, workload.communicators);
}

std::vector<std::string> verify(const RepeatingWorkload& workload) {
  const Shortening shortest(workload);
  return verify_each(workload.programs.size(), workload.program_of_rank, workload.communicators,
                     [&](std::size_t i, auto use) {
                       const auto program = workload.programs[i].get();
                       if (program->repeats.empty())
                         use(program->rolled);
                       else
                         use(shortest.unrolled(*program));
                     });
}

}  // namespace tidemark::sim
