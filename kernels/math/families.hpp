#pragma once

#include "kernels/math/call.hpp"

// The kernels, family by family, but for those that go element by element. A Call says what they compute in, and which
// engine carries them out.

namespace tidemark::math {

template <class Call>
struct Fills {  // fills.cpp
  using Real = typename Call::Real;
  static void fill(const Call& c);
  static void initialize(const Call& c);
  static void arange(const Call& c);
  static void rotary_table(const Call& c);
};

template <class Call>
struct Dropouts {  // dropout.cpp
  using Real = typename Call::Real;
  static void dropout(const Call& c);
  static void dropout_backward(const Call& c);
  static void bias_dropout_add(const Call& c);
};

template <class Call>
struct RotaryPositions {  // rotary.cpp
  using Real = typename Call::Real;
  static void rotary(const Call& c);
  static void rotary_backward(const Call& c);
  static void rotary_pairs(const Call& c);
  static void rotary_pairs_backward(const Call& c);
  static void complex_multiply(const Call& c);
  static void latent_keys(const Call& c);
  static void latent_keys_backward(const Call& c);
};

template <class Call>
struct Reductions {  // reductions.cpp
  using Real = typename Call::Real;
  static void sum(const Call& c);
  static void mean(const Call& c);
  static void mean_of_products(const Call& c);
  static void largest(const Call& c);
  static void cumulative_sum(const Call& c);
  static void norm(const Call& c);
};

template <class Call>
struct Softmaxes {  // softmax.cpp
  using Real = typename Call::Real;
  static void causal_mask(const Call& c);
  static void softmax(const Call& c);
  static void softmax_backward(const Call& c);
  static void log_softmax(const Call& c);
  static void log_softmax_backward(const Call& c);
};

template <class Call>
struct Norms {  // norms.cpp
  using Real = typename Call::Real;
  static void layer_norm(const Call& c);
  static void layer_norm_backward(const Call& c);
  static void rms_norm(const Call& c);
  static void rms_norm_backward(const Call& c);
  static void grouped_rms_norm(const Call& c);
  static void grouped_rms_norm_backward(const Call& c);
};

template <class Call>
struct Scans {  // scans.cpp
  using Real = typename Call::Real;
  static void causal_conv1d(const Call& c);
  static void causal_conv1d_backward(const Call& c);
  static void ssd_scan(const Call& c);
  static void ssd_scan_backward(const Call& c);
};

template <class Call>
struct Lookups {  // lookups.cpp
  using Real = typename Call::Real;
  static void embedding(const Call& c);
  static void embedding_backward(const Call& c);
  static void gather(const Call& c);
  static void vocabulary_mask(const Call& c);
};

template <class Call>
struct Choices {  // choices.cpp
  using Real = typename Call::Real;
  static void top_k(const Call& c);
  static void scatter(const Call& c);
  static void masked_select(const Call& c);
  static void masked_select_backward(const Call& c);
};

template <class Call>
struct Permutations {  // permutations.cpp
  using Real = typename Call::Real;
  static void token_map(const Call& c);
  static void permute_rows(const Call& c);
  static void unpermute_rows(const Call& c);
  static void unpermute_rows_backward(const Call& c);
  static void chunk_map(const Call& c);
  static void sort_rows(const Call& c);
};

template <class Call>
struct WeightedSwiGlus {  // weighted_swiglu.cpp
  using Real = typename Call::Real;
  static void weighted_swiglu(const Call& c);
  static void weighted_swiglu_backward(const Call& c);
};

template <class Call>
struct Losses {  // losses.cpp
  using Real = typename Call::Real;
  static void nll_loss(const Call& c);
  static void nll_loss_backward(const Call& c);
  static void cross_entropy_statistics(const Call& c);
  static void cross_entropy_from_statistics(const Call& c);
  static void shifted_exponentials(const Call& c);
  static void vocabulary_loss(const Call& c);
  static void vocabulary_loss_backward(const Call& c);
};

template <class Call>
struct Products {  // products.cpp
  using Real = typename Call::Real;
  static void matmul(const Call& c);
};

template <class Call>
struct Attentions {  // attention.cpp
  using Real = typename Call::Real;
  static void attention(const Call& c);
  static void attention_backward(const Call& c);
};

template <class Call>
struct Optimizers {  // optimizers.cpp
  using Real = typename Call::Real;
  static void adam(const Call& c);
  static void sgd(const Call& c);
  static void lion(const Call& c);
  static void adam_blockwise(const Call& c);
  static void lion_blockwise(const Call& c);
  static void dynamic_map(const Call& c);
  static void join_bits(const Call& c);
  static void split_bits(const Call& c);
};

}  // namespace tidemark::math
