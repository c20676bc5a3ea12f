#include "parallel/frameworks/megatron/nan_checks.hpp"

#include <initializer_list>
#include <string_view>

#include "parallel/torch/aten.hpp"

namespace tidemark::parallel::megatron {
namespace {

// core/rerun_state_machine.py validate_result.
bool looks(const Worker& w, std::int32_t step) {
  switch (w.runtime.nan_checks) {
    case NanChecks::None:
    case NanChecks::Norms:
      return false;
    case NanChecks::EveryStep:
      return true;
    case NanChecks::AfterTheFirstStep:
      return step > 1;
  }
  return false;
}

// torch.isnan, then torch.isinf: numbers here are always finite, so that both answers are known.
void ask(const Worker& w, std::initializer_list<std::string_view> questions) {
  for (const std::string_view question : questions) {
    const Tensor answer = w.temporary(w.process.label(question), {1}, DType::BOOL);
    w.launch({Operation::Fill, {0}}, {}, {answer});
    w.process.synchronize();
  }
}

}  // namespace

void check_loss(const Worker& w, std::int32_t step) {
  if (looks(w, step)) ask(w, {"loss.isnan", "loss.isinf"});
}

void check_gradients(const Worker& w, const Tensor& bucket) {
  if (w.runtime.nan_checks == NanChecks::None) return;
  const Tensor norm = torch::norm_of_all(w.session, bucket, "bucket_norm");
  if (looks(w, w.process.step())) ask(w, {"bucket_norm.isnan", "bucket_norm.isinf"});
}

}  // namespace tidemark::parallel::megatron
