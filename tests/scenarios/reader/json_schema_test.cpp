// The schema that editors take says of scenario files what their reader does.
#include "scenarios/reader/json_schema.hpp"

#include <filesystem>
#include <string>
#include <variant>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "scenarios/formats/text_file.hpp"
#include "scenarios/formats/toml_value.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

namespace tidemark::tests::json_schema_test {
namespace {

using nlohmann::json;

const json& schema() {
  static const json made = json::parse(scenario_json_schema(source / "scenarios"));
  return made;
}

std::string type_of(const TomlValue& value) {
  if (std::holds_alternative<bool>(value.value)) return "boolean";
  if (std::holds_alternative<std::int64_t>(value.value)) return "integer";
  if (std::holds_alternative<double>(value.value)) return "number";
  if (std::holds_alternative<std::string>(value.value)) return "string";
  return std::holds_alternative<TomlTable>(value.value) ? "object" : "array";
}

// What of a document the schema does not take.
std::string wrong_in(const TomlTable& table, const json& of, const std::string& path) {
  for (const TomlKey& key : table.keys) {
    const std::string name = path + key.name;
    if (!of.contains("properties") || !of["properties"].contains(key.name)) {
      if (of.value("additionalProperties", true)) continue;
      return name + " is not a key";
    }
    const json& its = of["properties"][key.name];
    const std::string type = type_of(key.value), wanted = its.value("type", type);
    if (type != wanted && !(type == "integer" && wanted == "number")) return name + " is " + type + ", not " + wanted;
    if (its.contains("enum") && type == "string") {
      bool found = false;
      for (const json& word : its["enum"]) found |= word == std::get<std::string>(key.value.value);
      if (!found) return name + " has another word";
    }
    if (its.contains("maximum") && type == "integer" &&
        std::get<std::int64_t>(key.value.value) > its["maximum"].get<std::int64_t>())
      return name + " is too large";
    if (const auto* inner = std::get_if<TomlTable>(&key.value.value))
      if (const std::string wrong = wrong_in(*inner, its, name + '.'); !wrong.empty()) return wrong;
  }
  return {};
}

TEST(JsonSchema, TakesEveryExample) {
  int examples = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator((source / "scenarios") / "examples")) {
    if (entry.path().extension() != ".toml") continue;
    const TomlTable document = parse_toml(read_text(entry.path()), entry.path().string());
    EXPECT_EQ(wrong_in(document, schema(), ""), "") << entry.path();
    ++examples;
  }
  EXPECT_GT(examples, 10);
}

TEST(JsonSchema, SaysWhatAKeyTakes) {
  const json& tensor = schema()["properties"]["layout"]["properties"]["tensor"];
  EXPECT_EQ(tensor["type"], "integer");
  EXPECT_EQ(tensor["minimum"], 1);
  EXPECT_EQ(tensor["maximum"], 1048576);
  EXPECT_EQ(tensor["default"], 1);
  const json& sharding = schema()["properties"]["layout"]["properties"]["sharding"];
  EXPECT_EQ(sharding["enum"], (json{"none", "zero1", "zero2", "zero3"}));
  EXPECT_FALSE(sharding["description"].get<std::string>().empty());
}

TEST(JsonSchema, RefusesASlip) {
  const auto wrong = [](const std::string& text) { return wrong_in(parse_toml(text, "job.toml"), schema(), ""); };
  EXPECT_EQ(wrong("[layout]\ntensr = 2\n"), "layout.tensr is not a key");
  EXPECT_EQ(wrong("gpus = \"8\"\n"), "gpus is string, not integer");
  EXPECT_EQ(wrong("[train]\nrecompute = \"fully\"\n"), "train.recompute has another word");
  EXPECT_EQ(wrong("[runtime.switches]\nmoe-grouped-gemm = true\n"), "") << "flags are their framework's";
}

}  // namespace
}  // namespace tidemark::tests::json_schema_test
