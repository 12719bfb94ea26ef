// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "fixtures/call/error.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/cases/suite.hpp"
#include "fixtures/schema/meaning.hpp"
#include "fixtures/schema/read.hpp"
#include "fixtures/schema/write.hpp"
#include "reference/arbiter/choices.hpp"
#include "reference/contract/family.hpp"
#include "reference/suites/golden.hpp"
#include "reference/suites/slices.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/judging.hpp"
#include "tools/cli/progress.hpp"
#include "tools/cli/share.hpp"

namespace goldenrule::tools {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

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
  return suite;
}

// A contract that no case can have would leave no trace in the fixtures. Of a suite with several
// families each takes its own.
void require_a_case(const contract::Contract& contract, const cases::Suite& suite) {
  const auto fits = [&](const cases::Case& c) { return contract.is_of(call::family_of(c.op)); };
  if (!suite.cases.empty() && std::ranges::none_of(suite.cases, fits)) {
    contract::require_family(contract, call::family_of(suite.cases.front().op));
  }
}

suites::Extras extras_of(const GenerateOptions& options, const cases::Suite& suite) {
  suites::Extras extras{.stages = options.stages, .contracts = {}};
  std::set<std::string> names;
  for (const std::string& name : options.contracts) {
    extras.contracts.push_back(arbiter::named_contract(name));
    require_a_case(extras.contracts.back(), suite);
    if (!names.insert(extras.contracts.back().name).second) {
      throw Error(ErrorKind::kArgument, "--contract", "contracts with different names",
                  "'" + extras.contracts.back().name + "' twice");
    }
  }
  return extras;
}

// Its stages take more than its tensors.
void admit_stages(const cases::Case& c, std::int64_t chunk) {
  const call::Record record = cases::make_record(c);
  verdict::Declared call{.op = c.op, .mode = c.mode, .inputs = {}, .outputs = {}};
  for (const auto& [name, tensor] : record.inputs) call.inputs[name] = tensor.shape();
  const call::Dims d = call::validate(record);
  for (const char* name : {"A", "T"}) call.stages[name] = {d.tokens, d.HV, chunk};
  limits().admit(call, false);
}

// A file that is there under its final name is kept if it means what this run would write. Nothing
// that it says of itself shows that, so golden values are recomputed either way and a run over
// finished files costs what the first one did. Files that cannot be read, as those whose digests do
// not fit, are written again. /outputs that a kernel added are no part of the meaning, and stay.
bool is_there(const fs::path& path, const schema::Fixture& wanted) {
  if (!fs::exists(path)) return false;
  try {
    const schema::Fixture found = schema::read_fixture(path, reading({.compared = true}));
    return !found.meaning_sha256.empty() && schema::meaning(found) == schema::meaning(wanted);
  } catch (const Error&) {
    return false;
  }
}

std::vector<std::string> lines_of(const cases::Suite& suite) {
  std::vector<std::string> lines;
  for (const cases::Case& c : suite.cases) lines.push_back(cases::canonical(c));
  return lines;
}

// What else the fixtures depend on.
std::vector<std::string> settings_of(const GenerateOptions& options) {
  std::vector<std::string> settings{options.precision, std::to_string(options.stages)};
  settings.insert(settings.end(), options.contracts.begin(), options.contracts.end());
  return settings;
}

}  // namespace

int generate(const GenerateOptions& options) {
  refuse_overwriting(options.contracts, {.json = options.json, .junit = {}, .html = {}});
  const cases::Suite whole = select(options);
  const Share share = parse_share(options.shard);
  const cases::Suite suite = cases::shard(whole, share.part, share.parts);
  const auto given = arbiter::parse_precision(options.precision);
  const suites::Extras extras = extras_of(options, whole);
  const fs::path directory(options.directory);
  std::error_code failure;
  fs::create_directories(directory, failure);
  if (failure) {
    throw Error(ErrorKind::kFile, options.directory, "output directory", "a writable directory",
                failure.message());
  }
  std::size_t written = 0;
  ordered_json fixtures = ordered_json::array();
  Progress progress(suite.cases.size());
  for (std::size_t i = 0; i < suite.cases.size(); ++i) {
    const cases::Case& c = suite.cases[i];
    const fs::path path = directory / (cases::file_stem(c) + ".h5");
    progress.show(i, path.filename().string());
    const scalar::Precision precision = given.value_or(suites::golden_precision(c));
    if (extras.stages > 0 && suites::slice_of(c.op).stages != nullptr)
      admit_stages(c, extras.stages);
    const schema::Fixture fixture = suites::make_fixture(c, precision, extras);
    const bool there = is_there(path, fixture);
    if (!there) schema::write_fixture(path, fixture);
    written += there ? 0U : 1U;
    fixtures.push_back(
        {{"file", path.filename().string()},
         {"case", cases::canonical(c)},
         {"outcome", there ? "there" : "written"},
         {"meaning_sha256",
          options.json.empty() ? std::string() : schema::digest(schema::meaning(fixture))}});
  }
  progress.clear();
  fmt::print("{} fixtures in {}: {} written, {} were there already\n", suite.cases.size(),
             options.directory, written, suite.cases.size() - written);
  if (!options.json.empty()) {
    write_items(options.json, "fixtures", fixtures,
                run_of("generate", lines_of(whole), settings_of(options), share));
  }
  return 0;
}

}  // namespace goldenrule::tools
