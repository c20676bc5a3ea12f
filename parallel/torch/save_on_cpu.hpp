#pragma once

#include "parallel/torch/session.hpp"

namespace tidemark::parallel::torch {

/// torch.autograd.graph.save_on_cpu: what is saved goes to the host, and comes back for each backward function that
/// asks for it. Of pinned memory the host thread does not wait for copies.
[[nodiscard]] PackHook save_on_cpu(Session& session, MemorySpace space);

}  // namespace tidemark::parallel::torch
