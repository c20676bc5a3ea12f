#include "scenarios/cli/figure_files.hpp"

#include <filesystem>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include <duktape.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scenarios/formats/output_file.hpp"
#include "scenarios/report/page/page_files.hpp"

namespace tidemark::cli {
namespace {

// What a browser has and ECharts asks for where it draws at once: nobody waits here.
constexpr std::string_view surroundings = "var window; function setTimeout() {} function clearTimeout() {}";

using Files = std::vector<FigureFile>;

duk_ret_t put(duk_context* context) {
  duk_push_global_stash(context);
  duk_get_prop_string(context, -1, "files");
  auto& files = *static_cast<Files*>(duk_get_pointer(context, -1));
  files.push_back({duk_require_string(context, 0), duk_require_string(context, 1)});
  return 0;
}

void run(duk_context* context, std::string_view script) {
  if (duk_peval_lstring(context, script.data(), script.size()) != 0)
    throw std::runtime_error(std::string("figures were not made: ") + duk_safe_to_string(context, -1));
  duk_pop(context);
}

// Whether the program is there and did it.
bool converted_svg(const std::filesystem::path& svg, const std::filesystem::path& made, std::string how) {
  std::string name = "rsvg-convert", to = "--output=" + made.string(), from = svg.string();
  char* const arguments[] = {name.data(), how.data(), to.data(), from.data(), nullptr};
  pid_t child = 0;
  posix_spawn_file_actions_t quietly;
  posix_spawn_file_actions_init(&quietly);
  posix_spawn_file_actions_addopen(&quietly, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const int error = posix_spawnp(&child, name.c_str(), &quietly, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&quietly);
  int status = 0;
  return error == 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

std::vector<FigureFile> figure_files(const std::string& data, FiguresFor what) {
  const std::unique_ptr<duk_context, void (*)(duk_context*)> engine(duk_create_heap_default(), duk_destroy_heap);
  if (!engine) throw std::runtime_error("figures were not made: no memory for their engine");
  duk_context* const context = engine.get();
  Files files;
  duk_push_global_stash(context);
  duk_push_pointer(context, &files);
  duk_put_prop_string(context, -2, "files");
  duk_pop(context);
  duk_push_c_function(context, put, 2);
  duk_put_global_string(context, "put");
  duk_push_lstring(context, data.data(), data.size());
  duk_put_global_string(context, "data");
  run(context, surroundings);
  run(context, scenarios::page_charts());
  run(context, scenarios::page_figures());
  run(context, what == FiguresFor::Pages ? "Tidemark.write(JSON.parse(data), echarts, put)"
                                         : "Tidemark.paper(JSON.parse(data), echarts, put)");
  return files;
}

std::string write_figures(const std::string& folder, const std::vector<FigureFile>& files) {
  const std::filesystem::path place(folder);
  std::filesystem::create_directories(place);
  bool has_png = true;
  std::size_t figures = 0;
  for (const FigureFile& file : files) {
    const std::filesystem::path path = place / file.name;
    scenarios::write_file(path, [&](std::ostream& out) { out << file.content; });
    if (path.extension() != ".svg") continue;
    ++figures;
    has_png = has_png && converted_svg(path, std::filesystem::path(path).replace_extension(".png"), "--zoom=2");
  }
  return fmt::format("figures: {} in {}, as SVG{}; tables as CSV and Markdown\n", figures, folder,
                     has_png ? " and PNG" : " (PNG takes rsvg-convert: Debian's package librsvg2-bin)");
}

std::string write_paper(const std::string& folder, const std::vector<FigureFile>& files) {
  const std::filesystem::path place(folder);
  std::filesystem::create_directories(place);
  bool has_pdf = true;
  std::size_t figures = 0, tables = 0;
  for (const FigureFile& file : files) {
    const std::filesystem::path path = place / file.name;
    scenarios::write_file(path, [&](std::ostream& out) { out << file.content; });
    if (path.extension() != ".svg") {
      ++tables;
      continue;
    }
    ++figures;
    has_pdf = has_pdf && converted_svg(path, std::filesystem::path(path).replace_extension(".pdf"), "--format=pdf");
  }
  scenarios::write_file(place / "tidemark.bib", [](std::ostream& out) { out << citation(); });
  return fmt::format("paper: {} figures of a column and a page in {}, as SVG{}; {} tables for LaTeX; tidemark.bib\n",
                     figures, folder, has_pdf ? " and PDF" : " (PDF takes rsvg-convert: Debian's package librsvg2-bin)",
                     tables);
}

std::string citation() {
  return fmt::format(
      "@software{{tidemark,\n"
      "  title = {{Tidemark: a simulator of memory and time of distributed training}},\n"
      "  author = {{{{The Tidemark developers}}}},\n"
      "  version = {{{}}},\n"
      "  date = {{2026-11-29}},\n"
      "  year = {{2026}},\n"
      "  note = {{Apache-2.0}}\n"
      "}}\n",
      TIDEMARK_VERSION);
}

}  // namespace tidemark::cli
