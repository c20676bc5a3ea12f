#include "scenarios/cli/serve/server.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <httplib.h>
#include <nlohmann/json.hpp>

#include "scenarios/cli/exit_code.hpp"
#include "scenarios/cli/serve/answer_html.hpp"
#include "scenarios/cli/serve/asker.hpp"
#include "scenarios/cli/serve/page_files.hpp"
#include "scenarios/cli/terminal/interrupts.hpp"
#include "scenarios/formats/input_error.hpp"

namespace tidemark::cli {
namespace {

constexpr std::size_t most_bytes = 2U << 20;
constexpr int patience_seconds = 5;
// Many, since one that sends slowly keeps its thread. They wait, most of the time.
constexpr std::size_t connections = 64;
constexpr const char* cookie_name = "tidemark";

std::string random_token() {
  std::random_device device;
  std::string out;
  for (int i = 0; i < 4; ++i) out += fmt::format("{:08x}", device());
  return out;
}

// In as long whatever differs.
bool same(const std::string& a, const std::string& b) {
  unsigned differs = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i)
    differs |= static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]));
  return differs == 0;
}

std::string cookie_of(const httplib::Request& request) {
  const std::string all = request.get_header_value("Cookie"), name = std::string(cookie_name) + "=";
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find(';', at), all.size());
    std::size_t begin = all.find_first_not_of(' ', at);
    if (begin < end && all.compare(begin, name.size(), name) == 0)
      return all.substr(begin + name.size(), end - begin - name.size());
    at = end + 1;
  }
  return {};
}

Fields fields_of(const httplib::Request& request) {
  Fields fields;
  for (const auto& [name, value] : request.params)
    if (name != "token") fields[name] = value;
  for (const auto& [name, part] : request.files) fields[name] = part.content;
  return checked(std::move(fields));
}

std::string wrong(const InputError& error) {
  nlohmann::json list = nlohmann::json::array();
  for (const Problem& p : error.problems())
    list.push_back({{"place", ""}, {"message", p.file + ": " + p.message}, {"hint", p.hint}, {"fields", {p.file}}});
  return nlohmann::json{{"problems", list}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string too_long(const std::string& command, const Fields& fields, std::chrono::milliseconds limit) {
  const bool pasted = fields.contains(pasted_text) || fields.contains(pasted_model) || fields.contains(pasted_cluster);
  const std::string hint = command.empty() ? "ask of a smaller job, or raise --time-limit of tidemark serve"
                                           : fmt::format("run it in a terminal{}: {}",
                                                         pasted ? ", beside the pasted text as a file" : "", command);
  return nlohmann::json{
      {"problems",
       {{{"place", ""},
         {"message", fmt::format("this takes longer than {} s, the page's time limit", limit.count() / 1000)},
         {"hint", hint},
         {"fields", nlohmann::json::array()}}}}}
      .dump();
}

class Pages {
 public:
  Pages(ServeOptions options, std::string token)
      : options_(options), token_(std::move(token)), asker_({.time = options.time_limit}) {}

  void add_to(httplib::Server& server) {
    server.Get("/serve.css", [](const auto&, auto& reply) { put(reply, serve_style(), "text/css; charset=utf-8"); });
    server.Get("/serve.js",
               [](const auto&, auto& reply) { put(reply, serve_script(), "text/javascript; charset=utf-8"); });
    server.Get("/", [this](const auto& request, auto& reply) { page(request, reply); });
    server.Post("/", [this](const auto& request, auto& reply) { page(request, reply); });
    server.Post("/answer", [this](const auto& request, auto& reply) { part(request, reply, Ask::Answer); });
    server.Post("/advise", [this](const auto& request, auto& reply) { part(request, reply, Ask::Advice); });
    server.Post("/near", [this](const auto& request, auto& reply) { near(request, reply); });
    server.set_pre_routing_handler([this](const auto& request, auto& reply) { return admit(request, reply); });
    server.set_exception_handler([](const auto&, auto& reply, std::exception_ptr failure) {
      reply.status = 500;
      try {
        std::rethrow_exception(failure);
      } catch (const std::exception& error) {
        put(reply,
            fmt::format(
                "<section class=\"verdict wrong\" data-verdict=\"wrong\"><h2>Tidemark failed</h2><p>{}</p></section>",
                html_text(error.what())),
            "text/html; charset=utf-8");
      }
    });
  }
  void stop() { asker_.stop(); }
  void is_at(std::string host) { host_ = std::move(host); }

 private:
  static void put(httplib::Response& reply, std::string_view text, const char* type) {
    reply.set_content(text.data(), text.size(), type);
  }

  // Only who has the token, by the name that the page has: another site's script has neither.
  httplib::Server::HandlerResponse admit(const httplib::Request& request, httplib::Response& reply) {
    reply.set_header("Content-Security-Policy",
                     "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; "
                     "base-uri 'none'; frame-ancestors 'none'");
    reply.set_header("X-Content-Type-Options", "nosniff");
    reply.set_header("Referrer-Policy", "no-referrer");
    reply.set_header("Cache-Control", "no-store");
    const std::string host = request.get_header_value("Host");
    const bool here = host == "127.0.0.1:" + host_ || host == "localhost:" + host_;
    const std::string given = request.has_param("token") ? request.get_param_value("token") : cookie_of(request);
    const bool asset = request.path == "/serve.css" || request.path == "/serve.js";
    if (here && (asset || same(given, token_))) {
      if (request.has_param("token"))
        reply.set_header("Set-Cookie", fmt::format("{}={}; HttpOnly; SameSite=Strict; Path=/", cookie_name, token_));
      return httplib::Server::HandlerResponse::Unhandled;
    }
    reply.status = 403;
    put(reply,
        "403: open the address that tidemark serve has printed, token included.\n"
        "A link from elsewhere: tidemark serve 'LINK'\n",
        "text/plain; charset=utf-8");
    return httplib::Server::HandlerResponse::Handled;
  }

  // HTML of the answer, and what may be asked next is on its way.
  std::string answered(const Fields& fields, Ask what) {
    const Reply reply = asker_.ask(what, fields);
    if (!reply.json) return answer_html(too_long(reply.command, fields, options_.time_limit), fields);
    if (what == Ask::Advice) return advice_html(*reply.json);
    asker_.look_ahead(neighbours(fields));
    return answer_html(*reply.json, fields);
  }

  void page(const httplib::Request& request, httplib::Response& reply) {
    Fields fields;
    std::string part;
    try {
      fields = fields_of(request);
      part = fields.empty()
                 ? "<p>Fill in a model, a cluster, a number of GPUs and a sequence length, or paste a launch file.</p>"
                 : answered(fields, Ask::Answer);
    } catch (const InputError& error) {
      part = answer_html(wrong(error), fields);
    }
    put(reply, page_html(fields, part), "text/html; charset=utf-8");
  }

  void part(const httplib::Request& request, httplib::Response& reply, Ask what) {
    std::string html;
    try {
      html = answered(fields_of(request), what);
    } catch (const InputError& error) {
      html = answer_html(wrong(error), {});
    }
    put(reply, html, "text/html; charset=utf-8");
  }

  // How neighbours come out that have been answered: each with the field that differs.
  void near(const httplib::Request& request, httplib::Response& reply) {
    nlohmann::json known = nlohmann::json::array();
    try {
      const Fields fields = fields_of(request);
      for (const Fields& next : neighbours(fields)) {
        const std::optional<std::string> answer = asker_.remembered(next);
        if (!answer) continue;
        for (const FormField& field : form_fields()) {
          const auto now = fields.find(field.name), then = next.find(field.name);
          const std::string was = now == fields.end() ? "" : now->second, is = then == next.end() ? "" : then->second;
          if (was == is) continue;
          const nlohmann::json a = nlohmann::json::parse(*answer);
          const std::string usual = field.choices.empty() ? std::string("1") : field.choices.front();
          const std::string shown = field.control == Control::Check ? (is.empty() ? "off" : "on")
                                    : is.empty()                    ? usual
                                                                    : is;
          nlohmann::json row = {{"field", field.name},
                                {"value", is.empty() && !field.choices.empty() ? field.choices.front() : is},
                                {"change", fmt::format("{}: {}", field.label, shown.empty() ? "default" : shown)},
                                {"query", query_of(next)}};
          if (a.contains("problems")) {
            row.update(
                {{"verdict", "not possible"}, {"why", a["problems"][0]["message"]}, {"required", ""}, {"step", ""}});
          } else {
            const std::string verdict = a["verdict"];
            row.update({{"verdict", verdict == "fits"         ? "fits"
                                    : verdict == "cannot_say" ? "cannot say"
                                                              : "does not fit"},
                        {"why", ""},
                        {"required", fmt::format("{:.1f} GiB", a["required_upper_bytes"].get<double>() / (1 << 30))},
                        {"step", a.contains("step") ? fmt::format("{:.2f} s", a["step"]["seconds"].get<double>())
                                                    : "deadlock"}});
          }
          known.push_back(std::move(row));
        }
      }
    } catch (const InputError&) {
      known.clear();  // the answer says what is wrong
    }
    put(reply, nlohmann::json{{"known", known}, {"left", asker_.ahead()}}.dump(), "application/json");
  }

  ServeOptions options_;
  std::string token_, host_;
  Asker asker_;
};

}  // namespace

void serve(const ServeOptions& options, const std::function<void(const std::string& address)>& ready) {
  httplib::Server server;
  server.set_payload_max_length(most_bytes);
  server.set_read_timeout(patience_seconds);
  server.set_write_timeout(patience_seconds);
  server.set_keep_alive_max_count(100);
  server.new_task_queue = [] { return new httplib::ThreadPool(connections); };  // NOLINT: it owns it
  const std::string token = random_token();
  Pages pages(options, token);
  pages.add_to(server);
  const int port = options.port == 0                                ? server.bind_to_any_port("127.0.0.1")
                   : server.bind_to_port("127.0.0.1", options.port) ? options.port
                                                                    : -1;
  if (port < 0)
    throw InputError(Problem{.file = "--port",
                             .message = fmt::format("port {} is not available", options.port),
                             .hint = "another program may listen there: choose another port, or none"});
  pages.is_at(std::to_string(port));
  const LastWords words([&] { pages.stop(); });
  ready(fmt::format("http://127.0.0.1:{}/?token={}{}", port, token, options.question));
  server.listen_after_bind();
}

}  // namespace tidemark::cli
