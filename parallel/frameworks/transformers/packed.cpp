#include <utility>

#include "parallel/frameworks/transformers/modules.hpp"
#include "parallel/torch/operation.hpp"

// Several sequences in one row, as DataCollatorWithFlattening makes them and FlashAttention tells them apart.
// transformers 5.23: modeling_flash_attention_utils.py.

namespace tidemark::parallel::transformers {

// _is_packed_sequence, which every layer asks.
void CausalLM::ask_whether_packed(const Tensor& positions) {
  const std::int64_t tokens = positions.sizes[1];
  const auto numbers = [&](Shape sizes) { return s_.empty(std::move(sizes), DType::INT64, "packed_question"); };
  const auto from_first = [&] {
    const Tensor counted = numbers({tokens}), least = numbers({});
    s_.launch({Operation::Arange, {0}}, {}, {counted});
    s_.launch(Operation::Largest, {positions}, {least});  // … of their negatives
    Tensor made = numbers({tokens});
    s_.launch(Operation::Add, {counted, least}, {made});
    return made;
  };
  const Tensor increasing = from_first();
  Tensor apart = numbers({1, tokens});
  s_.launch({Operation::AddScaled, {-1}}, {increasing, positions}, {apart});
  Tensor distance = numbers({1, tokens});
  s_.launch(Operation::Absolute, {apart}, {distance});
  apart = {};
  const Tensor sum = numbers({});
  s_.launch(Operation::Sum, {distance}, {sum});
  distance = {};
  const Tensor answer = s_.empty({}, DType::BOOL, "packed_question");
  s_.launch(Operation::Copy, {sum}, {answer});  // as a truth value
  s_.process.synchronize();
}

// prepare_fa_kwargs_from_position_ids: where sequences begin, and how long the longest is.
Tensor CausalLM::ends_of_sequences(const Tensor& positions) {
  const std::int64_t tokens = positions.sizes[1], sequences = train_.sequences();
  const auto found = [&] {
    const Tensor least = s_.empty({}, DType::INT64, "packed_ends");
    s_.launch(Operation::Largest, {positions}, {least});  // … of their negatives
    const Tensor first = s_.empty({tokens}, DType::BOOL, "packed_ends");
    s_.launch({Operation::Equals, {0}}, {sized(positions, {tokens})}, {first});
    Tensor places = s_.empty({sequences, 1}, DType::INT64, "packed_ends");
    s_.launch(Operation::MaskedSelect, {positions, first}, {places});
    s_.process.synchronize();
    return places;
  };
  const Tensor begins = found();
  const auto narrow = [&](std::int64_t count) { return s_.empty({count}, DType::INT32, "packed_ends"); };
  const auto joined = [&] {
    const Tensor converted = narrow(sequences), all = narrow(1);
    s_.launch(Operation::Copy, {sized(begins, {sequences})}, {converted});
    s_.launch({Operation::Fill, {static_cast<double>(tokens)}}, {}, {all});
    Tensor made = narrow(sequences + 1);
    s_.launch(Operation::Copy, {converted, all}, {narrowed(made, 0, 0, sequences), narrowed(made, 0, sequences, 1)});
    return made;
  };
  Tensor ends = joined();
  {
    const Tensor lengths = narrow(sequences), longest = s_.empty({}, DType::INT32, "packed_longest");
    s_.launch({Operation::AddScaled, {-1}}, {narrowed(ends, 0, 1, sequences), narrowed(ends, 0, 0, sequences)},
              {lengths});
    s_.launch(Operation::Largest, {lengths}, {longest});
    s_.process.synchronize();
  }
  return ends;
}

// batch, heads, tokens, width of a head, of which batch is one; gives batch, tokens, heads, width.
Tensor CausalLM::attend_packed(const Tensor& query, const Tensor& keys, const Tensor& values, const Tensor& positions,
                               std::int64_t window) {
  ask_whether_packed(positions);
  const auto by_token = [&](const Tensor& x) {
    const Tensor swapped = transpose(s_, x, 1, 2);
    const Tensor rows = contiguous(s_, swapped);
    return view(s_, rows, {x.sizes[2], x.sizes[1], x.sizes[3]});
  };
  const Tensor q = by_token(query), k = by_token(keys), v = by_token(values);
  const Tensor ends = ends_of_sequences(positions);
  const Tensor out = flash_attention_of_packed(s_, q, k, v, ends, train_.attention_dropout, window);
  return view(s_, out, {1, out.sizes[0], out.sizes[1], out.sizes[2]});
}

}  // namespace tidemark::parallel::transformers
