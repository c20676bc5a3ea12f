#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "parallel/frameworks/transformers/modules.hpp"

namespace tidemark::parallel::deepspeed {

/// The ranks over which DeepSpeed shares out state.
struct DataGroup {
  CommSlot comm;
  std::int64_t ranks = 1, rank = 0;
};

/// A parameter of the model. What the module reads may lie anywhere; names do not go by memory.
struct NamedParameter {
  std::string name;
  std::shared_ptr<Leaf> leaf;
};
using NamedParameters = std::vector<NamedParameter>;

}  // namespace tidemark::parallel::deepspeed
