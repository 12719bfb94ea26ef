// SPDX-License-Identifier: Apache-2.0
//
// A fixture is what its case line says: inputs and golden values are recomputed in the tier that
// the file names and must agree bit for bit, since every step from the case line on is
// deterministic.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/case.hpp"
#include "fixtures/schema/read.hpp"
#include "reference/oracle/evaluate.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/golden.hpp"
#include "tools/cli/progress.hpp"

namespace goldenrule::tools {
namespace {

namespace fs = std::filesystem;

bool same_bytes(const call::Tensor& a, const call::Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() &&
         std::ranges::equal(a.bytes(), b.bytes());
}

scalar::Precision precision_of(const schema::Fixture& fixture) {
  using scalar::Precision;
  for (const Precision p : {Precision::kDouble, Precision::kQuad, Precision::kMulti}) {
    if (oracle::bits_of(p) == fixture.precision_bits) return p;
  }
  throw Error(ErrorKind::kValue, "precision_bits", "53, 106 or 168",
              std::to_string(fixture.precision_bits));
}

// What differs, or nothing.
std::vector<std::string> differences(const schema::Fixture& fixture) {
  std::vector<std::string> found;
  const auto compare = [&](const std::string& what, const call::Tensor& a, const call::Tensor* b) {
    if (b == nullptr || !same_bytes(a, *b)) found.push_back(what);
  };
  schema::Fixture again;
  again.record = cases::make_record(cases::parse(fixture.record.case_line));
  for (const auto& [name, tensor] : again.record.inputs) {
    compare("/inputs/" + name, tensor, fixture.record.find_input(name));
  }
  if (again.record.inputs.size() != fixture.record.inputs.size()) found.push_back("/inputs");
  if (fixture.golden.empty()) return found;
  compute_golden(again, precision_of(fixture));
  for (const auto& [name, golden] : again.golden) {
    const auto stored = fixture.golden.find(name);
    compare("/golden/" + name, golden.value,
            stored == fixture.golden.end() ? nullptr : &stored->second.value);
    if (stored != fixture.golden.end() && stored->second.radius != golden.radius) {
      found.push_back("/golden/" + name + " attribute radius");
    }
  }
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
  if (found.empty()) {
    fmt::print("{}: right\n", path.string());
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
