#include "parallel/frameworks/pytorch/batch.hpp"

namespace tidemark::parallel::pytorch {

std::vector<Tensor> collated_batch(Session& s, const Train& train) {
  s.mark(Phase::Forward, "load_batch");
  const Shape sizes = train.packed > 0 ? Shape{1, train.tokens()} : Shape{train.micro_batch, train.sequence_length};
  const Session::Scope scope(s, "batch");
  const auto made = [&](const Computation& values, std::string_view what) {
    Tensor tensor = s.empty(sizes, DType::INT64, what);
    s.launch(values, {}, {tensor});
    return tensor;
  };
  return {made(Operation::Initialize, "input_ids"), made(Operation::Initialize, "labels"),
          train.packed > 0 ? made({Operation::Arange, {0}}, "position_ids")
                           : made({Operation::Fill, {1}}, "attention_mask")};
}

Tensor given_positions(const std::vector<Tensor>& batch, const Train& train) {
  return train.packed > 0 ? batch.at(2) : Tensor{};
}

}  // namespace tidemark::parallel::pytorch
