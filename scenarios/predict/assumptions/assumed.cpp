#include "scenarios/predict/assumptions/assumed.hpp"

namespace tidemark::scenarios {

std::string assumed(const std::vector<std::string>& lines) {
  std::string out = lines.empty() ? "" : "\nassumed\n";
  for (const std::string& line : lines) out += "  " + line + '\n';
  return out;
}

}  // namespace tidemark::scenarios
