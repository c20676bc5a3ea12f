#include "scenarios/formats/problems.hpp"

#include <algorithm>
#include <tuple>

namespace tidemark::scenarios {

std::vector<Problem> Problems::sorted() && {
  const auto before = [&](const Problem& a, const Problem& b) {
    const bool a_elsewhere = a.file != file_, b_elsewhere = b.file != file_;
    return std::tie(a_elsewhere, a.file, a.line, a.column) < std::tie(b_elsewhere, b.file, b.line, b.column);
  };
  if (found_.size() > 1) std::stable_sort(found_.begin(), found_.end(), before);
  return std::move(found_);
}

void Problems::raise_if_any() const {
  if (!found_.empty()) throw InputError(Problems(*this).sorted());
}

}  // namespace tidemark::scenarios
