#include "kernels/execute/parts.hpp"

#include <algorithm>

#include "kernels/execute/content.hpp"

namespace tidemark::execute {

Cut::Cut(const std::vector<std::int64_t>& parts) {
  for (const std::int64_t part : parts) begins_.push_back(begins_.back() + part);
}

std::int64_t Cut::largest() const {
  std::int64_t most = 0;
  for (std::size_t place = 0; place + 1 < begins_.size(); ++place)
    most = std::max(most, begins_[place + 1] - begins_[place]);
  return most;
}

Parts even_parts(std::int64_t whole, std::int64_t members) {
  const Cut even(std::vector<std::int64_t>(static_cast<std::size_t>(members), shard_words(whole, members)));
  return {whole, even, even};
}

Parts parts_of(const Program& program, const Collective& call, std::int64_t members, PageScale scale) {
  const std::int64_t whole = scale.words(call.size);
  if (!call.row.valid()) return even_parts(whole, members);
  const auto cut = [&](const std::vector<Bytes>& parts) {
    std::vector<std::int64_t> words;
    for (const Bytes part : parts) words.push_back(scale.part_words(part));
    return Cut(words);
  };
  const MatrixRow& row = program[call.row];
  return {whole, cut(row.sends), cut(row.receives)};
}

Moved moved_by(const Program& program, const Memcpy& copy, PageScale scale, std::int64_t source_words,
               std::int64_t target_words) {
  Moved moved;
  moved.from = std::min(scale.part_words(program[copy.from.offset]), source_words);
  moved.to = std::min(scale.part_words(program[copy.to.offset]), target_words);
  moved.words = std::min({scale.words(copy.size), source_words - moved.from, target_words - moved.to});
  return moved;
}

}  // namespace tidemark::execute
