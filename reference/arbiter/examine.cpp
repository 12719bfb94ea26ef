// SPDX-License-Identifier: Apache-2.0
#include "reference/arbiter/examine.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "fixtures/call/chain_rows.hpp"
#include "fixtures/schema/read.hpp"
#include "reference/suites/slices.hpp"

namespace goldenrule::arbiter {

std::optional<explain::Diagnosis> explain_failure(const verdict::Judgement& judgement,
                                                  const explain::SearchLimit& effort) {
  if (judgement.report.verdict != verdict::Verdict::kOutOfBudget) return std::nullopt;
  return explain::diagnose(judgement, judgement.slice->mistakes(), effort);
}

std::optional<explain::Permit> find_permit(const verdict::Judgement& judgement,
                                           const explain::SearchLimit& effort) {
  const bool refused = judgement.report.verdict == verdict::Verdict::kOutOfBudget;
  if (!refused && !explain::is_far_within(judgement.report)) return std::nullopt;
  const double verdict = judgement.slice->grant_seconds == nullptr
                             ? 0.0
                             : judgement.slice->grant_seconds(judgement.record, judgement.contract);
  const double limit = explain::limit_of(effort, verdict);
  return explain::tightest_permit(
      judgement, limit > 0.0 ? std::min(limit, explain::kPermitSeconds) : explain::kPermitSeconds);
}

namespace {

void add_error_maps(const verdict::Judgement& judgement, report::FileReport& file) {
  for (const verdict::TensorReport& tensor : judgement.report.tensors) {
    std::vector<verdict::ErrorMap> maps = verdict::error_maps(judgement, tensor);
    if (!maps.empty()) file.maps[tensor.name] = std::move(maps);
  }
}

// What an element lacks in one file is no reason to lose the file's verdict.
report::ShownTerms terms_of(const verdict::Judgement& judgement, const std::string& element) {
  try {
    return {.element = element,
            .terms = verdict::terms_of(judgement, verdict::parse_element(element)),
            .refusal = {}};
  } catch (const Error& error) {
    return {.element = element, .terms = {}, .refusal = "expected " + error.expected()};
  }
}

// A tensor that one kernel saved for another is an output of it.
void refuse_for_saved(const verdict::StagesReport& stages, verdict::CaseReport& report) {
  const std::string bad = verdict::refused_saved(stages);
  const bool says_right =
      verdict::is_pass(report.verdict) || report.verdict == verdict::Verdict::kMistrusted;
  if (bad.empty() || !says_right) return;
  report.verdict = verdict::Verdict::kOutOfBudget;
  report.reason =
      "no output is out of budget, but " + bad + ", which a kernel saved for this one, is not";
}

}  // namespace

report::FileReport examine(call::Record record, const Examination& asked) {
  call::remove_chain_rows(record);
  const verdict::Slice& slice = suites::slice_of(record.op);
  report::FileReport result;
  const verdict::Judgement judgement = [&] {
    std::optional<verdict::WorkLimited> limited;
    if (asked.work) limited.emplace(*asked.work);
    if (!asked.stages) return verdict::judgement(slice, std::move(record), asked.question);
    return verdict::judgement(slice, std::move(record), asked.question, *asked.stages,
                              result.stages.emplace());
  }();
  if (asked.explain) {
    const explain::SearchLimit effort{.seconds = asked.explain_seconds,
                                      .most_seconds = asked.most_explain_seconds};
    result.diagnosis = explain_failure(judgement, effort);
    result.permit = find_permit(judgement, effort);
  }
  if (asked.maps) add_error_maps(judgement, result);
  if (asked.blind) result.blindness = explain::find_blindness(judgement);
  for (const std::string& element : asked.terms) {
    result.terms.push_back(terms_of(judgement, element));
  }
  result.contract_origin = judgement.contract_origin;
  result.report = judgement.report;
  if (result.stages) refuse_for_saved(*result.stages, result.report);
  return result;
}

verdict::CaseReport error_report(const Error& error) {
  verdict::CaseReport report;
  report.verdict = verdict::Verdict::kError;
  report.reason = error.what();
  return report;
}

namespace {

// The stages of a kernel. Those of a fixture are the oracle's own.
std::optional<verdict::KernelStages> stages_of(schema::Fixture& fixture) {
  if (fixture.stages_of_oracle || fixture.stages.empty()) return std::nullopt;
  return verdict::KernelStages{.tensors = std::move(fixture.stages),
                               .chunk = fixture.stage_chunk,
                               .forms = std::move(fixture.stage_forms)};
}

}  // namespace

report::FileReport examine_file(const std::string& file, Examination asked, const Limits& limits) {
  report::FileReport result;
  try {
    schema::ReadOptions read =
        limits.reading({.explained = asked.explain, .only = asked.question.only});
    read.golden = read.budgets = false;
    schema::Fixture fixture = schema::read_fixture(file, read);
    asked.most_explain_seconds = most_explain_seconds(file);
    asked.stages = stages_of(fixture);
    asked.work = limits.work(file);
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

}  // namespace goldenrule::arbiter
