#include "tests/seed_guides/seed_page.hpp"

#include <fmt/format.h>

namespace tidemark::tests::seeds {
namespace {

constexpr const char* head = R"(# What the seed guides say

Written by `scripts/seed_guides`; a test fails when a number moves. Every formula, table, technique and worked example of the
two guides that Tidemark grew from, one row each: what the guide says, what is simulated, and whether they agree. GB are 1e9
bytes, as the guides'. Scenarios are in `scenarios/examples/seeds/`; a row names the keys that it changes where it matters.
Unless a row says otherwise, its 7B model is Llama 2 7B with 2,048 tokens and batch 8 under plain PyTorch in bf16 with
FlashAttention-2, on a device that holds it, or would.

`tidemark estimate SCENARIO` lays the rules beside the simulation of a scenario of your own ([estimate.md](estimate.md)).
)";

std::string text_of(const char* name, const std::vector<Section>& sections, Lab& lab, int& number) {
  std::string out = fmt::format("\n## {}\n", name);
  for (const Section& section : sections) {
    out += fmt::format("\n### {}\n\n| | the guide says | simulated | |\n|---|---|---|---|\n", section.title);
    for (const Row& row : section.rows)
      out += fmt::format("| {} | {} | {} | {} |\n", ++number, row.says, row.number(lab), row.verdict);
  }
  return out;
}

}  // namespace

std::string seed_page() {
  Lab lab;
  int number = 0;
  std::string out = head;
  out += text_of("GPU memory training guide", training_guide(), lab, number);
  out += text_of("A Practical Guide to LLM GPU Memory Estimation", estimation_guide(), lab, number);
  return out + fmt::format("\n{} rows.\n", number);
}

}  // namespace tidemark::tests::seeds
