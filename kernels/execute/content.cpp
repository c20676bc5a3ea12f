#include "kernels/execute/content.hpp"

#include <algorithm>

#include "kernels/execute/page_scale.hpp"

namespace tidemark::execute {
namespace {

// Odd, so that each word of a payload has a number of its own (2^64 over the golden ratio).
constexpr std::uint64_t stamp_slope = 0x9e3779b97f4a7c15;
// Up to here every word is stamped, above one in each page.
constexpr std::int64_t dense_words = 8 * PageScale::words_per_page;

// Both stamped where both are; grids are powers of two.
bool meet(const ContentRun& a, const ContentRun& b, ContentRun& both) {
  const ContentRun& coarse = a.grid >= b.grid ? a : b;
  const ContentRun& fine = a.grid >= b.grid ? b : a;
  if (coarse.phase % fine.grid != fine.phase) return false;
  both = {std::max(a.begin, b.begin), std::min(a.end, b.end), coarse.grid, coarse.phase, a.base + b.base,
          a.slope + b.slope};
  return both.begin < both.end;
}

}  // namespace

std::int64_t ContentRun::first() const {
  const std::int64_t past = (begin - phase) % grid;
  return past == 0 ? begin : begin + grid - (past + grid) % grid;
}

Content stamped(std::uint64_t base, std::int64_t words) {
  return {{0, words, words <= dense_words ? 1 : PageScale::words_per_page, 0, base, stamp_slope}};
}

void append(Content& out, const Content& source, std::int64_t from, std::int64_t to, std::int64_t at) {
  const std::int64_t shift = at - from;
  for (const ContentRun& run : source) {
    const std::int64_t begin = std::max(run.begin, from), end = std::min(run.end, to);
    if (begin >= end) continue;
    const std::int64_t phase = ((run.phase + shift) % run.grid + run.grid) % run.grid;
    out.push_back({begin + shift, end + shift, run.grid, phase,
                   run.base - static_cast<std::uint64_t>(shift) * run.slope, run.slope});
  }
}

Content sum(std::span<const Content> contents) {
  Content total = contents.empty() ? Content{} : contents.front();
  for (const Content& next : contents.subspan(contents.empty() ? 0 : 1)) {
    Content met;
    for (const ContentRun& a : total)
      for (const ContentRun& b : next)
        if (ContentRun both; meet(a, b, both)) met.push_back(both);
    total = std::move(met);
  }
  return total;
}

std::int64_t shard_words(std::int64_t words, std::int64_t n) {
  const std::int64_t even = words / n;
  return even > dense_words ? even / PageScale::words_per_page * PageScale::words_per_page : even;
}

}  // namespace tidemark::execute
