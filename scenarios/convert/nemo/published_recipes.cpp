#include "scenarios/convert/nemo/published_recipes.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>

// The assembler takes the table as it is.
__asm__(
    ".pushsection .rodata\n"
    "tidemark_published_recipes_begin:\n.incbin \"" TIDEMARK_PUBLISHED_RECIPES
    "\"\ntidemark_published_recipes_end:\n"
    ".global tidemark_published_recipes_begin\n.global tidemark_published_recipes_end\n"
    ".byte 0\n.popsection\n");
extern "C" const char tidemark_published_recipes_begin[];
extern "C" const char tidemark_published_recipes_end[];

namespace tidemark::scenarios {
namespace {

std::string_view column(std::string_view& text, char at = '\t') {
  const std::size_t end = std::min(text.find(at), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

std::size_t number(std::string_view text) {
  std::size_t its = 0;
  std::from_chars(text.data(), text.data() + text.size(), its);
  return its;
}

std::vector<PublishedRecipe> read_table(std::string_view table) {
  std::vector<PublishedRecipe> recipes;
  std::vector<std::pair<std::string_view, std::string_view>> settings;
  while (!table.empty()) {
    std::string_view line = column(table, '\n');
    if (line.empty() || line.starts_with('#')) continue;
    const std::string_view first = column(line);
    if (first.find('.') == std::string_view::npos) {  // a setting with its number, which counts up from 0
      const std::string_view path = column(line);
      settings.emplace_back(path, line);
      continue;
    }
    PublishedRecipe its;
    for (std::string_view releases = first; !releases.empty();) its.releases.push_back(column(releases, ','));
    its.model = column(line), its.task = column(line), its.device = column(line);
    its.precision = column(line), its.variant = column(line);
    its.devices = static_cast<std::int64_t>(number(column(line)));
    while (!line.empty()) its.settings.push_back(settings.at(number(column(line, ' '))));
    recipes.push_back(std::move(its));
  }
  return recipes;
}

}  // namespace

const std::vector<PublishedRecipe>& published_recipes() {
  static const std::vector<PublishedRecipe> all =
      read_table({tidemark_published_recipes_begin,
                  static_cast<std::size_t>(tidemark_published_recipes_end - tidemark_published_recipes_begin)});
  return all;
}

}  // namespace tidemark::scenarios
