#include "scenarios/plan/advise.hpp"

#include <algorithm>
#include <functional>
#include <mutex>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <oneapi/tbb/parallel_for.h>

#include "scenarios/io/names.hpp"
#include "scenarios/io/quantity.hpp"
#include "scenarios/plan/evaluate.hpp"
#include "scenarios/plan/figures.hpp"
#include "scenarios/prediction.hpp"

namespace tidemark {
namespace {

TomlValue value(std::int64_t n) { return {n, {}}; }
TomlValue value(bool b) { return {b, {}}; }
TomlValue value(std::string_view text) { return {std::string(text), {}}; }
TomlValue value(const char* text) { return value(std::string_view(text)); }  // which would rather be a bool

// The value of a key of the document, if it is there.
const TomlValue* at(const TomlTable& document, const KeyPath& path) {
  const TomlTable* table = &document;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const auto found =
        std::find_if(table->keys.begin(), table->keys.end(), [&](const TomlKey& key) { return key.name == path[i]; });
    if (found == table->keys.end()) return nullptr;
    if (i + 1 == path.size()) return &found->value;
    table = std::get_if<TomlTable>(&found->value.value);
    if (table == nullptr) return nullptr;
  }
  return nullptr;
}

// An axis whose first value leaves its keys as the document has them.
class Change {
 public:
  Change(const TomlTable& document, std::string name, std::vector<KeyPath> keys, std::string now)
      : document_(document), keys_(std::move(keys)) {
    axis_.name = std::move(name);
    AxisValue same{std::move(now), {}};
    for (const KeyPath& key : keys_)
      if (const TomlValue* its = at(document_, key)) same.settings.push_back({key, *its});
    axis_.values.push_back(std::move(same));
  }
  /// Another value; a key beyond those given keeps its value.
  Change& to(std::string text, std::vector<TomlValue> values) {
    AxisValue made{std::move(text), {}};
    for (std::size_t i = 0; i < values.size(); ++i) made.settings.push_back({keys_[i], values[i]});
    axis_.values.push_back(std::move(made));
    return *this;
  }
  void add_to(std::vector<Axis>& axes) {
    if (axis_.values.size() > 1) axes.push_back(std::move(axis_));
  }

 private:
  const TomlTable& document_;
  std::vector<KeyPath> keys_;
  Axis axis_;
};

std::string recompute_text(const Recomputation& r) {
  switch (r.kind) {
    case Recompute::None:
      return "none";
    case Recompute::Selective:
      return fmt::format("selective{}{}", r.core_attention ? " core_attn" : "", r.mlp ? " mlp" : "");
    case Recompute::Full:
      return fmt::format("full, {} of {}", word(recompute_method_names, r.method), r.layers);
  }
  return {};
}

void add_recompute(const TomlTable& document, const Scenario& s, std::vector<Axis>& axes) {
  const Recomputation& now = s.train.recompute;
  Change change(document, "recompute",
                {{"train", "recompute"},
                 {"train", "recompute_method"},
                 {"train", "recompute_layers"},
                 {"train", "recompute_modules"}},
                recompute_text(now));
  const auto whole = [&](const char* method, std::int64_t layers) {
    change.to(fmt::format("full, {} of {}", method, layers), {value("full"), value(method), value(layers)});
  };
  if (now.kind == Recompute::None) {
    change.to("selective core_attn", {value("selective")});
  }
  const std::int64_t of_rank = (s.model.layers + s.layout.stages() - 1) / s.layout.stages();
  if (now.kind != Recompute::Full) {
    for (const std::int64_t layers : {of_rank / 4, of_rank / 2, of_rank * 3 / 4})
      if (layers > 0) whole("block", layers);
    whole("uniform", 1);
  } else if (now.method == RecomputeMethod::Block && now.layers < of_rank) {
    for (std::int64_t layers = 2 * now.layers; layers < of_rank; layers *= 2) whole("block", layers);
    whole("uniform", 1);
  } else if (now.method == RecomputeMethod::Uniform && now.layers > 1) {
    whole("uniform", 1);
  }
  change.add_to(axes);
}

}  // namespace

std::vector<Axis> changes_of(const TomlTable& document, const Scenario& s) {
  std::vector<Axis> axes;
  const auto one_key = [&](const char* table, const char* key, std::string now) {
    return Change(document, fmt::format("{}.{}", table, key), {{table, key}}, std::move(now));
  };
  const auto yes_no = [](bool b) { return std::string(b ? "true" : "false"); };

  Change micro_batch = one_key("train", "micro_batch", std::to_string(s.train.micro_batch));
  for (std::int64_t smaller = s.train.micro_batch / 2; smaller >= 1; smaller /= 2)
    micro_batch.to(std::to_string(smaller), {value(smaller)});
  micro_batch.add_to(axes);
  add_recompute(document, s, axes);
  if (s.layout.tensor > 1 && !s.layout.sequence_parallel)
    one_key("layout", "sequence_parallel", yes_no(false)).to(yes_no(true), {value(true)}).add_to(axes);
  if (s.layout.sharding == Sharding::None)
    one_key("layout", "sharding", "none").to("zero1", {value("zero1")}).add_to(axes);
  Change tensor = one_key("layout", "tensor", std::to_string(s.layout.tensor));
  for (std::int64_t more = std::int64_t{2} * s.layout.tensor; more <= s.cluster.node.devices; more *= 2)
    tensor.to(std::to_string(more), {value(more)});
  tensor.add_to(axes);
  Change pipeline = one_key("layout", "pipeline", std::to_string(s.layout.pipeline));
  for (std::int64_t more = std::int64_t{2} * s.layout.pipeline; more <= std::min<std::int64_t>(s.gpus, s.model.layers);
       more *= 2)
    pipeline.to(std::to_string(more), {value(more)});
  pipeline.add_to(axes);
  if (s.train.gradient_dtype == DType::FP32 && s.train.precision != DType::FP32)
    one_key("train", "gradient_dtype", "fp32")
        .to(std::string(name(s.train.precision)), {value(name(s.train.precision))})
        .add_to(axes);
  if (s.train.precision == DType::FP32) one_key("train", "precision", "fp32").to("bf16", {value("bf16")}).add_to(axes);
  if (s.train.cross_entropy != CrossEntropy::TransformerEngine)
    one_key("train", "cross_entropy", std::string(word(cross_entropy_names, s.train.cross_entropy)))
        .to("te", {value("te")})
        .add_to(axes);
  if (stores_scores(s.train.attention))
    one_key("train", "attention", std::string(word(attention_names, s.train.attention)))
        .to("auto", {value("auto")})
        .add_to(axes);
  if (s.layout.chunks > 1)
    Change(document, "chunks", {{"layout", "schedule"}, {"layout", "chunks"}}, std::to_string(s.layout.chunks))
        .to("1 (1f1b)", {value("1f1b"), value(std::int64_t{1})})
        .add_to(axes);
  Change gpus(document, "gpus", {{"gpus"}}, std::to_string(s.gpus));
  for (const std::int64_t times : {2, 4}) gpus.to(std::to_string(times * s.gpus), {value(times * s.gpus)});
  gpus.add_to(axes);
  return axes;
}

Advice advise(TomlTable document, const std::filesystem::path& file, const ScenarioFolders& folders,
              const AdviseOptions& options, const PlanProgress& progress) {
  Advice advice;
  const Scenario scenario = settled(scenario_of(document, file, folders));
  advice.now = figures_of(predict(scenario));
  advice.lacks = lack(scenario, advice.now.device_upper);
  advice.space = {file.stem().string(), std::move(document), folders, {}, {}};
  Space& space = advice.space;
  space.files = files_of(space.base, file, folders);
  if (options.free) {
    // To hold so much less is to fit with so much more headroom.
    const Bytes target = std::max(advice.now.device_upper - *options.free, Bytes{1});
    const Bytes headroom = scenario.cluster.device.capacity - target;
    Space with = space;
    with.axes = {{"headroom", {{"", {{{"runtime", "headroom"}, {text(headroom), {}}}}}}}};
    space.base = with.document(0);
  } else if (fits(scenario, advice.now)) {
    advice.fits = true;
    return advice;
  }
  space.axes = changes_of(space.base, scenario);

  std::vector<std::int64_t> strides(space.axes.size(), 1);
  for (std::size_t a = space.axes.size(); a-- > 1;)
    strides[a - 1] = strides[a] * static_cast<std::int64_t>(space.axes[a].values.size());

  Evaluator evaluator(space);
  std::vector<std::vector<std::size_t>> did_it;  // values by axis, 0 where nothing is changed
  const auto contains = [](const std::vector<std::size_t>& large, const std::vector<std::size_t>& small) {
    for (std::size_t a = 0; a < large.size(); ++a)
      if (small[a] != 0 && small[a] != large[a]) return false;
    return true;
  };
  for (std::size_t changes = 1; changes <= std::min(options.most_changes, space.axes.size()); ++changes) {
    // Every choice of that many axes, and of a new value for each.
    std::vector<std::vector<std::size_t>> sets;
    std::vector<std::size_t> values(space.axes.size(), 0);
    const std::function<void(std::size_t, std::size_t)> choose = [&](std::size_t axis, std::size_t left) {
      if (left == 0) {
        if (std::none_of(did_it.begin(), did_it.end(), [&](const auto& small) { return contains(values, small); }))
          sets.push_back(values);
        return;
      }
      if (axis + left > space.axes.size()) return;
      choose(axis + 1, left);
      for (std::size_t v = 1; v < space.axes[axis].values.size(); ++v) {
        values[axis] = v;
        choose(axis + 1, left - 1);
      }
      values[axis] = 0;
    };
    choose(0, changes);

    std::vector<std::optional<Found>> found(sets.size());
    std::mutex reporting;
    std::int64_t done = 0;
    oneapi::tbb::parallel_for(std::size_t{0}, sets.size(), [&](std::size_t i) {
      const std::int64_t index =
          std::inner_product(sets[i].begin(), sets[i].end(), strides.begin(), std::int64_t{0}, std::plus<>(),
                             [](std::size_t v, std::int64_t stride) { return static_cast<std::int64_t>(v) * stride; });
      const Screened screened = evaluator.screen(index, 1, 1);
      if (!screened.survivors.empty()) {
        Evaluated e = evaluator.allocate(screened.survivors.front(), {});
        if (e.verdict == Evaluated::Verdict::Fits && !e.timed) e = evaluator.time(e.found);
        if (e.verdict == Evaluated::Verdict::Fits) found[i] = e.found;
      }
      const std::lock_guard lock(reporting);
      if (progress)
        progress(fmt::format("trying {} changes at once", changes), ++done, static_cast<std::int64_t>(sets.size()));
    });
    advice.tried += static_cast<std::int64_t>(sets.size());
    for (std::size_t i = 0; i < sets.size(); ++i) {
      if (!found[i]) continue;
      Remedy remedy{{}, *found[i]};
      for (std::size_t a = 0; a < sets[i].size(); ++a)
        if (sets[i][a] != 0)
          remedy.changes.push_back(fmt::format("{}: {} -> {}", space.axes[a].name, space.axes[a].values[0].text,
                                               space.axes[a].values[sets[i][a]].text));
      advice.remedies.push_back(std::move(remedy));
      did_it.push_back(sets[i]);
    }
  }
  std::sort(advice.remedies.begin(), advice.remedies.end(),
            [](const Remedy& a, const Remedy& b) { return better(a.found, b.found); });
  return advice;
}

}  // namespace tidemark
