#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/namespace.hpp"
#include "topology/cluster.hpp"

// Kernels that others measured, and how long they take here: tests/golden/kernels/*.toml, whose heads say what the rows
// mean.

namespace tidemark::tests::golden {

struct KernelRow {
  std::string name;
  std::string what;  ///< "products", "groups", "attention", "flash2", "memory" or "collectives"
  double measured_us = 0;
  double predicted_us = 0;
};

/// What was measured of one device, predicted as `cluster` has it.
[[nodiscard]] std::vector<KernelRow> kernel_rows(const std::filesystem::path& file, const Cluster& cluster);
/// As the cluster file has it that the rows' file names.
[[nodiscard]] std::vector<KernelRow> kernel_rows(const std::filesystem::path& file);

/// All such files, by name.
[[nodiscard]] std::vector<std::filesystem::path> kernel_files();

}  // namespace tidemark::tests::golden
