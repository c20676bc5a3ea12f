#include "scenarios/validate/arithmetic/findings.hpp"

#include <cstddef>
#include <cstring>
#include <utility>

namespace tidemark::scenarios {
namespace {

template <class Number>
void append_number(std::string& bytes, Number number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

template <class Number>
Number take(std::string_view& bytes) {
  Number number{};
  std::memcpy(&number, bytes.data(), sizeof number);
  bytes.remove_prefix(sizeof number);
  return number;
}

}  // namespace

void append(std::string& bytes, const Finding& finding) {
  append_number(bytes, finding.what);
  append_number(bytes, finding.step);
  append_number(bytes, finding.name.size());
  bytes += finding.name;
  append_number(bytes, finding.first);
  append_number(bytes, finding.op);
  append_number(bytes, finding.values.size());
  bytes.append(reinterpret_cast<const char*>(finding.values.data()), finding.values.size() * sizeof(double));
}

std::vector<Finding> findings_in(std::string_view bytes) {
  std::vector<Finding> all;
  while (!bytes.empty()) {
    Finding finding;
    finding.what = take<FindingKind>(bytes);
    finding.step = take<std::int32_t>(bytes);
    const auto length = take<std::size_t>(bytes);
    finding.name = bytes.substr(0, length);
    bytes.remove_prefix(length);
    finding.first = take<std::int64_t>(bytes);
    finding.op = take<std::int64_t>(bytes);
    finding.values.resize(take<std::size_t>(bytes));
    const std::size_t of_values = finding.values.size() * sizeof(double);
    std::memcpy(finding.values.data(), bytes.data(), of_values);
    bytes.remove_prefix(of_values);
    all.push_back(std::move(finding));
  }
  return all;
}

}  // namespace tidemark::scenarios
