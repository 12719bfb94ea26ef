// SPDX-License-Identifier: Apache-2.0
//
// The tables of the library by name: suites, input patterns, contracts, stages, mistakes of kernels
// and of servers. What the tables say of themselves is printed as it stands there. Where a mistake
// can be made is a question that only the mistake answers, call by call: it is asked about every
// small case of the suites that each family names for it.
#include "reference/arbiter/tables.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/cases/case_rules.hpp"
#include "fixtures/cases/delta_scenario.hpp"
#include "fixtures/cases/suite.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/contract/contract.hpp"
#include "reference/serving/mistakes.hpp"
#include "reference/suites/slices.hpp"
#include "reference/verdict/stages.hpp"

namespace goldenrule::arbiter {
namespace {

using Json = nlohmann::ordered_json;

Json suite_rows() {
  Json rows = Json::array();
  for (const std::string& name : cases::list_suites()) {
    const cases::Suite s = cases::load_suite(name);
    rows.push_back({{"name", s.name}, {"cases", s.cases.size()}, {"meaning", s.description}});
  }
  return rows;
}

Json chain_rows() {
  Json rows = Json::array();
  for (const std::string& name : cases::list_scenario_suites()) {
    const cases::ScenarioSuite s = cases::load_scenarios(name);
    rows.push_back({{"name", s.name}, {"cases", s.scenarios.size()}, {"meaning", s.description}});
  }
  return rows;
}

Json scenario_key_rows() {
  Json rows = Json::array();
  for (const cases::ScenarioKey& key : cases::scenario_keys()) {
    Json row{{"name", key.name},
             {"meaning", key.meaning},
             {"of", key.convention ? "convention" : "server"}};
    row["default"] = key.standard;
    row["always_given"] = key.always_given;
    rows.push_back(std::move(row));
  }
  return rows;
}

Json server_mistake_rows() {
  Json rows = Json::array();
  for (const serving::ServerMistake& m : serving::server_mistakes()) {
    rows.push_back({{"name", std::string(m.name)},
                    {"meaning", std::string(m.meaning)},
                    {"reported", std::string(m.reported)}});
  }
  return rows;
}

Json case_rows(const std::string& suite) {
  Json rows = Json::array();
  const std::vector<std::string> chains = cases::list_scenario_suites();
  if (std::ranges::find(chains, suite) != chains.end()) {
    for (const cases::Scenario& s : cases::load_scenarios(suite).scenarios) {
      rows.push_back(cases::canonical(s));
    }
    return rows;
  }
  for (const cases::Case& c : cases::load_suite(suite).cases) rows.push_back(cases::canonical(c));
  return rows;
}

// The same letter is a row of each family.
Json pattern_rows() {
  Json rows = Json::array();
  for (std::size_t family = 0; family < call::kFamilyRows.size(); ++family) {
    for (const cases::PatternRow& pattern : cases::kCaseRules[family]().patterns) {
      rows.push_back({{"name", std::string(pattern.name)},
                      {"meaning", std::string(pattern.summary)},
                      {"of", std::string(call::name_of(call::kFamilyRows[family].family))}});
    }
  }
  return rows;
}

Json contract_rows() {
  Json rows = Json::array();
  for (const contract::Contract& c : contract::contracts()) {
    rows.push_back({{"name", c.name}, {"meaning", c.meaning}});
  }
  return rows;
}

Json stage_row(const verdict::StageRow& row, call::Family family) {
  Json forms = Json::object();
  for (const verdict::StageForm& form : row.forms) {
    forms[std::string(form.name)] = std::string(form.meaning);
  }
  return {{"name", std::string(row.name)},
          {"shape", std::string(row.shape)},
          {"meaning", std::string(row.formula)},
          {"forms", std::move(forms)},
          {"not_judged", std::string(row.not_judged)},
          {"saved", row.saved},
          {"of", std::string(call::name_of(family))}};
}

// In the order of the computation. Operations of one family have the same ones.
Json stage_rows() {
  Json rows = Json::array();
  std::set<const verdict::StageSlice*> seen{nullptr};
  for (const call::Operation& operation : call::operations()) {
    const verdict::StageSlice* stages = suites::slice_of(operation.op).stages;
    if (!seen.insert(stages).second) continue;
    for (const verdict::StageRow& row : stages->table())
      rows.push_back(stage_row(row, operation.family));
  }
  return rows;
}

using Place = std::pair<call::Op, call::Mode>;

std::vector<bool> which_apply(const call::Record& record) {
  std::vector<bool> applies;
  for (const calls::Mistake& m : suites::mistakes()) {
    const auto own = suites::mistakes_of(record.op);
    const bool asked = &m >= own.data() && &m < own.data() + own.size();
    applies.push_back(asked && m.applies(record));
  }
  return applies;
}

// Elements of the token inputs: the large cases of the suites show no other mistakes.
constexpr std::int64_t kSmall = std::int64_t{1} << 15;

bool is_small(const cases::Case& c) { return cases::input_elements(c) <= kSmall; }

// For every row of the table of mistakes: the operations and modes in which it can be made.
std::vector<std::set<Place>> places_of_mistakes() {
  std::vector<cases::Case> asked;
  for (const std::string_view suite : suites::telling_suites()) {
    for (cases::Case& c : cases::load_suite(std::string(suite)).cases) {
      if (is_small(c)) asked.push_back(std::move(c));
    }
  }
  std::vector<std::set<Place>> places(suites::mistakes().size());
  std::mutex changing;
  parallel::for_each_index(std::ssize(asked), [&](std::int64_t i) {
    call::Record record = cases::make_record(asked[static_cast<std::size_t>(i)]);
    std::vector<bool> applies = which_apply(record);
    // Some can be made only where an input is no number, which no case of a suite has.
    const auto v = record.inputs.find("v");
    if (v != record.inputs.end() && v->second.size() > 0) {
      v->second.set(v->second.size() - 1, std::numeric_limits<double>::quiet_NaN());
      const std::vector<bool> with_nan = which_apply(record);
      for (std::size_t row = 0; row < applies.size(); ++row) {
        applies[row] = applies[row] || with_nan[row];
      }
    }
    const std::lock_guard lock(changing);
    for (std::size_t row = 0; row < places.size(); ++row) {
      if (applies[row]) places[row].insert({record.op, record.mode});
    }
  });
  return places;
}

Json mistake_rows() {
  const std::vector<std::set<Place>> places = places_of_mistakes();
  Json rows = Json::array();
  for (std::size_t row = 0; row < places.size(); ++row) {
    const calls::Mistake& m = suites::mistakes()[row];
    Json where = Json::object();
    for (const auto& [op, mode] : places[row]) {
      where[std::string(call::name_of(op))].push_back(std::string(call::name_of(mode)));
    }
    rows.push_back({{"name", std::string(m.name)},
                    {"group", std::string(m.group)},
                    {"where", std::move(where)},
                    {"meaning", std::string(m.meaning)},
                    {"reported", std::string(m.reported)}});
  }
  return rows;
}

// "decode mtp", with the operation before it where others differ: "kda prefill".
struct Table {
  const char* name;
  Json (*rows)();
};
constexpr std::array kTables{
    Table{"suites", suite_rows},       Table{"patterns", pattern_rows},
    Table{"contracts", contract_rows}, Table{"mistakes", mistake_rows},
    Table{"chains", chain_rows},       Table{"server_mistakes", server_mistake_rows},
    Table{"stages", stage_rows},       Table{"scenario_keys", scenario_key_rows}};

}  // namespace

Json table_json(const std::string& what) {
  for (const Table& table : kTables) {
    if (what == table.name) return table.rows();
  }
  try {
    return case_rows(what);
  } catch (const Error& e) {
    if (e.where() != "suite") throw;
    std::string tables;
    for (const Table& table : kTables)
      tables += std::string(tables.empty() ? "" : ", ") + table.name;
    throw Error(e.kind(), "list", "a table: " + tables + "; or the cases of " + e.expected(),
                e.actual());
  }
}

}  // namespace goldenrule::arbiter
