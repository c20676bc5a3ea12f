#include "sim/program/verify.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "sim/base/overloaded.hpp"
#include "sim/program/program_text.hpp"
#include "sim/program/stream_order.hpp"

namespace tidemark::sim {
namespace {

constexpr std::size_t most_findings = 20;

class ProgramChecker {
 public:
  explicit ProgramChecker(const Program& program)
      : program_(program),
        state_(static_cast<std::size_t>(program.buffers), State::Unborn),
        bound_(program.names.size()),
        names_of_(static_cast<std::size_t>(program.buffers), 0),
        recorded_(static_cast<std::size_t>(program.events), false),
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

  void must_live(BufferId buffer) {
    if (!buffer.valid() || buffer.value >= program_.buffers)
      report("names no buffer of the program");
    else if (state_[buffer.index()] != State::Live)
      report(fmt::format("b{} is {}", buffer.value,
                         state_[buffer.index()] == State::Freed ? "already freed" : "not allocated yet"));
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
                   [&](const Borrow&) {},
                   [&](const Launch&) {},
                   [&](const Collective& o) { must_exist(o.comm); },
                   [&](const Exchange& o) { must_exist(o.comm); },
                   [&](const Record& o) { recorded_[o.event.index()] = true; },
                   [&](const Wait& o) { must_be_recorded(o.event); },
                   [&](const Sync& o) { must_be_recorded(o.event); },
                   [&](const CreateDriver&) {},
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
                   [&](const Mark&) {},
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
  std::vector<BufferId> bound_;         // by name
  std::vector<std::int32_t> names_of_;  // by buffer: how many are bound to it
  std::vector<bool> recorded_;
  std::set<CommSlot> created_;
  StreamOrder streams_;
  std::vector<std::string> found_;
  std::size_t at_ = 0;
};

// What one program asks of its groups, in order: collectives by slot, messages by slot, direction and step.
struct Traffic {
  using Message = Bytes;
  using Call = std::pair<CollectiveKind, Bytes>;
  std::map<CommSlot, std::vector<Call>> collectives;
  std::map<std::tuple<CommSlot, Direction, std::int32_t>, std::vector<Message>> messages;

  [[nodiscard]] std::vector<Call> calls(CommSlot comm) const {
    const auto found = collectives.find(comm);
    return found == collectives.end() ? std::vector<Call>{} : found->second;
  }
};

Traffic traffic_of(const Program& program) {
  Traffic traffic;
  std::vector<Bytes> size(static_cast<std::size_t>(program.buffers));
  for (const Op& op : program.ops) {
    if (const Alloc* alloc = std::get_if<Alloc>(&op)) {
      size[alloc->buffer.index()] = alloc->size;
    } else if (const Collective* collective = std::get_if<Collective>(&op)) {
      traffic.collectives[collective->comm].emplace_back(collective->kind, collective->size);
    } else if (const Exchange* exchange = std::get_if<Exchange>(&op)) {
      for (const Transfer& t : program[exchange->transfers])
        traffic.messages[{exchange->comm, t.direction, t.step}].push_back(size[t.buffer.index()]);
    }
  }
  return traffic;
}

class GroupChecker {
 public:
  explicit GroupChecker(const Workload& workload) : workload_(workload) {
    for (const Program& program : workload.programs) traffic_.push_back(traffic_of(program));
  }

  std::vector<std::string> findings() && {
    for (std::int32_t r = 0; r < workload_.world_size() && found_.size() < most_findings; ++r) check(Rank{r});
    return std::move(found_);
  }

 private:
  [[nodiscard]] std::int32_t program_index(Rank rank) const { return workload_.program_of_rank[rank.index()]; }
  [[nodiscard]] const Traffic& traffic(Rank rank) const {
    return traffic_[static_cast<std::size_t>(program_index(rank))];
  }

  // Pairs of programs meet again and again; each meeting in one communicator is checked once.
  bool first_meeting(CommSlot comm, Rank a, Rank b, std::int32_t step) {
    return seen_.insert({comm.value, program_index(a), program_index(b), step}).second;
  }

  void check(Rank rank) {
    const Traffic& mine = traffic(rank);
    for (std::size_t slot = 0; slot < workload_.communicators.size(); ++slot) {
      const CommSlot comm{static_cast<std::int32_t>(slot)};
      const Communicator& communicator = workload_.communicators[slot];
      if (!is_member(communicator, rank)) continue;
      const Rank leader = group_leader(communicator, rank);
      if (!first_meeting(comm, leader, rank, 0)) continue;
      if (traffic(leader).calls(comm) != mine.calls(comm))
        found_.push_back(fmt::format("ranks {} and {} do not call the same collectives in communicator {}",
                                     leader.value, rank.value, communicator.name));
    }
    for (const auto& [way, sizes] : mine.messages) {
      const auto& [comm, direction, step] = way;
      const Communicator& communicator = workload_.communicators[comm.index()];
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

  const Workload& workload_;
  std::vector<Traffic> traffic_;
  std::set<std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t>> seen_;
  std::vector<std::string> found_;
};

}  // namespace

std::vector<std::string> verify(const Program& program) { return ProgramChecker(program).findings(); }

std::vector<std::string> verify(const Workload& workload) {
  for (std::size_t i = 0; i < workload.programs.size(); ++i) {
    std::vector<std::string> found = verify(workload.programs[i]);
    for (std::string& line : found) line = fmt::format("program {}: {}", i, line);
    if (!found.empty()) return found;
  }
  return GroupChecker(workload).findings();
}

}  // namespace tidemark::sim
