#pragma once

#include <string>
#include <utility>
#include <vector>

#include "scenarios/formats/input_error.hpp"

namespace tidemark::scenarios {

/// A place in a text file, counted from 1; 0 where there is none.
struct Place {
  int line = 0;
  int column = 0;
};

/// Collects what is wrong with one file and the files it names, so that all of it is reported at once.
class Problems {
 public:
  explicit Problems(std::string file) : file_(std::move(file)) {}

  void add(Place place, ProblemText message, std::string hint = {}) {
    found_.push_back({file_, place.line, place.column, std::move(message.text), std::move(hint), message.kind});
  }
  /// What reading another file found.
  void add(const InputError& error) { found_.insert(found_.end(), error.problems().begin(), error.problems().end()); }

  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] bool any() const { return !found_.empty(); }

  /// Everything found, this file's problems first and in the order of their places.
  [[nodiscard]] std::vector<Problem> sorted() &&;
  /// Throws all that.
  void raise_if_any() const;

 private:
  std::string file_;
  std::vector<Problem> found_;
};

}  // namespace tidemark::scenarios
