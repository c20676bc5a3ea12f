#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/report/page/report_page.hpp"

namespace tidemark::scenarios {
namespace {

using Json = nlohmann::ordered_json;

struct Verdict {
  std::string title, text;
  bool answer = false;
};

Verdict verdict_of_plan(const Json& plan) {
  const bool any = !plan.at("best").empty();
  const auto candidates = plan.at("candidates").get<std::int64_t>();
  return {plan.at("space"),
          any ? fmt::format("yes: the best of {} candidates makes {:.0f} tokens/s per device", candidates,
                            plan.at("best").front().at("tokens_per_s_per_device").get<double>())
              : fmt::format("no, none of {} candidates fits", candidates),
          any};
}

Verdict verdict_of_capacity(const Json& study) {
  const auto largest = study.at("largest").get<std::string>();
  const bool any = std::any_of(study.at("limits").begin(), study.at("limits").end(),
                               [](const Json& l) { return !l.at("largest").is_null(); });
  return {study.at("study"),
          any ? fmt::format("yes: the largest {} that fits", largest)
              : fmt::format("no: not even the smallest {} fits", largest),
          any};
}

Verdict verdict_of_comparison(const Json& comparison) {
  const bool agrees = comparison.at("agrees");
  return {
      comparison.at("scenario"),
      fmt::format("{} {:g} %", agrees ? "yes, prediction and measurement agree within" : "no, they differ by more than",
                  100 * comparison.at("tolerance").get<double>()),
      agrees};
}

Verdict verdict_of_validation(const Json& record) {
  const Json& ranks = record.at("ranks");
  const auto agreeing =
      std::count_if(ranks.begin(), ranks.end(), [](const Json& r) { return r.at("agrees").get<bool>(); });
  const bool agrees = record.at("agrees");
  return {"validation",
          agrees ? fmt::format("yes, what ran and what was predicted agree on all {} ranks", ranks.size())
                 : fmt::format("no, they agree on {} of {} ranks, or the numbers that were computed do not", agreeing,
                               ranks.size()),
          agrees};
}

struct Kind {
  const char* schema;
  const char* name;
  Verdict (*verdict)(const Json& record);
};
constexpr Kind kinds[] = {{"tidemark.plan/1", "plan", verdict_of_plan},
                          {"tidemark.capacity/1", "capacity", verdict_of_capacity},
                          {"tidemark.comparison/1", "comparison", verdict_of_comparison},
                          {"tidemark.validation/1", "validation", verdict_of_validation}};

Json origin_json(const ReportOrigin& origin) {
  return {{"version", origin.version}, {"command", origin.command}, {"file", origin.file}, {"text", origin.text}};
}

[[noreturn]] void refuse(const ReportOrigin& origin, std::string message) {
  throw InputError(Problem{.file = origin.file,
                           .message = std::move(message),
                           .hint = "a scenario (TOML), or what plan, capacity, compare or validate wrote with --json"});
}

}  // namespace

Report report_of_record(const std::string& text, const ReportOrigin& origin) {
  const Json record = Json::parse(text, nullptr, false);
  if (record.is_discarded() || !record.is_object()) refuse(origin, "this is no JSON of Tidemark");
  const Json schema = record.value("schema", Json());
  for (const Kind& kind : kinds) {
    if (schema != kind.schema) continue;
    try {
      const Verdict verdict = kind.verdict(record);
      Json out = {{"schema", "tidemark.report/1"},
                  {"kind", kind.name},
                  {"title", verdict.title},
                  {"answer", verdict.answer},
                  {"verdict", verdict.text + '\n'},
                  {"origin", origin_json(origin)},
                  {"record", record}};
      return {verdict.title, verdict.text + '\n', verdict.answer,
              out.dump(-1, ' ', false, Json::error_handler_t::replace)};
    } catch (const Json::exception&) {
      refuse(origin, fmt::format("the file lacks parts that {} has", kind.schema));
    }
  }
  if (schema.is_string()) refuse(origin, fmt::format("there is no report of {}", schema.get<std::string>()));
  refuse(origin, "this is no JSON of Tidemark: it has no schema");
}

Report report_beside(const std::vector<std::string>& reports, const ReportOrigin& origin) {
  Json all = Json::array();
  std::string title;
  std::size_t fit = 0;
  for (const std::string& text : reports) {
    all.push_back(Json::parse(text));
    title += (title.empty() ? "" : ", ") + all.back()["title"].get<std::string>();
    if (all.back()["answer"].get<bool>()) ++fit;
  }
  const std::string verdict = fit == reports.size() ? "yes, all of them fit\n"
                              : fit == 0            ? "no, none of them fits\n"
                                                    : fmt::format("no, {} of {} fit\n", fit, reports.size());
  Json out = {{"schema", "tidemark.report/1"},   {"kind", "beside"},   {"title", title},
              {"answer", fit == reports.size()}, {"verdict", verdict}, {"origin", origin_json(origin)},
              {"reports", std::move(all)}};
  return {title, verdict, fit == reports.size(), out.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

}  // namespace tidemark::scenarios
