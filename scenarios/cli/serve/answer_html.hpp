#pragma once

#include <string>

#include "scenarios/cli/namespace.hpp"
#include "scenarios/cli/serve/question.hpp"

// From an answer's JSON (answer.hpp) to what a browser shows. Works without a script; nothing in it comes from anywhere
// but the question and the answer, and all of that is escaped.

namespace tidemark::cli {

[[nodiscard]] std::string answer_html(const std::string& answer, const Fields& fields);
[[nodiscard]] std::string advice_html(const std::string& answer);
/// The form, filled in, and below it the answer.
[[nodiscard]] std::string page_html(const Fields& fields, const std::string& answer_part);
/// Text as HTML has it.
[[nodiscard]] std::string html_text(std::string_view text);

}  // namespace tidemark::cli
