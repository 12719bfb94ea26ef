// SPDX-License-Identifier: Apache-2.0
#include "reference/report/runs.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <span>

#include "fixtures/call/error.hpp"
#include "fixtures/call/text.hpp"
#include "fixtures/schema/digest.hpp"

namespace goldenrule::report {
namespace {

constexpr int kMostKeys = 10'000;
constexpr int kDeepest = 32;  // levels of a report; it has nine
constexpr std::size_t kShownDigest = 8;

[[noreturn]] void refuse(const std::string& file, const std::string& where,
                         const std::string& expected, const std::string& actual) {
  throw Error(ErrorKind::kSchema, file, where, expected, actual);
}

std::int64_t whole(const std::string& file, const ordered_json& run, const char* key,
                   std::int64_t least) {
  const auto found = run.find(key);
  if (found == run.end() || !found->is_number_integer() || *found < least) {
    refuse(file, std::string("runs/") + key, "a number of at least " + std::to_string(least),
           found == run.end() ? "none" : found->dump());
  }
  return found->get<std::int64_t>();
}

void check_run(const std::string& file, const ordered_json& run) {
  if (!run.is_object()) refuse(file, "runs", "objects", run.type_name());
  for (const char* key : {"command", "version", "digest"}) {
    if (!run.contains(key) || !run.at(key).is_string()) {
      refuse(file, std::string("runs/") + key, "a text", "none");
    }
  }
  whole(file, run, "items", 0);
  const std::int64_t shards = whole(file, run, "shards", 1);
  const auto have = run.find("have");
  const auto is_share = [&](const ordered_json& share) {
    return share.is_number_integer() && share >= 1 && share <= shards;
  };
  if (have == run.end() || !have->is_array() || !std::ranges::all_of(*have, is_share)) {
    refuse(file, "runs/have", "shares from 1 to " + std::to_string(shards), "others");
  }
}

bool is_same_run(const ordered_json& a, const ordered_json& b) {
  return std::ranges::all_of(
      std::initializer_list<const char*>{"command", "version", "digest", "items", "shards"},
      [&](const char* key) { return a.at(key) == b.at(key); });
}

std::set<std::int64_t> shares_of(const ordered_json& run) {
  return run.at("have").get<std::set<std::int64_t>>();
}

}  // namespace

Run run_of(const std::string& command, const std::vector<std::string>& items,
           const std::vector<std::string>& options) {
  std::string all;
  for (const std::vector<std::string>* texts : {&items, &options}) {
    for (const std::string& text : *texts) all += std::to_string(text.size()) + ":" + text + ",";
    all += ";";
  }
  return {.command = command,
          .version = GOLDENRULE_VERSION,
          .digest = schema::sha256_hex(std::as_bytes(std::span(all))),
          .items = items.size()};
}

ordered_json run_json(const Run& run) {
  return {{"command", run.command}, {"version", run.version},
          {"digest", run.digest},   {"items", run.items},
          {"shards", run.parts},    {"have", ordered_json::array({run.part})}};
}

ordered_json parse_report(const std::string& file, const std::string& text) {
  // Keys of an object are looked up one by one: what takes time without end is no report.
  std::array<int, kDeepest + 2> keys{};
  const auto bounded = [&](int depth, ordered_json::parse_event_t event, ordered_json&) {
    if (depth > kDeepest) refuse(file, "", "a report of goldenrule", "JSON of another kind");
    int& count = keys[static_cast<std::size_t>(depth)];
    if (event == ordered_json::parse_event_t::key && ++count > kMostKeys) {
      refuse(file, "", "a report of goldenrule", "an object of too many keys");
    }
    if (event == ordered_json::parse_event_t::object_start) {
      keys[static_cast<std::size_t>(depth) + 1] = 0;
    }
    return true;
  };
  ordered_json report;
  try {
    report = ordered_json::parse(text, bounded);
  } catch (const ordered_json::exception& error) {
    refuse(file, "", "a JSON report", error.what());
  }
  if (!report.is_object() || !report.contains("runs") || !report.at("runs").is_array() ||
      report.at("runs").empty()) {
    refuse(file, "runs", "a report with what it covers", "none");
  }
  for (const ordered_json& run : report.at("runs")) check_run(file, run);
  return report;
}

std::string command_of(const std::string& file, const ordered_json& report) {
  auto command = report.at("runs").front().at("command").get<std::string>();
  for (const ordered_json& run : report.at("runs")) {
    if (run.at("command") != command) {
      refuse(file, "runs", "runs of one command", "'" + command + "' and others");
    }
  }
  return command;
}

void join_runs(ordered_json& to, const ordered_json& from) {
  for (const ordered_json& run : from) {
    const auto same = std::ranges::find_if(
        to, [&](const ordered_json& other) { return is_same_run(run, other); });
    if (same == to.end()) {
      to.push_back(run);
    } else {
      std::set<std::int64_t> shares = shares_of(*same);
      shares.merge(shares_of(run));
      (*same)["have"] = shares;
    }
  }
}

std::vector<std::string> missing_shares(const ordered_json& runs) {
  constexpr std::int64_t kListed = 12;
  std::vector<std::string> lines;
  for (const ordered_json& run : runs) {
    const auto shards = run.at("shards").get<std::int64_t>();
    const std::set<std::int64_t> have = shares_of(run);
    const std::int64_t missing = shards - std::ssize(have);
    if (missing == 0) continue;
    std::string listed;
    std::int64_t count = 0;
    for (std::int64_t share = 1; share <= shards && count < kListed; ++share) {
      if (have.contains(share)) continue;
      listed += (count++ == 0 ? "" : ", ") + std::to_string(share);
    }
    if (missing > count) listed += " and others";
    lines.push_back("missing: " + std::to_string(missing) + " of " + std::to_string(shards) +
                    " shares of " +
                    call::printable(run.at("command").get<std::string>() + " over " +
                                    run.at("items").dump() + " items, run " +
                                    run.at("digest").get<std::string>().substr(0, kShownDigest)) +
                    ": " + listed);
  }
  return lines;
}

}  // namespace goldenrule::report
