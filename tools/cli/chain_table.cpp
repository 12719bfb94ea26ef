// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/chain_table.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "fixtures/call/error.hpp"
#include "fixtures/call/text.hpp"
#include "tools/cli/merge_shares.hpp"

namespace goldenrule::tools {
namespace {

using nlohmann::ordered_json;

constexpr const char* kCounts[] = {"made", "seen", "named", "alone"};
constexpr const char* kLines[] = {"unseen", "unnamed"};

std::int64_t count_of(const ordered_json& json, const char* key) {
  return json.at(key).get<std::int64_t>();
}

void add_count(ordered_json& to, const ordered_json& from, const char* key) {
  to.at(key) = count_of(to, key) + count_of(from, key);
}

void add_all(ordered_json& to, const ordered_json& from, const char* key) {
  for (const ordered_json& item : from.at(key)) to.at(key).push_back(item);
}

ordered_json row_json(const serving::ChainRow& row) {
  return {{"mistake", row.mistake->name},
          {"meaning", row.mistake->meaning},
          {"first_said", call::name_of(row.mistake->named)},
          {"in_call", row.mistake->in_call},
          {"strict", row.mistake->strict},
          {"made", row.made},
          {"seen", row.seen},
          {"named", row.named},
          {"alone", row.alone},
          {"unseen", row.unseen},
          {"unnamed", row.unnamed}};
}

bool has_name(const ordered_json& row) {
  return row.at("first_said") != call::name_of(chain::Mistake::kNone);
}

std::string first_said(const ordered_json& row) {
  if (row.at("strict").get<bool>()) return "taken for right: `--strict`";
  return has_name(row) ? fmt::format("`{}`", text_of(row, "first_said")) : "seen, no name";
}

std::string line_of(const ordered_json& row) {
  return fmt::format("| `{}` | {} | {} | {} | {} | {} | {} |\n", text_of(row, "mistake"),
                     text_of(row, "meaning"), count_of(row, "made"), count_of(row, "seen"),
                     has_name(row) ? std::to_string(count_of(row, "named")) : "-", first_said(row),
                     count_of(row, "alone"));
}

bool is_right(const ordered_json& row, bool whole) {
  const std::int64_t made = count_of(row, "made");
  return count_of(row, "seen") == made && count_of(row, "named") == made &&
         (count_of(row, "alone") == 0 || row.at("in_call").get<bool>()) && (made > 0 || !whole);
}

}  // namespace

ordered_json chain_table(const serving::ChainMatrix& matrix, const std::vector<std::string>& suites,
                         const std::string& contract) {
  ordered_json rows = ordered_json::array();
  for (const serving::ChainRow& row : matrix.rows) rows.push_back(row_json(row));
  ordered_json alarms = ordered_json::array();
  for (const serving::ChainAlarm& alarm : matrix.false_alarms) {
    alarms.push_back(
        {{"case", alarm.line}, {"call", alarm.finding.call}, {"text", alarm.finding.text}});
  }
  return {{"suites", suites},      {"contract", contract}, {"chains", matrix.chains},
          {"calls", matrix.calls}, {"rows", rows},         {"false_alarms", alarms}};
}

void join_chain_tables(ordered_json& to, const ordered_json& from) {
  add_count(to, from, "chains");
  add_count(to, from, "calls");
  add_all(to, from, "false_alarms");
  ordered_json& rows = to.at("rows");
  if (rows.size() != from.at("rows").size()) {
    throw Error(ErrorKind::kSchema, "rows", "the mistakes of the other reports", "others");
  }
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ordered_json& more = from.at("rows").at(i);
    if (rows[i].at("mistake") != more.at("mistake")) {
      throw Error(ErrorKind::kSchema, "rows/mistake", rows[i].at("mistake").dump(),
                  more.at("mistake").dump());
    }
    for (const char* key : kCounts) add_count(rows[i], more, key);
    for (const char* key : kLines) add_all(rows[i], more, key);
  }
}

int show_chain_table(const ordered_json& table, bool whole) {
  std::string text;
  const ordered_json& rows = table.at("rows");
  text += fmt::format(
      "| Mistake | The server | Chains | Seen | Named | First said | Calls refused alone |\n"
      "|---|---|---|---|---|---|---|\n");
  for (const ordered_json& row : rows) text += line_of(row);
  for (const ordered_json& row : rows) {
    const std::string name = text_of(row, "mistake");
    for (const ordered_json& line : row.at("unseen")) {
      text += fmt::format("\n`{}` is not seen in `{}`\n", name,
                          call::printable(line.get<std::string>()));
    }
    for (const ordered_json& line : row.at("unnamed")) {
      text += fmt::format("\n`{}` has another name in {}\n", name,
                          call::printable(line.get<std::string>()));
    }
  }
  const ordered_json& alarms = table.at("false_alarms");
  for (const ordered_json& alarm : alarms) {
    text += fmt::format("\nFALSE ALARM: an honest server at call {}: {}: {}\n",
                        count_of(alarm, "call"), text_of(alarm, "text"), text_of(alarm, "case"));
  }
  text += fmt::format("\n{} of {} in all, {}\n",
                      call::numbered(count_of(table, "chains"), "honest chain"),
                      call::numbered(count_of(table, "calls"), "call"),
                      call::numbered(alarms.size(), "false alarm"));
  const auto right = [&](const ordered_json& row) { return is_right(row, whole); };
  const bool all_right = alarms.empty() && std::ranges::all_of(rows, right);
  fmt::print("{}", text);  // of a damaged report nothing is printed
  return all_right ? 0 : 1;
}

}  // namespace goldenrule::tools
