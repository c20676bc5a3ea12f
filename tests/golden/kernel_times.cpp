#include <exception>

#include <fmt/format.h>

#include "scenarios/cluster/cluster_reader.hpp"
#include "tests/golden/kernel_rows.hpp"

// kernel_times ROWS.toml CLUSTER.toml [fitted]: of every row what it is, and the microseconds predicted and measured;
// of collectives those held out, or those fitted on. For scripts/fit_kernels and scripts/fit_collectives.

int main(int argc, char** argv) {
  using namespace tidemark;
  if (argc != 3 && argc != 4) return 2;
  try {
    for (const tests::golden::KernelRow& row :
         tests::golden::kernel_rows(argv[1], scenarios::read_cluster(argv[2]), argc == 4 ? argv[3] : "collectives"))
      fmt::print("{}\t{}\t{:.4f}\t{:.4f}\n", row.what, row.name, row.predicted_us, row.measured_us);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
