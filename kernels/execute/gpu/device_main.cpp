#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>
#include <nlohmann/json.hpp>

#include "kernels/execute/agreement.hpp"
#include "kernels/execute/detail/cuda_backend.hpp"
#include "kernels/execute/executor.hpp"
#include "kernels/execute/gpu/device_job.hpp"
#include "kernels/execute/gpu/device_place.hpp"
#include "kernels/execute/gpu/device_ranks.hpp"
#include "kernels/execute/mutation/mutation.hpp"
#include "kernels/execute/process_memory.hpp"
#include "kernels/execute/world/mpi_world.hpp"
#include "sim/program/liveness.hpp"
#include "sim/program/text/program_text.hpp"
#include "sim/program/verify.hpp"

// tidemark_gpu JOB [--results FILE] [--time-limit SECONDS] [--discard-job]: runs a job's programs on the GPUs of this
// machine, and compares. Under mpirun its ranks are mpirun's; otherwise it forks them. Exit codes are tidemark's.

namespace tidemark::execute {
namespace {

using Json = nlohmann::ordered_json;

constexpr int yes = 0, no = 1, bad_input = 2, machine_failed = 3;
constexpr Bytes mib{1 << 20};

struct Arguments {
  std::string job, results;
  bool discard_job = false;  ///< it was made for this run
  std::int64_t time_limit = 120;
};

// The device as the driver sees it, less what was there before the program began. Where several ranks share a device,
// only their sum is measured, and only where all of them stand still; in between a rank counts for itself.
class DeviceProbe {
 public:
  DeviceProbe(World& world, CudaBackend& backend, bool shared)
      : world_(world), backend_(backend), shared_(shared), before_(device_bytes_used()) {}

  [[nodiscard]] Bytes now() { return shared_ ? backend_.reserved() : device_bytes_used() - before_; }
  [[nodiscard]] Bytes peak() {
    const Bytes highest = backend_.segments().take_highest();
    return shared_ ? backend_.reserved() : std::max(highest - before_, now());
  }
  void step_ended() {
    world_.barrier();
    sums_.push_back(device_bytes_used() - before_);
    held_.push_back(backend_.reserved());
    world_.barrier();
  }
  [[nodiscard]] const std::vector<Bytes>& sums() const { return sums_; }
  [[nodiscard]] const std::vector<Bytes>& held() const { return held_; }

 private:
  World& world_;
  CudaBackend& backend_;
  bool shared_;
  Bytes before_;
  std::vector<Bytes> sums_, held_;  // by step
};

// `tidemark` has tried the place before; a disk may still fill up.
void write_results(const std::string& path, const Json& results) {
  std::ofstream file(path, std::ios::binary);
  file << results.dump(2) << '\n';
  file.close();
  if (!file) throw std::runtime_error(path + ": cannot be written");
}

Json versions() {
  int driver = 0, runtime = 0, nccl = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  ncclGetVersion(&nccl);
  return {{"cuda_driver", driver}, {"cuda_runtime", runtime}, {"nccl", nccl}, {"mpi", mpi_version()}};
}

Json device_json() {
  int device = 0;
  cudaDeviceProp properties{};
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return {{"name", properties.name},
          {"compute_capability", fmt::format("{}.{}", properties.major, properties.minor)},
          {"total_bytes", properties.totalGlobalMem}};
}

Json points_json(const std::vector<MemoryPoint>& predicted, const std::vector<MemoryPoint>& measured) {
  Json out = Json::array();
  for (std::size_t i = 0; i < std::min(predicted.size(), measured.size()); ++i)
    out.push_back({{"step", predicted[i].step},
                   {"phase", name(predicted[i].phase)},
                   {"op", predicted[i].op},
                   {"predicted_reserved_bytes", predicted[i].resident.count()},
                   {"measured_bytes", measured[i].resident.count()},
                   {"predicted_allocated_bytes", predicted[i].allocated.count()},
                   {"counted_allocated_bytes", measured[i].allocated.count()}});
  return out;
}

// What one rank came to, as it goes to rank 0.
Json rank_record(const RankAgreement& rank, const DeviceProbe& probe, const CudaBackend& backend,
                 const DriverCosts& costs, bool shared) {
  Json rows = Json::array();
  for (const DeviceRowMeasured& row : backend.rows())
    rows.push_back({{"name", row.name}, {"measured_bytes", row.bytes.count()}, {"ranks", row.ranks}});
  const auto estimate = [](const Estimate& e) {
    return Json{{"low", e.low.count()}, {"bytes", e.bytes.count()}, {"high", e.high.count()}};
  };
  Json communicators = Json::array();
  for (const Estimate& e : costs.communicators) communicators.push_back(estimate(e));
  Json sums = Json::array(), held = Json::array(), steps = Json::array();
  for (const Bytes b : probe.sums()) sums.push_back(b.count());
  for (const Bytes b : probe.held()) held.push_back(b.count());
  for (const Duration d : rank.measured_steps) steps.push_back(static_cast<double>(d.count()) / 1e12);
  return {{"rank", rank.rank.value},
          {"agrees", rank.agrees()},
          {"per_rank_bytes_are", shared ? "the rank's own count: the device is shared" : "measured (cudaMemGetInfo)"},
          {"wrong_payloads", rank.findings.count},
          {"first_wrong_payloads", rank.findings.first},
          {"predicted_reserved_bytes", rank.predicted.reserved.count()},
          {"counted_reserved_bytes", rank.measured.reserved.count()},
          {"phases", points_json(rank.predicted.phases, rank.measured.phases)},
          {"samples", points_json(rank.predicted.samples, rank.measured.samples)},
          {"step_s", std::move(steps)},
          {"device_bytes_at_step_ends", std::move(sums)},
          {"reserved_at_step_ends", std::move(held)},
          {"measured_rows", std::move(rows)},
          {"predicted_rows",
           {{"context", estimate(costs.context)},
            {"modules", estimate(costs.modules)},
            {"nccl_kernels", estimate(costs.nccl_kernels)},
            {"communicators", std::move(communicators)}}},
          {"device", device_json()}};
}

// What all ranks of one device hold together where they stand still, against what the driver sees.
Json device_sums(const Json& ranks, bool& agrees) {
  Json out = Json::array();
  const std::size_t steps = ranks[0]["device_bytes_at_step_ends"].size();
  for (std::size_t s = 0; s < steps; ++s) {
    std::int64_t held = 0;
    for (const Json& rank : ranks) held += rank["reserved_at_step_ends"][s].get<std::int64_t>();
    const auto measured = ranks[0]["device_bytes_at_step_ends"][s].get<std::int64_t>();
    const double tolerance =
        resident_tolerance * static_cast<double>(std::max(held, least_reference_benchmark.count()));
    const bool alike = std::abs(static_cast<double>(measured - held)) <= tolerance;
    agrees = agrees && alike;
    out.push_back({{"step", s}, {"predicted_bytes", held}, {"measured_bytes", measured}, {"agrees", alike}});
  }
  return out;
}

void print(const Json& results) {
  fmt::print("{}: {} ranks on {} GPU{}{}\n\n", results["agrees"].get<bool>() ? "yes" : "NO", results["ranks"].size(),
             results["devices"].get<int>(), results["devices"].get<int>() == 1 ? "" : "s",
             results["shared"].get<bool>() ? ", which they share: their sum is compared where all stand still" : "");
  for (const Json& rank : results["ranks"]) {
    fmt::print("rank {:<3} reserved: predicted {} MiB, held {} MiB; {} wrong payloads; {}\n", rank["rank"].get<int>(),
               rank["predicted_reserved_bytes"].get<std::int64_t>() / mib.count(),
               rank["counted_reserved_bytes"].get<std::int64_t>() / mib.count(),
               rank["wrong_payloads"].get<std::int64_t>(), rank["agrees"].get<bool>() ? "agrees" : "DIFFERS");
    for (const Json& finding : rank["first_wrong_payloads"]) fmt::print("  {}\n", finding.get<std::string>());
  }
  for (const Json& sum : results["device_sums"])
    fmt::print("end of step {}: predicted {:.1f} MiB, measured {:.1f} MiB\n", sum["step"].get<int>(),
               sum["predicted_bytes"].get<double>() / static_cast<double>(mib.count()),
               sum["measured_bytes"].get<double>() / static_cast<double>(mib.count()));
  fmt::print("\nbehind the allocator (rank 0):\n");
  for (const Json& row : results["ranks"][0]["measured_rows"])
    fmt::print("  {:<40} {:9.1f} MiB{}\n", row["name"].get<std::string>(),
               row["measured_bytes"].get<double>() / static_cast<double>(mib.count()),
               row["ranks"].get<int>() > 1 ? fmt::format(" (of {} ranks)", row["ranks"].get<int>()) : "");
}

int run_rank(World& world, const DeviceJob& job, const Arguments& arguments) {
  const Rank me = world.rank();
  const Place place = take_place(world);

  Workload written = job.workload;
  const Program predicted = written.program(me);
  for (Program& program : written.programs) program = without_frees(std::move(program));
  const Program& executed = written.program(me);
  const Expectation expectation(written, device_scale);
  const std::vector<std::size_t> moments = sample_moments(predicted, device_scale, Holding::Segments);
  const std::vector<Group> groups = groups_of(written, me);

  RankAgreement rank;
  rank.rank = me;
  rank.predicted = predicted_points(predicted, device_scale, moments, Holding::Segments);
  CudaBackend backend(world, place.device, place.shared(), executed, groups,
                      {.reading =
                           [&](std::size_t op, BufferId buffer) {
                             return fmt::format("{} read by {}", describe(executed, buffer), describe(executed, op));
                           },
                       .author = [&](std::uint64_t word) { return expectation.author(word); }},
                      std::chrono::seconds(arguments.time_limit));
  world.barrier();
  DeviceProbe probe(world, backend, place.shared());
  world.barrier();
  Executor executor(executed, groups, expectation, me, backend, probe);
  RunRecord run = executor.run(moments);
  rank.measured = std::move(run.memory);
  rank.measured_steps = std::move(run.steps);
  rank.findings = std::move(run.findings);

  const DriverCosts& costs = job.costs.of(me);
  const std::vector<std::string> records =
      world.gather(rank_record(rank, probe, backend, costs, place.shared()).dump());
  std::string verdict;
  if (me.value == 0) {
    Json ranks = Json::array();
    bool agrees = true;
    for (const std::string& record : records) {
      ranks.push_back(Json::parse(record));
      agrees = agrees && ranks.back()["agrees"].get<bool>();
    }
    Json sums = place.shared() && place.devices == 1 ? device_sums(ranks, agrees) : Json::array();
    const Json results{{"schema", "tidemark.device_validation/1"},
                       {"job", job.name},
                       {"agrees", agrees},
                       {"machine", machine_description()},
                       {"versions", versions()},
                       {"devices", std::min(place.devices, place.ranks_on_machine)},
                       {"shared", place.shared()},
                       {"device_sums", std::move(sums)},
                       {"ranks", std::move(ranks)}};
    print(results);
    if (!arguments.results.empty()) write_results(arguments.results, results);
    verdict = agrees ? "yes" : "no";
  }
  return world.broadcast(verdict) == "yes" ? yes : no;
}

std::optional<Arguments> arguments_of(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--results" && i + 1 < argc) {
      arguments.results = argv[++i];
    } else if (word == "--discard-job") {
      arguments.discard_job = true;
    } else if (word == "--time-limit" && i + 1 < argc) {
      const std::string_view number = argv[++i];
      const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), arguments.time_limit);
      if (error != std::errc{} || arguments.time_limit < 1) return std::nullopt;
    } else if (arguments.job.empty() && !word.starts_with('-')) {
      arguments.job = word;
    } else {
      return std::nullopt;
    }
  }
  if (arguments.job.empty()) return std::nullopt;
  return arguments;
}

int run(int argc, char** argv) {
  const std::optional<Arguments> arguments = arguments_of(argc, argv);
  if (!arguments) {
    fmt::print(stderr, "usage: tidemark_gpu JOB [--results FILE] [--time-limit SECONDS]\n");
    return bad_input;
  }
  std::ifstream file(arguments->job);
  if (!file) {
    fmt::print(stderr, "{}: error: cannot be read\n", arguments->job);
    return bad_input;
  }
  std::ostringstream text;
  text << file.rdbuf();
  if (arguments->discard_job) std::remove(arguments->job.c_str());
  const DeviceJob job = parse_device_job(text.str());
  const std::vector<std::string> wrong = verify(job.workload);
  for (const std::string& finding : wrong) fmt::print(stderr, "{}: error: {}\n", arguments->job, finding);
  if (!wrong.empty()) return bad_input;
  return run_device_ranks("tidemark_gpu", job.workload.world_size(), std::chrono::seconds(arguments->time_limit),
                          [&](World& world) { return run_rank(world, job, *arguments); });
}

}  // namespace
}  // namespace tidemark::execute

int main(int argc, char** argv) {
  try {
    return tidemark::execute::run(argc, argv);
  } catch (const tidemark::sim::ProgramTextError& error) {
    fmt::print(stderr, "{}: error: {}\n", argv[1], error.what());
    return tidemark::execute::bad_input;
  } catch (const std::exception& error) {
    fmt::print(stderr, "tidemark_gpu: {}\n", error.what());
    return tidemark::execute::machine_failed;
  }
}
