// SPDX-License-Identifier: Apache-2.0
#include "reference/report/merge.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>

#include "fixtures/call/error.hpp"
#include "fixtures/call/text.hpp"
#include "reference/report/runs.hpp"

namespace goldenrule::report {
namespace {

// How the reports of a command list their items.
struct Kind {
  std::string_view command;
  const char* items;   // the key of the list
  const char* answer;  // of an item: what is counted
  /// Two reports of an item agree where these do.
  std::array<const char*, 3> compared;
  /// Answers by what they mean for the exit code; whatever else there is means 2.
  std::array<std::string_view, 2> right;
  std::string_view wrong;
};
constexpr std::array kKinds{
    Kind{"check",
         "cases",
         "verdict",
         {"verdict", "contract", "tensors"},
         {"EXACT", "WITHIN_BUDGET"},
         "OUT_OF_BUDGET"},
    Kind{"diff",
         "cases",
         "verdict",
         {"verdict", "contract", "tensors"},
         {"EXACT", "WITHIN_BUDGET"},
         "OUT_OF_BUDGET"},
    Kind{"generate",
         "fixtures",
         "outcome",
         {"meaning_sha256", "case", "file"},
         {"written", "there"},
         ""},
    Kind{"recompute",
         "files",
         "outcome",
         {"outcome", "said", "file"},
         {"right", "right"},
         "differs"},
};

const Kind& kind_of(const std::string& command) {
  const auto kind = std::ranges::find(kKinds, command, &Kind::command);
  if (kind != kKinds.end()) return *kind;
  throw Error(ErrorKind::kArgument, "merge",
              "reports of check, diff, generate, recompute or mutate",
              "reports of '" + command + "'");
}

// The texts of a problem or note: the first few of many.
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kListed = 12;
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kListed); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  return names.size() > kListed ? text + " and others" : text;
}

class Merger {
 public:
  explicit Merger(const std::string& command) : kind_(kind_of(command)) {}

  void add(const ReportText& report, ordered_json& json) {
    join_runs(runs_, json.at("runs"));
    for (ordered_json& item : json.at(kind_.items)) add_item(report.file, item);
  }

  Merged result() {
    Merged merged;
    merged.command = kind_.command;
    merged.problems = missing_shares(runs_);
    for (std::string& conflict : conflicts_) merged.problems.push_back(std::move(conflict));
    if (!repeated_.empty()) {
      merged.notes.push_back("in several reports with one answer, counted once: " +
                             listed(repeated_));
    }
    conclude(merged);
    merged.json = ordered_json{{"runs", std::move(runs_)},
                               {"problems", merged.problems},
                               {"notes", merged.notes},
                               {kind_.items, std::move(items_)}}
                      .dump(1) +
                  "\n";
    return merged;
  }

 private:
  [[nodiscard]] bool agree(const ordered_json& a, const ordered_json& b) const {
    return std::ranges::all_of(kind_.compared, [&](const char* key) {
      return a.value(key, ordered_json()) == b.value(key, ordered_json());
    });
  }

  [[nodiscard]] std::string answer_of(const ordered_json& item) const {
    return call::printable(item.at(kind_.answer).get<std::string>());
  }

  void add_item(const std::string& file, ordered_json& item) {
    const auto name = item.at("file").get<std::string>();
    (void)answer_of(item);
    std::vector<Source>& known = by_name_[name];
    for (const Source& other : known) {
      if (!agree(items_[other.item], item)) continue;
      repeated_.push_back(call::printable(name));
      return;
    }
    if (!known.empty()) {
      const Source& first = known.front();
      conflicts_.push_back("conflict: " + call::printable(name) + ": " +
                           answer_of(items_[first.item]) + " in " + call::printable(first.file) +
                           ", " + answer_of(item) + " in " + call::printable(file) +
                           (answer_of(items_[first.item]) == answer_of(item)
                                ? ", from other contents or another judge"
                                : ""));
    }
    known.push_back({.file = file, .item = items_.size()});
    items_.push_back(std::move(item));
  }

  void conclude(Merged& merged) const {
    std::map<std::string, std::int64_t> counts;
    bool wrong = false;
    bool all_right = true;
    for (const ordered_json& item : items_) {
      const std::string answer = answer_of(item);
      ++counts[answer];
      wrong = wrong || answer == kind_.wrong;
      all_right = all_right && std::ranges::find(kind_.right, answer) != kind_.right.end();
    }
    merged.summary = call::numbered(items_.size(), "file");
    std::string separator = ": ";
    for (const auto& [answer, count] : counts) {
      merged.summary += separator;
      merged.summary += std::to_string(count);
      merged.summary += ' ';
      merged.summary += answer;
      separator = ", ";
    }
    const bool whole = merged.problems.empty() && all_right && !items_.empty();
    merged.exit_code = wrong ? 1 : whole ? 0 : 2;
  }

  // Where an item was read, and its place in items_.
  struct Source {
    std::string file;
    std::size_t item = 0;
  };

  const Kind& kind_;
  ordered_json runs_ = ordered_json::array();
  ordered_json items_ = ordered_json::array();
  std::map<std::string, std::vector<Source>> by_name_;
  std::vector<std::string> conflicts_, repeated_;
};

}  // namespace

Merged merge(const std::vector<ReportText>& reports) {
  std::optional<Merger> merger;
  std::string command;
  for (const ReportText& report : reports) {
    ordered_json json = parse_report(report.file, report.text);
    const std::string own = command_of(report.file, json);
    if (!merger) {
      command = own;
      merger.emplace(command);
    }
    if (own != command) {
      throw Error(ErrorKind::kSchema, report.file, "runs", "reports of " + command, "of " + own);
    }
    try {
      merger->add(report, json);
    } catch (const ordered_json::exception& error) {
      throw Error(ErrorKind::kSchema, report.file, "", "a JSON report of " + command, error.what());
    }
  }
  if (!merger) throw Error(ErrorKind::kArgument, "merge", "reports", "none");
  return merger->result();
}

}  // namespace goldenrule::report
