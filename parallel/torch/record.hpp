#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/torch/tensor.hpp"

// What a job's modules do in their first forward pass, seen while they run: their parameters, operations, and what each
// saves for its backward pass. There is no other description of them.

namespace tidemark::parallel::torch {

struct Recording {
  /// A parameter, or a buffer that modules keep beside them, in the order in which they are made.
  struct State {
    std::string name;
    Shape sizes;
    DType dtype = DType::BF16;
    bool trained = false;  ///< a parameter
    bool frozen = false;   ///< … that nobody trains
  };
  /// A kernel: its name is that of the first tensor it makes. Tensors are named as in the program, with their buffer.
  struct Operation {
    std::string name;
    std::vector<std::string> inputs, outputs, saved;
  };
  std::vector<State> state;
  std::vector<Operation> operations;
};

/// One operation a line: inputs -> outputs, what is saved; before them one parameter or buffer a line.
[[nodiscard]] std::string text(const Recording& recording, const std::string& model);

/// Hears from a session what happens in it.
class Recorder {
 public:
  void made(Recording::State state) { recording_.state.push_back(std::move(state)); }
  void froze(const std::string& parameter);
  /// Everything is made, and a pass begins.
  void begin_pass() {
    recording_.operations.clear();
    saved_.clear();
    function_ = 0;
  }
  /// A function begins that autograd knows: it launches a kernel, and saves before or after that; or it only saves.
  void begin_function() {
    attach();
    function_ = recording_.operations.size();
  }
  void launched(Recording::Operation operation) { recording_.operations.push_back(std::move(operation)); }
  void renamed(const std::string& tensor, const std::string& now);
  void saved(std::string tensor) { saved_.push_back(std::move(tensor)); }

  [[nodiscard]] Recording finish() && {
    attach();
    return std::move(recording_);
  }

 private:
  void attach();

  Recording recording_;
  std::size_t function_ = 0;  // its first operation
  std::vector<std::string> saved_;
};

}  // namespace tidemark::parallel::torch
