#include "scenarios/report/text/difference_text.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "scenarios/cluster/times_compare.hpp"
#include "scenarios/formats/format.hpp"
#include "scenarios/predict/assumptions/assumed.hpp"

namespace tidemark::scenarios {
namespace {

std::string signed_mib(Bytes bytes) {
  return fmt::format("{:+.2f} MiB", static_cast<double>(bytes.count()) / (1 << 20));
}

std::string memory(const Prediction& a, const std::string& name_a, const Prediction& b, const std::string& name_b) {
  const MemoryRecord &x = a.highest().memory, &y = b.highest().memory;
  std::vector<std::vector<std::string>> rows{{"memory of the fullest device", name_a, name_b, "difference"}};
  std::vector<std::size_t> order;
  for (std::size_t c = 0; c < category_count; ++c)
    if (x.device.composition.bytes[c] != Bytes{} || y.device.composition.bytes[c] != Bytes{}) order.push_back(c);
  const auto difference = [&](std::size_t c) { return y.device.composition.bytes[c] - x.device.composition.bytes[c]; };
  const auto size = [](Bytes n) { return n < Bytes{} ? -n.count() : n.count(); };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t c, std::size_t d) { return size(difference(c)) > size(difference(d)); });
  for (const std::size_t c : order)
    rows.push_back({std::string(category_names[c]), mib(x.device.composition.bytes[c]),
                    mib(y.device.composition.bytes[c]), signed_mib(difference(c))});
  rows.push_back({"device", mib(x.device.bytes), mib(y.device.bytes), signed_mib(y.device.bytes - x.device.bytes)});
  rows.push_back({"at estimates' upper ends", mib(x.peak_device_upper), mib(y.peak_device_upper),
                  signed_mib(y.peak_device_upper - x.peak_device_upper)});
  std::string out = table(rows);
  for (const auto& [name, p, record] : {std::tuple(&name_a, &a, &x), std::tuple(&name_b, &b, &y)})
    out += fmt::format("  {}: rank {}, {}\n", *name, p->highest().ranks.front().value,
                       where(record->device.at, p->highest().device_peak_op));
  return out;
}

std::map<std::string, double> terms(const Prediction& p) {
  if (p.deadlock) return {};
  const double step = static_cast<double>(p.step.step.count()) / static_cast<double>(picoseconds_per_second);
  std::map<std::string, double> seconds{{"kernels", p.step.share(StepCause::Compute) * step},
                                        {"waiting for other ranks", p.step.waiting() * step},
                                        {"host late", p.step.share(StepCause::Host) * step}};
  for (std::size_t slot = 0; slot < p.communicators.size(); ++slot)
    seconds["exposed " + p.communicators[slot].name] += p.step.exposed[slot] * step;
  return seconds;
}

std::string time(const Prediction& a, const std::string& name_a, const Prediction& b, const std::string& name_b) {
  const std::map<std::string, double> x = terms(a), y = terms(b);
  std::map<std::string, std::pair<double, double>> both;
  for (const auto& [name, seconds] : x) both[name].first = seconds;
  for (const auto& [name, seconds] : y) both[name].second = seconds;
  std::vector<std::pair<std::string, std::pair<double, double>>> order(both.begin(), both.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& p, const auto& q) {
    return std::abs(p.second.second - p.second.first) > std::abs(q.second.second - q.second.first);
  });
  std::vector<std::vector<std::string>> rows{{"a step of the mean rank", name_a, name_b, "difference"}};
  double sum_a = 0, sum_b = 0;
  for (const auto& [name, seconds] : order) {
    sum_a += seconds.first;
    sum_b += seconds.second;
    if (seconds.first == 0 && seconds.second == 0) continue;
    rows.push_back({name, fmt::format("{:.4f} s", seconds.first), fmt::format("{:.4f} s", seconds.second),
                    fmt::format("{:+.4f} s", seconds.second - seconds.first)});
  }
  rows.push_back({"step", fmt::format("{:.4f} s", sum_a), fmt::format("{:.4f} s", sum_b),
                  fmt::format("{:+.4f} s", sum_b - sum_a)});
  rows.push_back({"tokens/s per device", fmt::format("{:.0f}", a.step.tokens_per_s_per_device),
                  fmt::format("{:.0f}", b.step.tokens_per_s_per_device),
                  fmt::format("{:+.0f}", b.step.tokens_per_s_per_device - a.step.tokens_per_s_per_device)});
  return table(rows);
}

}  // namespace

std::string difference_text(const Prediction& a, const std::string& name_a, const Prediction& b,
                            const std::string& name_b) {
  std::vector<std::string> remarks;
  if (const auto why = why_times_do_not_compare({a.scenario.cluster, b.scenario.cluster})) remarks.push_back(*why);
  return memory(a, name_a, b, name_b) + '\n' + time(a, name_a, b, name_b) + assumed(remarks);
}

}  // namespace tidemark::scenarios
