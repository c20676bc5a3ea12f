#include <cmath>

#include "tests/kernels/math_cases.hpp"

namespace tidemark::tests::math_scans_test {
namespace {

double silu(double x) { return x / (1 + std::exp(-x)); }

// Two sequences of five tokens; four heads, two wide, in two groups; states of three.
constexpr std::int64_t batches = 2, tokens = 5, heads = 4, width = 2, groups = 2, state = 3;
const Shape inner{batches, tokens, heads*width}, of_heads{batches, tokens, heads},
    shared{batches, tokens, groups*state};
const Attributes numbers{groups, 4};

Tensors scan_inputs(Draw& draw) {
  return {draw(inner), draw(of_heads), draw({heads}, -2, -0.5), draw(shared), draw(shared), draw({heads}),
          draw(inner), draw({heads})};
}

// All pairs of tokens: what one adds to states, and how much of that is left when another one reads them.
Tensors scanned(const Tensors& in, Tensors out) {
  const auto at = [](std::int64_t batch, std::int64_t token) { return batch * tokens + token; };
  const auto value = [&](std::size_t i, std::int64_t place) { return in[i].values[static_cast<std::size_t>(place)]; };
  for (std::int64_t b = 0; b < batches; ++b)
    for (std::int64_t h = 0; h < heads; ++h) {
      const auto step = [&](std::int64_t t) {
        return std::log1p(std::exp(value(1, at(b, t) * heads + h) + value(7, h)));
      };
      const std::int64_t group = h / (heads / groups);
      for (std::int64_t t = 0; t < tokens; ++t)
        for (std::int64_t p = 0; p < width; ++p) {
          const std::int64_t place = (at(b, t) * heads + h) * width + p;
          double sum = value(5, h) * value(0, place);
          for (std::int64_t s = 0; s <= t; ++s) {
            double weight = 0, between = 0;
            for (std::int64_t n = 0; n < state; ++n)
              weight +=
                  value(4, (at(b, t) * groups + group) * state + n) * value(3, (at(b, s) * groups + group) * state + n);
            for (std::int64_t k = s + 1; k <= t; ++k) between += step(k) * value(2, h);
            sum += weight * std::exp(between) * step(s) * value(0, (at(b, s) * heads + h) * width + p);
          }
          out[1].values[static_cast<std::size_t>(place)] = sum;
          out[0].values[static_cast<std::size_t>(place)] = sum * silu(value(6, place));
        }
    }
  return out;
}

Tensors convolved(const Tensors& in, Tensors out) {
  const std::int64_t channels = in[2].sizes[0], taps = in[1].sizes[1];
  for (std::int64_t b = 0; b < batches; ++b)
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t c = 0; c < channels; ++c) {
        double sum = in[2].values[static_cast<std::size_t>(c)];
        for (std::int64_t k = 0; k < taps; ++k) {
          const std::int64_t from = t - (taps - 1) + k;
          if (from >= 0)
            sum += in[1].values[static_cast<std::size_t>(c * taps + k)] *
                   in[0].values[static_cast<std::size_t>((b * tokens + from) * channels + c)];
        }
        out[0].values[static_cast<std::size_t>((b * tokens + t) * channels + c)] = silu(sum);
      }
  return out;
}

Tensors group_normed(const Tensors& in, Tensors out) {
  const std::size_t of_group = 3, all = in[0].values.size();
  for (std::size_t g = 0; g < all / of_group; ++g) {
    double squares = 0;
    for (std::size_t i = 0; i < of_group; ++i) squares += std::pow(in[0].values[g * of_group + i], 2) / of_group;
    out[1].values[g] = 1 / std::sqrt(squares + 1e-5);
    for (std::size_t i = 0; i < of_group; ++i)
      out[0].values[g * of_group + i] =
          in[0].values[g * of_group + i] * out[1].values[g] * in[1].values[(g * of_group + i) % in[1].values.size()];
  }
  return out;
}

}  // namespace

std::vector<MathCase> scan_cases() {
  Draw draw;
  using enum Operation;
  std::vector<MathCase> all;
  const Shape channels{batches, tokens, 3}, rows{4, 6}, statistics{4, 2};
  all.push_back({CausalConv1d, {}, {draw(channels), draw({3, 4}), draw({3})}, {zeros(channels)}, convolved});
  all.push_back({CausalConv1dBackward,
                 {},
                 {draw(channels), draw(channels), draw({3, 4}), draw({3})},
                 {zeros(channels), zeros({3, 4}), zeros({3})}});
  all.push_back({SsdScan, numbers, scan_inputs(draw), {zeros(inner), zeros(inner)}, scanned});
  Tensors in = scan_inputs(draw);
  in.insert(in.begin(), draw(inner));
  in.push_back(draw(inner));
  all.push_back({SsdScanBackward,
                 numbers,
                 in,
                 {zeros(inner), zeros(of_heads), zeros({heads}), zeros(shared), zeros(shared), zeros({heads}),
                  zeros(inner), zeros({heads})}});
  all.push_back({GroupedRmsNorm, {1e-5}, {draw(rows), draw({6})}, {zeros(rows), zeros(statistics)}, group_normed});
  all.push_back({GroupedRmsNormBackward,
                 {},
                 {draw(rows), draw(rows), draw(statistics, 0.5, 1), draw({6})},
                 {zeros(rows), zeros({6})}});
  return all;
}

std::vector<GradientCase> scan_gradients() {
  Draw draw;
  using enum Operation;
  const Shape channels{batches, tokens, 3}, rows{4, 6}, statistics{4, 2};
  std::vector<GradientCase> all;
  all.push_back(
      {CausalConv1dBackward,
       {draw(channels), draw({3, 4}), draw({3})},
       [=](const Tensors& in) { return run(CausalConv1d, {}, in, {zeros(channels)}); },
       0,
       [=](const Numbers& dy, const Tensors& in, const Tensors&) {
         return run(CausalConv1dBackward, {}, {dy, in[0], in[1], in[2]}, {zeros(channels), zeros({3, 4}), zeros({3})});
       },
       {0, 1, 2}});
  all.push_back({SsdScanBackward,
                 scan_inputs(draw),
                 [=](const Tensors& in) {
                   return run(SsdScan, numbers, in, {zeros(inner), zeros(inner)});
                 },
                 0,
                 [=](const Numbers& dy, const Tensors& in, const Tensors& made) {
                   Tensors given = in;
                   given.insert(given.begin(), dy);
                   given.push_back(made[1]);
                   return run(SsdScanBackward, numbers, given,
                              {zeros(inner), zeros(of_heads), zeros({heads}), zeros(shared), zeros(shared),
                               zeros({heads}), zeros(inner), zeros({heads})});
                 },
                 {0, 1, 2, 3, 4, 5, 6, 7}});
  all.push_back({GroupedRmsNormBackward,
                 {draw(rows), draw({6})},
                 [=](const Tensors& in) {
                   return run(GroupedRmsNorm, {1e-5}, in, {zeros(rows), zeros(statistics)});
                 },
                 0,
                 [=](const Numbers& dy, const Tensors& in, const Tensors& made) {
                   return run(GroupedRmsNormBackward, {}, {dy, in[0], made[1], in[1]}, {zeros(rows), zeros({6})});
                 },
                 {0, 1}});
  return all;
}

}  // namespace tidemark::tests::math_scans_test
