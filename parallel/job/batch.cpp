#include "parallel/job/batch.hpp"

#include "parallel/job/job.hpp"

namespace tidemark::parallel {

std::vector<BatchTensor> batch_tensors(const Train& train, const Runtime& runtime, BatchUse use) {
  const std::int64_t tokens = train.micro_batch * train.sequence_length;
  std::vector<BatchTensor> tensors;
  const auto add = [&](std::string_view name, DType dtype, std::int64_t elements, bool needed) {
    tensors.push_back({name, dtype, elements * size_of(dtype), needed});
  };
  add("batch.tokens", DType::INT64, tokens, use.embedding);
  add("batch.labels", DType::INT64, tokens, use.head);
  add("batch.loss_mask", DType::FP32, tokens, use.head);
  if (runtime.batch_attention_mask)  // one for each token it may look at
    add("batch.attention_mask", DType::BOOL, tokens * train.sequence_length, use.embedding || use.head);
  add("batch.position_ids", DType::INT64, tokens, use.embedding);
  return tensors;
}

std::vector<Bytes> rerun_batches(const Model& model, const Layout& layout, const Train& train, const Runtime& runtime,
                                 std::int32_t pipeline) {
  if (!runtime.saves_batches) return {};
  const bool head = pipeline == layout.pipeline - 1;
  const BatchUse use{pipeline == 0 || (head && !model.further.empty()), head};
  std::vector<Bytes> sizes;
  for (std::int64_t m = 0; m < micro_batches_of(train, layout); ++m)
    for (const BatchTensor& tensor : batch_tensors(train, runtime, use))
      if (tensor.needed) sizes.push_back(tensor.size / layout.context);
  return sizes;
}

}  // namespace tidemark::parallel
