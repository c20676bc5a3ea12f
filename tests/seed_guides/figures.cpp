#include "tests/seed_guides/figures.hpp"

#include <filesystem>

#include "scenarios/cluster/cluster_reader.hpp"
#include "scenarios/formats/text_file.hpp"

namespace tidemark::tests::seeds {

Cluster cluster_file(const std::string& name) {
  const std::filesystem::path path =
      std::filesystem::path(TIDEMARK_SOURCE_DIR) / "scenarios/clusters" / (name + ".toml");
  return parse_cluster(read_text(path), path);
}

std::string lora(std::int64_t micro_batch, std::int64_t global_batch) {
  return fmt::format(
      "train.recompute = \"full\"\ntrain.micro_batch = {}\ntrain.global_batch = {}\nadapter.rank = 16\n"
      "adapter.target_modules = [\"q_proj\", \"k_proj\", \"v_proj\", \"o_proj\"]",
      micro_batch, global_batch);
}

std::string one_of(const std::string& model, const std::string& cluster) {
  return fmt::format("model = \"models/{}.json\"\ncluster = \"clusters/{}.toml\"\n{}", model, cluster, small);
}

}  // namespace tidemark::tests::seeds
