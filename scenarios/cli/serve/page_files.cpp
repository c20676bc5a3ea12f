#include "scenarios/cli/serve/page_files.hpp"

// The assembler takes the files as they are.
#define TIDEMARK_SERVED(symbol, file)                                                                     \
  __asm__(".pushsection .rodata\n.global " #symbol "_begin\n.global " #symbol "_end\n" #symbol            \
          "_begin:\n.incbin \"" TIDEMARK_SERVE_PAGE file "\"\n" #symbol "_end:\n.byte 0\n.popsection\n"); \
  extern "C" const char symbol##_begin[];                                                                 \
  extern "C" const char symbol##_end[]

TIDEMARK_SERVED(tidemark_serve_html, "serve.html");
TIDEMARK_SERVED(tidemark_serve_css, "serve.css");
TIDEMARK_SERVED(tidemark_serve_js, "serve.js");

namespace tidemark::cli {
namespace {

std::string_view between(const char* begin, const char* end) { return {begin, static_cast<std::size_t>(end - begin)}; }

}  // namespace

std::string_view serve_page() { return between(tidemark_serve_html_begin, tidemark_serve_html_end); }
std::string_view serve_style() { return between(tidemark_serve_css_begin, tidemark_serve_css_end); }
std::string_view serve_script() { return between(tidemark_serve_js_begin, tidemark_serve_js_end); }

}  // namespace tidemark::cli
