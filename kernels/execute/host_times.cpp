#include "kernels/execute/host_times.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <sstream>

#include "kernels/execute/content.hpp"
#include "kernels/execute/host_backend.hpp"
#include "kernels/execute/world/host_collectives.hpp"
#include "sim/base/ensure.hpp"
#include "sim/base/overloaded.hpp"
#include "sim/clock/engine.hpp"

namespace tidemark::execute {
namespace {

using Clock = std::chrono::steady_clock;

// The median of a few rounds, of one of `count` things done in each.
template <class Work>
Duration time_of(std::int64_t count, Work&& work) {
  std::array<std::int64_t, 5> rounds{};
  for (std::int64_t& took : rounds) {
    const Clock::time_point began = Clock::now();
    work();
    took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - began).count();
  }
  std::sort(rounds.begin(), rounds.end());
  return Duration{rounds[rounds.size() / 2] * 1000 / count};
}

constexpr std::size_t rate_count = sizeof(HostRates) / sizeof(Duration);

std::array<Duration*, rate_count> all_of(HostRates& rates) {
  return {&rates.op,         &rates.touch_page, &rates.release_page, &rates.read_page,
          &rates.write_page, &rates.message,    &rates.move_page,    &rates.add_page};
}

HostRates rates_of_this_rank(World& world) {
  HostRates rates;
  const Bytes size{128 << 20};  // its stamps are more than a core's cache holds
  const std::int64_t pages = PageScale{}.units(size);
  HostBackend backend(world, 1, {}, {});
  const BufferId buffer{0};
  const Kernel kernel;
  // Touch and release go together; what a release takes alone comes off.
  std::int64_t releases = 0;
  const Duration both = time_of(pages, [&] {
    backend.allocate(buffer, size, {0});
    const Clock::time_point began = Clock::now();
    backend.release(buffer);
    releases += std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - began).count();
  });
  rates.release_page = Duration{releases * 1000 / 5 / pages};
  rates.touch_page = std::max(both - rates.release_page, Duration{});

  backend.allocate(buffer, size, {0});
  const std::array writings{Writing{buffer, 1}};
  rates.write_page = time_of(pages, [&] { backend.launch({0}, kernel, {}, writings); });
  const std::array readings{Reading{buffer, stamped(1, PageScale{}.words(size))}};
  rates.read_page = time_of(pages, [&] { backend.check({0}, readings); });
  std::vector<std::uint64_t> a(static_cast<std::size_t>(4 << 20) / 8), b(a.size());
  rates.add_page = time_of(static_cast<std::int64_t>(a.size()) / PageScale::words_per_page, [&] {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  });
  rates.op = time_of(1000, [&] {
    for (int i = 0; i < 1000; ++i) backend.launch({0}, kernel, {}, {});
  });

  if (world.size() == 1) return rates;
  const Rank next{(world.rank().value + 1) % world.size()},
      before{(world.rank().value + world.size() - 1) % world.size()};
  const auto pass = [&](std::size_t words) {
    const std::array messages{Message{Direction::Send, next, World::first_payload_tag, a.data(), words * 8},
                              Message{Direction::Receive, before, World::first_payload_tag, b.data(), words * 8}};
    world.exchange(messages, "measuring rates");
  };
  world.barrier();
  rates.message = time_of(200, [&] {
    for (int i = 0; i < 200; ++i) pass(1);
  });
  const auto chunk = static_cast<std::size_t>(32 * 1024);
  const Duration large = time_of(50, [&] {
    for (int i = 0; i < 50; ++i) pass(chunk);
  });
  rates.move_page =
      std::max(large - rates.message, Duration{}) / (static_cast<std::int64_t>(chunk) / PageScale::words_per_page);
  return rates;
}

// A program as the host back end runs it: one stream, and what memory costs as kernels of their own.
class HostProgram {
 public:
  HostProgram(const Program& program, PageScale scale, const HostRates& rates) : scale_(scale), rates_(rates) {
    sizes_.resize(static_cast<std::size_t>(program.buffers));
    out = program;
    out.ops.clear();
    out.kernels.clear();
    for (const Op& op : program.ops) add(program, op);
  }

  Program out;
  std::vector<Duration> times;  // by kernel

 private:
  void work(Duration time) {
    // Every piece of work is a kernel of its own: only its number matters.
    out.ops.emplace_back(Launch{{0}, {static_cast<std::int32_t>(times.size())}, {}, {}, {}});
    out.kernels.emplace_back();
    times.push_back(time);
  }
  [[nodiscard]] std::int64_t pages(BufferId b) const { return scale_.units(sizes_[b.index()]); }

  // A transfer, which the host thread waits for.
  template <class Call>
  void call(Call same) {
    same.stream = {0};
    out.ops.emplace_back(same);
    out.ops.emplace_back(Record{{0}, {0}});
    out.ops.emplace_back(Sync{{0}});
  }

  void add(const Program& program, const Op& op) {
    const auto keep = [&](const auto&) { out.ops.push_back(op); };
    std::visit(Overloaded{
                   [&](const Alloc& o) {
                     sizes_[o.buffer.index()] = o.size;
                     out.ops.push_back(op);
                     work(rates_.op + pages(o.buffer) * rates_.touch_page);
                   },
                   [&](const Free& o) {
                     out.ops.push_back(op);
                     work(rates_.op + pages(o.buffer) * rates_.release_page);
                   },
                   [&](const Launch& o) {
                     Duration time = rates_.op;
                     BufferId last;
                     for (const Operand& read : program[o.inputs]) time += pages(read.buffer) * rates_.read_page;
                     for (const OperandList list : {o.outputs, o.scratch})
                       for (const Operand& written : program[list])
                         if (written.buffer != std::exchange(last, written.buffer))
                           time += pages(written.buffer) * rates_.write_page;
                     work(time);
                   },
                   [&](const Collective& o) {
                     work(2 * rates_.op + (pages(o.in.buffer) + pages(o.out.buffer)) * rates_.read_page);
                     call(o);
                   },
                   [&](const Exchange& o) {
                     Duration time = rates_.op;
                     for (const Transfer& t : program[o.transfers]) time += pages(t.buffer) * rates_.read_page;
                     work(time);
                     call(o);
                   },
                   [&](const Memcpy& o) {  // looked at on both sides, and moved
                     work(2 * rates_.op + (pages(o.from.buffer) + pages(o.to.buffer)) * rates_.read_page +
                          scale_.units(o.size) * rates_.move_page);
                   },
                   [&](const CreateDriver& o) { keep(o); },
                   [&](const CreateCommunicator& o) { keep(o); },
                   [&](const Bind& o) { keep(o); },
                   [&](const Unbind& o) { keep(o); },
                   [&](const Mark& o) { keep(o); },
                   // one stream has nothing to order
                   Ignored<CrossStreamUse, Record, Wait, Sync>{},
               },
               op);
  }

  PageScale scale_;
  const HostRates& rates_;
  std::vector<Bytes> sizes_;  // by buffer
};

// Rings of HostCollectives: how often a rank passes on, how much, and what it adds.
Duration ring_time(CollectiveKind kind, std::int64_t n, std::int64_t pages, const HostRates& rates) {
  constexpr std::int64_t chunk = 32 * 1024 / PageScale::words_per_page;  // pages
  const std::int64_t part = (pages + n - 1) / n;
  const std::int64_t chunks = (part + chunk - 1) / chunk;
  const Duration hops = (n - 1) * chunks * rates.message + (n - 1) * part * rates.move_page;
  const Duration sums = (n - 1) * part * rates.add_page;
  switch (kind) {
    case CollectiveKind::AllReduce:
      return 2 * hops + sums;
    case CollectiveKind::ReduceScatter:
      return hops + sums;
    case CollectiveKind::AllGather:
    case CollectiveKind::AllToAll:
      return hops;
    case CollectiveKind::Broadcast:
      return ((pages + chunk - 1) / chunk + n - 2) * rates.message +
             (pages + (n - 2) * std::min(pages, chunk)) * rates.move_page;
  }
  return hops;
}

// Of the member with the most to send or receive, which the others wait for.
std::int64_t largest_pages(const Workload& workload, const Program& program, const Collective& o, Rank rank,
                           PageScale scale) {
  if (!o.row.valid()) return scale.units(o.size);
  Bytes most;
  for (const Rank member : group_members(workload.communicators[o.comm.index()], rank))
    for (const MatrixRow& row : workload.program(member).rows)
      if (row.matrix == program[o.row].matrix) most = std::max(most, larger_side(o.kind, row));
  return scale.units(most);
}

TimeCosts costs_of(const std::vector<HostProgram>& programs, const Workload& workload, const Folding& folding,
                   PageScale scale, const HostRates& rates) {
  TimeCosts costs;
  costs.collectives.resize(folding.groups.size());
  for (const RankClass& its : folding.classes) {
    const HostProgram& program = programs[static_cast<std::size_t>(its.program)];
    OpTimes& times = costs.classes.emplace_back();
    times.kernels = program.times;
    std::vector<Bytes> sizes(static_cast<std::size_t>(program.out.buffers));
    for (const Op& op : program.out.ops) {
      if (const auto* alloc = std::get_if<Alloc>(&op)) sizes[alloc->buffer.index()] = alloc->size;
      if (const auto* call = std::get_if<Collective>(&op)) {
        const std::int64_t n = group_size(workload.communicators[call->comm.index()]);
        auto& of_group = costs.collectives[static_cast<std::size_t>(its.groups[call->comm.index()])];
        const auto [cost, added] = of_group.try_emplace(key_of(program.out, *call));
        if (added)
          cost->second.latency =
              ring_time(call->kind, n, largest_pages(workload, program.out, *call, its.first, scale), rates);
      }
      if (const auto* exchange = std::get_if<Exchange>(&op)) {
        for (const Transfer& t : program.out[exchange->transfers]) {
          const Bytes size = t.size(sizes[t.buffer.index()]);
          times.messages[{exchange->comm, t.step, size}] = {rates.message + scale.units(size) * rates.move_page, {}};
        }
      }
    }
  }
  return costs;
}

}  // namespace

HostRates measured_host_rates(World& world) {
  HostRates mine = rates_of_this_rank(world);
  std::ostringstream text;
  for (const Duration* rate : all_of(mine)) text << rate->count() << ' ';
  HostRates mean;
  const std::vector<std::string> everyone = world.gather(text.str());
  for (const std::string& one : everyone) {
    std::istringstream in(one);
    for (Duration* rate : all_of(mean)) {
      std::int64_t count = 0;
      in >> count;
      *rate += Duration{count};
    }
  }
  for (Duration* rate : all_of(mean))
    if (!everyone.empty()) *rate = *rate / static_cast<std::int64_t>(everyone.size());
  return mean;
}

std::vector<std::vector<Duration>> host_step_times(const Workload& workload, PageScale scale, const HostRates& rates) {
  Workload run = workload;
  std::vector<HostProgram> programs;
  for (Program& program : run.programs) {
    programs.emplace_back(program, scale, rates);
    program = programs.back().out;
    program.events = 1;
  }
  const Folding folding = unfolded(run, std::vector<std::int32_t>(run.program_of_rank.size(), 0));
  const TimeCosts costs = costs_of(programs, run, folding, scale, rates);
  const Trace trace = simulate(run, folding, costs, LinkSharing::None);
  std::vector<std::vector<Duration>> steps;
  if (!std::holds_alternative<Completed>(trace.outcome)) return steps;
  for (const ClassTrace& rank : trace.classes) {
    Instant before;
    std::vector<Duration>& its = steps.emplace_back();
    for (const Instant end : rank.step_ends) its.push_back(end - std::exchange(before, end));
  }
  return steps;
}

}  // namespace tidemark::execute
