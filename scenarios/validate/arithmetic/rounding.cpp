#include "scenarios/validate/arithmetic/rounding.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tidemark::scenarios {
namespace {

bool stores(const Program& program, const Launch& launch, DType dtype) {
  return std::ranges::any_of(program[launch.kernel].outputs,
                             [&](ViewId view) { return view.valid() && program[view].dtype == dtype; });
}

// Of one micro-batch, kernels that store their results in that type: no gradient comes through more of them.
std::int64_t roundings(const Program& program, DType dtype) {
  std::int64_t count = 0;
  Mark at;
  for (const Op& op : program.ops) {
    if (const Mark* const mark = std::get_if<Mark>(&op)) at = *mark;
    const Launch* const launch = std::get_if<Launch>(&op);
    if (launch != nullptr && at.step == 1 && at.micro_batch == 0 && stores(program, *launch, dtype)) ++count;
  }
  return count;
}

}  // namespace

bool rounds_to_16_bits(const Train& train) { return train.precision != DType::FP32; }

// A result that is stored is rounded to nearest, by at most u = 2^-p of itself where the type holds p binary digits,
// and by some 0.4 u on average (root of the mean square). Roundings are as good as independent (Higham and Mary, "A new
// approach to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019), so that n of them in a row come
// to some 0.4 u √n; this is five times that. Sums are in fp32 or more, which is exact beside it.
double most_rounding(const Job& job) {
  const DType dtype = job.scenario.train.precision;
  const double unit = dtype == DType::BF16 ? 0x1p-8 : 0x1p-11;
  const Program program = lower_role(job.lowering(), job.roles.front());
  return 2 * unit * std::sqrt(static_cast<double>(roundings(program, dtype)));
}

}  // namespace tidemark::scenarios
