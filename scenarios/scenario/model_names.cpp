#include "scenarios/scenario/model_names.hpp"

#include <algorithm>
#include <cstdint>

#include <nlohmann/json.hpp>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/suggestion.hpp"
#include "scenarios/formats/text_file.hpp"

namespace tidemark::scenarios {
namespace {

using TableJson = nlohmann::ordered_json;

struct ShapeOfNames {
  std::string shape;
  std::string config;  ///< empty: models/SHAPE.json has it
  std::vector<ModelName> names;
};

std::filesystem::path table_file(const std::filesystem::path& data_root) { return data_root / "model_names.json"; }

// What `read` makes of the table and its sources. Nothing where the data root has no table: it may be somebody's own.
template <class Read>
void with_table(const std::filesystem::path& data_root, const Read& read) {
  const std::filesystem::path file = table_file(data_root);
  if (!is_there(file)) return;
  try {
    const TableJson document = TableJson::parse(read_text(file));
    read(document, document.at("sources"));
  } catch (const TableJson::exception& error) {
    throw InputError(Problem{.file = file.string(),
                             .message = std::string("is not a table of models by name: ") + error.what(),
                             .hint = "it comes with the program: install it again, or leave it out of the data root"});
  }
}

std::vector<ShapeOfNames> table_of(const std::filesystem::path& data_root) {
  std::vector<ShapeOfNames> table;
  with_table(data_root, [&](const TableJson& document, const TableJson& sources) {
    for (const auto& [shape, entry] : document.at("shapes").items()) {
      ShapeOfNames& its = table.emplace_back();
      its.shape = shape;
      if (entry.contains("config")) its.config = entry.at("config").dump(2);
      for (const auto& [source, names] : entry.at("names").items())
        for (const auto& name : names)
          its.names.push_back({name.get<std::string>(), shape, sources.at(source).get<std::string>()});
    }
  });
  return table;
}

std::string small(std::string_view text) {
  std::string made(text);
  for (char& c : made)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return made;
}

NamedConfig config_of(const ShapeOfNames& its, const std::string& name, const std::filesystem::path& data_root) {
  const std::filesystem::path shipped = data_root / "models" / (its.shape + ".json");
  const std::string called = name.substr(name.rfind('/') + 1);
  return {.name = name,
          .shape = its.shape,
          .file = its.config.empty() ? shipped : table_file(data_root),
          .path = data_root / "models" / called / "config.json",
          .text = its.config.empty() ? read_text(shipped) : its.config};
}

}  // namespace

std::vector<ModelName> model_names(const std::filesystem::path& data_root) {
  std::vector<ModelName> all;
  for (const ShapeOfNames& its : table_of(data_root)) all.insert(all.end(), its.names.begin(), its.names.end());
  return all;
}

std::vector<std::string> named_shapes(const std::filesystem::path& data_root) {
  std::vector<std::string> shapes;
  for (const ShapeOfNames& its : table_of(data_root))
    if (!its.config.empty()) shapes.push_back(its.shape);
  return shapes;
}

std::vector<ImageModel> image_models(const std::filesystem::path& data_root) {
  std::vector<ImageModel> all;
  with_table(data_root, [&](const TableJson& document, const TableJson& sources) {
    if (!document.contains("with_images")) return;
    for (const auto& [shape, towers] : document.at("with_images").items())
      for (const auto& [tower, by_source] : towers.items())
        for (const auto& [source, names] : by_source.items())
          for (const auto& name : names)
            all.push_back({name.get<std::string>(), shape, tower, sources.at(source).get<std::string>()});
  });
  return all;
}

std::optional<ImageModel> image_model(std::string_view checkpoint, const std::filesystem::path& data_root) {
  if (checkpoint.ends_with(of_text)) checkpoint.remove_suffix(of_text.size());
  while (checkpoint.ends_with('/')) checkpoint.remove_suffix(1);
  const auto called = [](std::string_view name) { return small(name.substr(name.rfind('/') + 1)); };
  for (const ImageModel& its : image_models(data_root))
    if (small(its.name) == small(checkpoint) || called(its.name) == called(checkpoint)) return its;
  return std::nullopt;
}

std::optional<NamedConfig> named_config(std::string_view name, const std::filesystem::path& data_root) {
  if (name.ends_with(of_text)) {
    const std::optional<ImageModel> whole = image_model(name, data_root);
    std::optional<NamedConfig> its = whole ? named_config(whole->shape, data_root) : std::nullopt;
    if (!its && whole) {  // a shipped file that no name stands for
      const std::filesystem::path shipped = data_root / "models" / (whole->shape + ".json");
      its = NamedConfig{.name = {}, .shape = whole->shape, .file = shipped, .path = {}, .text = read_text(shipped)};
    }
    if (!its) return its;
    its->name = whole->name + std::string(of_text);
    its->path = data_root / "models" / its->name.substr(its->name.rfind('/') + 1) / "config.json";
    return its;
  }
  const std::string requested = small(name);
  for (const ShapeOfNames& its : table_of(data_root)) {
    if (small(its.shape) == requested) return config_of(its, its.shape, data_root);
    for (const ModelName& known : its.names)
      if (small(known.name) == requested) return config_of(its, known.name, data_root);
  }
  return std::nullopt;
}

std::optional<NamedConfig> checkpoint_config(std::string_view checkpoint, const std::filesystem::path& data_root) {
  while (checkpoint.ends_with('/')) checkpoint.remove_suffix(1);
  const auto called = [](std::string_view name) { return small(name.substr(name.rfind('/') + 1)); };
  const std::string whole = small(checkpoint), last = called(checkpoint);
  const std::vector<ShapeOfNames> table = table_of(data_root);
  const ShapeOfNames* found = nullptr;
  std::string name;
  for (const ShapeOfNames& its : table)
    for (const ModelName& known : its.names) {
      if (small(known.name) == whole) return config_of(its, known.name, data_root);
      if (called(known.name) != last) continue;
      if (found != nullptr && found != &its) return std::nullopt;  // two that are called alike
      if (found == nullptr) name = known.name;
      found = &its;
    }
  return found == nullptr ? std::nullopt : std::optional(config_of(*found, name, data_root));
}

std::vector<std::string> near_model_names(std::string_view name, const std::filesystem::path& data_root) {
  std::vector<std::string> all;
  for (const ModelName& known : model_names(data_root)) all.push_back(known.name);
  std::vector<std::string> near = near_names(name, all);
  // Many begin alike: that with the fewest slips comes first, then those that are as long.
  std::ranges::stable_sort(near, {}, [&](const std::string& its) {
    return its.size() > name.size() ? its.size() - name.size() : name.size() - its.size();
  });
  if (std::string closest = nearest(name, all); !near.empty() && !closest.empty()) {
    std::erase(near, closest);
    near.insert(near.begin(), std::move(closest));
  }
  constexpr std::size_t most_reported = 4;
  if (near.size() > most_reported) near.resize(most_reported);
  return near;
}

}  // namespace tidemark::scenarios
