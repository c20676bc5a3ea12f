#include <cmath>

#include "kernels/math/elementwise.hpp"
#include "kernels/math/engine/engine.hpp"
#include "kernels/math/families.hpp"

// What Mamba-2 does over time (Dao and Gu, arXiv 2405.21060; mamba_ssm's mamba_split_conv1d_scan_ref): a causal
// convolution of each channel by itself, and states that decay. Kernels go by chunks of tokens, which changes no
// result; here states go from token to token.

namespace tidemark::math {
namespace {

// Channels over time, [batch, sequence, channels].
struct Convolution {
  std::int64_t batches, sequence, channels, taps;

  template <class Call>
  Convolution(const Call& c, std::size_t x, std::size_t weight)
      : batches(c.sizes_in(x)[0]),
        sequence(c.sizes_in(x)[1]),
        channels(c.sizes_in(x)[2]),
        taps(c.sizes_in(weight)[1]) {}
  // Of one token and channel, before SiLU: the last tap meets the token itself.
  template <class Real>
  [[nodiscard]] TIDEMARK_EVERYWHERE Real sum(Values<Real> x, Values<Real> weight, Values<Real> bias,
                                             std::int64_t i) const {
    const std::int64_t channel = i % channels, token = i / channels % sequence;
    Real found = bias[channel];
    for (std::int64_t back = 0; back < taps && back <= token; ++back)
      found += weight[channel * taps + taps - 1 - back] * x[i - back * channels];
    return found;
  }
};

// Heads over time: x and z are [batch, sequence, heads x width], dt [batch, sequence, heads], B and C [batch, sequence,
// groups x state].
struct Scan {
  std::int64_t batches, sequence, heads, width, groups, state;

  template <class Call>
  Scan(const Call& c, std::size_t first)
      : batches(c.sizes_in(first)[0]),
        sequence(c.sizes_in(first)[1]),
        heads(c.sizes_in(first + 1)[2]),
        width(c.sizes_in(first)[2] / heads),
        groups(static_cast<std::int64_t>(c.attributes[0])),
        state(c.sizes_in(first + 3)[2] / groups) {}
  [[nodiscard]] TIDEMARK_EVERYWHERE std::int64_t row(std::int64_t batch, std::int64_t token) const {
    return batch * sequence + token;
  }
  /// Of a head's group, in B or C.
  [[nodiscard]] TIDEMARK_EVERYWHERE std::int64_t shared(std::int64_t row, std::int64_t head) const {
    return (row * groups + head / (heads / groups)) * state;
  }
};

template <class Real>
TIDEMARK_EVERYWHERE Real softplus(Real x) {
  return x > Real(20) ? x : std::log1p(std::exp(x));
}

template <class Real>
struct ScanInputs {
  Values<Real> x, dt, rates, b, c, skip, z, dt_bias;

  template <class Call>
  ScanInputs(const Call& call, std::size_t first)
      : x(call.read(first)),
        dt(call.read(first + 1)),
        rates(call.read(first + 2)),
        b(call.read(first + 3)),
        c(call.read(first + 4)),
        skip(call.read(first + 5)),
        z(call.read(first + 6)),
        dt_bias(call.read(first + 7)) {}
  [[nodiscard]] TIDEMARK_EVERYWHERE Real before_softplus(std::int64_t row, std::int64_t head,
                                                         std::int64_t heads) const {
    return dt[row * heads + head] + dt_bias[head];
  }
};

}  // namespace

template <class Call>
void Scans<Call>::causal_conv1d(const Call& c) {
  const Convolution over(c, 0, 1);
  const Values<Real> x = c.read(0), weight = c.read(1), bias = c.read(2), y = c.room(x.count);
  c.each(x.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { y[i] = silu(over.sum(x, weight, bias, i)); });
  c.write(0, y);
}

template <class Call>
void Scans<Call>::causal_conv1d_backward(const Call& c) {
  const Convolution over(c, 1, 2);
  const Values<Real> dy = c.read(0), x = c.read(1), weight = c.read(2), bias = c.read(3);
  const Values<Real> before = c.room(x.count), dx = c.room(x.count);
  const Values<double> dweight = c.sums(weight.count), dbias = c.sums(bias.count);
  c.each(x.count,
         [=] TIDEMARK_EVERYWHERE(std::int64_t i) { before[i] = dy[i] * silu_slope(over.sum(x, weight, bias, i)); });
  c.each(x.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) {
    const std::int64_t channel = i % over.channels, token = i / over.channels % over.sequence;
    Real sum = 0;
    for (std::int64_t ahead = 0; ahead < over.taps && token + ahead < over.sequence; ++ahead)
      sum += weight[channel * over.taps + over.taps - 1 - ahead] * before[i + ahead * over.channels];
    dx[i] = sum;
  });
  c.each(bias.count, [=] TIDEMARK_EVERYWHERE(std::int64_t channel) {
    dbias[channel] = 0;
    for (std::int64_t tap = 0; tap < over.taps; ++tap) dweight[channel * over.taps + tap] = 0;
    for (std::int64_t i = channel; i < x.count; i += over.channels) {
      const std::int64_t token = i / over.channels % over.sequence;
      dbias[channel] += static_cast<double>(before[i]);
      for (std::int64_t back = 0; back < over.taps && back <= token; ++back)
        dweight[channel * over.taps + over.taps - 1 - back] +=
            static_cast<double>(before[i]) * static_cast<double>(x[i - back * over.channels]);
    }
  });
  c.write(0, dx);
  c.write(1, dweight);
  c.write(2, dbias);
}

// Each dimension of a head has a state by itself.
template <class Call>
void Scans<Call>::ssd_scan(const Call& c) {
  const Scan s(c, 0);
  const ScanInputs<Real> in(c, 0);
  const Values<Real> y = c.room(in.x.count), before_gate = c.room(in.x.count);
  const std::int64_t inner = s.heads * s.width;
  const Values<Real> states = c.room(s.batches * inner * s.state);
  c.each(s.batches * inner, [=] TIDEMARK_EVERYWHERE(std::int64_t i) {
    const std::int64_t batch = i / inner, place = i % inner, head = place / s.width;
    Real* const state = &states[i * s.state];
    for (std::int64_t n = 0; n < s.state; ++n) state[n] = 0;
    for (std::int64_t token = 0; token < s.sequence; ++token) {
      const std::int64_t row = s.row(batch, token), shared = s.shared(row, head), at = row * inner + place;
      const Real step = softplus(in.before_softplus(row, head, s.heads));
      const Real kept = std::exp(step * in.rates[head]), added = step * in.x[at];
      Real sum = in.skip[head] * in.x[at];
      for (std::int64_t n = 0; n < s.state; ++n) {
        state[n] = kept * state[n] + added * in.b[shared + n];
        sum += state[n] * in.c[shared + n];
      }
      before_gate[at] = sum;
      y[at] = sum * silu(in.z[at]);
    }
  });
  c.write(0, y);
  c.write(1, before_gate);
}

namespace {

// A head's states after each token and their gradients, [sequence, width, state], and what comes of them.
template <class Call>
struct HeadBackward {
  using Real = typename Call::Real;

  HeadBackward(const Call& its, const Scan& scan)
      : call(its),
        s(scan),
        in(its, 1),
        given(its.room(in.x.count)),
        dx(its.room(in.x.count)),
        ddt(its.room(in.dt.count)),
        db(its.room(in.b.count)),
        dc(its.room(in.c.count)),
        states(its.room(s.sequence * s.width * s.state)),
        gradients(its.room(states.count)),
        drates(its.sums(s.heads)),
        dskip(its.sums(s.heads)),
        dbias(its.sums(s.heads)) {}

  // Not where it is made: nvcc takes no body in a constructor.
  void clear() const {
    for (const Values<Real> all : {db, dc})
      call.each(all.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { all[i] = 0; });
    for (const Values<double> all : {drates, dskip, dbias})
      call.each(all.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { all[i] = 0; });
  }

  // Forward and back over time, each dimension of the head by itself.
  void recur(std::int64_t batch, std::int64_t head) const {
    const Scan over = s;
    const ScanInputs<Real> its = in;
    const Values<Real> after = states, back = gradients, out = given, made = dx;
    const std::int64_t inner = s.heads * s.width, all = s.width * s.state;
    call.each(s.width, [=] TIDEMARK_EVERYWHERE(std::int64_t p) {
      for (std::int64_t token = 0; token < over.sequence; ++token) {
        const std::int64_t row = over.row(batch, token), shared = over.shared(row, head);
        const Real step = softplus(its.before_softplus(row, head, over.heads));
        const Real kept = std::exp(step * its.rates[head]), added = step * its.x[row * inner + head * over.width + p];
        for (std::int64_t n = 0; n < over.state; ++n) {
          const std::int64_t at = token * all + p * over.state + n;
          after[at] = (token > 0 ? kept * after[at - all] : Real(0)) + added * its.b[shared + n];
        }
      }
      for (std::int64_t token = over.sequence - 1; token >= 0; --token) {
        const std::int64_t row = over.row(batch, token), shared = over.shared(row, head);
        const std::int64_t place = row * inner + head * over.width + p;
        const Real step = softplus(its.before_softplus(row, head, over.heads));
        const bool last = token + 1 == over.sequence;
        const Real next =
            last ? Real(0) : std::exp(softplus(its.before_softplus(row + 1, head, over.heads)) * its.rates[head]);
        Real sum = its.skip[head] * out[place];
        for (std::int64_t n = 0; n < over.state; ++n) {
          const std::int64_t at = token * all + p * over.state + n;
          back[at] = out[place] * its.c[shared + n] + (last ? Real(0) : next * back[at + all]);
          sum += back[at] * step * its.b[shared + n];
        }
        made[place] = sum;
      }
    });
  }

  // Of each token, over the head's dimensions.
  void add_up(std::int64_t batch, std::int64_t head) const {
    const Scan over = s;
    const ScanInputs<Real> its = in;
    const Values<Real> after = states, back = gradients, out = given, of_b = db, of_c = dc, of_dt = ddt;
    const std::int64_t inner = s.heads * s.width, all = s.width * s.state;
    const Values<double> rate_parts = call.sums(s.sequence);
    call.each(s.sequence, [=] TIDEMARK_EVERYWHERE(std::int64_t token) {
      const std::int64_t row = over.row(batch, token), shared = over.shared(row, head);
      const Real before = its.before_softplus(row, head, over.heads), step = softplus(before);
      const Real kept = std::exp(step * its.rates[head]);
      double of_step = 0, of_kept = 0;
      for (std::int64_t p = 0; p < over.width; ++p) {
        const std::int64_t place = row * inner + head * over.width + p;
        for (std::int64_t n = 0; n < over.state; ++n) {
          const std::int64_t at = token * all + p * over.state + n;
          of_b[shared + n] += back[at] * step * its.x[place];
          of_c[shared + n] += out[place] * after[at];
          of_step += static_cast<double>(back[at]) * static_cast<double>(its.x[place] * its.b[shared + n]);
          if (token > 0) of_kept += static_cast<double>(back[at]) * static_cast<double>(after[at - all]);
        }
      }
      of_kept *= static_cast<double>(kept);
      rate_parts[token] = of_kept * static_cast<double>(step);
      of_step += of_kept * static_cast<double>(its.rates[head]);
      // The slope of softplus.
      of_dt[row * over.heads + head] = static_cast<Real>(of_step * static_cast<double>(sigmoid(before)));
    });
    const Values<double> of_rates = drates, of_skip = dskip, of_bias = dbias;
    call.each(1, [=] TIDEMARK_EVERYWHERE(std::int64_t) {
      for (std::int64_t token = 0; token < over.sequence; ++token) {
        const std::int64_t row = over.row(batch, token);
        of_rates[head] += rate_parts[token];
        of_bias[head] += static_cast<double>(of_dt[row * over.heads + head]);
        for (std::int64_t i = row * inner + head * over.width; i < row * inner + (head + 1) * over.width; ++i)
          of_skip[head] += static_cast<double>(out[i]) * static_cast<double>(its.x[i]);
      }
    });
  }

  const Call& call;
  Scan s;
  ScanInputs<Real> in;
  Values<Real> given;  ///< gradients of what the gate multiplies
  Values<Real> dx, ddt, db, dc, states, gradients;
  Values<double> drates, dskip, dbias;
};

}  // namespace

template <class Call>
void Scans<Call>::ssd_scan_backward(const Call& c) {
  const Scan s(c, 1);
  const HeadBackward<Call> its(c, s);
  its.clear();
  const Values<Real> dy = c.read(0), z = its.in.z, before_gate = c.read(9), given = its.given, dz = c.room(dy.count);
  c.each(dy.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) {
    given[i] = dy[i] * silu(z[i]);
    dz[i] = dy[i] * before_gate[i] * silu_slope(z[i]);
  });
  for (std::int64_t batch = 0; batch < s.batches; ++batch)
    for (std::int64_t head = 0; head < s.heads; ++head) {
      its.recur(batch, head);
      its.add_up(batch, head);
    }
  c.write(0, its.dx);
  c.write(1, its.ddt);
  c.write(2, its.drates);
  c.write(3, its.db);
  c.write(4, its.dc);
  c.write(5, its.dskip);
  c.write(6, dz);
  c.write(7, its.dbias);
}

template struct Scans<FloatCall>;
template struct Scans<DoubleCall>;

}  // namespace tidemark::math
