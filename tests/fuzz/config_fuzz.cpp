// Any text is a model or an InputError, with and without overrides.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "scenarios/model_config/config_reader.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tidemark::scenarios;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const ConfigOverride layers{"num_hidden_layers", std::int64_t{12}, {"fuzz.toml", 1, 1, {}, {}}};
  try {
    parse_model(text, "fuzz.json");
  } catch (const InputError&) {
  }
  try {
    parse_model(text, "fuzz.json", {layers});
  } catch (const InputError&) {
  }
  return 0;
}
