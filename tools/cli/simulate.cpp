// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "fixtures/call/error.hpp"
#include "fixtures/call/text.hpp"
#include "fixtures/cases/suite.hpp"
#include "fixtures/schema/write.hpp"
#include "reference/serving/simulate.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/files.hpp"

namespace goldenrule::tools {
namespace {

namespace fs = std::filesystem;

// The folder of a chain has the files of its calls and no others: what an earlier run left under
// the same name is of the same line.
serving::Simulated write_chain(const cases::Scenario& scenario, const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) {
    throw Error(ErrorKind::kFile, folder.string(), "output directory", "a writable directory",
                failure.message());
  }
  return serving::simulate(scenario, [&](chain::Call&& call) {
    schema::Fixture fixture;
    fixture.record = std::move(call.record);
    fixture.chain = call.chain;
    fixture.call_index = call.index;
    fixture.generator = std::string("goldenrule ") + GOLDENRULE_VERSION;
    schema::write_fixture(folder / fmt::format("{:06}.h5", call.index), fixture);
    return true;
  });
}

}  // namespace

std::vector<cases::Scenario> scenarios_of(const std::string& what) {
  if (what.find('=') == std::string::npos) return cases::load_scenarios(what).scenarios;
  std::vector<cases::Scenario> scenarios;
  for (const std::string& line : cases::expand(what)) {
    scenarios.push_back(cases::parse_scenario(line));
  }
  return scenarios;
}

int simulate(const SimulateOptions& options) {
  const std::vector<cases::Scenario> scenarios = scenarios_of(options.what);
  for (const cases::Scenario& scenario : scenarios) {
    limits().admit_scenario(cases::canonical(scenario), serving::memory_needed(scenario));
  }
  for (const cases::Scenario& scenario : scenarios) {
    const fs::path folder = fs::path(options.directory) / serving::chain_name(scenario);
    const serving::Simulated done = write_chain(scenario, folder);
    fmt::print("{}: {}, {}", folder.string(), call::numbered(done.calls, "call"),
               call::numbered(done.tokens, "token"));
    if (done.occasions > 0) {
      fmt::print("; {} before or in {}, the first of them {}", scenario.mistake,
                 call::numbered(done.occasions, "call"), done.first);
    } else if (!scenario.mistake.empty()) {
      fmt::print("; no occasion for {}", scenario.mistake);
    }
    fmt::print("\n");
  }
  return 0;
}

}  // namespace goldenrule::tools
