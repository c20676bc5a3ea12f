#include "parallel/frameworks/megatron/result_checks.hpp"

#include <string_view>

#include "parallel/torch/ops/aten.hpp"

namespace tidemark::parallel::megatron {
namespace {

// core/rerun_state_machine.py validate_result.
bool validates(const Worker& w, std::int32_t step) {
  switch (w.runtime.validated) {
    case ValidatedSteps::None:
      return false;
    case ValidatedSteps::All:
      return true;
    case ValidatedSteps::AfterTheFirst:
      return step > 1;
  }
  return false;
}

// is_unexpectedly_large reads the number itself.
void validate(const Worker& w, std::string_view name, bool for_nan, bool for_large) {
  const Session::Scope scope(w.session, w.process.label(name));
  if (for_nan) torch::ask_for_nan_and_inf(w.session);
  if (for_large) w.process.synchronize();
}

}  // namespace

void check_loss(const Worker& w, std::int32_t step) {
  const ResultChecks& requested = w.runtime.checks;
  if (validates(w, step)) validate(w, "loss", requested.nan_in_loss, requested.spiky_loss);
}

void check_gradients(const Worker& w, const Tensor& bucket) {
  const ResultChecks& requested = w.runtime.checks;
  if (!requested.nan_in_grad && !requested.large_grads) return;
  const Tensor norm = torch::norm_of_all(w.session, bucket, "bucket_norm");
  if (validates(w, w.process.step())) validate(w, "bucket_norm", requested.nan_in_grad, requested.large_grads);
}

}  // namespace tidemark::parallel::megatron
