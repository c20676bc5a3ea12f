#include "parallel/batch.hpp"

#include "parallel/lower.hpp"

namespace tidemark::parallel {

std::vector<BatchTensor> batch_tensors(const Train& train, const Runtime& runtime, BatchUse use) {
  const std::int64_t tokens = train.micro_batch * train.sequence_length;
  std::vector<BatchTensor> tensors{{"batch.tokens", Bytes{tokens * 8}, use.embedding},
                                   {"batch.labels", Bytes{tokens * 8}, use.head},
                                   {"batch.loss_mask", Bytes{tokens * 4}, use.head}};
  if (runtime.batch_attention_mask)  // one byte for each token it may look at
    tensors.push_back({"batch.attention_mask", Bytes{tokens * train.sequence_length}, use.embedding || use.head});
  tensors.push_back({"batch.position_ids", Bytes{tokens * 8}, use.embedding});
  return tensors;
}

std::vector<Bytes> outliving_batches(const Layout& layout, const Train& train, const Runtime& runtime,
                                     std::int32_t pipeline) {
  if (!runtime.saves_batches) return {};
  const BatchUse use{pipeline == 0, pipeline == layout.pipeline - 1};
  std::vector<Bytes> sizes;
  for (std::int64_t m = 0; m < micro_batches_of(train, layout); ++m)
    for (const BatchTensor& tensor : batch_tensors(train, runtime, use))
      if (tensor.needed) sizes.push_back(tensor.size);
  return sizes;
}

}  // namespace tidemark::parallel
