#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "parallel/frameworks/deepspeed/zero_parameters.hpp"

// What DeepSpeed's optimizers look at before they step: whether a gradient is infinite, and the norm of all.

namespace tidemark::parallel::deepspeed {

/// has_overflow: all ranks agree that no gradient is infinite, and the host waits for that. `all` is compared element
/// by element, where it is there.
void agree_on_overflow(Session& session, const DataGroup& group, const Tensor& all);

/// get_grad_norm_direct: the norm of what ranks share out, in fp64 one by one. It is told in fp32, or as it is.
enum class NormType : std::uint8_t { Narrow, Wide };
[[nodiscard]] Tensor global_norm(Session& session, const DataGroup& group, const std::vector<Tensor>& gradients,
                                 NormType type);
/// combine_grad_norm_groups: of such norms, each as it is, that of all.
[[nodiscard]] Tensor combined_norm(Session& session, const std::vector<Tensor>& norms);
/// A gradient's own, by way of a copy in fp64.
[[nodiscard]] Tensor norm_in_fp64(Session& session, const Tensor& gradient);
/// complete_grad_norm_calculation_for_cpu_offload: the host asks for each of the norms, and holds that of all ranks.
[[nodiscard]] Tensor global_norm_on_host(Session& session, const DataGroup& group, const std::vector<Tensor>& norms);
/// What it was before gradients were scaled.
[[nodiscard]] Tensor unscaled(Session& session, const Tensor& norm, double loss_scale, NormType type);

/// unscale_and_clip_grads: by the loss scale, and so that the norm is at most `largest`; 0: not clipped. `unscaled` is
/// called in between.
struct Scaling {
  double loss_scale = 1, largest = 0;
};
void unscale_and_clip(Session& session, const Tensor& gradients, const Tensor& norm, const Scaling& scaling,
                      const std::function<void()>& unscaled);

}  // namespace tidemark::parallel::deepspeed
