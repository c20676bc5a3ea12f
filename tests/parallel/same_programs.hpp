#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "sim/program/program_text.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests {

/// What two programs have to have in common to take the same memory and the same time, one op a line.
inline std::vector<std::string> normal_form(const Program& program) {
  std::vector<std::string> lines;
  std::vector<std::int32_t> freed;
  std::string marked;
  const auto flush = [&] {
    std::sort(freed.begin(), freed.end());
    for (const std::int32_t b : freed) lines.push_back(fmt::format("free b{}", b));
    freed.clear();
  };
  const auto buffers = [&](BufferList list) {
    std::string out;
    for (const BufferId b : program[list]) out += fmt::format(" b{}", b.value);
    return out;
  };
  for (const Op& op : program.ops) {
    if (const Free* o = std::get_if<Free>(&op)) {
      freed.push_back(o->buffer.value);
      continue;
    }
    if (std::holds_alternative<Bind>(op) || std::holds_alternative<Unbind>(op)) continue;
    if (std::holds_alternative<Alloc>(op) || std::holds_alternative<Wait>(op) || std::holds_alternative<Sync>(op) ||
        std::holds_alternative<Borrow>(op) || std::holds_alternative<CreateDriver>(op) || std::holds_alternative<CreateCommunicator>(op))
      flush();
    if (const Alloc* o = std::get_if<Alloc>(&op))
      lines.push_back(fmt::format("alloc b{} {} {} s{} {}", o->buffer.value, o->size.count(), static_cast<int>(o->category), o->stream.value, program[o->label]));
    else if (const Launch* o = std::get_if<Launch>(&op))
      lines.push_back(fmt::format("launch s{} {} {} ->{}", o->stream.value, text(program[o->kernel]), buffers(o->inputs), buffers(o->outputs)));
    else if (const Collective* o = std::get_if<Collective>(&op))
      lines.push_back(fmt::format("collective s{} c{} {} b{} b{} {}", o->stream.value, o->comm.value, name(o->kind), o->in.value, o->out.value, o->size.count()));
    else if (const Exchange* o = std::get_if<Exchange>(&op)) {
      std::string line = fmt::format("exchange s{} c{}", o->stream.value, o->comm.value);
      for (const Transfer& t : program[o->transfers]) line += fmt::format(" {} {} b{}", static_cast<int>(t.direction), t.step, t.buffer.value);
      lines.push_back(line);
    } else if (const Borrow* o = std::get_if<Borrow>(&op))
      lines.push_back(fmt::format("borrow b{} s{}", o->buffer.value, o->stream.value));
    else if (const Record* o = std::get_if<Record>(&op))
      lines.push_back(fmt::format("record e{} s{}", o->event.value, o->stream.value));
    else if (const Wait* o = std::get_if<Wait>(&op))
      lines.push_back(fmt::format("wait s{} e{}", o->stream.value, o->event.value));
    else if (const Sync* o = std::get_if<Sync>(&op))
      lines.push_back(fmt::format("sync e{}", o->event.value));
    else if (const CreateDriver* o = std::get_if<CreateDriver>(&op))
      lines.push_back(fmt::format("driver {}", name(o->resource)));
    else if (const CreateCommunicator* o = std::get_if<CreateCommunicator>(&op))
      lines.push_back(fmt::format("communicator c{}", o->comm.value));
    else if (const Mark* o = std::get_if<Mark>(&op))
      if (std::string its = fmt::format("mark {} {} {} {}", name(o->phase), o->step, o->micro_batch, program[o->label]);
          std::exchange(marked, its) != its)
        lines.push_back(std::move(its));
  }
  flush();
  return lines;
}

/// The first difference, with what comes before and after; empty where there is none.
inline std::string difference(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  const auto [at, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (at == a.end() && other == b.end()) return "";
  const auto place = at - a.begin();
  std::string out = fmt::format("line {} of {} and {}\n", place, a.size(), b.size());
  const auto show = [&](const std::vector<std::string>& lines, const char* which) {
    const auto size = static_cast<std::ptrdiff_t>(lines.size());
    for (auto i = std::max<std::ptrdiff_t>(0, place - 8); i < std::min(size, place + 8); ++i)
      out += fmt::format("{} {}{}\n", which, i == place ? ">" : " ", lines[static_cast<std::size_t>(i)]);
  };
  show(a, "old");
  show(b, "new");
  return out;
}

}  // namespace tidemark::tests
