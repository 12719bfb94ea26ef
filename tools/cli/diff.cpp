// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/schema/read.hpp"
#include "reference/arbiter/choices.hpp"
#include "reference/arbiter/examine.hpp"
#include "reference/suites/stored_golden.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/judging.hpp"
#include "tools/cli/progress.hpp"
#include "tools/cli/share.hpp"

namespace goldenrule::tools {
namespace {

// NaN is itself here: a NaN in the same place is the same input.
bool same_values(const call::Tensor& a, const call::Tensor& b) {
  const auto same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  return a.shape() == b.shape() && std::ranges::equal(a.to_doubles(), b.to_doubles(), same);
}

// The candidate must have been given the golden file's inputs, or the comparison means nothing. It
// need not repeat them (then they were taken from the golden file); those that it repeats must be
// all of them and the same.
void check_same_call(const schema::Fixture& golden, const schema::Fixture& candidate,
                     const DiffOptions& options) {
  const auto demand = [&](bool right, const std::string& where, const std::string& expected,
                          const std::string& actual) {
    if (!right) throw Error(ErrorKind::kValue, options.candidate, where, expected, actual);
  };
  const call::Record& a = golden.record;
  const call::Record& b = candidate.record;
  demand(a.op == b.op, "/@op", std::string(call::name_of(a.op)), std::string(call::name_of(b.op)));
  demand(a.mode == b.mode, "/@mode", std::string(call::name_of(a.mode)),
         std::string(call::name_of(b.mode)));
  const std::string expected = "the values in " + options.golden;
  for (const auto& [name, tensor] : b.inputs) {
    const call::Tensor* given = a.find_input(name);
    demand(given != nullptr && same_values(*given, tensor), "/inputs/" + name, expected,
           "other values");
  }
  for (const auto& [name, tensor] : a.inputs) {
    demand(b.find_input(name) != nullptr, "/inputs/" + name, expected, "no such dataset");
  }
  const std::int64_t K = call::validate(a).K;
  demand(call::resolved(a.convention, K) == call::resolved(b.convention, K), "/convention",
         "the conventions of " + options.golden, "other conventions");
}

// The golden file: read as a whole, so that the digest of its meaning is checked, and recomputed.
schema::Fixture read_golden(const std::string& file, bool explained) {
  schema::Fixture golden = schema::read_fixture(file, reading({.explained = explained}));
  if (golden.golden.empty()) {
    throw Error(ErrorKind::kSchema, file, "/golden", "golden values", "none");
  }
  try {
    suites::check_stored_golden(golden);
  } catch (const Error& error) {
    throw error.in_file(file);
  }
  golden.budgets.clear();  // of kernels that may store other types than the candidate
  golden.stages.clear();
  return golden;
}

// What the golden file holds, the candidate must: a state that the call does not update excepted,
// and what has no element and may be absent (checkpoints of which there are none).
std::vector<std::string> wanted_of(const schema::Fixture& golden) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : golden.golden) {
    const bool kept = golden.record.convention.disable_state_update != 0 && name == "final_state";
    const call::TensorRow* row = call::find_row(golden.record, call::Group::kOutput, name);
    const bool none = tensor.value.size() == 0 && row != nullptr &&
                      row->presence(golden.record) != call::Presence::kRequired;
    if (!kept && !none) names.push_back(name);
  }
  return names;
}

// Nothing of the candidate but its outputs counts, neither its contract nor the types of inputs
// that it repeats; and nothing of the golden file but the call: the verdict is that of `check`.
report::FileReport judge_candidate(const DiffOptions& options) {
  schema::Fixture golden = read_golden(options.golden, options.explain);
  schema::ReadOptions read = reading({.explained = options.explain, .only = options.only});
  read.golden = read.budgets = read.stages = false;
  read.call = &golden.record;
  schema::Fixture candidate = schema::read_fixture(options.candidate, read);
  check_same_call(golden, candidate, options);

  arbiter::Examination asked{
      .question = {.only = options.only, .wanted = wanted_of(golden)},
      .explain = options.explain,
      .explain_seconds = options.explain_seconds,
      .most_explain_seconds = arbiter::most_explain_seconds(options.candidate),
      .maps = options.reports.show_maps(),
      .work = limits().work(options.candidate)};
  if (!options.contract.empty())
    asked.question.contract = arbiter::named_contract(options.contract);
  golden.record.outputs = std::move(candidate.record.outputs);
  return arbiter::examine(std::move(golden.record), asked);
}

report::FileReport named(report::FileReport result, const DiffOptions& options) {
  result.file = options.candidate;
  result.replay =
      fmt::format("goldenrule diff {} {}", shell_word(options.golden),
                  shell_word(options.candidate) + judged_by(options.contract, options.only));
  return result;
}

}  // namespace

int diff(const DiffOptions& options) {
  refuse_overwriting({options.golden, options.candidate, options.contract}, options.reports);
  report::FileReport result;
  std::vector<std::string> settings{options.contract};
  settings.insert(settings.end(), options.only.begin(), options.only.end());
  const report::Run run = run_of("diff", {options.golden, options.candidate}, settings, {});
  Progress progress(1);
  progress.show(0, options.candidate);
  try {
    result = named(judge_candidate(options), options);
    progress.clear();
  } catch (const Error& error) {
    progress.clear();
    result.report = arbiter::error_report(error);
    result = named(std::move(result), options);
    (void)finish({result}, run, options.reports);
    throw;
  }
  fmt::print("{}\n", report::text_report(result));
  return finish({result}, run, options.reports);
}

}  // namespace goldenrule::tools
