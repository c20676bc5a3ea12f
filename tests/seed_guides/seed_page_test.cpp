#include "tests/seed_guides/seed_page.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

// What docs/seed-guides.md says is what is simulated now. With TIDEMARK_WRITE_DOCS set, it is written.

namespace tidemark::tests::seeds::seed_page_test {
namespace {

const std::filesystem::path file = std::filesystem::path(TIDEMARK_SOURCE_DIR) / "docs/seed-guides.md";

std::string first_difference(const std::string& now, const std::string& was) {
  for (std::size_t at = 0; at < now.size();) {
    const std::size_t end = now.find('\n', at) + 1;
    if (was.compare(at, end - at, now, at, end - at) != 0) return now.substr(at, end - at);
    at = end;
  }
  return "lines at the end";
}

TEST(SeedGuides, PageSaysWhatIsSimulatedNow) {
  const std::string now = seed_page();
  if (std::getenv("TIDEMARK_WRITE_DOCS") != nullptr) std::ofstream(file, std::ios::binary) << now;
  std::ifstream written(file, std::ios::binary);
  const std::string was{std::istreambuf_iterator<char>(written), {}};
  EXPECT_TRUE(now == was) << first_difference(now, was)
                          << "scripts/seed_guides writes docs/seed-guides.md anew; look at what has moved before you "
                             "commit it";
}

}  // namespace
}  // namespace tidemark::tests::seeds::seed_page_test
