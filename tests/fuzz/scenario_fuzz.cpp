// Any text is a scenario or an InputError. The files it may name are the shipped ones.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "scenarios/cluster/cluster_reader.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/reader/scenario_json.hpp"
#include "scenarios/reader/scenario_reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tidemark::scenarios;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::filesystem::path data_root = TIDEMARK_SOURCE_DIR "/scenarios";
  try {
    scenario_json(parse_scenario(text, "fuzz.toml", {data_root / "examples", data_root}), 2);
  } catch (const InputError&) {
  }
  try {
    parse_cluster(text, "fuzz.toml");
  } catch (const InputError&) {
  }
  return 0;
}
