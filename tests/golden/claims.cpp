#include "tests/golden/claims.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "tests/golden/root.hpp"

#define TOML_EXCEPTIONS 1
#include <fmt/format.h>
#include <toml++/toml.h>

namespace tidemark::tests::golden {
namespace {

constexpr double digits = 10'000;  // claims are kept to 0.0001 %

double away_from_zero(double of_percent) {
  return std::copysign(std::ceil(std::abs(of_percent) * digits) / digits, of_percent);
}

// What a family's rows are, for those who do not know its name.
constexpr auto reported_families = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"simumax_b200", "Megatron-LM, Llama-3 and DeepSeek slices on 8 B200 (SimuMax)"},
    {"kernels_b200", "kernels and collectives on a B200 that nothing was fitted on (SimuMax, Liger-Kernel)"},
    {"kernels_a100_pcie", "kernels on an A100 PCIe that nothing was fitted on (SimuMax)"},
    {"kernels_a100_sxm", "kernels on an A100 SXM that nothing was fitted on (Vidur, Liger-Kernel)"},
    {"kernels_h100_compute", "kernels on an H100 that nothing was fitted on (Vidur, FlashAttention-3, Liger-Kernel)"},
    {"kernels_h100_500w", "products on an H100 limited to 500 W that nothing was fitted on (FBGEMM)"},
    {"kernels_h200", "cuDNN's attention on an H200 that nothing was fitted on (cudnn-frontend)"},
    {"kernels_gb200", "cuDNN's attention on a GB200 that nothing was fitted on (cudnn-frontend)"},
    {"kernels_h100", "collectives on eight H100 that nothing was fitted on (nccl-tests)"},
    {"kernels_b200_nccl_tests", "collectives on eight and sixteen B200 that nothing was fitted on (nccl-tests)"},
    {"kernels_b200_roce_nccl_tests", "all-reduces on sixteen B200 over RoCE (nccl-tests)"},
    {"kernels_a100_nccl_tests", "collectives on eight and sixteen A100 that nothing was fitted on (nccl-tests)"},
    {"megatron_ci", "Megatron-LM's CI: small GPT-3, last rank, A100, H100, GB200"},
    {"torchtitan_h100", "torchtitan, Llama 3.1 8B and Qwen3 32B on eight H100 of 96 GB, tokens per second"},
    {"fms_a100", "fine-tuning by Hugging Face's Trainer on one to four A100, tokens per second (fms-acceleration)"},
    {"korthikanti_a100", "Megatron-LM, 22B and 175B on A100 (Korthikanti et al.)"},
    {"megatron_bridge_offload", "Megatron-Bridge, Qwen3-30B-A3B on 16 H100, optimizer on the host, static memory"},
    {"fms_full", "fine-tuning on one to four A100 (fms-acceleration)"},
    {"fms_lora", "LoRA on one and two A100 (fms-acceleration)"},
    {"fms_qlora", "QLoRA on one and two A100 (fms-acceleration)"},
    {"fake_tensor", "chosen trainings: PyTorch's modules on tensors without data"},
    {"plain_runs", "chosen trainings, under PyTorch's own allocator"},
    {"sharded", "chosen trainings under fully_shard, under PyTorch's own allocator"},
    {"flat", "chosen trainings under FullyShardedDataParallel, under PyTorch's own allocator"},
    {"titan", "chosen trainings by torchtitan's trainer, under PyTorch's own allocator"},
    {"compiled", "chosen compiled trainings by torchtitan's trainer, under PyTorch's own allocator"},
    {"lightning_thunder", "LitGPT's models compiled, on one and eight H100 (lightning-thunder)"},
    {"fine_tuning_tables", "torchtitan, Llama 3 8B on eight H100 (torchao's tables)"},
    {"fsdp_qlora", "LoRA and QLoRA under FullyShardedDataParallel on two RTX 3090 (fsdp_qlora)"},
    {"torchtitan", "torchtitan, Llama 3.1 8B and Qwen3 32B on eight H100 (its commits and benchmarks)"},
    {"megatron_core", "trainings by Megatron-LM's own loop under PyTorch's own allocator"},
    {"zero", "chosen trainings under DeepSpeed's ZeRO, under PyTorch's own allocator"},
    {"wrapped", "trainings that seeds chose under ten wrappers, under PyTorch's own allocator"},
    {"drawn", "trainings that seeds chose, under PyTorch's own allocator"},
    {"adapted", "chosen models that PEFT adapts, under PyTorch's own allocator"},
    {"megatron_pr482", "Megatron-LM PR 482, Llama-2 7B, kind of memory unsaid"},
    {"nanotron_ultrascale", "nanotron on H100, kind of memory unsaid"},
});

// What README shows: memory and time, the best and the worst of those that are runs.
constexpr auto readme_lines = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"simumax_b200", "allocated peak of a stage"},
    {"fms_full", "peak, all"},
    {"megatron_ci", "peak, all"},
    {"torchtitan", "reserved peak"},
    {"simumax_b200", "step time"},
    {"fms_a100", "step time"},
});

std::string_view reported(std::string_view family) {
  for (const auto& [name, text] : reported_families)
    if (name == family) return text;
  throw std::runtime_error(fmt::format("family {} needs a line in tests/golden/claims.cpp", family));
}

// Rows of these have a line of their own in docs/accuracy.toml, and count in another line of the table.
constexpr auto parts_of_others =
    std::to_array<std::string_view>({", fully specified", ", summed out of place", ", without experts"});

bool is_part_of_another(const Claim& claim) {
  return std::any_of(parts_of_others.begin(), parts_of_others.end(),
                     [&](std::string_view part) { return claim.figure.ends_with(part); });
}

// Three digits, as many as docs/accuracy.md shows of most.
std::string shown(double of_percent) {
  if (of_percent == 0) return "0 %";
  if (std::abs(of_percent) <= 1 / digits) return "below 0.0001 %";
  return fmt::format("{:.3g} %", of_percent);
}

constexpr std::string_view table_head = "| measured | figure | rows | median | worst |\n|---|---|---|---|---|\n";

std::string claim_row(const Claim& c) {
  return fmt::format("| {} | {} | {} | {} | {} |\n", reported(c.family), c.figure, c.rows, shown(c.median),
                     shown(c.worst));
}

}  // namespace

double percent(double share) { return 100 * share; }

Claim claim_of(std::string family, std::string figure, const std::vector<Error>& errors) {
  Claim claim;
  claim.family = std::move(family);
  claim.figure = std::move(figure);
  if (errors.empty()) return claim;
  std::vector<double> sizes;
  for (const Error& error : errors) sizes.push_back(std::abs(error.share));
  claim.rows = static_cast<std::int64_t>(errors.size());
  claim.equal = std::count(sizes.begin(), sizes.end(), 0.0);
  const Error& worst = errors[static_cast<std::size_t>(std::max_element(sizes.begin(), sizes.end()) - sizes.begin())];
  claim.worst = away_from_zero(percent(worst.share));
  claim.worst_row = worst.row;
  std::sort(sizes.begin(), sizes.end());
  const std::size_t half = sizes.size() / 2;
  const double median = sizes.size() % 2 == 1 ? sizes[half] : (sizes[half - 1] + sizes[half]) / 2;
  claim.median = away_from_zero(percent(median));
  return claim;
}

std::string claims_text(const std::vector<Claim>& claims) {
  std::string out =
      "# What README.md and docs/accuracy.md claim: by family and figure, how far\n"
      "# predictions are off in percent of what was measured, rounded away from 0; negative: predicted too low.\n"
      "# Written by scripts/accuracy, of what is predicted now.\n";
  for (const Claim& c : claims)
    out += fmt::format("\n[{}.\"{}\"]\nrows = {}\nequal = {}\nmedian = {:.4f}\nworst = {:.4f}\nworst_row = \"{}\"\n",
                       c.family, c.figure, c.rows, c.equal, c.median, c.worst, c.worst_row);
  return out;
}

std::vector<Claim> read_claims(const std::filesystem::path& path) {
  std::vector<Claim> claims;
  const toml::table file = toml::parse_file(path.string());
  for (const auto& [family, figures] : file)
    for (const auto& [figure, node] : *figures.as_table()) {
      const toml::table& table = *node.as_table();
      claims.push_back({.family = std::string(family.str()),
                        .figure = std::string(figure.str()),
                        .rows = table["rows"].value<std::int64_t>().value(),
                        .equal = table["equal"].value<std::int64_t>().value(),
                        .median = table["median"].value<double>().value(),
                        .worst = table["worst"].value<double>().value(),
                        .worst_row = table["worst_row"].value<std::string>().value()});
    }
  return claims;
}

const Claim& claimed(std::string_view family, std::string_view figure) {
  static const std::vector<Claim> claims = read_claims(root / "docs/accuracy.toml");
  for (const Claim& claim : claims)
    if (claim.family == family && claim.figure == figure) return claim;
  throw std::runtime_error(fmt::format("docs/accuracy.toml claims nothing of {}, {}", family, figure));
}

std::string claims_table(std::vector<Claim> claims) {
  claims.erase(std::remove_if(claims.begin(), claims.end(), is_part_of_another), claims.end());
  const auto rank = [](const Claim& c) { return std::tuple(std::abs(c.worst), c.median, c.family, c.figure); };
  std::sort(claims.begin(), claims.end(), [&](const Claim& a, const Claim& b) { return rank(a) < rank(b); });
  std::string out(table_head);
  for (const Claim& c : claims) out += claim_row(c);
  return out;
}

std::string summary_table(const std::vector<Claim>& claims) {
  std::string out(table_head);
  for (const auto& [family, figure] : readme_lines) {
    const auto its = std::ranges::find_if(
        claims, [&, of = family, what = figure](const Claim& c) { return c.family == of && c.figure == what; });
    if (its == claims.end())
      throw std::runtime_error(fmt::format("README's table shows {}, {}, which nothing claims", family, figure));
    out += claim_row(*its);
  }
  return out;
}

std::string with_table(std::string page, const std::string& table) {
  const std::size_t from = page.find(table_begin), to = page.find(table_end);
  if (from == std::string::npos || to == std::string::npos || to < from)
    throw std::runtime_error("the page has no place for its table of accuracy");
  return page.replace(from + table_begin.size(), to - from - table_begin.size(), table);
}

}  // namespace tidemark::tests::golden
