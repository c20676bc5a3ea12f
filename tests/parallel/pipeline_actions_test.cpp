// What a rank of several stages does in PyTorch's pipelines, in the order of PyTorch's own lists.

#include "parallel/frameworks/pytorch/pipeline/pipeline_actions.hpp"

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/job/job.hpp"

namespace tidemark::tests::pipeline_actions_test {
namespace {

using namespace parallel;
using pytorch::PipelineAction;
using pytorch::PipelineActionKind;

std::string_view name_of(PipelineActionKind kind) {
  switch (kind) {
    case PipelineActionKind::Forward:
      return "F";
    case PipelineActionKind::Backward:
      return "B";
    case PipelineActionKind::BackwardInput:
      return "I";
    case PipelineActionKind::BackwardWeight:
      return "W";
    case PipelineActionKind::Unshard:
      return "UNSHARD";
    case PipelineActionKind::Reshard:
      return "RESHARD";
    case PipelineActionKind::ReduceGrad:
      return "REDUCE_GRAD";
    case PipelineActionKind::WaitReduceGrad:
      return "WAIT_REDUCE_GRAD";
    case PipelineActionKind::SendForward:
      return "SEND_F";
    case PipelineActionKind::SendBackward:
      return "SEND_B";
    case PipelineActionKind::ReceiveForward:
      return "RECV_F";
    case PipelineActionKind::ReceiveBackward:
      return "RECV_B";
    case PipelineActionKind::WaitSendForward:
      return "WAIT_SEND_F";
    case PipelineActionKind::WaitSendBackward:
      return "WAIT_SEND_B";
  }
  return {};
}

// As PyTorch writes them: the stage, the action and the micro-batch; joined ones in brackets.
std::vector<std::string> texts(const pytorch::PipelineActions& actions, std::int32_t rank,
                               const StagePlacement& placement) {
  std::vector<std::string> all;
  std::string joined;
  for (const PipelineAction& action : actions) {
    const std::string its = fmt::format("{}{}{}", placement.stage_of({rank, action.chunk}), name_of(action.kind),
                                        action.micro_batch < 0 ? "" : fmt::format("{}", action.micro_batch));
    if (action.joined)
      joined = its;
    else
      all.push_back(joined.empty() ? its : fmt::format("({};{})OVERLAP_F_B", std::exchange(joined, {}), its));
  }
  return all;
}

const std::map<std::string, ScheduleKind> schedules{{"Interleaved1F1B", ScheduleKind::Interleaved},
                                                    {"LoopedBFS", ScheduleKind::LoopedBreadthFirst},
                                                    {"InterleavedZeroBubble", ScheduleKind::InterleavedZeroBubble},
                                                    {"ZBVZeroBubble", ScheduleKind::ZeroBubbleV},
                                                    {"DualPipeV", ScheduleKind::DualPipeV}};

TEST(PipelineActions, AreThoseOfPyTorchsLists) {
  std::ifstream file(std::string(TIDEMARK_SOURCE_DIR) + "/tests/golden/pipeline_actions.txt");
  int lists = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    Layout layout;
    std::string schedule;
    std::int32_t micro_batches = 0, rank = 0;
    char colon = 0;
    words >> schedule >> layout.pipeline >> layout.chunks >> micro_batches >> rank >> colon;
    layout.schedule = schedules.at(schedule);
    layout.chunk_group = micro_batches / std::max(1, micro_batches / layout.pipeline);
    std::vector<std::string> recorded;
    for (std::string word; words >> word;) recorded.push_back(word);
    const auto all =
        pytorch::pipeline_actions(schedules_of(layout, micro_batches), layout.placement(), PipelineBehavior{});
    EXPECT_EQ(texts(all[static_cast<std::size_t>(rank)], rank, layout.placement()), recorded)
        << line.substr(0, line.find(':'));
    ++lists;
  }
  EXPECT_GE(lists, 100);
}

}  // namespace
}  // namespace tidemark::tests::pipeline_actions_test
