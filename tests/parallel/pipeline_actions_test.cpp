// What a rank of PyTorch's interleaved pipelines does, in the order of PyTorch's own lists.

#include "parallel/frameworks/pytorch/pipeline_actions.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "parallel/job.hpp"

namespace tidemark::tests {
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

// As PyTorch writes it: the stage, the action and the micro-batch.
std::string text(const PipelineAction& action, std::int32_t rank, std::int32_t ranks) {
  return fmt::format("{}{}{}", rank + action.chunk * ranks, name_of(action.kind),
                     action.micro_batch < 0 ? "" : fmt::format("{}", action.micro_batch));
}

TEST(PipelineActions, AreThoseOfPyTorchsLists) {
  std::ifstream file(std::string(TIDEMARK_SOURCE_DIR) + "/tests/golden/pipeline_actions.txt");
  int lists = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    Layout layout;
    layout.schedule = ScheduleKind::Interleaved;
    std::int32_t micro_batches = 0, rank = 0;
    char colon = 0;
    words >> layout.pipeline >> layout.chunks >> micro_batches >> rank >> colon;
    layout.chunk_group = micro_batches / std::max(1, micro_batches / layout.pipeline);
    std::vector<std::string> recorded, made;
    for (std::string word; words >> word;) recorded.push_back(word);
    const auto all =
        pytorch::pipeline_actions(schedules_of(layout, micro_batches), layout.placement(), PipelineHabits{});
    for (const PipelineAction& action : all[static_cast<std::size_t>(rank)])
      made.push_back(text(action, rank, layout.pipeline));
    EXPECT_EQ(made, recorded) << line.substr(0, line.find(':'));
    ++lists;
  }
  EXPECT_GE(lists, 24);
}

}  // namespace
}  // namespace tidemark::tests
