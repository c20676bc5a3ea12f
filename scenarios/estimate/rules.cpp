#include "scenarios/estimate/rules.hpp"

#include <cmath>

namespace tidemark::scenarios::rules {

std::string_view name(Guide guide) {
  switch (guide) {
    case Guide::Training:
      return "training guide";
    case Guide::Estimation:
      return "estimation guide";
  }
  return "?";
}

double bytes_per_parameter(Format format) {
  switch (format) {
    case Format::Fp32:
      return 4;
    case Format::Fp16:
      return 2;
    case Format::Int8:
      return 1;
    case Format::Int4:
      return 0.5;
  }
  return 0;
}

double parameters(double count, double bytes_each) { return count * bytes_each; }
double gradients(double count, double bytes_each) { return count * bytes_each; }

double bytes_of_state(State state) {
  switch (state) {
    case State::Adam:
      return 8;
    case State::Momentum:
      return 4;
    case State::None:
      return 0;
    case State::Adam8bit:
      return 1;
  }
  return 0;
}

double optimizer_states(double count, State state) { return count * bytes_of_state(state); }

double hidden_states(const Activations& of) { return of.batch * of.sequence * of.hidden * of.layers * of.bytes_each; }
double activations(const Activations& of, double k) { return k * hidden_states(of); }
double k_of(const Activations& of, double bytes) { return bytes / hidden_states(of); }

double attention_matrix(double batch, double heads, double sequence, double bytes_each) {
  return batch * heads * sequence * sequence * bytes_each;
}

Range left_by_checkpointing(double bytes, Range saved) { return {bytes * (1 - saved.high), bytes * (1 - saved.low)}; }
double square_root_checkpointed(double bytes, double layers) { return bytes * std::sqrt(layers) / layers; }

double kv_cache(double layers, double hidden, double sequence, double batch, double bytes_each) {
  return 2 * layers * hidden * sequence * batch * bytes_each;
}

double divided(double bytes, double tensor, double pipeline) { return bytes / (tensor * pipeline); }
double sharded(double bytes, double ranks) { return bytes / ranks; }

Range overhead(double of_everything_else) {
  return {of_everything_else * usual_overhead.low, of_everything_else * usual_overhead.high};
}

double shortcut_gb(double billions, double precision_bytes, State optimizer) {
  const double params = billions * precision_bytes, grads = billions * precision_bytes;
  const double opt = billions * bytes_of_state(optimizer);
  const double act = params * 1.5;
  return (params + grads + opt + act) * 1.15;
}

}  // namespace tidemark::scenarios::rules
