#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

#include "scenarios/formats/input_error.hpp"
#include "scenarios/reader/scenario_reader.hpp"
#include "tests/namespace.hpp"
#include "tests/scenarios/folders.hpp"

// A job of Megatron as a scenario file says it, and the same with a few words changed.

namespace tidemark::tests::one_job {

// Line 5 begins [layout], line 10 [train], line 18 [runtime].
inline constexpr std::string_view job = R"(model = "models/llama-3.1-70b.json"
cluster = "clusters/h100-sxm-80g.toml"
gpus = 64
[model_override]
[layout]
tensor = 8
sequence_parallel = true
pipeline = 4
sharding = "zero1"
[train]
sequence_length = 8192
micro_batch = 1
global_batch = 128
cross_entropy = "te"
hidden_dropout = 0.0
attention_dropout = 0.0

[runtime]
name = "megatron"
)";

struct Edit {
  std::string_view old;
  std::string_view replacement;
};

inline std::string edited(const std::vector<Edit>& edits) {
  std::string text(job);
  for (const Edit& edit : edits) text.replace(text.find(edit.old), edit.old.size(), edit.replacement);
  return text;
}

inline Scenario scenario(const std::vector<Edit>& edits = {}) {
  return parse_scenario(edited(edits), "job.toml", folders);
}

/// What the error says that a reader throws, or "no problem".
template <std::invocable Read>
std::string problem_of(Read read) {
  try {
    (void)read();
    return "no problem";
  } catch (const InputError& error) {
    return error.what();
  }
}

inline std::string problems_of(std::string_view text) {
  return problem_of([&] { return parse_scenario(text, "job.toml", folders); });
}
inline std::string problems(const std::vector<Edit>& edits) { return problems_of(edited(edits)); }

/// Of the job with one more line in a table, which becomes its first.
inline std::string with(std::string_view table, const std::string& line) {
  return problems({{table, std::string(table) + "\n" + line}});
}

inline std::string with_switch(const std::string& line) {
  return problems_of(std::string(job) + "[runtime.switches]\n" + line);
}
inline std::string with_variable(const std::string& line) {
  return problems_of(std::string(job) + "[runtime.environment]\n" + line);
}

}  // namespace tidemark::tests::one_job
