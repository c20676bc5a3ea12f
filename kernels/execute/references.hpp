#pragma once

#include <cstdint>
#include <vector>

#include "kernels/execute/namespace.hpp"
#include "sim/program/program.hpp"

namespace tidemark::execute {

/// Reference counts as a framework's interpreter keeps them while it runs: how often each buffer is still going to be
/// used, and how many variables hold it. Independent of the pass that computes frees for predictions.
class References {
 public:
  explicit References(const Program& program);

  /// To be called after each op, in order, by index. Calls `release(buffer)` for each buffer that nothing refers to
  /// any more.
  template <class Release>
  void after(std::size_t index, Release&& release) {
    touched_.clear();
    note(index);
    for (const BufferId buffer : touched_) {
      Count& its = counts_[buffer.index()];
      if (its.live && its.holders == 0 && its.last_use <= index) {
        its.live = false;
        release(buffer);
      }
    }
  }

 private:
  struct Count {
    std::size_t last_use = 0;  ///< the op that touches it last
    std::int32_t holders = 0;  ///< variables
    bool live = false;
  };

  void note(std::size_t index);

  const Program& program_;
  std::vector<Count> counts_;        // by buffer
  std::vector<BufferId> variables_;  // by name
  std::vector<BufferId> touched_;    // by the op at hand
};

}  // namespace tidemark::execute
