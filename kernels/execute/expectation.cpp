#include "kernels/execute/expectation.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "sim/base/ensure.hpp"
#include "sim/base/hash.hpp"

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
    if (const auto* alloc = std::get_if<Alloc>(&op)) {
      facts.sizes[alloc->buffer.index()] = alloc->size;
      facts.labels[alloc->buffer.index()] = alloc->label;
    } else if (const auto* launch = std::get_if<Launch>(&op)) {
      for (const BufferId b : program[launch->outputs]) last[b.index()] = now;
    } else if (const auto* call = std::get_if<Collective>(&op)) {
      facts.collectives[call->comm].push_back(i);
      last[call->out.index()] = now;
    } else if (const auto* exchange = std::get_if<Exchange>(&op)) {
      const std::int32_t size = group_size(workload_.communicators[exchange->comm.index()]);
      for (const Transfer& t : program[exchange->transfers]) {
        auto& side = t.direction == Direction::Send ? facts.sends : facts.receives;
        side[{exchange->comm, round_the_group(t.step, size)}].push_back({i, t.buffer});
        if (t.direction == Direction::Receive) last[t.buffer.index()] = now;
      }
    }
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
  return stamped(stamp(rank, op, buffer), words(rank, buffer));
}

Content Expectation::after_collective(Rank rank, std::size_t op, const Collective& call) const {
  const std::vector<Rank> members = group_members(workload_.communicators[call.comm.index()], rank);
  const auto n = static_cast<std::int64_t>(members.size());
  const std::vector<std::size_t>& mine = facts(rank).collectives.at(call.comm);
  const auto turn = static_cast<std::size_t>(std::lower_bound(mine.begin(), mine.end(), op) - mine.begin());
  const auto input = [&](Rank member) {
    const std::size_t its = facts(member).collectives.at(call.comm)[turn];
    return before(member, its, std::get<Collective>(workload_.program(member).ops[its]).in);
  };
  const auto inputs = [&] {
    std::vector<Content> all;
    for (const Rank member : members) all.push_back(input(member));
    return all;
  };
  const auto me = static_cast<std::int64_t>(std::find(members.begin(), members.end(), rank) - members.begin());
  const std::int64_t whole = scale_.words(call.size);
  const std::int64_t part = shard_words(whole, n);
  const bool in_place = call.in == call.out;
  const std::int64_t end = words(rank, call.out);
  const Content kept = in_place ? before(rank, op, call.in) : Content{};

  Content found;
  switch (call.kind) {
    case CollectiveKind::AllReduce:
      append(found, sum(inputs()), 0, whole, 0);
      append(found, kept, whole, end, whole);
      break;
    case CollectiveKind::ReduceScatter: {
      const std::int64_t at = in_place ? me * part : 0;
      append(found, kept, 0, at, 0);
      append(found, sum(inputs()), me * part, (me + 1) * part, at);
      append(found, kept, at + part, end, at + part);
      break;
    }
    case CollectiveKind::AllGather:
      for (std::int64_t m = 0; m < n; ++m) {
        const std::int64_t from = in_place ? m * part : 0;
        append(found, input(members[static_cast<std::size_t>(m)]), from, from + part, m * part);
      }
      append(found, kept, n * part, end, n * part);
      break;
    case CollectiveKind::Broadcast:
      append(found, input(members.front()), 0, whole, 0);
      append(found, kept, whole, end, whole);
      break;
    case CollectiveKind::AllToAll:
      for (std::int64_t m = 0; m < n; ++m)
        append(found, input(members[static_cast<std::size_t>(m)]), me * part, (me + 1) * part, m * part);
      append(found, kept, n * part, end, n * part);
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
                                   [&](const Call& call) { return call.op == op && call.buffer == buffer; });
    if (turn == calls.end()) continue;
    const Rank sender = group_neighbour(communicator, rank, way.second);
    const std::vector<Call>& sent = facts(sender).sends.at({exchange.comm, round_the_group(-way.second, size)});
    const Call& its = sent[static_cast<std::size_t>(turn - calls.begin())];
    Content found;
    append(found, before(sender, its.op, its.buffer), 0, words(rank, buffer), 0);
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
      for (const BufferId b : program[launch->outputs]) {
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
