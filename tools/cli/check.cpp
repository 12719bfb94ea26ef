// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <new>

#include "fixtures/call/chain_rows.hpp"
#include "fixtures/call/error.hpp"
#include "fixtures/schema/read.hpp"
#include "reference/explain/blind.hpp"
#include "reference/suites/slices.hpp"
#include "reference/verdict/verdict.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/judging.hpp"
#include "tools/cli/progress.hpp"

namespace goldenrule::tools {
namespace {

// What an element lacks in one file is no reason to lose the file's verdict.
ShownTerms terms_of(const verdict::Judgement& judgement, const std::string& element) {
  try {
    return {.element = element,
            .terms = verdict::terms_of(judgement, verdict::parse_element(element)),
            .refusal = {}};
  } catch (const Error& error) {
    return {.element = element, .terms = {}, .refusal = "expected " + error.expected()};
  }
}

FileReport check_file(const std::string& file, const CheckOptions& options) {
  FileReport result;
  result.file = file;
  const auto start = ExplainEffort::Clock::now();
  try {
    schema::ReadOptions read = reading({.explained = options.explain, .only = options.only});
    read.golden = read.budgets = read.stages = false;
    schema::Fixture fixture = schema::read_fixture(file, read);
    call::remove_chain_rows(fixture.record);
    const verdict::Slice& slice = suites::slice_of(fixture.record.op);
    verdict::Question question{.precision = parse_precision(options.precision),
                               .only = options.only};
    if (!options.contract.empty()) question.contract = named_contract(options.contract);
    const verdict::Judgement judgement =
        verdict::judgement(slice, std::move(fixture.record), question);
    if (options.explain) {
      result.diagnosis =
          explain_failure(judgement, {.seconds = options.explain_seconds, .judging_since = start});
      result.permit = find_permit(judgement);
    }
    if (options.blind) result.blindness = explain::find_blindness(judgement);
    for (const std::string& element : options.terms) {
      result.terms.push_back(terms_of(judgement, element));
    }
    result.contract_origin = judgement.contract_origin;
    result.report = judgement.report;
  } catch (const Error& error) {
    result.report = error_report(error.in_file(file));
  } catch (const std::bad_alloc&) {  // the other files may need less
    result.report =
        error_report(Error(ErrorKind::kFile, file, "", "memory for this call", "out of memory"));
  }
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
