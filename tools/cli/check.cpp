// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <new>

#include "fixtures/call/error.hpp"
#include "fixtures/schema/read.hpp"
#include "reference/verdict/terms.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/judging.hpp"
#include "tools/cli/progress.hpp"

namespace goldenrule::tools {
namespace {

FileReport check_file(const std::string& file, const CheckOptions& options) {
  FileReport result;
  const auto start = ExplainEffort::Clock::now();
  try {
    schema::ReadOptions read = reading({.explained = options.explain, .only = options.only});
    read.golden = read.budgets = read.stages = false;
    schema::Fixture fixture = schema::read_fixture(file, read);
    Examination asked{
        .question = {.precision = parse_precision(options.precision), .only = options.only},
        .explain = options.explain,
        .explain_seconds = options.explain_seconds,
        .blind = options.blind,
        .terms = options.terms,
        .since = start};
    if (!options.contract.empty()) asked.question.contract = named_contract(options.contract);
    result = examine(std::move(fixture.record), asked);
  } catch (const Error& error) {
    result.report = error_report(error.in_file(file));
  } catch (const std::bad_alloc&) {  // the other files may need less
    result.report =
        error_report(Error(ErrorKind::kFile, file, "", "memory for this call", "out of memory"));
  }
  result.file = file;
  return result;
}

}  // namespace

int check(const CheckOptions& options) {
  if (!options.contract.empty()) (void)named_contract(options.contract);
  (void)parse_precision(options.precision);
  for (const std::string& element : options.terms) (void)verdict::parse_element(element);
  std::vector<std::string> inputs = options.files;
  inputs.push_back(options.contract);
  refuse_overwriting(inputs, options.json, options.junit);
  std::vector<FileReport> reports;
  Progress progress(options.files.size());
  for (std::size_t i = 0; i < options.files.size(); ++i) {
    progress.show(i, options.files[i]);
    reports.push_back(check_file(options.files[i], options));
    progress.clear();
    fmt::print("{}\n", text_report(reports.back()));
  }
  return finish(reports, options.json, options.junit);
}

}  // namespace goldenrule::tools
