#pragma once

#include "parallel/frameworks/megatron/optimizer/parameters.hpp"
#include "parallel/frameworks/megatron/ssm/ssd_scan.hpp"

namespace tidemark::parallel::megatron {

/// core/ssm/mamba_mixer.py MambaMixer, by its memory-efficient path, with the norm before it.
class MambaMixer {
 public:
  MambaMixer(Worker& worker, Parameters& parameters, std::int32_t layer);
  [[nodiscard]] Tensor operator()(Tensor hidden);

 private:
  enum class Order : std::uint8_t { BatchFirst, SequenceFirst };
  [[nodiscard]] Tensor ordered(const Name& name, Tensor x, Order order);
  [[nodiscard]] Tensor in_fp32(const Name& name, const Weight& weight);
  [[nodiscard]] Tensor rates();
  [[nodiscard]] Tensor group_norm(Tensor x);
  [[nodiscard]] Gradients group_norm_backward(const Tensor& gradient, Saved saved_input, Saved saved_rstd);

  Worker& w_;
  Name name_, dt_bias_name_, rates_name_, batch_first_, sequence_first_, group_norm_;
  Norm norm_;
  Linear in_proj_, out_proj_;
  const Weight *dt_bias_ = nullptr, *log_rates_ = nullptr, *group_weight_ = nullptr;
  SsdScan scan_;
};

}  // namespace tidemark::parallel::megatron
