#include "sim/program/operation.hpp"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "tests/namespace.hpp"

namespace tidemark::tests::operation_test {
namespace {

std::string_view name_of(OperandSizes sizes) {
  switch (sizes) {
    case OperandSizes::Free:
      return "";
    case OperandSizes::Elementwise:
      return "elementwise";
    case OperandSizes::Pairs:
      return "pairs";
    case OperandSizes::Reduction:
      return "reduction";
    case OperandSizes::Rows:
      return "rows";
    case OperandSizes::Halves:
      return "halves";
    case OperandSizes::Matmul:
      return "matmul";
    case OperandSizes::Attention:
      return "attention";
  }
  return "?";
}

std::string listed(const std::vector<OperandFacts>& operands) {
  std::string all;
  for (const OperandFacts& o : operands)
    all += fmt::format("{}{}{}{}", all.empty() ? "" : ", ", o.name, o.many ? " …" : "", o.optional ? "?" : "");
  return all;
}

std::string table() {
  std::string all = "| operation | attributes | reads | writes | sizes |\n|---|---|---|---|---|\n";
  for (const OperationFacts& facts : all_operations())
    all += fmt::format("| `{}`{} | {} | {} | {} | {} |\n", facts.name, facts.grouped ? " …" : "",
                       fmt::join(facts.attributes, ", "), listed(facts.inputs), listed(facts.outputs),
                       name_of(facts.sizes));
  return all;
}

TEST(Operations, ThePageListsThem) {
  std::ifstream file(std::filesystem::path(TIDEMARK_SOURCE_DIR) / "docs/operations.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_NE(page.str().find(table()), std::string::npos) << "docs/operations.md should list\n" << table();
}

TEST(Operations, NamesAreTheirOwn) {
  std::set<std::string_view> names;
  for (const OperationFacts& facts : all_operations()) {
    EXPECT_TRUE(names.insert(facts.name).second) << facts.name;
    EXPECT_LE(facts.attributes.size(), std::tuple_size_v<Attributes>) << facts.name;
    EXPECT_FALSE(facts.outputs.empty()) << facts.name;
  }
}

}  // namespace
}  // namespace tidemark::tests::operation_test
