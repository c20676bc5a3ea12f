#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include "scenarios/plan/space/keys.hpp"
#include "scenarios/predict/allocator_events.hpp"
#include "scenarios/scenario/scenario.hpp"
#include "tests/namespace.hpp"

// The fields of all that keys of the planner are made of, and every way to change one of them. A structured binding
// that does not name every field of a struct does not compile: a new field has to come in here, and is flipped from
// then on.

namespace tidemark::tests {

inline auto fields(Version& v) {
  auto& [first, second, third] = v;
  return std::tie(first, second, third);
}
inline auto fields(Versions& v) {
  auto& [a, b, c, d, e, f, g, h, i, j, k] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k);
}
inline auto fields(Estimate& v) {
  auto& [a, b, c, d] = v;
  return std::tie(a, b, c, d);
}
inline auto fields(MultiLatentAttention& v) {
  auto& [a, b, c, d, e, f] = v;
  return std::tie(a, b, c, d, e, f);
}
inline auto fields(Experts& v) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
}
inline auto fields(Mamba2& v) {
  auto& [a, b, c, d] = v;
  return std::tie(a, b, c, d);
}
inline auto fields(NoMixer&) { return std::tie(); }
inline auto fields(NoMlp&) { return std::tie(); }
inline auto fields(DenseMlp& v) { return std::tie(v.ffn); }
inline auto fields(Attention& v) {
  auto& [a] = v;
  return std::tie(a);
}
inline auto fields(Layer& v) {
  auto& [a, b] = v;
  return std::tie(a, b);
}
inline auto fields(Model& v) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, w, x, y, z, aa, ab, ac, ad, ae, af, ag, ah,
         ai] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, w, x, y, z, aa, ab, ac, ad, ae, af, ag,
                  ah, ai);
}
inline auto fields(PeakRates& v) {
  auto& [a, b, c, d, e] = v;
  return std::tie(a, b, c, d, e);
}
inline auto fields(Efficiency& v) {
  auto& [a, b, c, d, e, f, g, h, i, j] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j);
}
inline auto fields(PowerLimit& v) {
  auto& [a, b, c, d] = v;
  return std::tie(a, b, c, d);
}
inline auto fields(Device& v) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
}
inline auto fields(Host& v) {
  auto& [a, b, c, d, e, f, g, h, i] = v;
  return std::tie(a, b, c, d, e, f, g, h, i);
}
inline auto fields(Node& v) {
  auto& [a, b, c, d, e, f, g, h, i, j, k] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k);
}
inline auto fields(FabricShape& v) {
  auto& [a, b, c, d, e] = v;
  return std::tie(a, b, c, d, e);
}
inline auto fields(NcclAlgorithms& v) {
  auto& [a, b, c, d, e] = v;
  return std::tie(a, b, c, d, e);
}
inline auto fields(NcclProtocols& v) {
  auto& [a, b, c] = v;
  return std::tie(a, b, c);
}
inline auto fields(NcclChannelLimits& v) {
  auto& [a, b, c, d, e, f, g, h] = v;
  return std::tie(a, b, c, d, e, f, g, h);
}
inline auto fields(NcclSettings& v) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
}
inline auto fields(NcclChannels& v) {
  auto& [a, b, c, d] = v;
  return std::tie(a, b, c, d);
}
inline auto fields(CommunicatorUse& v) {
  auto& [a, b, c, d, e, f, g, h, i, j] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j);
}
inline auto fields(NcclProfile::Communicator& v) {
  auto& [a, b] = v;
  return std::tie(a, b);
}
inline auto fields(NcclProfile& v) {
  auto& [a, b, c, d, e, f, g] = v;
  return std::tie(a, b, c, d, e, f, g);
}
inline auto fields(Cluster& v) {
  auto& [a, b, c, d, e, f, g, h] = v;
  return std::tie(a, b, c, d, e, f, g, h);
}
inline auto fields(Layout& v) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t);
}
inline auto fields(Recomputation& v) {
  auto& [a, b, c, d] = v;
  return std::tie(a, b, c, d);
}
inline auto fields(EqualLoads&) { return std::tie(); }
inline auto fields(LoadOfOneRank& v) {
  auto& [a] = v;
  return std::tie(a);
}
inline auto fields(ListedLoads& v) {
  auto& [a, b] = v;
  return std::tie(a, b);
}
inline auto fields(ZipfLoads& v) {
  auto& [a, b] = v;
  return std::tie(a, b);
}
inline auto fields(DirichletLoads& v) {
  auto& [a, b] = v;
  return std::tie(a, b);
}
inline auto fields(ExpertRouting& v) {
  auto& [a, b, c, d, e, f, tokens] = v;  // the last of them follow from the rest
  return std::tie(a, b, c, d, e, f);
}
inline auto fields(ExpertBehavior& v) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
}
inline auto fields(FullyShardBehavior& v) {
  auto& [a, b, c, d, e, f, g, h, i] = v;
  return std::tie(a, b, c, d, e, f, g, h, i);
}
inline auto fields(TitanSettings& v) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
}
inline auto fields(FlatParameterBehavior& v) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
}
inline auto fields(Rollout& v) {
  auto& [a, b, c, d, e, f, g, h, i, j, k] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k);
}
inline auto fields(FrozenModel& v) {
  auto& [a] = v;
  return std::tie(a);
}
inline auto fields(Adapter& v) {
  auto& [a, b, c, d, e, f, g, h] = v;
  return std::tie(a, b, c, d, e, f, g, h);
}
inline auto fields(Quantization& v) {
  auto& [a, b, c, d, e, f, g, h] = v;
  return std::tie(a, b, c, d, e, f, g, h);
}
inline auto fields(Train& v) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s);
}
inline auto fields(NvmeBehavior& v) {
  auto& [a, b, c, d, e, f, g, h, i, j, k] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k);
}
inline auto fields(ZeroBehavior& v) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
}
inline auto fields(SmallOptimizerSettings& v) {
  auto& [a, b, c, d] = v;
  return std::tie(a, b, c, d);
}
inline auto fields(EagerSettings& v) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, w, x, y, z, aa, bb, cc, dd, ee] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, w, x, y, z, aa, bb, cc, dd, ee);
}
inline auto fields(MuonBehavior& v) {
  auto& [a, b, c, d, e, f] = v;
  return std::tie(a, b, c, d, e, f);
}
inline auto fields(OptimizerBehavior& v) {
  auto& [a, b, c, d, e, f, g, h, i, j] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j);
}
inline auto fields(DataOverlap& v) {
  auto& [gradients, parameters, gradients_aligned, parameters_aligned, bucket_elements] = v;
  return std::tie(gradients, parameters, gradients_aligned, parameters_aligned, bucket_elements);
}
inline auto fields(TensorOverlap& v) {
  auto& [gathers, scatters, bulk_gathers, bulk_scatters, each_place] = v;
  return std::tie(gathers, scatters, bulk_gathers, bulk_scatters, each_place);
}
inline auto fields(ModuleOffloadBehavior& v) {
  auto& [a, b, c, d, e] = v;
  return std::tie(a, b, c, d, e);
}
inline auto fields(LaunchQueueSettings& v) {
  auto& [a, b] = v;
  return std::tie(a, b);
}
inline auto fields(ResultChecks& v) {
  auto& [a, b, c, d] = v;
  return std::tie(a, b, c, d);
}
inline auto fields(RuntimeChoice& v) {
  auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, w, x, y, z, aa, bb, cc, dd] = v;
  return std::tie(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, w, x, y, z, aa, bb, cc, dd);
}
inline auto fields(RunLength& v) {
  auto& [a, b] = v;
  return std::tie(a, b);
}
inline auto fields(Scenario& v) {
  auto& [a, b, c, d, e, f, g, h] = v;
  return std::tie(a, b, c, d, e, f, g, h);
}
inline auto fields(ModelOptions& v) {
  auto& [a, b, c, d, e] = v;
  return std::tie(a, b, c, d, e);
}
inline auto fields(LayerRun& v) {
  auto& [a, b, c] = v;
  return std::tie(a, b, c);
}
inline auto fields(ModelKey& v) {
  auto& [a, b] = v;
  return std::tie(a, b);
}
inline auto fields(SampleKey& v) {
  auto& [a, b, c] = v;
  return std::tie(a, b, c);
}
inline auto fields(FabricOptions& v) {
  auto& [a, b, c, d, e, f, g] = v;
  return std::tie(a, b, c, d, e, f, g);
}
inline auto fields(FabricKey& v) {
  auto& [a, b, c] = v;
  return std::tie(a, b, c);
}
inline auto fields(GroupPlaces& v) {
  auto& [a, b, c, d] = v;
  return std::tie(a, b, c, d);
}
inline auto fields(ClockKey& v) {
  auto& [a, b, c] = v;
  return std::tie(a, b, c);
}
inline auto fields(ScheduleKey& v) {
  auto& [a, b] = v;
  return std::tie(a, b);
}
inline auto fields(InFlightKey& v) {
  auto& [a, b] = v;
  return std::tie(a, b);
}
inline auto fields(StreamId& v) {
  auto& [a] = v;
  return std::tie(a);
}
inline auto fields(AllocatorEvent& v) {
  auto& [a, b, c, d, e, f] = v;
  return std::tie(a, b, c, d, e, f);
}
inline auto fields(StateEvents::Step& v) {
  auto& [a, b] = v;
  return std::tie(a, b);
}
inline auto fields(StateEvents& v) {
  auto& [a, b] = v;
  return std::tie(a, b);
}

template <class T>
concept HasFields = requires(T& value) {
  fields(value);
};

// Another value of what has no fields of its own.
inline void flip(bool& value) { value = !value; }
inline void flip(double& value) { value += 0.25; }
inline void flip(std::string& value) { value += '!'; }
inline void flip(std::map<std::string, std::string>& value) { value["!"] = "!"; }
template <class Module>
void flip(ModuleSet<Module>& value) {
  value = value.bits() == 0 ? ModuleSet<Module>{static_cast<Module>(1)} : ModuleSet<Module>{};
}
// The largest is some fields' word for none.
inline void flip(std::integral auto& value) {
  value = static_cast<std::remove_reference_t<decltype(value)>>(value ^ 1);
}
inline void flip(SharedCalibration& value) { value = value.there() ? SharedCalibration{} : Calibration{}; }
template <class T>
void flip(std::shared_ptr<const T>& value) {
  value = nullptr;
}
template <class Unit>
void flip(Quantity<Unit>& value) {
  value += Quantity<Unit>{1};
}
template <class T>
requires std::is_enum_v<T>
void flip(T& value) { value = static_cast<T>(static_cast<std::underlying_type_t<T>>(value) + 1); }

/// Changes one thing after the other within `value`, calls `visit()` while it is changed, and puts it back.
template <class T, class Visit>
void each_flip(T& value, Visit visit);

namespace detail {

template <class T, class Visit>
void each_flip_within(std::vector<T>& value, Visit visit) {
  value.emplace_back();
  visit();
  value.pop_back();
  for (T& element : value) each_flip(element, visit);
}
template <class Visit>
void each_flip_within(LayerList& value, Visit visit) {
  const LayerList kept = value;
  value.resize(kept.size() + 1);
  visit();
  for (std::int64_t i = 0; i < kept.size(); ++i) {
    Layer layer = kept[i];
    each_flip(layer, [&] {
      value = kept;
      value.replace(i, layer);
      visit();
    });
  }
  value = kept;
}
template <class T, std::size_t N, class Visit>
void each_flip_within(std::array<T, N>& value, Visit visit) {
  for (T& element : value) each_flip(element, visit);
}
template <class T, class Visit>
void each_flip_within(std::optional<T>& value, Visit visit) {
  const std::optional<T> kept = value;
  value = kept ? std::nullopt : std::optional<T>(T{});
  visit();
  value = kept;
  if (value) each_flip(*value, visit);
}

template <class... Ts, class Visit>
void each_flip_within(std::variant<Ts...>& value, Visit visit) {
  const std::variant<Ts...> kept = value;
  const auto take = [&]<class T>(T other) {
    if (std::holds_alternative<T>(kept)) return;
    value = other;
    visit();
    value = kept;
  };
  (take(Ts{}), ...);
  std::visit([&](auto& its) { each_flip(its, visit); }, value);
}

}  // namespace detail

template <class T, class Visit>
void each_flip(T& value, Visit visit) {
  if constexpr (HasFields<T>) {
    std::apply([&](auto&... field) { (each_flip(field, visit), ...); }, fields(value));
  } else if constexpr (requires { detail::each_flip_within(value, visit); }) {
    detail::each_flip_within(value, visit);
  } else {
    const T kept = value;
    flip(value);
    visit();
    value = kept;
  }
}

}  // namespace tidemark::tests
