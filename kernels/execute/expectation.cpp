#include "kernels/execute/expectation.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "sim/base/ensure.hpp"
#include "sim/base/hash.hpp"
#include "sim/base/overloaded.hpp"

namespace tidemark::execute {
namespace {

// The number that times an odd one is 1 modulo 2^64, by Newton's iteration: each round doubles the right bits.
std::uint64_t inverse(std::uint64_t odd) {
  std::uint64_t x = odd;
  for (int round = 0; round < 5; ++round) x *= 2 - odd * x;
  return x;
}

std::int32_t round_the_group(std::int32_t step, std::int32_t size) { return (step % size + size) % size; }

}  // namespace

Expectation::Expectation(const Workload& workload, PageScale scale) : workload_(workload), scale_(scale) {
  for (const Program& program : workload.programs) facts_.push_back(facts_of(program));
}

Expectation::Facts Expectation::facts_of(const Program& program) const {
  Facts facts;
  const auto buffers = static_cast<std::size_t>(program.buffers);
  facts.sizes.resize(buffers);
  facts.labels.resize(buffers);
  std::vector<std::int64_t> last(buffers, nobody);
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    facts.first.push_back(static_cast<std::uint32_t>(facts.writers.size()));
    for_each_operand(program, op, [&](BufferId b) { facts.writers.push_back(last[b.index()]); });
    const auto now = static_cast<std::int64_t>(i);
    std::visit(
        Overloaded{
            [&](const Alloc& o) {
              facts.sizes[o.buffer.index()] = o.size;
              facts.labels[o.buffer.index()] = o.label;
            },
            [&](const Launch& o) {
              for (const OperandList list : {o.outputs, o.scratch})
                for (const Operand& operand : program[list]) last[operand.buffer.index()] = now;
            },
            [&](const Collective& o) {
              facts.collectives[o.comm].push_back(i);
              last[o.out.buffer.index()] = now;
            },
            [&](const Exchange& o) {
              const std::int32_t size = group_size(workload_.communicators[o.comm.index()]);
              for (const Transfer& t : program[o.transfers]) {
                auto& side = t.direction == Direction::Send ? facts.sends : facts.receives;
                side[{o.comm, round_the_group(t.step, size)}].push_back({i, t});
                if (t.direction == Direction::Receive) last[t.buffer.index()] = now;
              }
            },
            [&](const Memcpy& o) { last[o.to.buffer.index()] = now; },
            // write nothing
            Ignored<Free, CrossStreamUse, Record, Wait, Sync, CreateDriver, CreateCommunicator, Bind, Unbind, Mark>{},
        },
        op);
  }
  facts.first.push_back(static_cast<std::uint32_t>(facts.writers.size()));
  return facts;
}

std::int64_t Expectation::writer(Rank rank, std::size_t op, BufferId buffer) const {
  const Facts& its = facts(rank);
  std::int64_t found = nobody;
  std::size_t at = its.first[op];
  for_each_operand(workload_.program(rank), workload_.program(rank).ops[op], [&](BufferId b) {
    if (b == buffer) found = its.writers[at];
    ++at;
  });
  return found;
}

std::uint64_t Expectation::stamp(Rank rank, std::size_t op, BufferId buffer) {
  const auto part = [](auto n) { return static_cast<std::uint64_t>(n); };
  return mixed(mixed(mixed(part(rank.value) + 1) ^ part(op)) ^ part(buffer.value)) | 1;
}

Content Expectation::before(Rank rank, std::size_t op, BufferId buffer) const {
  const std::int64_t wrote = writer(rank, op, buffer);
  return wrote == nobody ? Content{} : after(rank, static_cast<std::size_t>(wrote), buffer);
}

Content Expectation::after(Rank rank, std::size_t op, BufferId buffer) const {
  const Op& wrote = workload_.program(rank).ops[op];
  if (const auto* call = std::get_if<Collective>(&wrote)) return after_collective(rank, op, *call);
  if (const auto* exchange = std::get_if<Exchange>(&wrote)) return received(rank, op, *exchange, buffer);
  if (const auto* copy = std::get_if<Memcpy>(&wrote)) return after_copy(rank, op, *copy);
  return stamped(stamp(rank, op, buffer), words(rank, buffer));
}

Content Expectation::after_copy(Rank rank, std::size_t op, const Memcpy& copy) const {
  const std::int64_t all = words(rank, copy.to.buffer);
  const Moved moved = moved_by(workload_.program(rank), copy, scale_, words(rank, copy.from.buffer), all);
  const Content kept = before(rank, op, copy.to.buffer);
  Content found;
  append(found, kept, 0, moved.to, 0);
  append(found, before(rank, op, copy.from.buffer), moved.from, moved.from + moved.words, moved.to);
  append(found, kept, moved.to + moved.words, all, moved.to + moved.words);
  return found;
}

Content Expectation::after_collective(Rank rank, std::size_t op, const Collective& call) const {
  const std::vector<Rank> members = group_members(workload_.communicators[call.comm.index()], rank);
  const auto n = static_cast<std::int64_t>(members.size());
  const std::vector<std::size_t>& mine = facts(rank).collectives.at(call.comm);
  const auto turn = static_cast<std::size_t>(std::lower_bound(mine.begin(), mine.end(), op) - mine.begin());
  const auto op_of = [&](Rank member) { return facts(member).collectives.at(call.comm)[turn]; };
  const auto call_of = [&](Rank member) -> const Collective& {
    return std::get<Collective>(workload_.program(member).ops[op_of(member)]);
  };
  const auto input = [&](Rank member) { return before(member, op_of(member), call_of(member).in.buffer); };
  const auto inputs = [&] {
    std::vector<Content> all;
    for (const Rank member : members) all.push_back(input(member));
    return all;
  };
  const auto me = static_cast<std::int64_t>(std::find(members.begin(), members.end(), rank) - members.begin());
  const auto& [whole, sends, receives] = parts_of(workload_.program(rank), call, n, scale_);
  const bool in_place = call.in.buffer == call.out.buffer;
  const std::int64_t end = words(rank, call.out.buffer);
  const Content kept = in_place ? before(rank, op, call.in.buffer) : Content{};

  Content found;
  switch (call.kind) {
    case CollectiveKind::AllReduce:
      append(found, sum(inputs()), 0, whole, 0);
      append(found, kept, whole, end, whole);
      break;
    case CollectiveKind::ReduceScatter: {
      const std::int64_t at = in_place ? sends.begin(me) : 0, past = at + sends.size(me);
      append(found, kept, 0, at, 0);
      append(found, sum(inputs()), sends.begin(me), sends.begin(me + 1), at);
      append(found, kept, past, end, past);
      break;
    }
    case CollectiveKind::AllGather:
      for (std::int64_t m = 0; m < n; ++m) {
        const std::int64_t from = in_place ? receives.begin(m) : 0;
        append(found, input(members[static_cast<std::size_t>(m)]), from, from + receives.size(m), receives.begin(m));
      }
      append(found, kept, receives.end(), end, receives.end());
      break;
    case CollectiveKind::Broadcast:
      append(found, input(members.front()), 0, whole, 0);
      append(found, kept, whole, end, whole);
      break;
    case CollectiveKind::AllToAll:
      for (std::int64_t m = 0; m < n; ++m) {
        const Rank member = members[static_cast<std::size_t>(m)];
        const Cut its = parts_of(workload_.program(member), call_of(member), n, scale_).sends;
        append(found, input(member), its.begin(me), its.begin(me + 1), receives.begin(m));
      }
      append(found, kept, receives.end(), end, receives.end());
      break;
  }
  return found;
}

Content Expectation::received(Rank rank, std::size_t op, const Exchange& exchange, BufferId buffer) const {
  const Communicator& communicator = workload_.communicators[exchange.comm.index()];
  const std::int32_t size = group_size(communicator);
  for (const auto& [way, calls] : facts(rank).receives) {
    if (way.first != exchange.comm) continue;
    const auto turn = std::find_if(calls.begin(), calls.end(),
                                   [&](const Call& call) { return call.op == op && call.transfer.buffer == buffer; });
    if (turn == calls.end()) continue;
    const Rank sender = group_neighbour(communicator, rank, way.second);
    const std::vector<Call>& sent = facts(sender).sends.at({exchange.comm, round_the_group(-way.second, size)});
    const Call& its = sent[static_cast<std::size_t>(turn - calls.begin())];
    const Transfer &out = its.transfer, &in = turn->transfer;
    const std::int64_t end = words(rank, buffer), length = part_words(end, in);
    const std::int64_t from = part_words(words(sender, out.buffer), out) * out.part, at = length * in.part;
    Content found;
    const Content kept = length < end ? before(rank, op, buffer) : Content{};
    append(found, kept, 0, at, 0);
    append(found, before(sender, its.op, out.buffer), from, from + length, at);
    append(found, kept, at + length, end, at + length);
    return found;
  }
  ensure(false, "a buffer that an exchange wrote was received");
  return {};
}

std::string Expectation::author(std::uint64_t word) const {
  if (word == 0) return "zero: memory that was given back, or that nobody wrote";
  const ContentRun any = stamped(0, 1).front();
  const std::uint64_t step = inverse(any.slope);
  for (Rank rank{0}; rank.value < workload_.world_size(); ++rank.value) {
    const Program& program = workload_.program(rank);
    Mark at;
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      if (const auto* mark = std::get_if<Mark>(&program.ops[i])) at = *mark;
      const auto* launch = std::get_if<Launch>(&program.ops[i]);
      if (launch == nullptr) continue;
      for (const Operand& written : program[launch->outputs]) {
        const BufferId b = written.buffer;
        const auto element = static_cast<std::int64_t>((word - stamp(rank, i, b)) * step);
        if (element < 0 || element >= words(rank, b)) continue;
        return fmt::format("rank {}, {} at op {} ({}, step {}, micro-batch {}), word {}", rank.value,
                           program[facts(rank).labels[b.index()]], i, at.label.valid() ? program[at.label] : "start",
                           at.step, at.micro_batch, element);
      }
    }
  }
  return "a sum, or nothing that a kernel wrote";
}

}  // namespace tidemark::execute
