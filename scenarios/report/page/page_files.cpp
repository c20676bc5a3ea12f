#include "scenarios/report/page/page_files.hpp"

// The assembler takes the files as they are; several become one text.
#define TIDEMARK_PART(file) ".incbin \"" TIDEMARK_PAGE_FILES file "\"\n"
#define TIDEMARK_PAGE_FILE(symbol, file) TIDEMARK_PAGE_TEXT(symbol, TIDEMARK_PART(file))
#define TIDEMARK_PAGE_TEXT(symbol, parts)                                                      \
  __asm__(".pushsection .rodata\n.global " #symbol "_begin\n.global " #symbol "_end\n" #symbol \
          "_begin:\n" parts #symbol "_end:\n.byte 0\n.popsection\n");                          \
  extern "C" const char symbol##_begin[];                                                      \
  extern "C" const char symbol##_end[]

TIDEMARK_PAGE_FILE(tidemark_page_html, "page.html");
TIDEMARK_PAGE_FILE(tidemark_page_css, "page.css");
TIDEMARK_PAGE_FILE(tidemark_page_charts, "echarts/echarts.min.js");
// One function: the first opens it, and the last closes it.
TIDEMARK_PAGE_TEXT(tidemark_page_figures,
                   TIDEMARK_PART("figures/common.js") TIDEMARK_PART("figures/memory.js")
                       TIDEMARK_PART("figures/time.js") TIDEMARK_PART("figures/ranks_and_links.js")
                           TIDEMARK_PART("figures/hosts.js") TIDEMARK_PART("figures/predictions.js")
                               TIDEMARK_PART("figures/searches.js") TIDEMARK_PART("figures/measurements.js")
                                   TIDEMARK_PART("figures/documents.js"));
TIDEMARK_PAGE_FILE(tidemark_page_script, "page.js");

namespace tidemark::scenarios {
namespace {

std::string_view between(const char* begin, const char* end) { return {begin, static_cast<std::size_t>(end - begin)}; }

}  // namespace

std::string_view page_template() { return between(tidemark_page_html_begin, tidemark_page_html_end); }
std::string_view page_style() { return between(tidemark_page_css_begin, tidemark_page_css_end); }
std::string_view page_charts() { return between(tidemark_page_charts_begin, tidemark_page_charts_end); }
std::string_view page_figures() { return between(tidemark_page_figures_begin, tidemark_page_figures_end); }
std::string_view page_script() { return between(tidemark_page_script_begin, tidemark_page_script_end); }

}  // namespace tidemark::scenarios
