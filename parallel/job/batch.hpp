#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "parallel/job/layout.hpp"
#include "parallel/job/train.hpp"
#include "parallel/model/model.hpp"
#include "parallel/runtime/runtime.hpp"
#include "sim/base/dtype.hpp"
#include "sim/base/units.hpp"

namespace tidemark::parallel {

/// A tensor of a micro-batch that the data loader hands out.
struct BatchTensor {
  std::string_view name;
  DType dtype = DType::INT64;
  Bytes size;
  bool needed = false;  ///< by the stage that holds it
};

/// What a rank's passes do with a batch.
struct BatchUse {
  bool embedding = false, head = false;
};

/// Those of one micro-batch, in the order in which they are made.
/// They hold whole sequences: context-parallel ranks then keep their parts.
[[nodiscard]] std::vector<BatchTensor> batch_tensors(const Train& train, const Runtime& runtime, BatchUse use);

/// Tensors of the batches of one step that outlive their passes on a pipeline rank, one after the other; mostly none.
[[nodiscard]] std::vector<Bytes> rerun_batches(const Model& model, const Layout& layout, const Train& train,
                                               const Runtime& runtime, std::int32_t pipeline);

}  // namespace tidemark::parallel
