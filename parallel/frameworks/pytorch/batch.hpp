#pragma once

#include <vector>

#include "parallel/frameworks/transformers/modules.hpp"

namespace tidemark::parallel::pytorch {

/// What a data collator hands out: token ids, labels and a mask of ones. No sequence is padded.
[[nodiscard]] std::vector<Tensor> collated_batch(Session& session, const Train& train);

}  // namespace tidemark::parallel::pytorch
