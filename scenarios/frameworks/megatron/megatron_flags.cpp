#include "scenarios/frameworks/megatron/megatron_flags.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

#include <fmt/format.h>

// The assembler takes the tables as they are.
__asm__(
    ".pushsection .rodata\n"
    "tidemark_megatron_flags_begin:\n.incbin \"" TIDEMARK_FLAG_TABLES
    "megatron_flags.tsv\"\ntidemark_megatron_flags_end:\n"
    "tidemark_megatron_forks_begin:\n.incbin \"" TIDEMARK_FLAG_TABLES
    "megatron_forks.tsv\"\ntidemark_megatron_forks_end:\n"
    ".global tidemark_megatron_flags_begin\n.global tidemark_megatron_flags_end\n"
    ".global tidemark_megatron_forks_begin\n.global tidemark_megatron_forks_end\n"
    ".byte 0\n.popsection\n");
extern "C" const char tidemark_megatron_flags_begin[];
extern "C" const char tidemark_megatron_flags_end[];
extern "C" const char tidemark_megatron_forks_begin[];
extern "C" const char tidemark_megatron_forks_end[];

namespace tidemark::scenarios {
namespace {

constexpr std::array<std::string_view, 5> kinds{"modelled", "nothing", "bound", "unmodelled", "unclassified"};

std::string_view cut(std::string_view& text, char at) {
  const std::size_t end = std::min(text.find(at), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

void add(std::string_view table, bool of_fork, std::vector<MegatronArgument>& all) {
  while (!table.empty()) {
    std::string_view line = cut(table, '\n');
    if (line.empty() || line.starts_with('#')) continue;
    MegatronArgument its;
    its.of_fork = of_fork;
    its.flag = cut(line, '\t');
    its.whose = cut(line, '\t');
    const auto* const kind = std::ranges::find(kinds, cut(line, '\t'));
    its.kind = kind == kinds.end() ? MegatronArgument::Kind::Unclassified
                                   : static_cast<MegatronArgument::Kind>(kind - kinds.begin());
    if (!of_fork) its.place = cut(line, '\t');
    its.why = line;
    all.push_back(its);
  }
}

std::string_view between(const char* begin, const char* end) { return {begin, static_cast<std::size_t>(end - begin)}; }

}  // namespace

const std::vector<MegatronArgument>& megatron_arguments_known() {
  static const std::vector<MegatronArgument> all = [] {
    std::vector<MegatronArgument> made;
    add(between(tidemark_megatron_flags_begin, tidemark_megatron_flags_end), false, made);
    add(between(tidemark_megatron_forks_begin, tidemark_megatron_forks_end), true, made);
    std::ranges::stable_sort(made, {}, &MegatronArgument::flag);
    return made;
  }();
  return all;
}

const MegatronArgument* megatron_argument(std::string_view flag) {
  const std::vector<MegatronArgument>& all = megatron_arguments_known();
  const auto found = std::ranges::lower_bound(all, flag, {}, &MegatronArgument::flag);
  return found == all.end() || found->flag != flag ? nullptr : &*found;
}

std::string whose(const MegatronArgument& argument) {
  return argument.of_fork ? std::string(argument.whose) : fmt::format("Megatron-LM core {}", argument.whose);
}

}  // namespace tidemark::scenarios
