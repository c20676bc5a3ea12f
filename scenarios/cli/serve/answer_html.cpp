#include "scenarios/cli/serve/answer_html.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/serve/page_files.hpp"
#include "scenarios/cli/shipped_names.hpp"

namespace tidemark::cli {
namespace {

using Parsed = nlohmann::json;

std::string gib(std::int64_t bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1 << 30)); }

std::string duration(double seconds) {
  if (seconds >= 100) return fmt::format("{:.0f} s", seconds);
  return seconds >= 1 ? fmt::format("{:.2f} s", seconds) : fmt::format("{:.0f} ms", seconds * 1e3);
}

// Categories that a reader thinks of together.
struct Part {
  const char* name;
  std::vector<std::string_view> categories;
};
const std::array<Part, 7>& parts() {
  static const std::array<Part, 7> all{{
      {"parameters", {"parameters", "adapters", "quantization"}},
      {"gradients", {"gradients"}},
      {"optimizer", {"optimizer_master", "optimizer_moments"}},
      {"activations", {"saved_activations", "recompute", "logits_loss", "temporaries", "kv_cache"}},
      {"communication", {"comm_tp", "comm_cp", "comm_ep", "comm_dp", "comm_pp", "nccl", "offload_staging"}},
      {"context and workspaces", {"context", "workspaces"}},
      {"cache", {"fragmentation"}},
  }};
  return all;
}

std::string bar(const Parsed& answer) {
  const std::int64_t capacity = answer["capacity_bytes"];
  std::vector<std::int64_t> sums(parts().size(), 0);
  std::int64_t all = 0;
  for (const Parsed& one : answer["composition"]) {
    const std::string category = one["category"];
    for (std::size_t p = 0; p < parts().size(); ++p)
      if (std::ranges::find(parts()[p].categories, category) != parts()[p].categories.end())
        sums[p] += one["bytes"].get<std::int64_t>();
    all += one["bytes"].get<std::int64_t>();
  }
  const double scale = 720.0 / static_cast<double>(std::max({capacity, all, std::int64_t{1}}));
  std::string svg = fmt::format(
      "<svg class=\"bar\" viewBox=\"0 0 720 40\" role=\"img\" aria-label=\"{} at the fullest rank's peak of {}\">",
      html_text(gib(all)), html_text(gib(capacity)));
  double x = 0;
  for (std::size_t p = 0; p < sums.size(); ++p) {
    if (sums[p] == 0) continue;
    const double width = static_cast<double>(sums[p]) * scale;
    svg += fmt::format(
        "<rect class=\"part-{}\" x=\"{:.1f}\" y=\"4\" width=\"{:.1f}\" height=\"28\"><title>{}: {}</title></rect>", p,
        x, width, parts()[p].name, gib(sums[p]));
    x += width;
  }
  const double line = static_cast<double>(capacity) * scale;
  svg += fmt::format("<line class=\"capacity\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"0\" y2=\"40\"/></svg>",
                     std::min(line, 719.0));
  svg += "<ul class=\"legend\">";
  for (std::size_t p = 0; p < sums.size(); ++p)
    if (sums[p] > 0)
      svg +=
          fmt::format("<li><span class=\"swatch part-{}\"></span>{} <b>{}</b></li>", p, parts()[p].name, gib(sums[p]));
  return svg + fmt::format("<li><span class=\"swatch capacity\"></span>capacity <b>{}</b></li></ul>", gib(capacity));
}

std::string curve(const Parsed& answer) {
  if (!answer.contains("curve") || answer["curve"].size() < 2) return {};
  const Parsed& points = answer["curve"];
  const double capacity = answer["capacity_bytes"].get<double>();
  const double begin = points.front()[0], end = points.back()[0];
  double most = capacity;
  for (const Parsed& p : points) most = std::max(most, p[2].get<double>() + p[3].get<double>());
  constexpr double width = 720, height = 180;
  const auto x = [&](double t) { return end > begin ? (t - begin) / (end - begin) * width : 0; };
  const auto y = [&](double bytes) { return height - bytes / most * (height - 8); };
  const auto area = [&](const char* kind, const auto& value) {
    std::string path = fmt::format("M0 {:.0f}", height);
    for (const Parsed& p : points) path += fmt::format("L{:.1f} {:.1f}", x(p[0]), y(value(p)));
    return fmt::format("<path class=\"{}\" d=\"{}L{:.0f} {:.0f}Z\"/>", kind, path, width, height);
  };
  std::string svg = fmt::format(
      "<figure><svg class=\"curve\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"memory of rank {} over one "
      "step\">",
      width, height, html_text(answer["ranks"].get<std::string>()));
  svg += area("reserved", [](const Parsed& p) { return p[2].get<double>() + p[3].get<double>(); });
  svg += area("allocated", [](const Parsed& p) { return p[1].get<double>() + p[3].get<double>(); });
  svg += area("driver", [](const Parsed& p) { return p[3].get<double>(); });
  svg += fmt::format("<line class=\"capacity\" x1=\"0\" x2=\"{:.0f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/></svg>", width,
                     y(capacity), y(capacity));
  return svg +
         fmt::format(
             "<figcaption>Memory of one of ranks {} over one step of {}: allocated, reserved above it, context and "
             "NCCL below; the line is the device's {}.</figcaption></figure>",
             html_text(answer["ranks"].get<std::string>()), duration(end - begin), gib(answer["capacity_bytes"]));
}

std::string list_of(const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return {};
  std::string out = fmt::format("<h3>{}</h3><ul>", title);
  for (const std::string& line : lines) out += fmt::format("<li>{}</li>", html_text(line));
  return out + "</ul>";
}

std::string copied(const char* id, const char* title, const std::string& text) {
  if (text.empty()) return {};
  return fmt::format(
      "<details><summary>{0}</summary><button type=\"button\" data-copy=\"{1}\">Copy</button>"
      "<pre id=\"{1}\" tabindex=\"0\">{2}</pre></details>",
      title, id, html_text(text));
}

std::string problems_of(const Parsed& answer) {
  std::string out = "<section class=\"verdict wrong\" data-verdict=\"wrong\"><h2>This job is not valid</h2><ul>";
  for (const Parsed& p : answer["problems"]) {
    std::string fields;
    for (const Parsed& field : p["fields"]) fields += (fields.empty() ? "" : " ") + field.get<std::string>();
    const std::string place = p["place"], hint = p["hint"];
    const std::string message = p["message"];
    const std::string why = hint.empty() ? message : fmt::format("{} ({})", message, hint);
    out += fmt::format("<li data-fields=\"{}\" data-why=\"{}\">{}{}{}</li>", html_text(fields), html_text(why),
                       place.empty() ? "" : html_text(place) + ": ", html_text(message),
                       hint.empty() ? "" : fmt::format("<br><span class=\"hint\">{}</span>", html_text(hint)));
  }
  return out + "</ul></section>";
}

std::string stages_of(const Parsed& answer) {
  if (answer["stages"].size() < 2) return {};
  std::string out =
      "<h3>By pipeline stage</h3><div class=\"scroll\"><table><thead><tr><th scope=\"col\">stage</th><th "
      "scope=\"col\">allocated</th>"
      "<th scope=\"col\">must have</th><th scope=\"col\">up to</th></tr></thead><tbody>";
  for (const Parsed& s : answer["stages"])
    out += fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td></tr>", s["stage"].get<int>(),
                       gib(s["allocated_bytes"]), gib(s["required_bytes"]), gib(s["required_upper_bytes"]));
  return out + "</tbody></table></div>";
}

std::string option(const std::string& value, const std::string& shown, bool chosen) {
  return fmt::format("<option value=\"{}\"{}>{}</option>", html_text(value), chosen ? " selected" : "",
                     html_text(shown));
}

std::string control(const FormField& field, const Fields& fields) {
  const auto at = fields.find(field.name);
  const std::string value = at == fields.end() ? std::string() : at->second;
  const std::string id = fmt::format("f-{}", field.name);
  std::string out = fmt::format("<div class=\"field\"><label for=\"{}\">{}</label>", id, field.label);
  switch (field.control) {
    case Control::Name:
      out += fmt::format(
          "<input id=\"{0}\" name=\"{1}\" list=\"{1}s\" value=\"{2}\" autocomplete=\"off\" "
          "spellcheck=\"false\" aria-describedby=\"{0}-why\">",
          id, field.name, html_text(value));
      break;
    case Control::Number:
      out += fmt::format(
          "<input id=\"{0}\" name=\"{1}\" type=\"number\" min=\"1\" step=\"1\" inputmode=\"numeric\" "
          "value=\"{2}\" aria-describedby=\"{0}-why\">",
          id, field.name, html_text(value));
      break;
    case Control::Check:
      out +=
          fmt::format("<input id=\"{0}\" name=\"{1}\" type=\"checkbox\" value=\"on\"{2} aria-describedby=\"{0}-why\">",
                      id, field.name, value.empty() ? "" : " checked");
      break;
    case Control::Choice:
      out += fmt::format("<select id=\"{0}\" name=\"{1}\" aria-describedby=\"{0}-why\">", id, field.name);
      // Left alone, it says nothing: a pasted file keeps what it has.
      out += option("", field.choices.front().empty() ? "default" : fmt::format("default ({})", field.choices.front()),
                    value.empty());
      for (const std::string& choice : field.choices)
        if (!choice.empty()) out += option(choice, choice, choice == value);
      out += "</select>";
      break;
  }
  return out + fmt::format("<span class=\"why\" id=\"{}-why\">{}</span></div>", id, html_text(field.hint));
}

std::string names(const char* id, const Shipped& kind) {
  std::string out = fmt::format("<datalist id=\"{}\">", id);
  for (const std::string& name : shipped_names(kind))
    if (name.find('/') == std::string::npos) out += fmt::format("<option value=\"{}\">", html_text(name));
  return out + "</datalist>";
}

void put(std::string& page, std::string_view mark, const std::string& text) {
  const std::size_t at = page.find(mark);
  if (at != std::string::npos) page.replace(at, mark.size(), text);
}

}  // namespace

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : text) switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  return out;
}

std::string answer_html(const std::string& answer, const Fields& fields) {
  const Parsed a = Parsed::parse(answer);
  if (a.contains("problems")) return problems_of(a);
  const std::string verdict = a["verdict"];
  const std::int64_t capacity = a["capacity_bytes"], upper = a["required_upper_bytes"], needed = a["required_bytes"];
  std::string step = "it deadlocks", throughput, mfu;
  if (a.contains("step")) {
    const Parsed& s = a["step"];
    step = duration(s["seconds"]);
    throughput = fmt::format("{:.0f}", s["tokens_per_s_per_device"].get<double>());
    mfu = fmt::format("{:.1f} %", 100 * s["mfu"].get<double>());
  }
  std::string out = fmt::format(
      "<section class=\"verdict {0}\" data-verdict=\"{0}\" data-required=\"{1}\" data-step=\"{2}\" "
      "data-throughput=\"{3}\" "
      "data-query=\"{4}\" data-question=\"{5}\"><h2>{6}</h2>",
      verdict == "fits"         ? "yes"
      : verdict == "cannot_say" ? "open"
                                : "no",
      gib(upper), step, throughput, html_text(query_of(fields)), html_text(a["question"].get<std::string>()),
      html_text(a["headline"].get<std::string>()));
  const std::string detail = a["detail"];
  if (const std::size_t more = detail.find('\n'); more != std::string::npos && more + 1 < detail.size())
    out += fmt::format("<pre class=\"detail\">{}</pre>", html_text(detail.substr(more + 1)));
  out += "</section><dl class=\"figures\">";
  const auto figure = [&](const char* name, const std::string& text) {
    out += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>", name, text);
  };
  figure("must have", fmt::format("{} <small>up to {} of {}</small>", gib(needed), gib(upper), gib(capacity)));
  if (a.contains("step"))
    figure("step", fmt::format("{} <small>{} to {}</small>", step, duration(a["step"]["low_seconds"]),
                               duration(a["step"]["high_seconds"])));
  else
    figure("step", step);
  if (!throughput.empty()) figure("tokens/s/GPU", fmt::format("{} <small>MFU {}</small>", throughput, mfu));
  if (a.contains("host")) {
    const std::int64_t has = a["host"]["capacity_bytes"];
    figure("host memory of a node", fmt::format("{} <small>{}</small>", gib(a["host"]["upper_bytes"]),
                                                has > 0 ? "of " + gib(has) : "capacity unknown"));
  }
  out += "</dl>" + bar(a) + curve(a) + stages_of(a);
  if (detail.find("what helps") == std::string::npos)
    out += list_of("What helps", a["helps"].get<std::vector<std::string>>());
  std::vector<std::string> unjudged;
  for (const Parsed& name : a["not_judged"])
    unjudged.push_back(fmt::format("line {}: {}: {}", name["line"].get<int>(), name["what"].get<std::string>(),
                                   name["why"].get<std::string>()));
  out += list_of("Not judged: the answer ignores these", unjudged);
  out += copied("command", "Command", a["command"]);
  out += copied("scenario", "Scenario (save as job.toml, then: tidemark predict job.toml)", a["scenario"]);
  out += copied(
      "launch", "Launch file",
      a["launch"]["text"].get<std::string>() + (a["launch"]["command"].get<std::string>().empty()
                                                    ? ""
                                                    : "\n# " + a["launch"]["command"].get<std::string>() + "\n"));
  out += list_of("What no launch file says", a["launch"]["not_expressed"].get<std::vector<std::string>>());
  out += "<details><summary>What is assumed</summary>" +
         list_of("Assumptions", a["assumptions"].get<std::vector<std::string>>()) + "</details>";
  return out;
}

std::string advice_html(const std::string& answer) {
  const Parsed a = Parsed::parse(answer);
  if (a.contains("problems")) return problems_of(a);
  if (a["remedies"].empty())
    return a["fits"].get<bool>()
               ? "<p>It fits as it is.</p>"
               : fmt::format("<p>No single change of {} that were tried makes it fit.</p>", a["tried"].get<int>());
  std::string out =
      "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">change</th><th scope=\"col\">device</th><th "
      "scope=\"col\">step</th>"
      "<th scope=\"col\">tokens/s/GPU</th></tr></thead><tbody>";
  for (const Parsed& r : a["remedies"]) {
    std::string changes;
    for (const Parsed& c : r["changes"]) changes += (changes.empty() ? "" : ", ") + c.get<std::string>();
    const std::string query = r["query"];
    out += fmt::format("<tr><th scope=\"row\">{}{}</th><td>{}</td><td>{}</td><td>{:.0f}</td></tr>",
                       query.empty() ? html_text(changes)
                                     : fmt::format("<a href=\"/?{}\">{}</a>", html_text(query), html_text(changes)),
                       r["changes_training"].get<bool>() ? " <small>(changes what is trained)</small>" : "",
                       gib(r["device_upper_bytes"]), duration(r["step_seconds"]),
                       r["tokens_per_s_per_device"].get<double>());
  }
  return out + "</tbody></table></div>";
}

std::string page_html(const Fields& fields, const std::string& answer_part) {
  std::string page(serve_page()), form;
  for (const FormField& field : form_fields()) form += control(field, fields);
  const auto text = fields.find(pasted_text), kind = fields.find(pasted_kind);
  std::string kinds;
  for (const std::string& its : pasted_kinds()) kinds += option(its, its, kind != fields.end() && kind->second == its);
  // What a user wrote goes in last: nothing is looked for in it.
  put(page, "{{names}}", names("models", models_shipped) + names("clusters", clusters_shipped));
  put(page, "{{kinds}}", kinds);
  put(page, "{{link}}", html_text("/?" + query_of(fields)));
  const auto pasted = [&](std::string_view name) {
    const auto at = fields.find(name);
    return at == fields.end() ? std::string() : html_text(at->second);
  };
  put(page, "{{open}}", text == fields.end() ? "" : " open");
  put(page, "{{open-parts}}", fields.contains(pasted_model) || fields.contains(pasted_cluster) ? " open" : "");
  put(page, "{{form}}", form);
  std::string out;
  for (const auto& [mark, put_there] : {std::pair<std::string_view, std::string>("{{file}}", pasted(pasted_text)),
                                        {"{{model-file}}", pasted(pasted_model)},
                                        {"{{cluster-file}}", pasted(pasted_cluster)},
                                        {"{{answer}}", answer_part}}) {
    const std::size_t at = page.find(mark);
    out += page.substr(0, at) + put_there;
    page.erase(0, at + mark.size());
  }
  return out + page;
}

}  // namespace tidemark::cli
