// Ranks that exchange real numbers, as many as each pair of them has for each other.
#include "kernels/arithmetic/arithmetic_rank.hpp"

#include <chrono>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/execute/mutation/mutation.hpp"
#include "sim/program/text/program_text.hpp"
#include "sim/program/verify.hpp"
#include "tests/kernels/thread_world.hpp"
#include "tests/sim/program/random_matrix.hpp"
#include "tests/sim/program/viewed.hpp"

namespace tidemark::tests::arithmetic_rank_test {
namespace {

constexpr std::int64_t element = 4;  // bytes

std::int64_t sum(const std::vector<Bytes>& parts, std::size_t before) {
  return std::accumulate(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(before), Bytes{}).count() / element;
}
std::int64_t sum(const std::vector<Bytes>& parts) { return sum(parts, parts.size()); }

// Element of what a member starts with.
double held(std::size_t place, std::int64_t i) { return static_cast<double>(place * 10'000) + static_cast<double>(i); }

struct Call {
  CollectiveKind kind;
  bool in_place;
};

// Of that call, what member `me` has afterwards.
std::vector<double> expected(const Call& call, const std::vector<MatrixRow>& rows, std::size_t me, std::int64_t room) {
  std::vector<double> out(static_cast<std::size_t>(room));
  if (call.in_place)
    for (std::int64_t i = 0; i < room; ++i) out[static_cast<std::size_t>(i)] = held(me, i);
  const std::size_t n = rows.size();
  if (call.kind == CollectiveKind::ReduceScatter) {
    const std::int64_t begin = sum(rows[me].sends, me), to = call.in_place ? begin : 0;
    for (std::int64_t i = 0; i < rows[me].sends[me].count() / element; ++i) {
      double& total = out[static_cast<std::size_t>(to + i)] = 0;
      for (std::size_t p = 0; p < n; ++p) total += held(p, begin + i);
    }
    return out;
  }
  for (std::size_t p = 0; p < n; ++p) {
    const std::int64_t to = sum(rows[me].receives, p);
    const bool gather = call.kind == CollectiveKind::AllGather;
    const std::int64_t from = gather ? (call.in_place ? sum(rows[p].receives, p) : 0) : sum(rows[p].sends, me);
    for (std::int64_t i = 0; i < rows[me].receives[p].count() / element; ++i)
      out[static_cast<std::size_t>(to + i)] = held(p, from + i);
  }
  return out;
}

// Fill memory with what the member holds; call; that is all.
Workload calling(const Call& call, const std::vector<MatrixRow>& rows, std::int64_t room) {
  Workload workload;
  workload.communicators = {{"experts", {{static_cast<std::int32_t>(rows.size()), 1, 1}}}};
  for (std::size_t place = 0; place < rows.size(); ++place) {
    ProgramBuilder program;
    program.push(CreateCommunicator{CommSlot{0}});
    const BufferId in = program.alloc(Bytes{room * element}, Category::Temporaries, program.label("tokens"));
    const BufferId out = program.alloc(Bytes{room * element}, Category::Temporaries, program.label("received"));
    program.launch(Operation::Initialize, {}, {viewed(program, in, DType::FP32, {room})});
    program.launch({Operation::Fill, {0}}, {}, {viewed(program, out, DType::FP32, {room})});
    program.collective(CommSlot{0}, {call.kind, DType::FP32}, in, call.in_place ? in : out, rows[place]);
    workload.program_of_rank.push_back(static_cast<std::int32_t>(place));
    workload.programs.push_back(std::move(program).finish());
  }
  return workload;
}

// What each rank has in that buffer at the end.
std::vector<std::string> run_all(const Workload& workload, math::Storage storage, BufferId buffer,
                                 std::vector<std::vector<double>>& found,
                                 std::chrono::milliseconds time_limit = long_enough) {
  found.assign(workload.program_of_rank.size(), {});
  return on_ranks(
      static_cast<std::int32_t>(found.size()),
      [&](World& world) {
        const std::size_t me = world.rank().index();
        ArithmeticHooks hooks;
        hooks.initial = [me](const Mark&, std::string_view, std::int64_t i) { return held(me, i); };
        hooks.before_mark = [&](const ArithmeticRank& run, const Mark* next) {
          if (next != nullptr) return;
          const Kernel& first = run.program()[KernelId{0}];
          found[me] = run.values(buffer, {}, run.program()[first.outputs[0]]);
        };
        hooks.after_launch = [](const ArithmeticRank&, const Launch&) {};
        math::HostCalculator host;
        const std::vector<Group> groups = groups_of(workload, world.rank());
        ArithmeticRank(workload.program(world.rank()), groups, world, host, storage, hooks).run();
      },
      time_limit);
}

std::vector<MatrixRow> in_elements(std::vector<MatrixRow> rows) {
  for (MatrixRow& row : rows)
    for (std::vector<Bytes>* parts : {&row.sends, &row.receives})
      for (Bytes& part : *parts) part = part * element;
  return rows;
}

class UnevenNumbers : public testing::TestWithParam<int> {};

TEST_P(UnevenNumbers, GoWhereTheyBelong) {
  const auto n = static_cast<std::size_t>(GetParam());
  std::mt19937 random(static_cast<std::uint32_t>(n));
  for (const Call& call : {Call{CollectiveKind::AllToAll, false}, Call{CollectiveKind::AllGather, false},
                           Call{CollectiveKind::AllGather, true}, Call{CollectiveKind::ReduceScatter, false},
                           Call{CollectiveKind::ReduceScatter, true}})
    for (const math::Storage storage : {math::Storage::Wide, math::Storage::Native}) {
      const std::vector<MatrixRow> rows = in_elements(random_matrix(random, call.kind, n, 50));
      std::int64_t room = 1;
      for (const MatrixRow& row : rows) room = std::max({room, sum(row.sends), sum(row.receives)});
      const Workload workload = calling(call, rows, room);
      ASSERT_EQ(verify(workload), std::vector<std::string>{});
      std::vector<std::vector<double>> found;
      ASSERT_EQ(run_all(workload, storage, BufferId{call.in_place ? 0 : 1}, found),
                all_well(static_cast<std::int32_t>(n)));
      for (std::size_t me = 0; me < n; ++me)
        EXPECT_EQ(found[me], expected(call, rows, me, room)) << name(call.kind) << ' ' << call.in_place << ' ' << me;
    }
}

INSTANTIATE_TEST_SUITE_P(Members, UnevenNumbers, testing::Values(1, 2, 3, 4));

// One token more to one expert than it has room for, where none was to come at all too.
TEST(ArithmeticRank, ACountThatIsNotTheOthersIsFound) {
  const Call call{CollectiveKind::AllToAll, false};
  std::mt19937 random(7);
  for (const std::int64_t before : {0, 5}) {
    std::vector<MatrixRow> rows = in_elements(random_matrix(random, call.kind, 3, 20));
    rows[0].sends[2] = rows[2].receives[0] = Bytes{before * element};
    rows[0].sends[2] += Bytes{element};
    std::vector<std::vector<double>> found;
    const std::vector<std::string> ends =
        run_all(calling(call, rows, 100), math::Storage::Native, BufferId{1}, found, std::chrono::seconds{20});
    EXPECT_EQ(ends[2], "rank 2: all_to_all: a message is not as long as it should be");
  }
}

// What a rank by itself says that is wrong.
std::string wrong_alone(const Program& program, const ArithmeticHooks& hooks) {
  std::string wrong;
  const std::vector<std::string> ends = on_ranks(1, [&](World& world) {
    math::HostCalculator host;
    const std::vector<Group> alone;
    ArithmeticRank rank(program, alone, world, host, math::Storage::Native, hooks);
    rank.run();
    wrong = rank.wrong();
  });
  EXPECT_EQ(ends, all_well(1));
  return wrong;
}

TEST(ArithmeticRank, WhatIsWrongBeforeTheFirstMarkIsToldToo) {
  const Program program = parse_program(R"(alloc b0 16 parameters s0 weight
alloc b1 16 parameters s0 copy
launch s0 copy b0:fp32[4] -> b1:fp32[4]
)");
  ArithmeticHooks hooks;
  hooks.initial = [](const Mark&, std::string_view, std::int64_t) { return 0.; };
  hooks.route = [](std::int32_t layer, std::int64_t, std::int64_t) { return layer; };
  hooks.after_launch = [](const ArithmeticRank& run, const Launch& launch) { EXPECT_EQ(run.layer_of(launch), -1); };
  EXPECT_EQ(wrong_alone(program, hooks),
            "rank 0, start (step 0, construction, micro-batch -1): copy reads element 0 of weight, which nobody wrote");
}

TEST(ArithmeticRank, ToldRoutesAreTakenAndWhatIsNotThereIsTold) {
  const Program program = parse_program(R"(alloc b0 96 temporaries s0 scores
alloc b1 16 temporaries s0 values
alloc b2 32 temporaries s0 experts
launch s0 initialize -> b0:fp32[4x6]
mark forward 1 0 layers.0.router
launch s0 top_k(count=1,routed=1,of_group=0) b0:fp32[4x6] -> b1:fp32[4x1] b2:int64[4x1]
)");
  for (const std::int64_t first : {0, 3}) {
    std::vector<double> values, experts;
    ArithmeticHooks hooks;
    hooks.initial = [](const Mark&, std::string_view, std::int64_t i) { return held(0, i); };
    hooks.route = [&](std::int32_t layer, std::int64_t token, std::int64_t choice) {
      EXPECT_EQ(layer, 0);
      return first + token + choice;
    };
    hooks.before_mark = [&](const ArithmeticRank& run, const Mark* next) {
      if (next != nullptr) return;
      values = run.values(BufferId{1}, {}, {DType::FP32, {4}, {1}});
      experts = run.values(BufferId{2}, {}, {DType::INT64, {4}, {1}});
    };
    hooks.after_launch = [](const ArithmeticRank&, const Launch&) {};
    const std::string wrong = wrong_alone(program, hooks);
    if (first == 0) {
      EXPECT_EQ(wrong, "");
      EXPECT_EQ(experts, (std::vector<double>{0, 1, 2, 3}));
      EXPECT_EQ(values, (std::vector<double>{0, 7, 14, 21}));
    } else {
      EXPECT_EQ(wrong, "rank 0, layers.0.router (step 1, forward, micro-batch 0): top_k: choice 6, where there are 6");
    }
  }
}

}  // namespace
}  // namespace tidemark::tests::arithmetic_rank_test
