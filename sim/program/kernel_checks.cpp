#include "sim/program/kernel_checks.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tidemark::sim {
namespace {

using Problem = std::optional<std::string>;

/// Views of one group of operands by the operation's names; those that an operation takes many of come last.
using Views = std::vector<const View*>;

std::string text(const Shape& sizes) { return fmt::format("[{}]", fmt::join(sizes, "x")); }

// Broadcasting as PyTorch has it: dimensions are matched from the last on.
bool broadcasts(const Shape& from, const Shape& to) {
  if (from.size() > to.size()) return false;
  for (std::size_t d = 0; d < from.size(); ++d) {
    const std::int64_t size = from[from.size() - 1 - d];
    if (size != 1 && size != to[to.size() - 1 - d]) return false;
  }
  return true;
}

class Checker {
 public:
  Checker(const OperationFacts& facts, Views inputs, Views outputs)
      : facts_(facts), in_(std::move(inputs)), out_(std::move(outputs)) {}

  Problem problem() const {
    switch (facts_.sizes) {
      case OperandSizes::Free:
        return {};
      case OperandSizes::Elementwise:
        return elementwise();
      case OperandSizes::Pairs:
        return fits("x", in_[0], "y", out_[0]);
      case OperandSizes::Reduction:
        return fits("y", out_[0], "x", in_[0]);
      case OperandSizes::Rows:
        return rows();
      case OperandSizes::Halves:
        return halves();
      case OperandSizes::Matmul:
        return matmul();
      case OperandSizes::Attention:
        return attention();
    }
    return {};
  }

 private:
  static Problem fits(std::string_view what, const View* from, std::string_view into, const View* to) {
    if (from == nullptr || broadcasts(from->sizes, to->sizes)) return {};
    return fmt::format("{} is {}, {} {}", what, text(from->sizes), into, text(to->sizes));
  }

  Problem elementwise() const {
    for (std::size_t i = 0; i < in_.size(); ++i)
      if (const Problem found =
              fits(facts_.inputs[std::min(i, facts_.inputs.size() - 1)].name, in_[i], facts_.outputs[0].name, out_[0]))
        return found;
    for (std::size_t o = 1; o < out_.size(); ++o)
      if (out_[o] != nullptr && out_[o]->sizes != out_[0]->sizes)
        return fmt::format("{} is {}, {} {}", facts_.outputs[o].name, text(out_[o]->sizes), facts_.outputs[0].name,
                           text(out_[0]->sizes));
    return {};
  }

  // [..., n], where each operand has an n of its own.
  Problem rows() const {
    const Shape& of_output = out_[0]->sizes;
    const auto alike = [&](const Shape& sizes) {
      return !sizes.empty() && sizes.size() == of_output.size() &&
             std::equal(sizes.begin(), sizes.end() - 1, of_output.begin());
    };
    const auto problem_of = [&](const Views& views, const std::vector<OperandFacts>& names) -> Problem {
      for (std::size_t i = 0; i < views.size(); ++i)
        if (views[i] != nullptr && !alike(views[i]->sizes))
          return fmt::format("{} is {}, {} {}: not the same rows", names[i].name, text(views[i]->sizes),
                             facts_.outputs[0].name, text(of_output));
      return {};
    };
    if (const Problem found = problem_of(in_, facts_.inputs)) return found;
    return problem_of(out_, facts_.outputs);
  }

  Problem halves() const {
    Shape half = in_[0]->sizes;
    if (half.empty() || half.back() % 2 != 0) return fmt::format("x is {}: it has no halves", text(half));
    half.back() /= 2;
    if (half == out_[0]->sizes) return {};
    return fmt::format("y is {}, half of x {}", text(out_[0]->sizes), text(half));
  }

  // Kernels that multiply matrices take both in one type (cublasGemmEx, at::mm).
  Problem types_of_product(std::size_t a, std::size_t b) const {
    if (in_[a]->dtype == in_[b]->dtype) return {};
    return fmt::format("{} is {}, {} {}: no product takes two types", facts_.inputs[a].name, name(in_[a]->dtype),
                       facts_.inputs[b].name, name(in_[b]->dtype));
  }

  Problem matmul() const {
    const Shape &a = in_[0]->sizes, &b = in_[1]->sizes, &c = out_[0]->sizes;
    if (a.size() < 2 || b.size() < 2)
      return fmt::format("a is {}, b {}: a matrix has rows and columns", text(a), text(b));
    Shape product = a;
    product.back() = b.back();
    const bool inner = a.back() == b[b.size() - 2];
    const bool batches = b.size() == 2 || (a.size() == b.size() && std::equal(a.begin(), a.end() - 2, b.begin()));
    if (!inner || !batches) return fmt::format("a is {}, b {}: they have no product", text(a), text(b));
    if (c != product) return fmt::format("c is {}, a times b {}", text(c), text(product));
    if (const Problem found = types_of_product(0, 1)) return found;
    for (std::size_t i = 2; i < in_.size(); ++i)
      if (const Problem found = fits(facts_.inputs[i].name, in_[i], "c", out_[0])) return found;
    return {};
  }

  // [batch, sequence, heads, width], heads of keys a divisor of those of queries.
  Problem attention() const {
    const std::size_t first = facts_.inputs[0].name == "q" ? 0 : 1;
    const View &q = *in_[first], &k = *in_[first + 1], &v = *in_[first + 2];
    for (const auto& [what, view] : {std::pair("q", &q), std::pair("k", &k), std::pair("v", &v)})
      if (view->sizes.size() != 4)
        return fmt::format("{} is {}: it has no [batch, sequence, heads, width]", what, text(view->sizes));
    const bool fit = q.sizes[0] == k.sizes[0] && k.sizes[2] > 0 && q.sizes[2] % k.sizes[2] == 0 &&
                     q.sizes[3] == k.sizes[3] && v.sizes[1] == k.sizes[1] && v.sizes[2] == k.sizes[2];
    if (!fit) return fmt::format("q is {}, k {}, v {}", text(q.sizes), text(k.sizes), text(v.sizes));
    for (const std::size_t other : {first + 1, first + 2})
      if (const Problem found = types_of_product(first, other)) return found;
    if (first == 0) return {};
    for (std::size_t i = 0; i < 3; ++i)
      if (out_[i]->sizes != in_[first + i]->sizes)
        return fmt::format("{} is {}, {} {}", facts_.outputs[i].name, text(out_[i]->sizes),
                           facts_.inputs[first + i].name, text(in_[first + i]->sizes));
    return {};
  }

  const OperationFacts& facts_;
  Views in_, out_;
};

// How many operands a group has; any number where the operation takes many.
std::optional<std::size_t> group_size(const std::vector<OperandFacts>& operands) {
  if (std::ranges::any_of(operands, &OperandFacts::many)) return std::nullopt;
  return operands.size();
}

Problem count_problem(std::string_view which, const std::vector<OperandFacts>& operands, std::size_t count,
                      std::size_t groups) {
  const auto of_group = group_size(operands);
  if (of_group ? count == *of_group * groups : count >= operands.size()) return {};
  return fmt::format("{} {}, where it takes {}{}", count, which, of_group ? *of_group * groups : operands.size(),
                     of_group ? "" : " or more");
}

}  // namespace

std::optional<std::string> problem_of(const Program& program, const Kernel& kernel) {
  const OperationFacts& facts = facts_of(kernel.operation);
  const std::vector<OperandFacts>& counted = facts.outputs.empty() ? facts.inputs : facts.outputs;
  const std::size_t length = std::max<std::size_t>(counted.size(), 1);
  const std::size_t groups = facts.grouped ? std::max<std::size_t>(kernel.outputs.size() / length, 1) : 1;
  for (const auto& [which, operands, views] :
       {std::tuple("inputs", &facts.inputs, &kernel.inputs), std::tuple("outputs", &facts.outputs, &kernel.outputs)})
    if (const Problem found = count_problem(which, *operands, views->size(), groups)) return found;
  const std::size_t inputs = kernel.inputs.size() / groups, outputs = kernel.outputs.size() / groups;
  for (std::size_t g = 0; g < groups; ++g) {
    std::array<Views, 2> views;
    const auto take = [&](Views& into, const std::vector<ViewId>& from, std::size_t count,
                          const std::vector<OperandFacts>& operands) -> Problem {
      for (std::size_t i = 0; i < count; ++i) {
        into.push_back(view_of(program, from[g * count + i]));
        const OperandFacts& its = operands[std::min(i, operands.size() - 1)];
        if (into.back() == nullptr && !its.optional) return fmt::format("{} is absent", its.name);
      }
      return {};
    };
    if (const Problem found = take(views[0], kernel.inputs, inputs, facts.inputs)) return found;
    if (const Problem found = take(views[1], kernel.outputs, outputs, facts.outputs)) return found;
    if (const Problem found = Checker(facts, std::move(views[0]), std::move(views[1])).problem()) return found;
  }
  return {};
}

}  // namespace tidemark::sim
