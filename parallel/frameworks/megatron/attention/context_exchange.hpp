#pragma once

#include "parallel/frameworks/megatron/worker.hpp"

// How context-parallel ranks come to the tensors that attention needs.

namespace tidemark::parallel::megatron {

/// Tensors of [sequence, batch, heads, width], or batch first as attention's kernel has it. Every rank's own tokens of
/// all heads become all tokens, in order, of a part of the heads; and back.
[[nodiscard]] Tensors to_heads(Worker& w, const Name& name, Tensors own_tokens);
[[nodiscard]] Tensors to_tokens(Worker& w, const Name& name, Tensors own_heads);

}  // namespace tidemark::parallel::megatron
