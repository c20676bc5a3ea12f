#include "scenarios/report/page/report_page.hpp"

#include <array>
#include <string_view>
#include <utility>

#include "scenarios/report/page/page_files.hpp"

namespace tidemark::scenarios {
namespace {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

// No text of it can end the script element that it stands in.
std::string within_script(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

}  // namespace

std::string report_page(const std::string& title, const std::string& data) {
  const std::string escaped_title = escaped(title), escaped_data = within_script(data);
  const std::array<std::pair<std::string_view, std::string_view>, 6> parts{{
      {"{{title}}", escaped_title},
      {"{{style}}", page_style()},
      {"{{data}}", escaped_data},
      {"{{charts}}", page_charts()},
      {"{{figures}}", page_figures()},
      {"{{script}}", page_script()},
  }};
  std::string out;
  std::string_view rest = page_template();
  // In the order of the page: what has been put in is not looked through again.
  for (const auto& [place, text] : parts) {
    const std::size_t at = rest.find(place);
    out += rest.substr(0, at);
    out += text;
    rest.remove_prefix(at + place.size());
  }
  return out += rest;
}

}  // namespace tidemark::scenarios
