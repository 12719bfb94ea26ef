// SPDX-License-Identifier: Apache-2.0
//
// The commands of `goldenrule`. Each takes its parsed options, prints to stdout and returns the
// exit code; whatever cannot be done is thrown as Error and becomes exit code 2 in main.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fixtures/cases/delta_scenario.hpp"
#include "reference/suites/kill_matrix.hpp"

namespace goldenrule::tools {

/// Paths of the reports that are written beside the text; empty: not written.
struct ReportFiles {
  std::string json, junit, html;

  /// Whether error maps are shown in one of them.
  [[nodiscard]] bool show_maps() const { return !json.empty() || !html.empty(); }
};

struct CheckOptions {
  std::vector<std::string> files;
  std::string contract;  ///< empty: the file's, or by mode and state
  std::string precision = "auto";
  ReportFiles reports;
  std::string shard;    ///< "I/N", or empty
  bool explain = true;  ///< ends a failing file with where it fails and why
  /// How long to look for the mistake; absent: ten times the verdict, or 5 s.
  std::optional<double> explain_seconds;
  bool blind = false;              ///< adds what the capture cannot see
  std::vector<std::string> only;   ///< the outputs to judge; empty: all that the call produces
  std::vector<std::string> terms;  ///< "o[1,3,0,7]": elements whose budget is shown term by term
};
int check(const CheckOptions& options);

struct ChainOptions {
  std::vector<std::string> files;  ///< files, and directories of them
  std::string contract;            ///< empty: as each call implies
  std::string json;                ///< path; empty: not written
  bool only_chain = false;         ///< calls are not judged by themselves
  bool strict = false;             ///< what is taken for right is no pass
  bool in_given_order = false;     ///< not in that of their `call` attributes
};
/// Judges the calls of one server in a row.
int chain(const ChainOptions& options);

struct DiffOptions {
  std::string golden, candidate;
  std::string contract;
  ReportFiles reports;
  bool explain = true;
  std::optional<double> explain_seconds;
  std::vector<std::string> only;  ///< the outputs to judge; empty: all that the call produces
};
/// Judges the outputs of `candidate` as outputs of the call in `golden`, whose golden values must
/// be those of its inputs.
int diff(const DiffOptions& options);

struct GenerateOptions {
  std::string what;  ///< a suite or a case line
  std::string directory;
  std::string shard;  ///< "I/N", or empty
  std::string json;   ///< path; empty: not written
  std::string precision = "auto";
  int stages = 0;                      ///< chunk size of the stages that are added; 0: none
  std::vector<std::string> contracts;  ///< whose budgets are added: names or .json files
};
int generate(const GenerateOptions& options);

struct SimulateOptions {
  std::string what;  ///< a suite of chains or a scenario line
  std::string directory;
};
/// Writes the chains of simulated servers, each into a folder of its own, one file per call.
int simulate(const SimulateOptions& options);
/// A suite of chains, or the scenarios that a line with braces stands for.
std::vector<cases::Scenario> scenarios_of(const std::string& what);

struct BudgetOptions {
  std::string case_line;
  std::string contract;
};
/// What each rounding point of a contract costs on a case.
int budget(const BudgetOptions& options);

struct MutateOptions {
  suites::MatrixOptions matrix;
  std::string contract;  ///< empty: by mode and state type of each case
  std::string json;      ///< path; empty: not written
  std::string shard;     ///< "I/N", or empty
};
/// Which mistakes the suites see. 1: some mistake survives, or an unmutated kernel fails; of a
/// share only the latter, since what it does not see another may.
int mutate(const MutateOptions& options);
/// Which mistakes the rules of other projects miss on their own inputs, as a markdown table.
int mutate_peers(const std::string& shard, const std::string& json);
/// Which mistakes of servers the judge of chains sees on these suites of chains or scenario lines,
/// as a markdown table. 1: not all of them, or an honest server is refused.
int mutate_chains(const MutateOptions& options);

struct UnknownOptions {
  std::uint64_t seed = 1;
  std::int64_t draws = 80;
  std::optional<std::int64_t> draw;  ///< only this one, whole
  std::string out;                   ///< file for it as a capture, or empty
};
/// How often an explanation is right of mistakes that no table has. 1: a wrong one is said.
int mutate_unknown(const UnknownOptions& options);

struct RecomputeOptions {
  std::string directory;  ///< or a file
  std::string shard;      ///< "I/N", or empty
  std::string json;       ///< path; empty: not written
};
/// Digests, schema and recomputation of every .h5 file of a directory. 1: something differs; 2:
/// something cannot be read or recomputed.
int recompute(const RecomputeOptions& options);

struct MergeOptions {
  std::vector<std::string> files;  ///< JSON reports of one command
  std::string json, html;          ///< paths; empty: not written
};
/// The whole of many reports. The exit code is that of one machine, or 2 where a share is missing
/// or two reports disagree, and nothing is known to be wrong.
int merge(const MergeOptions& options);

int info(const std::string& file);

/// A contract (a built-in one or a .json file) as JSON; without a name, the built-in ones.
int contract(const std::string& name);

/// The tables of the schema: operations with their tensors, conventions, contracts.
int schema(bool json);

/// A table of the library (suites, patterns, contracts, mistakes, chains, server_mistakes), or the
/// case lines of a suite.
int list(const std::string& what, bool json);

}  // namespace goldenrule::tools
