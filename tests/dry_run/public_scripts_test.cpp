// docs/dry-run.md says of public scripts what public_scripts.json recorded of their dry runs.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/namespace.hpp"

namespace tidemark::tests::public_scripts_test {
namespace {

using nlohmann::json;

const std::filesystem::path root = TIDEMARK_SOURCE_DIR;

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

json recorded() { return json::parse(content(root / "tests/dry_run/public_scripts.json")); }

double gib(const json& bytes) { return bytes.get<double>() / (1 << 30); }

std::string row_of(const json& run) {
  std::string versions;
  for (const auto& [name, version] : run.at("packages").items())
    versions += fmt::format(", {} {}", name, version.get<std::string>());
  const std::string folder = run.at("folder").get<std::string>();
  return fmt::format("| {} ({}{}{}) | `{}` | {} | {:.2f} | {:.2f} | {} ({}) | {:.1f} |\n",
                     run.at("framework").get<std::string>(), run.at("source").get<std::string>(),
                     folder.empty() ? "" : ", " + folder, versions, run.at("command").get<std::string>(),
                     run.at("ranks").get<int>(), gib(run.at("allocated_bytes")), gib(run.at("reserved_bytes")),
                     run.at("wall_seconds").get<int>(), run.at("cpu_seconds").get<int>(),
                     gib(run.at("host_resident_bytes")));
}

TEST(PublicScripts, ThePageSaysWhatWasRun) {
  const std::string page = content(root / "docs/dry-run.md");
  for (const json& run : recorded().at("runs")) {
    EXPECT_NE(page.find(row_of(run)), std::string::npos) << row_of(run);
    EXPECT_GE(run.at("steps").get<int>(), 3) << run.at("framework");
  }
}

// Measured by others on a GPU; the figures lie beside the repository, and are no part of it.
TEST(PublicScripts, GpusHeldAsMuch) {
  const std::filesystem::path path = root / "../shared/data/measured.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "needs shared/data/measured.json beside the repository";
  const json measured = json::parse(content(path));
  const json& rows = measured.is_array() ? measured : measured.at("rows");
  for (const json& run : recorded().at("beside_gpus")) {
    bool found = false;
    for (const json& row : rows) {
      if (row.at("id") != run.at("row")) continue;
      found = true;
      const double gpu = row.at("measured").at(run.at("figure").get<std::string>()).get<double>();
      EXPECT_NEAR(gib(run.at("bytes")) / gpu, 1, 0.01) << run.at("row");
    }
    EXPECT_TRUE(found) << run.at("row");
  }
}

}  // namespace
}  // namespace tidemark::tests::public_scripts_test
