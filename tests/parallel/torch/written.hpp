#pragma once

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "parallel/torch/session.hpp"
#include "sim/program/liveness.hpp"
#include "sim/program/text/program_text.hpp"
#include "sim/program/verify.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {

/// What a session writes in a group of two, frees included.
inline Program written(const std::function<void(parallel::torch::Session&)>& run) {
  const std::vector<Communicator> pair{{"pair", {{.size = 2, .stride = 1}}}};
  parallel::torch::Process process(pair, Bytes{4096});
  {
    parallel::torch::Session session(process, {});
    run(session);
    session.finish();
  }
  const Program program = with_frees(std::move(process).finish());
  EXPECT_EQ(verify(program), std::vector<std::string>{});
  return program;
}

}  // namespace tidemark::tests
