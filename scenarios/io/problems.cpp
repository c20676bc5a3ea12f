#include "scenarios/io/problems.hpp"

#include <algorithm>
#include <tuple>

namespace tidemark {

void Problems::raise_if_any() const {
  if (found_.empty()) return;
  std::vector<Problem> sorted = found_;
  const auto key = [&](const Problem& p) { return std::tuple(p.file != file_, p.file, p.line, p.column); };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Problem& a, const Problem& b) { return key(a) < key(b); });
  throw InputError(std::move(sorted));
}

}  // namespace tidemark
