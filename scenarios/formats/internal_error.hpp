#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// Tidemark itself is wrong: what it made of a sound scenario cannot run. `what()` names the scenario and the ops, and
/// asks for a report.
class InternalError : public std::runtime_error {
 public:
  /// `findings` are those of `verify`: of one program or of several.
  InternalError(std::string scenario, std::vector<std::string> findings);

  [[nodiscard]] const std::string& scenario() const { return scenario_; }
  [[nodiscard]] const std::vector<std::string>& findings() const { return findings_; }

 private:
  std::string scenario_;
  std::vector<std::string> findings_;
};

/// Throws one where there are findings.
void require_sound(const std::string& scenario, std::vector<std::string> findings);

}  // namespace tidemark::scenarios
