#pragma once

#include <string>

#include "scenarios/validate/validation.hpp"

namespace tidemark::scenarios {

/// What was run, where, by which versions.
struct RunProvenance {
  std::string command;
  std::string back_end;  ///< "host"
  std::string tidemark;
  std::string mpi;
  std::string machine;  ///< processor, cores, kernel
};

/// The record of a run, schema "tidemark.validation/1".
[[nodiscard]] std::string validation_json(const Validation& validation, const RunProvenance& provenance);

}  // namespace tidemark::scenarios
