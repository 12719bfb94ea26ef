// SPDX-License-Identifier: Apache-2.0
//
// The tables of the library as text. What they say of themselves is printed as it stands there.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "reference/arbiter/tables.hpp"
#include "tools/cli/commands.hpp"

namespace goldenrule::tools {
namespace {

using nlohmann::ordered_json;

std::string where_text(const ordered_json& where) {
  const auto joined = [](const ordered_json& modes) {
    std::vector<std::string> names;
    for (const ordered_json& mode : modes) names.push_back(mode.get<std::string>());
    return fmt::format("{}", fmt::join(names, " "));
  };
  std::set<std::string> different;
  std::vector<std::string> all;
  for (const auto& [op, modes] : where.items()) {
    different.insert(joined(modes));
    all.push_back(fmt::format("{} {}", op, joined(modes)));
  }
  const auto family = [](const std::string& op) {
    return call::family_of(call::parse_name<call::Op>(op));
  };
  const auto same = [&](const call::Operation& o) {
    return call::family_of(o.op) == family(where.begin().key());
  };
  const bool everywhere =
      !where.empty() && std::ssize(where) == std::ranges::count_if(call::operations(), same);
  return everywhere && different.size() == 1 ? *different.begin()
                                             : fmt::format("{}", fmt::join(all, "; "));
}

void print_rows(const ordered_json& rows) {
  std::string group;
  for (const ordered_json& row : rows) {
    if (row.is_string()) {
      fmt::print("{}\n", row.get<std::string>());
      continue;
    }
    const std::string name = row["name"], meaning = row["meaning"];
    if (row.contains("cases")) {
      fmt::print("{:<12} {:>4} cases  {}\n", name, row["cases"].get<std::size_t>(), meaning);
    } else if (row.contains("of")) {
      if (row["of"] != group) fmt::print("{}\n", (group = row["of"]));
      const std::string standard = row.value("default", "");
      fmt::print("  {:<12} {}{}\n", name, meaning,
                 row.value("always_given", false) ? " (always given)"
                 : standard.empty()               ? ""
                                                  : " (default " + standard + ")");
    } else if (row.contains("forms")) {
      fmt::print("{:<6} [{}]\n      {}\n", name, row["shape"].get<std::string>(), meaning);
      for (const auto& [form, says] : row["forms"].items()) {
        fmt::print("      form {}: {}\n", form, says.get<std::string>());
      }
      const std::string not_judged = row["not_judged"];
      if (!not_judged.empty()) fmt::print("      not judged: {}\n", not_judged);
    } else if (row.contains("where")) {
      if (row["group"] != group) fmt::print("{}\n", group = row["group"]);
      fmt::print("  {:<28} {}\n      {}\n", name, where_text(row["where"]), meaning);
      const std::string reported = row["reported"];
      if (!reported.empty()) fmt::print("      in public: {}\n", reported);
    } else {
      fmt::print("{:<32} {}\n", name, meaning);
    }
  }
}

}  // namespace

int list(const std::string& what, bool json) {
  const ordered_json rows = arbiter::table_json(what.empty() ? "suites" : what);
  if (json) {
    fmt::print("{}\n", rows.dump(2));
  } else {
    print_rows(rows);
  }
  return 0;
}

}  // namespace goldenrule::tools
