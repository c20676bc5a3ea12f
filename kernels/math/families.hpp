#pragma once

#include "kernels/math/call.hpp"

// The kernels, family by family, but for those that go element by element. Real is what they compute in: float or
// double.

namespace tidemark::math {

template <class Real>
struct Fills {  // fills.cpp
  static void fill(const Call& c);
  static void initialize(const Call& c);
  static void arange(const Call& c);
  static void rotary_table(const Call& c);
};

template <class Real>
struct Dropouts {  // dropout.cpp
  static void dropout(const Call& c);
  static void dropout_backward(const Call& c);
  static void bias_dropout_add(const Call& c);
};

template <class Real>
struct RotaryPositions {  // rotary.cpp
  static void rotary(const Call& c);
  static void rotary_backward(const Call& c);
  static void rotary_pairs(const Call& c);
  static void rotary_pairs_backward(const Call& c);
  static void latent_keys(const Call& c);
  static void latent_keys_backward(const Call& c);
};

template <class Real>
struct Reductions {  // reductions.cpp
  static void sum(const Call& c);
  static void mean(const Call& c);
  static void mean_of_products(const Call& c);
  static void largest(const Call& c);
  static void cumulative_sum(const Call& c);
  static void norm(const Call& c);
};

template <class Real>
struct Softmaxes {  // softmax.cpp
  static void causal_mask(const Call& c);
  static void softmax(const Call& c);
  static void softmax_backward(const Call& c);
  static void log_softmax(const Call& c);
  static void log_softmax_backward(const Call& c);
};

template <class Real>
struct Norms {  // norms.cpp
  static void layer_norm(const Call& c);
  static void layer_norm_backward(const Call& c);
  static void rms_norm(const Call& c);
  static void rms_norm_backward(const Call& c);
};

template <class Real>
struct Lookups {  // lookups.cpp
  static void embedding(const Call& c);
  static void embedding_backward(const Call& c);
  static void gather(const Call& c);
  static void vocabulary_mask(const Call& c);
};

template <class Real>
struct Choices {  // choices.cpp
  static void top_k(const Call& c);
  static void scatter(const Call& c);
  static void masked_select(const Call& c);
  static void masked_select_backward(const Call& c);
};

template <class Real>
struct Permutations {  // permutations.cpp
  static void token_map(const Call& c);
  static void permute_rows(const Call& c);
  static void unpermute_rows(const Call& c);
  static void unpermute_rows_backward(const Call& c);
  static void chunk_map(const Call& c);
  static void sort_rows(const Call& c);
};

template <class Real>
struct WeightedSwiGlus {  // weighted_swiglu.cpp
  static void weighted_swiglu(const Call& c);
  static void weighted_swiglu_backward(const Call& c);
};

template <class Real>
struct Losses {  // losses.cpp
  static void nll_loss(const Call& c);
  static void nll_loss_backward(const Call& c);
  static void cross_entropy_statistics(const Call& c);
  static void cross_entropy_from_statistics(const Call& c);
  static void shifted_exponentials(const Call& c);
  static void vocabulary_loss(const Call& c);
  static void vocabulary_loss_backward(const Call& c);
};

template <class Real>
struct Products {  // products.cpp
  static void matmul(const Call& c);
};

template <class Real>
struct Attentions {  // attention.cpp
  static void attention(const Call& c);
  static void attention_backward(const Call& c);
};

template <class Real>
struct Optimizers {  // optimizers.cpp
  static void adam(const Call& c);
  static void sgd(const Call& c);
};

}  // namespace tidemark::math
