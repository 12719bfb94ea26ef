// SPDX-License-Identifier: Apache-2.0
//
// A fixture is what its case line says: inputs, golden values, budgets and stages are recomputed,
// golden values in the tier that the file names, and must agree bit for bit, since every step from
// the case line on is deterministic.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/case.hpp"
#include "fixtures/schema/read.hpp"
#include "reference/oracle/evaluate.hpp"
#include "reference/oracle/stages.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/golden.hpp"
#include "tools/cli/progress.hpp"

namespace goldenrule::tools {
namespace {

namespace fs = std::filesystem;

scalar::Precision precision_of(const schema::Fixture& fixture) {
  using scalar::Precision;
  for (const Precision p : {Precision::kDouble, Precision::kQuad, Precision::kMulti}) {
    if (oracle::bits_of(p) == fixture.precision_bits) return p;
  }
  throw Error(ErrorKind::kValue, "precision_bits", "53, 106 or 168",
              std::to_string(fixture.precision_bits));
}

// Names of tensors that are not the same in both maps.
void compare(const std::string& group, const call::TensorMap& expected,
             const call::TensorMap& stored, std::vector<std::string>& found) {
  for (const auto& [name, tensor] : expected) {
    const auto it = stored.find(name);
    if (it == stored.end() || !same_bytes(tensor, it->second)) found.push_back(group + "/" + name);
  }
  for (const auto& [name, tensor] : stored) {
    if (!expected.contains(name)) found.push_back(group + "/" + name);
  }
}

// What a fixture says beside its golden values; `again` has those recomputed.
void compare_extras(const schema::Fixture& fixture, const schema::Fixture& again,
                    std::vector<std::string>& found) {
  for (const auto& [name, stored] : fixture.budgets) {
    const auto& known = bounds::contracts();
    const auto contract = std::ranges::find(known, name, &bounds::Contract::name);
    if (contract == known.end()) continue;
    compare("/budget/" + name, compute_budget(again, *contract), stored, found);
  }
  if (fixture.stages.empty()) return;
  const std::int64_t chunk = stored_stages(fixture);
  if (chunk < 1) {
    found.push_back("/stages/A");
    return;
  }
  compare("/stages", oracle::chunk_stages(again.record, chunk), fixture.stages, found);
}

// Budgets of contracts that are not built in: the file does not say what they declare.
std::vector<std::string> unknown_contracts(const schema::Fixture& fixture) {
  std::vector<std::string> names;
  for (const auto& [name, tensors] : fixture.budgets) {
    const auto& known = bounds::contracts();
    if (std::ranges::find(known, name, &bounds::Contract::name) == known.end()) {
      names.push_back("/budget/" + name);
    }
  }
  return names;
}

// What differs, or nothing.
std::vector<std::string> differences(const schema::Fixture& fixture) {
  std::vector<std::string> found;
  schema::Fixture again;
  again.record = cases::make_record(cases::parse(fixture.record.case_line));
  compare("/inputs", again.record.inputs, fixture.record.inputs, found);
  if (!fixture.golden.empty()) {
    compute_golden(again, precision_of(fixture));
    call::TensorMap expected;
    call::TensorMap stored;
    for (const auto& [name, golden] : again.golden) expected[name] = golden.value;
    for (const auto& [name, golden] : fixture.golden) {
      stored[name] = golden.value;
      const auto it = again.golden.find(name);
      if (it != again.golden.end() && it->second.radius != golden.radius) {
        found.push_back("/golden/" + name + " attribute radius");
      }
    }
    compare("/golden", expected, stored, found);
  }
  compare_extras(fixture, again, found);
  return found;
}

// One line for the file; false: it differs from what it says it is.
bool verify_file(const fs::path& path) {
  const schema::Fixture fixture = schema::read_fixture(path);
  if (fixture.record.case_line.empty()) {
    fmt::print("{}: digests and schema are right; no case line, nothing to recompute\n",
               path.string());
    return true;
  }
  const std::vector<std::string> found = differences(fixture);
  const std::vector<std::string> unknown = unknown_contracts(fixture);
  if (found.empty() && unknown.empty()) {
    fmt::print("{}: right\n", path.string());
    return true;
  }
  if (found.empty()) {
    fmt::print("{}: right, but for {}, whose contract is not built in: only the digests\n",
               path.string(), fmt::join(unknown, ", "));
    return true;
  }
  fmt::print("{}: DIFFERS from its case line in {}\n", path.string(), fmt::join(found, ", "));
  return false;
}

}  // namespace

int verify(const std::string& directory) {
  std::vector<fs::path> files;
  if (fs::is_regular_file(directory)) files.emplace_back(directory);
  if (fs::is_directory(directory)) {
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
      if (entry.path().extension() == ".h5") files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  if (files.empty()) {
    throw Error(ErrorKind::kFile, directory, "", "a directory with .h5 files", "none found");
  }
  std::size_t wrong = 0;
  std::size_t unreadable = 0;
  Progress progress(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    progress.show(i, files[i].filename().string());
    try {
      progress.clear();
      if (!verify_file(files[i])) ++wrong;
    } catch (const Error& error) {
      fmt::print("ERROR {}\n", error.in_file(files[i].string()).what());
      ++unreadable;
    }
  }
  progress.clear();
  fmt::print("{} files: {} right, {} differ, {} errors\n", files.size(),
             files.size() - wrong - unreadable, wrong, unreadable);
  return wrong > 0 ? 1 : unreadable > 0 ? 2 : 0;
}

}  // namespace goldenrule::tools
