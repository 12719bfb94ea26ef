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
#include "tools/cli/share.hpp"

namespace goldenrule::tools {
namespace {

// The stages of a kernel. Those of a fixture are the oracle's own.
std::optional<verdict::KernelStages> stages_of(schema::Fixture& fixture) {
  if (fixture.stages_of_oracle || fixture.stages.empty()) return std::nullopt;
  return verdict::KernelStages{.tensors = std::move(fixture.stages),
                               .chunk = fixture.stage_chunk,
                               .forms = std::move(fixture.stage_forms)};
}

// What judges one of the files as this run does.
std::string replay_of(const std::string& file, const CheckOptions& options) {
  std::string line =
      "goldenrule check " + shell_word(file) + judged_by(options.contract, options.only);
  if (options.precision != "auto") line += " --precision " + options.precision;
  return line;
}

report::FileReport check_file(const std::string& file, const CheckOptions& options) {
  report::FileReport result;
  const auto start = ExplainEffort::Clock::now();
  try {
    schema::ReadOptions read = reading({.explained = options.explain, .only = options.only});
    read.golden = read.budgets = false;
    schema::Fixture fixture = schema::read_fixture(file, read);
    Examination asked{
        .question = {.precision = parse_precision(options.precision), .only = options.only},
        .explain = options.explain,
        .explain_seconds = options.explain_seconds,
        .most_explain_seconds = most_explain_seconds(file),
        .blind = options.blind,
        .terms = options.terms,
        .maps = options.reports.show_maps(),
        .stages = stages_of(fixture),
        .since = start,
        .work = work_limit(file)};
    if (!options.contract.empty()) asked.question.contract = named_contract(options.contract);
    result = examine(std::move(fixture.record), asked);
  } catch (const Error& error) {
    result.report = error_report(error.in_file(file));
  } catch (const std::bad_alloc&) {  // the other files may need less
    result.report =
        error_report(Error(ErrorKind::kFile, file, "", "memory for this call", "out of memory"));
  }
  result.file = file;
  result.replay = replay_of(file, options);
  return result;
}

}  // namespace

int check(const CheckOptions& options) {
  if (!options.contract.empty()) (void)named_contract(options.contract);
  (void)parse_precision(options.precision);
  for (const std::string& element : options.terms) (void)verdict::parse_element(element);
  const Share share = parse_share(options.shard);
  std::vector<std::string> inputs = options.files;
  inputs.push_back(options.contract);
  refuse_overwriting(inputs, options.reports);
  const std::vector<std::string> files = take_share(options.files, share);
  std::vector<report::FileReport> reports;
  Progress progress(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    progress.show(i, files[i]);
    reports.push_back(check_file(files[i], options));
    progress.clear();
    fmt::print("{}\n", report::text_report(reports.back()));
  }
  if (!share.is_whole()) {
    fmt::print("share {}: {} of {} files\n", options.shard, files.size(), options.files.size());
  }
  std::vector<std::string> settings{options.contract, options.precision};
  settings.insert(settings.end(), options.only.begin(), options.only.end());
  const int code =
      finish(reports, run_of("check", options.files, settings, share), options.reports);
  return files.empty() ? 0 : code;  // a share of more machines than files: nothing was asked of it
}

}  // namespace goldenrule::tools
