// SPDX-License-Identifier: Apache-2.0
#include "tools/python/extension/arbiter.hpp"

#include <algorithm>
#include <utility>

#include "fixtures/call/enum_names.hpp"
#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/cases/suite.hpp"
#include "reference/arbiter/choices.hpp"
#include "reference/arbiter/examine.hpp"
#include "reference/arbiter/limits.hpp"
#include "reference/backward/relations/relation.hpp"
#include "reference/calls/kernel.hpp"
#include "reference/contract/contract_json.hpp"
#include "reference/contract/family.hpp"
#include "reference/report/runs.hpp"
#include "reference/suites/slices.hpp"
#include "reference/verdict/budget.hpp"

namespace goldenrule::python {
namespace {

contract::Contract contract_of(const std::string& text) {
  const bool is_json = text.find('{') != std::string::npos;
  return is_json ? contract::parse_contract(text, "contract") : arbiter::named_contract(text);
}

ExpectedOutput output_of(verdict::Expected& expected, const verdict::Budget& budget) {
  ExpectedOutput output{.shape = expected.exact.shape,
                        .golden = {},
                        .radius = std::move(expected.exact.radius),
                        .budget = {}};
  if (budget.given()) {
    output.budget.resize(expected.exact.golden.size());
    for (std::size_t i = 0; i < output.budget.size(); ++i) output.budget[i] = budget(i);
  }
  output.golden = expected.exact.take_output();
  return output;
}

}  // namespace

std::string contract_json(const std::string& text, const std::string& op) {
  const contract::Contract contract = contract_of(text);
  if (!op.empty())
    contract::require_family(contract, call::family_of(call::parse_name<call::Op>(op)));
  return contract::to_json(contract);
}

Judged judge(call::Record record, std::optional<verdict::KernelStages> stages, const Asked& asked) {
  arbiter::Examination examination{
      .question = {.precision = arbiter::parse_precision(asked.precision), .only = asked.only},
      .explain = asked.explain,
      .explain_seconds = asked.explain_seconds,
      .blind = asked.blind,
      .terms = asked.terms,
      .maps = true,
      .stages = std::move(stages)};
  for (const std::string& element : asked.terms) (void)verdict::parse_element(element);
  if (!asked.contract.empty()) examination.question.contract = contract_of(asked.contract);
  (void)call::validate(record);
  report::FileReport file = arbiter::examine(std::move(record), examination);
  file.file = asked.name;
  std::vector<std::string> settings{asked.contract, asked.precision};
  settings.insert(settings.end(), asked.only.begin(), asked.only.end());
  const report::Run run = report::run_of("check", {asked.name}, settings);
  return {.text = report::text_report(file), .json = report::json_report({file}, run)};
}

ExpectedCall expected(const call::Record& record, const Asked& asked) {
  (void)call::validate(record);
  const verdict::Slice& slice = suites::slice_of(record.op);
  const contract::Contract contract =
      asked.contract.empty() ? slice.default_contract(record) : contract_of(asked.contract);
  contract::require_family(contract, call::family_of(record.op));
  const auto precision =
      arbiter::parse_precision(asked.precision).value_or(scalar::Precision::kDouble);
  verdict::Expectations expectations = verdict::expect(slice, record, contract, precision);
  ExpectedCall result{.contract = contract.name,
                      .precision_bits = scalar::bits_of(expectations.precision),
                      .outputs = {}};
  for (auto& [name, e] : expectations.outputs) {
    const auto given = record.outputs.find(name);
    const call::DType type = given != record.outputs.end()
                                 ? given->second.dtype()
                                 : calls::stored_type(record, contract, name);
    const verdict::Budget budget(name, type, e, contract);
    result.outputs.emplace(name, output_of(e, budget));
  }
  return result;
}

std::vector<RelationRow> relations_of(const call::Record& record, const calls::Kernel& kernel,
                                      const AskedRelations& asked) {
  const call::Operation& op = call::operation(record.op);
  const bool of_gradients = backward::has_relations(record.op);
  if (!op.has_states && !of_gradients) {
    throw Error(
        ErrorKind::kArgument, "op",
        "gated_delta_rule or kda, or the backward pass of one: relations follow these alone",
        std::string(call::name_of(record.op)));
  }
  const auto table = of_gradients ? backward::relation_table() : relations::table();
  const auto check = of_gradients ? backward::check_relation : relations::check;
  (void)call::validate(record);
  const contract::Contract contract = asked.contract.empty()
                                          ? suites::slice_of(record.op).default_contract(record)
                                          : contract_of(asked.contract);
  contract::require_family(contract, call::family_of(record.op));
  const relations::Options options{.batch_invariant = asked.same_bits, .repeats = asked.repeats};
  std::vector<RelationRow> rows;
  for (const std::string& name : asked.names) {
    const auto relation = std::ranges::find(table, name, &relations::Relation::name);
    if (relation == table.end()) {
      throw Error(ErrorKind::kArgument, "relations", "a relation", name);
    }
    RelationRow& row = rows.emplace_back();
    row.name = name;
    row.meaning = relation->meaning;
    row.bits = relations::demands_bits(*relation, options);
    row.applies = relation->applies(record, contract);
    if (!row.applies) continue;
    const relations::Outcome outcome = check(*relation, record, kernel, contract, options);
    row.compared = outcome.compared;
    row.bound_to_signal = outcome.bound_to_signal;
    for (const relations::Finding& found : outcome.findings) {
      row.departures.push_back({.tensor = found.tensor,
                                .violations = found.violations,
                                .first = verdict::coordinates(record, found.tensor, found.first),
                                .worst = found.worst,
                                .coordinates = found.coordinates});
    }
  }
  return rows;
}

void admit(const verdict::Declared& call, bool explained) {
  try {
    arbiter::Limits{}.admit(call, explained);
  } catch (const Error& error) {
    throw TooLarge(error.what());
  }
}

void admit_tensors(double bytes) {
  try {
    arbiter::Limits{}.admit_tensors(bytes);
  } catch (const Error& error) {
    throw TooLarge(error.what());
  }
}

std::vector<CaseRow> cases_of(const std::string& what) {
  std::vector<cases::Case> found;
  if (what.find('=') == std::string::npos) {
    found = cases::load_suite(what).cases;
  } else {
    for (const std::string& line : cases::expand(what)) {
      found.push_back(cases::parse(line));
      cases::validate(found.back());
    }
  }
  std::vector<CaseRow> rows;
  for (const cases::Case& c : found) {
    rows.push_back({.line = cases::canonical(c),
                    .op = std::string(call::name_of(c.op)),
                    .mode = std::string(call::name_of(c.mode)),
                    .pattern = c.pattern,
                    .stem = cases::file_stem(c),
                    .golden_bytes = cases::golden_bytes(c)});
  }
  return rows;
}

}  // namespace goldenrule::python
