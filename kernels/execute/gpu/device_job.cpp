#include "kernels/execute/gpu/device_job.hpp"

#include <sstream>

#include <fmt/format.h>

#include "sim/program/text/program_text.hpp"
#include "sim/program/text/workload_text.hpp"

namespace tidemark::execute {
namespace {

std::string line(std::size_t entry, const std::string& what, const Estimate& cost) {
  return fmt::format("price {} {} {} {} {}\n", entry, what, cost.low.count(), cost.bytes.count(), cost.high.count());
}

void read_cost(std::istream& in, int number, Costs& costs) {
  std::size_t entry = 0;
  std::string what;
  std::int64_t low = 0, bytes = 0, high = 0;
  in >> entry >> what >> low >> bytes >> high;
  std::string more;
  if (!in || in >> more || entry > costs.entries.size())
    throw ProgramTextError(number, "a price is: entry, what, low, bytes, high");
  if (entry == costs.entries.size()) costs.entries.emplace_back();
  DriverCosts& its = costs.entries[entry];
  const Estimate cost{Bytes{bytes}, Bytes{low}, Bytes{high}, {}};
  if (what == "context")
    its.context = cost;
  else if (what == "modules")
    its.modules = cost;
  else if (what == "nccl_kernels")
    its.nccl_kernels = cost;
  else if (what == "blas_handle")
    its.blas_handle = cost;
  else if (what == "communicator")
    its.communicators.push_back(cost);
  else
    throw ProgramTextError(number, fmt::format("'{}' has no price", what));
}

}  // namespace

std::string text(const DeviceJob& job) {
  std::string out = fmt::format("job {}\n", job.name);
  for (std::size_t e = 0; e < job.costs.entries.size(); ++e) {
    const DriverCosts& its = job.costs.entries[e];
    out += line(e, "context", its.context) + line(e, "modules", its.modules) +
           line(e, "nccl_kernels", its.nccl_kernels) + line(e, "blas_handle", its.blas_handle);
    for (const Estimate& cost : its.communicators) out += line(e, "communicator", cost);
  }
  out += fmt::format("priced {}\n", fmt::join(job.costs.entry_of_rank, " "));
  return out + text(job.workload);
}

DeviceJob parse_device_job(std::string_view text) {
  DeviceJob job;
  std::istringstream in{std::string(text)};
  std::string line;
  std::streamoff rest = 0;
  int before = 0, priced = 1;
  for (int number = 1; std::getline(in, line); ++number) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first == "job") {
      std::getline(words >> std::ws, job.name);
    } else if (first == "price") {
      read_cost(words, number, job.costs);
    } else if (first == "priced") {
      priced = number;
      for (std::int32_t entry = 0; words >> entry;) job.costs.entry_of_rank.push_back(entry);
      if (!words.eof()) throw ProgramTextError(number, "every rank's price list is a number");
    } else if (!first.empty() && !first.starts_with('#')) {
      break;
    }
    rest = in.tellg();
    before = number;
  }
  if (rest < 0 || static_cast<std::size_t>(rest) >= text.size())
    throw ProgramTextError(before + 1, "a job has a workload");
  try {
    job.workload = parse_workload(text.substr(static_cast<std::size_t>(rest)));
  } catch (const ProgramTextError& error) {
    const std::string what = error.what();  // "line 3: …", counted from where the workload begins
    throw ProgramTextError(before + error.line(), what.substr(what.find(": ") + 2));
  }
  if (job.costs.entry_of_rank.size() != job.workload.program_of_rank.size())
    throw ProgramTextError(priced, "every rank has a price list");
  for (const std::int32_t entry : job.costs.entry_of_rank)
    if (entry < 0 || static_cast<std::size_t>(entry) >= job.costs.entries.size())
      throw ProgramTextError(priced, fmt::format("there is no price list {}", entry));
  for (const DriverCosts& its : job.costs.entries)
    if (its.communicators.size() < job.workload.communicators.size())
      throw ProgramTextError(priced, "every communicator has a price in every list");
  return job;
}

}  // namespace tidemark::execute
