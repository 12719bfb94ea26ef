// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <utility>

#include "fixtures/call/text.hpp"
#include "reference/arbiter/choices.hpp"
#include "reference/arbiter/examine.hpp"
#include "reference/verdict/terms.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/judging.hpp"
#include "tools/cli/progress.hpp"
#include "tools/cli/share.hpp"

namespace goldenrule::tools {
namespace {

// What judges one of the files as this run does.
std::string replay_of(const std::string& file, const CheckOptions& options) {
  std::string line =
      "goldenrule check " + shell_word(file) + judged_by(options.contract, options.only);
  if (options.precision != "auto") line += " --precision " + options.precision;
  return line;
}

report::FileReport check_file(const std::string& file, const CheckOptions& options) {
  arbiter::Examination asked{
      .question = {.precision = arbiter::parse_precision(options.precision), .only = options.only},
      .explain = options.explain,
      .explain_seconds = options.explain_seconds,
      .blind = options.blind,
      .terms = options.terms,
      .maps = options.reports.show_maps()};
  if (!options.contract.empty()) {
    asked.question.contract = arbiter::named_contract(options.contract);
  }
  report::FileReport result = arbiter::examine_file(file, std::move(asked), limits());
  result.replay = replay_of(file, options);
  return result;
}

}  // namespace

int check(const CheckOptions& options) {
  if (!options.contract.empty()) (void)arbiter::named_contract(options.contract);
  (void)arbiter::parse_precision(options.precision);
  for (const std::string& element : options.terms) (void)verdict::parse_element(element);
  say_what_is_missing();
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
    fmt::print("share {}: {} of {}\n", options.shard, files.size(),
               call::numbered(options.files.size(), "file"));
  }
  std::vector<std::string> settings{options.contract, options.precision};
  settings.insert(settings.end(), options.only.begin(), options.only.end());
  const int code =
      finish(reports, run_of("check", options.files, settings, share), options.reports);
  return files.empty() ? 0 : code;  // a share of more machines than files: nothing was asked of it
}

}  // namespace goldenrule::tools
