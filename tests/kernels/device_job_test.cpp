#include "kernels/execute/device_job.hpp"

#include <gtest/gtest.h>

#include "sim/program_text.hpp"
#include "sim/workload_text.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {
namespace {

TEST(DeviceJob, RoundTrips) {
  DeviceJob job;
  job.name = "a job of two words";
  job.workload = parse_workload("communicator tensor 2/1/1 pairs\nranks 0 0\nprogram\nmark forward 1 0 a\n");
  const auto price = [](std::int64_t n) { return Estimate{Bytes{n}, Bytes{n - 1}, Bytes{n + 1}, {}}; };
  job.prices.entries = {{price(10), price(20), price(30), {price(40)}, price(50)},
                        {price(11), price(21), price(31), {price(41)}, price(51)}};
  job.prices.entry_of_rank = {0, 1};
  const DeviceJob read = parse_device_job(text(job));
  EXPECT_EQ(read.name, job.name);
  EXPECT_EQ(read.prices.entries, job.prices.entries);
  EXPECT_EQ(read.prices.entry_of_rank, job.prices.entry_of_rank);
  EXPECT_EQ(text(read), text(job));
}

TEST(DeviceJob, MistakesAreRefused) {
  const std::string workload = "communicator tensor 2/1/1 pairs\nranks 0 0\nprogram\nmark forward 1 0 a\n";
  EXPECT_THROW(static_cast<void>(parse_device_job("")), ProgramTextError);
  EXPECT_THROW(static_cast<void>(parse_device_job("job a\npriced 0\n" + workload)), ProgramTextError);
  EXPECT_THROW(static_cast<void>(parse_device_job("job a\nprice 0 context 1 2\npriced 0 0\n" + workload)),
               ProgramTextError);
  EXPECT_THROW(static_cast<void>(parse_device_job("job a\nprice 0 fuel 1 2 3\npriced 0 0\n" + workload)),
               ProgramTextError);
}

}  // namespace
}  // namespace tidemark::tests
