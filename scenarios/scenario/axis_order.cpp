#include "scenarios/scenario/axis_order.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace tidemark::scenarios {
namespace {

constexpr std::array<std::pair<std::string_view, MeshAxis>, 5> names{{{"tp", MeshAxis::Tensor},
                                                                      {"cp", MeshAxis::Context},
                                                                      {"ep", MeshAxis::Expert},
                                                                      {"dp", MeshAxis::Data},
                                                                      {"pp", MeshAxis::Pipeline}}};

}  // namespace

std::optional<AxisOrder> parse_axis_order(std::string_view text) {
  std::vector<MeshAxis> seen;
  const auto has = [&](MeshAxis axis) { return std::ranges::find(seen, axis) != seen.end(); };
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find('-', start), text.size());
    const auto* name = std::ranges::find(names, text.substr(start, end - start), &decltype(names)::value_type::first);
    if (name == names.end() || has(name->second)) return std::nullopt;
    seen.push_back(name->second);
    start = end + 1;
  }
  for (const MeshAxis required : {MeshAxis::Tensor, MeshAxis::Data, MeshAxis::Pipeline})
    if (!has(required)) return std::nullopt;
  for (const MeshAxis left_out : {MeshAxis::Expert, MeshAxis::Context})
    if (!has(left_out)) seen.insert(std::ranges::find(seen, MeshAxis::Tensor) + 1, left_out);
  AxisOrder order{};
  std::ranges::copy(seen, order.begin());
  return order;
}

std::string text(const AxisOrder& order) {
  std::string out;
  for (const MeshAxis axis : order) {
    if (!out.empty()) out += '-';
    out += std::ranges::find(names, axis, &decltype(names)::value_type::second)->first;
  }
  return out;
}

}  // namespace tidemark::scenarios
