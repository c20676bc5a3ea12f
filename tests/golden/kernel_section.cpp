#include "tests/golden/kernel_section.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "tests/golden/kernel_rows.hpp"

namespace tidemark::tests::golden {
namespace {

double off(const KernelRow& row) { return row.predicted_us / row.measured_us - 1; }

double quantile(const std::vector<double>& sorted, double share) {
  return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(share * static_cast<double>(sorted.size())))];
}

void add(Section& section, const std::string& device, std::string_view what, const std::vector<KernelRow>& rows) {
  std::vector<Error> of_rows;
  std::vector<double> sizes;
  for (const KernelRow& row : rows) {
    if (row.what != what) continue;
    of_rows.push_back({row.name, off(row)});
    sizes.push_back(std::abs(off(row)));
  }
  if (sizes.empty()) return;
  std::sort(sizes.begin(), sizes.end());
  const auto within = std::upper_bound(sizes.begin(), sizes.end(), 0.1) - sizes.begin();
  section.text += fmt::format("| {} | {} | {} | {:.1f} % | {:.1f} % | {:.0f} % |\n", device, what, sizes.size(),
                              100 * quantile(sizes, 0.5), 100 * quantile(sizes, 0.9),
                              100.0 * static_cast<double>(within) / static_cast<double>(sizes.size()));
  section.claims.push_back(claim_of("kernels_" + device, std::string(what), of_rows));
}

}  // namespace

Section kernel_section() {
  Section section{
      "## Time: kernels and collectives\n\nEach by itself, as others measured them (`tests/golden/kernels/`); none of "
      "these rows was fitted on (`scripts/fit_kernels` and `scripts/fit_collectives` fit on others of the same "
      "sources). No constant of a device is fitted on a step. Groups are products of experts, four at a time, as "
      "Transformer Engine runs them. flash2 is FlashAttention-2 on what can do better; memory, "
      "kernels "
      "that do little but read and write.\n\n"
      "| device | what | rows | median | nine of ten within | within 10 % |\n|---|---|---|---|---|---|\n",
      {}};
  for (const std::filesystem::path& file : kernel_files()) {
    const std::vector<KernelRow> rows = kernel_rows(file);
    for (const std::string_view what :
         {"products", "groups", "attention", "flash2", "memory", "collectives", "collectives of several nodes"})
      add(section, file.stem().string(), what, rows);
  }
  section.text += "\n";
  return section;
}

}  // namespace tidemark::tests::golden
