#include "parallel/frameworks/pytorch/batch.hpp"

namespace tidemark::parallel::pytorch {

std::vector<Tensor> collated_batch(Session& s, const Train& train) {
  s.mark(Phase::Forward, "load_batch");
  const Shape sizes{train.micro_batch, train.sequence_length};
  const Session::Scope scope(s, "batch");
  const auto made = [&](const Computation& values, std::string_view what) {
    Tensor tensor = s.empty(sizes, DType::INT64, what);
    s.launch(values, {}, {tensor});
    return tensor;
  };
  return {made(Operation::Initialize, "input_ids"), made(Operation::Initialize, "labels"),
          made({Operation::Fill, {1}}, "attention_mask")};
}

}  // namespace tidemark::parallel::pytorch
