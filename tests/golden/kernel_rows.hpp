#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tests/namespace.hpp"
#include "topology/cluster.hpp"

// Kernels that others measured, and how long they take here: tests/golden/kernels/*.toml, whose heads say what the rows
// mean.

namespace tidemark::tests::golden {

struct KernelRow {
  std::string name;
  std::string what;  ///< "products", "groups", "attention", "collectives" or "collectives of several nodes"
  double measured_us = 0;
  double predicted_us = 0;
};

/// What was measured of one device, predicted as `cluster` has it. Of collectives that list: "collectives", or
/// "fitted", which are those that constants were fitted on.
[[nodiscard]] std::vector<KernelRow> kernel_rows(const std::filesystem::path& file, Cluster cluster,
                                                 std::string_view collectives = "collectives");
/// As the cluster file has it that the rows' file names.
[[nodiscard]] std::vector<KernelRow> kernel_rows(const std::filesystem::path& file);

/// All such files, by name.
[[nodiscard]] std::vector<std::filesystem::path> kernel_files();

}  // namespace tidemark::tests::golden
