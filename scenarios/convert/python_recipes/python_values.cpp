#include "scenarios/convert/python_recipes/python_values.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include <fmt/format.h>

#include "scenarios/convert/draft.hpp"
#include "scenarios/convert/formats.hpp"
#include "scenarios/convert/python_recipes/python_expression.hpp"
#include "scenarios/formats/input_error.hpp"
#include "scenarios/formats/text_file.hpp"

namespace tidemark::scenarios {
namespace {

constexpr int deepest_call = 64;
constexpr std::int64_t most_steps = 200'000, most_modules = 400;

std::string last_part_of(const std::string& text) { return text.substr(text.rfind('.') + 1); }

// Settings, or a list that may have some.
bool may_be_changed(const PythonValue& value) {
  return value.object() != nullptr || std::holds_alternative<std::shared_ptr<PythonList>>(value.is);
}

// A function that is not there, by its name: classes begin with a capital, and Python's own functions change nothing.
bool is_unknown_function(const std::string& name) {
  constexpr auto of_python = std::to_array<std::string_view>(
      {"len",    "isinstance", "issubclass", "hasattr", "getattr", "list",      "tuple",    "dict", "set",
       "sorted", "range",      "print",      "type",    "str",     "int",       "float",    "bool", "max",
       "min",    "any",        "all",        "sum",     "zip",     "enumerate", "deepcopy", "copy"});
  return !name.empty() && std::islower(static_cast<unsigned char>(name.front())) != 0 &&
         std::ranges::find(of_python, std::string_view(name)) == of_python.end();
}

std::unique_ptr<PythonModule> module_of(std::filesystem::path path, std::string_view text) {
  auto made = std::make_unique<PythonModule>();
  made->path = std::move(path);
  made->file = parse_python(text);
  for (const PythonLine& line : made->file.top) {
    for (PythonImport& its : imports_in(line)) made->imports.insert_or_assign(its.as, its);
    if (const auto its = assignment_in(line)) made->constants.insert_or_assign(its->target, its->value);
  }
  return made;
}

}  // namespace

const PythonObject* PythonValue::object() const {
  const auto* const its = std::get_if<std::shared_ptr<PythonObject>>(&is);
  return its == nullptr ? nullptr : its->get();
}

std::string PythonObject::name() const {
  if (const auto* const its = std::get_if<PythonSymbol>(&type.is)) return last_part_of(its->text);
  if (const auto* const its = std::get_if<PythonClassOf>(&type.is)) return its->type->name;
  if (const auto* const its = std::get_if<PythonFunctionOf>(&type.is)) return its->function->name;
  return {};
}

PythonValue PythonObject::field(std::string_view name) const {
  const auto found = fields.find(name);
  return found == fields.end() ? PythonValue{} : found->second;
}

std::optional<bool> truth_of(const PythonValue& value) {
  if (value.none()) return false;
  if (const auto* const its = std::get_if<bool>(&value.is)) return *its;
  if (const auto* const its = std::get_if<std::int64_t>(&value.is)) return *its != 0;
  if (const auto* const its = std::get_if<double>(&value.is)) return *its != 0;
  if (const auto* const its = std::get_if<std::string>(&value.is)) return !its->empty();
  if (const auto* const its = std::get_if<std::shared_ptr<PythonList>>(&value.is)) return !(*its)->empty();
  if (value.object() != nullptr) return true;
  return std::nullopt;
}

PythonEvaluation::PythonEvaluation(std::filesystem::path file, std::string_view text,
                                   std::function<void(const PythonLine&)> report)
    : report_(std::move(report)) {
  modules_.push_back(module_of(std::move(file), text));
  first_ = modules_.front().get();
}
PythonEvaluation::~PythonEvaluation() = default;

void PythonEvaluation::spend() {
  if (++steps_ > most_steps)
    throw InputError(Problem{.file = first_->path.string(),
                             .line = 1,
                             .column = 1,
                             .message = "is evaluated for longer than recipes are",
                             .hint = "a recipe makes settings, and nothing else"});
}

// "nemo.collections.llm.gpt.model.llama": a file, or the __init__.py of a folder, in a folder above.
const PythonModule* PythonEvaluation::module_named(const std::string& name, const std::filesystem::path& from) {
  std::string relative = name;
  std::ranges::replace(relative, '.', '/');
  for (const std::string& file : {relative + ".py", relative + "/__init__.py"}) {
    const std::filesystem::path path = named_beside(from.parent_path(), file);
    if (!is_there(path)) continue;
    for (const auto& its : modules_)
      if (its->path == path) return its.get();
    if (std::ssize(modules_) > most_modules) return nullptr;
    modules_.push_back(module_of(path, read_text(path)));
    return modules_.back().get();
  }
  return nullptr;
}

PythonValue PythonEvaluation::of_module(const PythonModule& module, std::string_view name, Place place) {
  spend();
  for (const PythonFunction& its : module.file.functions)
    if (its.name == name) return {PythonFunctionOf{&module, &its}, place};
  for (const PythonClass& its : module.file.classes)
    if (its.name == name) return {PythonClassOf{&module, &its}, place};
  if (const auto its = module.constants.find(name); its != module.constants.end() && depth_ < deepest_call) {
    ++depth_;
    PythonValue value = expression(its->second, module, place);
    --depth_;
    return value;
  }
  const auto import = module.imports.find(name);
  if (import == module.imports.end() || depth_ >= deepest_call) return {PythonSymbol{std::string(name)}, place};
  const PythonImport& its = import->second;
  ++depth_;
  PythonValue found{PythonSymbol{its.name.empty() ? its.module : its.module + '.' + its.name}, place};
  if (const PythonModule* const other = module_named(its.module, module.path); other != nullptr && other != &module) {
    if (its.name.empty())
      found = {other, place};
    else if (PythonValue value = of_module(*other, its.name, place); !std::holds_alternative<PythonSymbol>(value.is))
      found = std::move(value);
  }
  if (std::holds_alternative<PythonSymbol>(found.is) && !its.name.empty())
    if (const PythonModule* const inner = module_named(its.module + '.' + its.name, module.path))
      found = {inner, place};
  --depth_;
  return found;
}

PythonValue PythonEvaluation::name(std::string_view name, const Frame& frame, Place place) {
  if (frame.locals != nullptr)
    if (const auto its = frame.locals->find(name); its != frame.locals->end()) return its->second;
  return of_module(*frame.module, name, place);
}

PythonValue PythonEvaluation::attribute(const PythonValue& of, const std::string& name, Place place) {
  spend();
  if (const auto* const its = std::get_if<std::shared_ptr<PythonObject>>(&of.is)) {
    const auto found = (*its)->fields.find(name);
    return found == (*its)->fields.end() ? PythonValue{PythonUnknown{name}, place} : found->second;
  }
  if (const auto* const its = std::get_if<const PythonModule*>(&of.is)) return of_module(**its, name, place);
  if (const auto* const its = std::get_if<PythonSymbol>(&of.is)) return {PythonSymbol{its->text + '.' + name}, place};
  return {PythonUnknown{name}, place};
}

std::vector<std::string> PythonEvaluation::parameters_of(const PythonFunction& function) {
  std::vector<std::string> names;
  for (const std::string& part : between_commas_of(function.parameters))
    if (!part.starts_with('*')) names.push_back(part.substr(0, part.find_first_of(":= ")));
  return names;
}

PythonValue PythonEvaluation::call(const PythonFunctionOf& function, std::vector<PythonValue> arguments, Names named) {
  spend();
  if (depth_ >= deepest_call) return {PythonUnknown{function.function->name}, function.function->place};
  ++depth_;  // defaults are evaluated within it
  Names locals;
  std::size_t next = 0;
  for (const std::string& part : between_commas_of(function.function->parameters)) {
    if (part.starts_with('*')) continue;
    const std::string parameter = part.substr(0, part.find_first_of(":= "));
    const std::size_t sign = part.rfind('=');
    if (next < arguments.size())
      locals[parameter] = arguments[next++];
    else if (const auto given = named.find(parameter); given != named.end())
      locals[parameter] = given->second;
    else if (sign != std::string::npos)
      locals[parameter] =
          expression(std::string_view(part).substr(sign + 1), *function.module, function.function->place);
  }
  const std::vector<PythonLine>& lines = function.function->lines;
  std::optional<PythonValue> result = run(lines, 0, lines.size(), {function.module, &locals});
  --depth_;
  return result.value_or(PythonValue{});
}

PythonValue PythonEvaluation::called(const PythonValue& callee, std::vector<PythonValue> arguments, Names named,
                                     Place place) {
  spend();
  if (const auto* const its = std::get_if<PythonFunctionOf>(&callee.is)) return call(*its, std::move(arguments), named);
  const auto* const symbol = std::get_if<PythonSymbol>(&callee.is);
  const std::string text = symbol == nullptr ? std::string() : last_part_of(symbol->text);
  auto made = std::make_shared<PythonObject>();
  made->type = callee;
  const bool handed = std::ranges::any_of(arguments, may_be_changed) ||
                      std::ranges::any_of(named, [](const auto& its) { return may_be_changed(its.second); });
  if (symbol != nullptr && handed && is_unknown_function(text)) report_({0, symbol->text + "(...)", place});
  // nemo_run's: what the first argument is to be made with.
  if ((text == "Config" || text == "Partial") && !arguments.empty()) {
    made->type = arguments.front();
    arguments.erase(arguments.begin());
  } else if (symbol == nullptr && !std::holds_alternative<PythonClassOf>(callee.is)) {
    return {PythonUnknown{"a call"}, place};
  }
  made->arguments = std::move(arguments);
  made->fields = std::move(named);
  return {std::move(made), place};
}

PythonValue PythonEvaluation::method(const PythonValue& of, const std::string& name,
                                     const std::vector<PythonValue>& arguments, Place place) {
  if (const auto* const list = std::get_if<std::shared_ptr<PythonList>>(&of.is);
      list != nullptr && arguments.size() == 1) {
    const auto* const more = std::get_if<std::shared_ptr<PythonList>>(&arguments.front().is);
    if (name == "append") (*list)->push_back(arguments.front());
    if (name == "extend" && more != nullptr)
      for (const PythonValue& one : PythonList(**more)) (*list)->push_back(one);
    if (name == "append" || (name == "extend" && more != nullptr)) return {};
  }
  if (const auto* const text = std::get_if<std::string>(&of.is);
      text != nullptr && (name == "lower" || name == "upper")) {
    std::string made = *text;
    const bool lower = name == "lower";
    std::ranges::transform(made, made.begin(),
                           [&](unsigned char c) { return lower ? std::tolower(c) : std::toupper(c); });
    return {made, place};
  }
  return called(attribute(of, name, place), arguments, {}, place);
}

bool PythonEvaluation::fields_of(const PythonClassOf& type, Names& fields) {
  if (depth_ >= deepest_call) return false;
  ++depth_;
  bool whole = true;
  for (const std::string& base : between_commas_of(type.type->bases)) {
    const PythonValue its = expression(base, *type.module, {});
    if (const auto* const known = std::get_if<PythonClassOf>(&its.is))
      whole &= fields_of(*known, fields);
    else if (const auto* const symbol = std::get_if<PythonSymbol>(&its.is); symbol != nullptr)
      whole &= symbol->text.starts_with("megatron.core") || symbol->text.ends_with("Mixin") ||
               symbol->text.ends_with("TransformerConfig");
  }
  const int body = type.type->lines.empty() ? 0 : type.type->lines.front().indent;
  for (const PythonLine& line : type.type->lines)
    if (const auto its = assignment_in(line); its && line.indent == body && its->target.find('.') == std::string::npos)
      fields[its->target] = expression(its->value, *type.module, line.place);
  --depth_;
  return whole;
}

PythonValue PythonEvaluation::expression(std::string_view text, const PythonModule& module, Place place) {
  return evaluated(text, {&module, nullptr}, place);
}

PythonValue PythonEvaluation::evaluated(std::string_view text, const Frame& frame, Place place) {
  spend();
  PythonExpression its(text, place,
                       {[&](std::string_view name) { return this->name(name, frame, place); },
                        [&](const PythonValue& of, const std::string& name) { return attribute(of, name, place); },
                        [&](const PythonValue& callee, std::vector<PythonValue> arguments, Names named) {
                          return called(callee, std::move(arguments), std::move(named), place);
                        },
                        [&](const PythonValue& of, const std::string& name, const std::vector<PythonValue>& arguments) {
                          return method(of, name, arguments, place);
                        }});
  return its.value();
}

void PythonEvaluation::assign(const PythonAssignment& its, const PythonLine& line, const Frame& frame) {
  PythonValue value = evaluated(its.value, frame, line.place);
  const std::size_t dot = its.target.rfind('.');
  if (dot == std::string::npos) {
    (*frame.locals)[its.target] = std::move(value);
    return;
  }
  const PythonValue of = evaluated(its.target.substr(0, dot), frame, line.place);
  if (const auto* const object = std::get_if<std::shared_ptr<PythonObject>>(&of.is))
    (*object)->fields[its.target.substr(dot + 1)] = std::move(value);
  else
    report_(line);
}

std::optional<PythonValue> PythonEvaluation::run(const std::vector<PythonLine>& lines, std::size_t begin,
                                                 std::size_t end, const Frame& frame) {
  const auto block_end = [&](std::size_t i) {
    std::size_t last = i + 1;
    while (last < end && lines[last].indent > lines[i].indent) ++last;
    return last;
  };
  std::optional<bool> before;  // whether an if, or an elif behind it, has been followed
  for (std::size_t i = begin; i < end;) {
    spend();
    const PythonLine& line = lines[i];
    const std::string& text = line.text;
    const std::size_t last = block_end(i);
    const bool first = text.starts_with("if "), other = text.starts_with("elif ");
    if (first || other || text.starts_with("else")) {
      constexpr std::size_t word_if = 3, word_elif = 5;
      std::optional<bool> follows = true;
      if (!first && before != false) {
        follows = before ? std::optional(false) : std::nullopt;
      } else if (first || other) {
        const std::size_t from = first ? word_if : word_elif;
        follows = truth_of(evaluated(std::string_view(text).substr(from, text.rfind(':') - from), frame, line.place));
      }
      if (!follows) report_(line);
      if (follows == true)
        if (std::optional<PythonValue> result = run(lines, i + 1, last, frame)) return result;
      before = first ? follows : !follows ? std::nullopt : std::optional(*before || *follows);
      i = last;
      continue;
    }
    before.reset();
    const bool passes = text.starts_with('"') || text.starts_with('\'') || text.starts_with("assert ") ||
                        text.starts_with("raise ") || text.starts_with("pass") || text.starts_with("logging.") ||
                        text.starts_with("warnings.");
    const bool blocks = text.ends_with(':');
    if (blocks) report_(line);
    if (passes || blocks) {
      i = last;
      continue;
    }
    constexpr std::size_t word_return = 6;
    if (text.starts_with("return")) return evaluated(std::string_view(text).substr(word_return), frame, line.place);
    const std::vector<PythonImport> imports = imports_in(line);
    for (const PythonImport& its : imports)
      if (frame.locals != nullptr)
        (*frame.locals)[its.as] = {PythonSymbol{its.name.empty() ? its.module : its.module + '.' + its.name},
                                   line.place};
    if (const auto its = assignment_in(line); its && imports.empty())
      assign(*its, line, frame);
    else if (imports.empty() && std::holds_alternative<PythonUnknown>(evaluated(text, frame, line.place).is))
      report_(line);
    i = last;
  }
  return std::nullopt;
}

}  // namespace tidemark::scenarios
