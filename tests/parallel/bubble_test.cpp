#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/schedule/schedule.hpp"
#include "sim/clock/engine.hpp"
#include "sim/program/text/program_text.hpp"
#include "tests/namespace.hpp"

// Pipelines on the simulated clock against the closed form: where messages are free, p stages take m micro-batches in
// (m + p - 1)(f + b), of which (p - 1) / (m + p - 1) is bubble.

namespace tidemark::tests::bubble_test {
namespace {

constexpr Duration forward{1'000'003};
constexpr Duration backward{2'300'001};

// One kernel for each pass; messages go beside the compute stream, which waits for what it needs.
std::string program_of(const Schedule& schedule, std::int32_t stage, std::int32_t stages) {
  std::string text = "alloc b0 512 temporaries s0 x\n";
  int event = 0;
  for (const Action& action : schedule) {
    const bool is_ahead = is_forward(action.kind);
    const std::int32_t ahead = is_ahead ? 1 : -1;
    const int first_stream = is_ahead ? 1 : 3;  // to receive on, and the next to send on
    if (stage - ahead >= 0 && stage - ahead < stages)
      text += fmt::format("exchange s{0} g0 receive {1:+} b0\nrecord e{2} s{0}\nwait s0 e{2}\n", first_stream, -ahead,
                          event++);
    text += fmt::format("launch s0 fill(value={}) -> b0:bool[1]\n", is_ahead ? 1 : 2);
    if (stage + ahead >= 0 && stage + ahead < stages)
      text += fmt::format("record e{2} s0\nwait s{0} e{2}\nexchange s{0} g0 send {1:+} b0\n", first_stream + 1, ahead,
                          event++);
  }
  return text;
}

Duration step_time(const std::vector<Schedule>& schedules) {
  const auto stages = static_cast<std::int32_t>(schedules.size());
  Workload workload;
  workload.communicators = {{"pipeline", {{stages, 1, 1}}}};
  TimeCosts costs;
  for (std::int32_t s = 0; s < stages; ++s) {
    workload.programs.push_back(parse_program(program_of(schedules[static_cast<std::size_t>(s)], s, stages)));
    workload.program_of_rank.push_back(s);
    OpTimes times;
    times.kernels = {forward, backward};
    times.messages[{{0}, 1, Bytes{512}}] = {};
    times.messages[{{0}, -1, Bytes{512}}] = {};
    costs.classes.push_back(times);
  }
  const Folding folding = unfolded(workload, std::vector<std::int32_t>(schedules.size(), 0));
  const Trace trace = simulate(workload, folding, costs);
  EXPECT_TRUE(std::holds_alternative<Completed>(trace.outcome));
  return trace.end.since_start();
}

void expect_closed_form(Duration step, std::int64_t stages, std::int64_t micro_batches) {
  const Duration work = micro_batches * (forward + backward);
  EXPECT_EQ(step, (micro_batches + stages - 1) * (forward + backward));
  EXPECT_EQ((step - work) * (micro_batches + stages - 1), step * (stages - 1));
}

TEST(Bubble, OfOneFOneBIsTheClosedForm) {
  for (const std::int32_t stages : {1, 2, 3, 4, 8}) {
    for (const std::int32_t micro_batches : {1, 2, 3, 4, 7, 16}) {
      SCOPED_TRACE(fmt::format("{} stages, {} micro-batches", stages, micro_batches));
      std::vector<Schedule> schedules;
      for (std::int32_t s = 0; s < stages; ++s) schedules.push_back(one_f_one_b(s, stages, micro_batches));
      expect_closed_form(step_time(schedules), stages, micro_batches);
    }
  }
}

TEST(Bubble, OfGPipeIsTheClosedForm) {
  for (const std::int32_t stages : {1, 2, 3, 4, 8}) {
    for (const std::int32_t micro_batches : {1, 2, 3, 4, 7, 16}) {
      SCOPED_TRACE(fmt::format("{} stages, {} micro-batches", stages, micro_batches));
      const std::vector<Schedule> schedules(static_cast<std::size_t>(stages), gpipe(micro_batches));
      expect_closed_form(step_time(schedules), stages, micro_batches);
    }
  }
}

}  // namespace
}  // namespace tidemark::tests::bubble_test
