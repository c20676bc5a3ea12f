#pragma once

#include <vector>

#include "parallel/frameworks/transformers/modules.hpp"

namespace tidemark::parallel::pytorch {

/// What a data collator hands out: token ids, labels and a mask of ones. No sequence is padded. Of packed ones a row of
/// all tokens, with their places within sequences instead of the mask (transformers' DataCollatorWithFlattening).
[[nodiscard]] std::vector<Tensor> collated_batch(Session& session, const Train& train);
/// Those places; nothing where none are handed out.
[[nodiscard]] Tensor given_positions(const std::vector<Tensor>& batch, const Train& train);

}  // namespace tidemark::parallel::pytorch
