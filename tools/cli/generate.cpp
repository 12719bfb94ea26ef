// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/suite.hpp"
#include "fixtures/schema/read.hpp"
#include "fixtures/schema/write.hpp"
#include "reference/oracle/evaluate.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/golden.hpp"
#include "tools/cli/judging.hpp"
#include "tools/cli/progress.hpp"

namespace goldenrule::tools {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void bad_shard(const std::string& text) {
  throw Error(ErrorKind::kArgument, "--shard", "I/N with 1 <= I <= N", "'" + text + "'");
}

std::size_t parse_count(const std::string& text, const std::string& whole) {
  std::size_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size()) bad_shard(whole);
  return value;
}

cases::Suite select(const GenerateOptions& options) {
  const auto suites = cases::list_suites();
  cases::Suite suite;
  if (std::ranges::find(suites, options.what) != suites.end()) {
    suite = cases::load_suite(options.what);
  } else if (options.what.find('=') != std::string::npos) {
    for (const std::string& line : cases::expand(options.what)) {
      suite.cases.push_back(cases::parse(line));
    }
  } else {
    suite = cases::load_suite(options.what);  // throws and names the suites there are
  }
  if (options.shard.empty()) return suite;
  const std::size_t slash = options.shard.find('/');
  if (slash == std::string::npos) bad_shard(options.shard);
  return cases::shard(suite, parse_count(options.shard.substr(0, slash), options.shard),
                      parse_count(options.shard.substr(slash + 1), options.shard));
}

Extras extras_of(const GenerateOptions& options) {
  Extras extras{.stages = options.stages, .contracts = {}};
  std::set<std::string> names;
  for (const std::string& name : options.contracts) {
    extras.contracts.push_back(named_contract(name));
    if (name.ends_with(".json") && is_built_in(extras.contracts.back())) {
      throw Error(ErrorKind::kValue, name, "name", "a name that no built-in contract has",
                  "'" + extras.contracts.back().name + "'");
    }
    if (!names.insert(extras.contracts.back().name).second) {
      throw Error(ErrorKind::kArgument, "--contract", "contracts with different names",
                  "'" + extras.contracts.back().name + "' twice");
    }
  }
  return extras;
}

// The budgets in a file are those of `contracts` and no others. What a name that is not built in
// stood for when they were written is known to nobody: those are computed again.
bool has_budgets(const schema::Fixture& found, const std::vector<bounds::Contract>& contracts) {
  if (found.budgets.size() != contracts.size()) return false;
  return std::ranges::all_of(contracts, [&](const bounds::Contract& contract) {
    const auto stored = found.budgets.find(contract.name);
    if (stored == found.budgets.end()) return false;
    return is_built_in(contract) || same_tensors(stored->second, compute_budget(found, contract));
  });
}

// A file that is there under its final name was completed by an earlier run; it is kept if it is
// what this run would write. Files that cannot be read, as those with a damaged dataset whose
// digest does not fit, are written again.
bool is_done(const fs::path& path, const cases::Case& c, scalar::Precision precision,
             const Extras& extras) {
  if (!fs::exists(path)) return false;
  try {
    const schema::Fixture found = schema::read_fixture(path);
    return found.record.case_line == cases::canonical(c) && found.generator == generator_name() &&
           found.precision_bits == oracle::bits_of(precision) && !found.golden.empty() &&
           stored_stages(found) == extras.stages && has_budgets(found, extras.contracts);
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

int generate(const GenerateOptions& options) {
  const cases::Suite suite = select(options);
  const auto given = parse_precision(options.precision);
  const Extras extras = extras_of(options);
  const fs::path directory(options.directory);
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure) {
    throw Error(ErrorKind::kFile, options.directory, "output directory", "a writable directory",
                failure.message());
  }
  std::size_t written = 0;
  Progress progress(suite.cases.size());
  for (std::size_t i = 0; i < suite.cases.size(); ++i) {
    const cases::Case& c = suite.cases[i];
    const fs::path path = directory / (cases::file_stem(c) + ".h5");
    progress.show(i, path.filename().string());
    const scalar::Precision precision = given.value_or(golden_precision(c));
    if (is_done(path, c, precision, extras)) continue;
    schema::write_fixture(path, make_fixture(c, precision, extras));
    ++written;
  }
  progress.clear();
  fmt::print("{} fixtures in {}: {} written, {} were there already\n", suite.cases.size(),
             options.directory, written, suite.cases.size() - written);
  return 0;
}

}  // namespace goldenrule::tools
