#include "kernels/execute/gpu/device_job.hpp"

#include <string>

#include <gtest/gtest.h>

#include "sim/program/text/program_text.hpp"
#include "sim/program/text/workload_text.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::device_job_test {
namespace {

TEST(DeviceJob, RoundTrips) {
  DeviceJob job;
  job.name = "a job of two words";
  job.workload = parse_workload("communicator tensor 2/1/1 pairs\nranks 0 0\nprogram\nmark forward 1 0 a\n");
  const auto cost = [](std::int64_t n) { return Estimate{Bytes{n}, Bytes{n - 1}, Bytes{n + 1}, {}}; };
  job.costs.entries = {{cost(10), cost(20), cost(30), {cost(40)}, cost(50)},
                       {cost(11), cost(21), cost(31), {cost(41)}, cost(51)}};
  job.costs.entry_of_rank = {0, 1};
  const DeviceJob read = parse_device_job(text(job));
  EXPECT_EQ(read.name, job.name);
  EXPECT_EQ(read.costs.entries, job.costs.entries);
  EXPECT_EQ(read.costs.entry_of_rank, job.costs.entry_of_rank);
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

// What a job is made of, with a price list of its own.
const std::string lists =
    "price 0 context 1 2 3\nprice 0 modules 1 2 3\nprice 0 nccl_kernels 1 2 3\nprice 0 blas_handle 1 2 3\n"
    "price 0 communicator 1 2 3\n";

std::string complaint(const std::string& text) {
  try {
    static_cast<void>(parse_device_job(text));
  } catch (const ProgramTextError& error) {
    return error.what();
  }
  return "";
}

TEST(DeviceJob, BlankLinesSayNothing) {
  const std::string job = "job a\n" + lists + "priced 0 0\ncommunicator tensor 2/1/1\nranks 0 0\nprogram\nfree b0\n";
  std::string spread = "\n";
  for (const char c : job) spread += c == '\n' ? std::string("\n\n \n") : std::string(1, c);
  EXPECT_EQ(text(parse_device_job(spread)), text(parse_device_job(job)));
  EXPECT_EQ(complaint(" "), "line 2: a job has a workload");
  EXPECT_EQ(complaint("\n\n"), "line 3: a job has a workload");
}

TEST(DeviceJob, MistakesNameTheirLine) {
  const std::string workload = "communicator tensor 2/1/1\nranks 0 0\nprogram\nfree b0\n";
  EXPECT_EQ(complaint("job a\n" + lists + "priced 0 1\n" + workload), "line 7: there is no price list 1");
  EXPECT_EQ(complaint("job a\n" + lists + "priced 0 -1\n" + workload), "line 7: there is no price list -1");
  EXPECT_EQ(complaint("job a\n" + lists + "priced 0 0x\n" + workload), "line 7: every rank's price list is a number");
  EXPECT_EQ(complaint("job a\nprice 0 context 1 2 3 4\n"), "line 2: a price is: entry, what, low, bytes, high");
  EXPECT_EQ(complaint("job a\nprice 0 context 1 2 3\npriced 0 0\n" + workload),
            "line 3: every communicator has a price in every list");
  EXPECT_EQ(complaint("job a\n" + lists + "\npriced 0 0\n" + workload + "\nfree 7\n"), "line 14: '7' is no buffer");
}

}  // namespace
}  // namespace tidemark::tests::device_job_test
