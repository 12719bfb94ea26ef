// SPDX-License-Identifier: Apache-2.0
//
// The bugs of tests/public_bugs.md that one call shows, each put into emulated kernels: is the
// right name the first that the explanation of the refused call says? For each bug, mode and way to
// make it, calls of the suites are tried in an order drawn from a seed, until kShown of them are
// refused. Prints the table of the page with its last column measured, and fails where the page
// says something else.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "fixtures/cases/suite.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "fixtures/random/philox.hpp"
#include "reference/delta/mistakes/table.hpp"
#include "tests/explain/confusions.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

constexpr int kShown = 3;                   // refused calls of a bug, mode and way
constexpr int kTried = 60;                  // calls until then
constexpr std::int64_t kLargest = 1 << 20;  // tokens times elements of a state
constexpr std::uint64_t kSeed = 0x6e616d6564;

std::string trimmed(std::string text) {
  text.erase(0, text.find_first_not_of(' '));
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts{""};
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

struct Bug {
  std::vector<std::string> cells;  // of its row of the page
  std::vector<call::Mode> modes;
  std::vector<Hypothesis> ways;
};

// Every row of `name` is a way to make the mistake.
std::vector<Hypothesis> ways_of(const std::string& name) {
  std::vector<Hypothesis> ways;
  for (const Mistake& m : delta::mistakes()) {
    if (m.name == name) ways.push_back({&m});
  }
  REQUIRE_MESSAGE(!ways.empty(), name);
  return ways;
}

// "`a`, `b`": one or the other; "`a` and `b`": both in one kernel.
std::vector<Hypothesis> ways_in(const std::string& cell) {
  std::vector<std::vector<Hypothesis>> named;
  const std::vector<std::string> parts = split(cell, '`');
  for (std::size_t i = 1; i < parts.size(); i += 2) named.push_back(ways_of(parts[i]));
  std::vector<Hypothesis> ways;
  if (cell.find("` and `") != std::string::npos) {
    for (const Hypothesis& a : named.at(0)) {
      for (const Hypothesis& b : named.at(1)) ways.push_back({a.front(), b.front()});
    }
    return ways;
  }
  for (const auto& more : named) ways.insert(ways.end(), more.begin(), more.end());
  return ways;
}

std::vector<call::Mode> modes_in(const std::string& cell) {
  std::vector<call::Mode> modes;
  for (const call::Mode mode : {call::Mode::kDecode, call::Mode::kMtp, call::Mode::kPrefill}) {
    const std::string name(call::name_of(mode));
    if (cell == "all" || cell.find(name) != std::string::npos) modes.push_back(mode);
  }
  return modes;
}

std::vector<Bug> bugs_of_page() {
  std::ifstream page(GOLDENRULE_BUGS);
  std::vector<Bug> bugs;
  bool here = false;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with("## ")) here = line == "## One call shows it";
    if (!here || !line.starts_with("| ") || line.starts_with("| bug ")) continue;
    Bug bug;
    for (const std::string& cell : split(line, '|')) bug.cells.push_back(trimmed(cell));
    bug.cells = {bug.cells.begin() + 1, bug.cells.end() - 1};
    bug.modes = modes_in(bug.cells.at(1));
    bug.ways = ways_in(bug.cells.at(4));
    bugs.push_back(std::move(bug));
  }
  return bugs;
}

// The lines of the suites that are not too large, in an order that depends on `name` alone.
std::vector<std::string> lines_for(const std::string& name, call::Mode mode) {
  struct Drawn {
    double at;
    std::string line;
  };
  std::vector<Drawn> drawn;
  const random::Stream stream(kSeed, name);
  std::int64_t draw = 0;
  for (const char* suite : {"boundary", "stress", "mtp"}) {
    for (const cases::Case& c : cases::load_suite(suite).cases) {
      const double at = stream.uniform(draw++, 0.0, 1.0);
      if (c.mode != mode || cases::step_count(c) > kLargest) continue;
      drawn.push_back({at, cases::canonical(c)});
    }
  }
  std::ranges::sort(drawn, {}, &Drawn::at);
  std::vector<std::string> lines;
  lines.reserve(drawn.size());
  for (Drawn& d : drawn) lines.push_back(std::move(d.line));
  return lines;
}

struct Tally {
  int shown = 0, right = 0;
  std::string confusions;
};

struct Job {
  std::size_t bug;
  call::Mode mode;
  Hypothesis made;
};

Tally named_first(const std::string& bug, const Job& job) {
  Tally tally;
  int tried = 0;
  for (const std::string& line : lines_for(bug + name_of(job.made), job.mode)) {
    if (tally.shown == kShown || tried == kTried) break;
    const Record record = make_call(line);
    const bool possible =
        std::ranges::all_of(job.made, [&](const Mistake* m) { return m->applies(record); });
    if (!possible) continue;
    ++tried;
    const Outcome outcome = diagnosed(expected_call(line), job.made);
    if (!outcome.shown) continue;
    ++tally.shown;
    if (outcome.right) {
      ++tally.right;
    } else {
      tally.confusions += fmt::format("  {}: {} named {} in {}\n{}", bug, name_of(job.made),
                                      outcome.named, line, outcome.details);
    }
  }
  return tally;
}

TEST_CASE("public bugs that one call shows are named first") {
  const std::vector<Bug> bugs = bugs_of_page();
  REQUIRE(bugs.size() == 44);
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < bugs.size(); ++i) {
    for (const call::Mode mode : bugs[i].modes) {
      for (const Hypothesis& way : bugs[i].ways) jobs.push_back({i, mode, way});
    }
  }
  std::vector<Tally> tallies(jobs.size());
  parallel::for_each_index(std::ssize(jobs), [&](std::int64_t index) {
    const Job& job = jobs[static_cast<std::size_t>(index)];
    tallies[static_cast<std::size_t>(index)] = named_first(bugs[job.bug].cells.front(), job);
  });
  std::vector<Tally> of_bugs(bugs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    of_bugs[jobs[i].bug].shown += tallies[i].shown;
    of_bugs[jobs[i].bug].right += tallies[i].right;
    fmt::print("{}", tallies[i].confusions);
  }
  for (std::size_t i = 0; i < bugs.size(); ++i) {
    const std::string measured = fmt::format("{} of {}", of_bugs[i].right, of_bugs[i].shown);
    const std::vector<std::string>& cells = bugs[i].cells;
    for (std::size_t cell = 0; cell < 6; ++cell) fmt::print("| {} ", cells[cell]);
    fmt::print("| {} |\n", measured);
    CHECK_MESSAGE(of_bugs[i].shown > 0, cells.front());
    WARN_MESSAGE(of_bugs[i].right == of_bugs[i].shown, cells.front());
    CHECK_MESSAGE((cells.size() > 6 && cells[6] == measured), cells.front());
  }
}

}  // namespace
}  // namespace goldenrule::explain::test
