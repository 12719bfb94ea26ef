// SPDX-License-Identifier: Apache-2.0
//
// A fixture is what its case line says: the whole call, golden values, radii, budgets and stages
// are made again, golden values in the tier that the file names, and everything that the file means
// must be the same to the bit, since every step from the case line on is deterministic. A file of
// which anything cannot be made again is not right: it is said so, and the exit code is not 0.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/call/text.hpp"
#include "fixtures/cases/delta_case.hpp"
#include "fixtures/schema/meaning.hpp"
#include "fixtures/schema/read.hpp"
#include "reference/arbiter/choices.hpp"
#include "reference/suites/golden.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/judging.hpp"
#include "tools/cli/progress.hpp"
#include "tools/cli/share.hpp"

namespace goldenrule::tools {
namespace {

namespace fs = std::filesystem;

enum class Outcome { kRight, kDiffers, kNotRecomputed, kError };
constexpr std::array<const char*, 4> kOutcomes{"right", "differs", "not_recomputed", "error"};

struct Answer {
  Outcome outcome = Outcome::kRight;
  std::string said;  ///< one line, without the file's name
};

cases::Case case_of(const schema::Fixture& fixture) {
  try {
    return cases::parse(fixture.record.case_line);
  } catch (const Error& error) {
    throw Error(ErrorKind::kValue, "/@case", "a case line", error.what());
  }
}

scalar::Precision precision_of(const schema::Fixture& fixture) {
  const auto precision = suites::stored_precision(fixture);
  if (precision) return *precision;
  throw Error(ErrorKind::kValue, "/@precision_bits", "53, 106 or 168",
              std::to_string(fixture.precision_bits));
}

// The stages and budgets of a fixture, as far as it says what they are.
suites::Extras extras_of(const schema::Fixture& fixture) {
  suites::Extras extras{.stages = std::max<std::int64_t>(suites::stored_stages(fixture), 0),
                        .contracts = {}};
  for (const auto& [name, tensors] : fixture.budgets) {
    if (arbiter::is_built_in(name)) extras.contracts.push_back(contract::find_contract(name));
  }
  return extras;
}

// What a case line does not determine: outputs of a kernel, and budgets of contracts that are not
// built in, of which a file does not say what they declare.
std::vector<std::string> not_recomputed(const schema::Fixture& fixture) {
  std::vector<std::string> paths;
  for (const auto& [name, tensor] : fixture.record.outputs) paths.push_back("/outputs/" + name);
  for (const auto& [name, tensors] : fixture.budgets) {
    if (!arbiter::is_built_in(name)) paths.push_back("/budget/" + name);
  }
  return paths;
}

// The line of a small file may describe a call that no memory holds: it is not made again unless
// the tensors are as large.
bool has_extents_of(const schema::Fixture& fixture, const cases::Case& c) {
  const call::Dims d = call::validate(fixture.record);
  // Z of a greedy call shows in none of its tensors.
  const std::array line{cases::row_count(c),
                        cases::token_count(c),
                        c.H,
                        c.HV,
                        c.K,
                        c.V,
                        cases::pool_size(c),
                        std::max<std::int64_t>(c.S, 0),
                        d.vocabulary == 0 ? 0 : c.Z};
  const std::array file{d.rows, d.tokens, d.H, d.HV, d.K, d.V, d.slots, d.drafts, d.vocabulary};
  return c.op == fixture.record.op && c.mode == fixture.record.mode && line == file;
}

// What differs, or nothing.
std::vector<std::string> differences(const schema::Fixture& fixture) {
  const cases::Case c = case_of(fixture);
  if (!has_extents_of(fixture, c)) return {"the extents of its tensors"};
  schema::Fixture again = suites::make_fixture(c, precision_of(fixture), extras_of(fixture));
  for (const auto& [name, tensors] : fixture.budgets) {
    if (!arbiter::is_built_in(name)) again.budgets[name] = tensors;
  }
  std::vector<std::string> found =
      schema::differences(schema::meaning(fixture), schema::meaning(again));
  // Without T nobody knows the size of the chunks, and it is T that should be there.
  if (!fixture.stages.empty() && !fixture.stages.contains("T"))
    found.insert(found.begin(), "/stages/T");
  return found;
}

std::string shown(const fs::path& path) { return call::printable(path.string()); }

Answer recompute_file(const fs::path& path) {
  const schema::Fixture fixture = schema::read_fixture(path, reading({.compared = true}));
  if (fixture.record.case_line.empty()) {
    return {Outcome::kNotRecomputed, "NOT RECOMPUTED: no case line; schema and digests are right"};
  }
  if (fixture.meaning_sha256.empty()) {
    throw Error(ErrorKind::kSchema, "/@meaning_sha256", "a digest of the file's meaning",
                "no such attribute");
  }
  const std::vector<std::string> found = differences(fixture);
  if (!found.empty()) {
    return {Outcome::kDiffers,
            fmt::format("DIFFERS from its case line in {}", fmt::join(found, ", "))};
  }
  const std::vector<std::string> unknown = not_recomputed(fixture);
  if (!unknown.empty()) {
    return {Outcome::kNotRecomputed,
            fmt::format("NOT RECOMPUTED: {}; the rest is right", fmt::join(unknown, ", "))};
  }
  return {Outcome::kRight, "right"};
}

// Prints one line for the file.
Answer recompute_and_say(const fs::path& path) {
  try {
    Answer answer = recompute_file(path);
    fmt::print("{}: {}\n", shown(path), answer.said);
    return answer;
  } catch (const Error& error) {
    fmt::print("ERROR {}\n", error.in_file(path.string()).what());
    return {Outcome::kError, error.what()};
  }
}

std::vector<fs::path> files_in(const std::string& directory) {
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
  return files;
}

}  // namespace

int recompute(const RecomputeOptions& options) {
  const std::vector<fs::path> all = files_in(options.directory);
  const Share share = parse_share(options.shard);
  std::vector<std::string> names;
  for (const fs::path& file : all) names.push_back(file.string());
  refuse_overwriting(names, {.json = options.json, .junit = {}, .html = {}});
  const std::vector<fs::path> files = take_share(all, share);
  std::array<std::size_t, kOutcomes.size()> counts{};
  nlohmann::ordered_json answers = nlohmann::ordered_json::array();
  Progress progress(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    progress.show(i, files[i].filename().string());
    progress.clear();
    const Answer answer = recompute_and_say(files[i]);
    const auto outcome = static_cast<std::size_t>(answer.outcome);
    ++counts[outcome];
    answers.push_back(
        {{"file", shown(files[i])}, {"outcome", kOutcomes[outcome]}, {"said", answer.said}});
  }
  progress.clear();
  const auto [right, differ, unknown, unreadable] = counts;
  fmt::print("{}: {} right, {} {}, {} not recomputed, {}\n", call::numbered(files.size(), "file"),
             right, differ, call::agreeing(differ, "differs", "differ"), unknown,
             call::numbered(unreadable, "error"));
  if (!options.json.empty()) {
    write_items(options.json, "files", answers, run_of("recompute", names, {}, share));
  }
  return differ > 0 ? 1 : right < files.size() ? 2 : 0;
}

}  // namespace goldenrule::tools
