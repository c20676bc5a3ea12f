#pragma once

#include <memory>

#include "parallel/frameworks/deepspeed/flat_layout.hpp"
#include "parallel/frameworks/deepspeed/zero_parameters.hpp"

namespace tidemark::parallel::deepspeed {

/// Parameters are put one after another on the device, and are views of that from then on.
[[nodiscard]] Tensor flatten(Session& session, const FlatLayout& layout, const NamedParameters& parameters,
                             DType dtype);

/// What an optimizer updates: a rank's part of them is copied, and then once more in fp32.
[[nodiscard]] std::shared_ptr<Leaf> wide_copy(Session& session, const Tensor& part);

}  // namespace tidemark::parallel::deepspeed
