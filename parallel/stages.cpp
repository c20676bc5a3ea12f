#include "parallel/stages.hpp"

#include "sim/ensure.hpp"

namespace tidemark {

std::vector<Stage> split_into_stages(std::int32_t layers, const Layout& layout) {
  const std::int32_t places = layers + (layout.count_embedding ? 1 : 0) + (layout.count_loss ? 1 : 0);
  ensure(places % layout.pipeline == 0, "layers divide into equal stages");
  std::vector<Stage> stages;
  std::int32_t next = 0;
  for (std::int32_t s = 0; s < layout.pipeline; ++s) {
    Stage stage;
    stage.embedding = s == 0;
    stage.head = s == layout.pipeline - 1;
    stage.first = next;
    next += places / layout.pipeline - (stage.embedding && layout.count_embedding ? 1 : 0) -
            (stage.head && layout.count_loss ? 1 : 0);
    stage.last = next;
    stages.push_back(stage);
  }
  return stages;
}

}  // namespace tidemark
