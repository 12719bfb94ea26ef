// SPDX-License-Identifier: Apache-2.0
//
// goldenrule: judges the outputs of delta-rule attention kernels. Command line only; every command
// is a function of commands.hpp, and this is the one place where an exception becomes an exit code.
//
// Length: one short function for each command.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <new>
#include <string>
#include <string_view>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "fixtures/call/error.hpp"
#include "fixtures/hdf5/library.hpp"
#include "fixtures/parallel/threads.hpp"
#include "reference/suites/kill_matrix.hpp"
#include "reference/verdict/stages.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/files.hpp"

namespace {

using namespace goldenrule;  // NOLINT(google-build-using-namespace): the program's own

// A negative size would be taken for a huge one.
std::string refuse_sign(const std::string& size) {
  return size.find('-') == std::string::npos ? "" : "a size has no sign: " + size;
}

// What the options of the program and of all its commands are read into.
struct Options {
  bool trust = false;
  std::uint64_t memory = 0;
  double work = 0.0;
  tools::CheckOptions check;
  tools::ChainOptions chain;
  tools::GenerateOptions generate;
  tools::SimulateOptions simulate;
  tools::RecomputeOptions recompute;
  tools::MergeOptions merge;
  tools::DiffOptions diff;
  tools::BudgetOptions budget;
  tools::MutateOptions mutate;
  bool peers = false, chains = false, unknown = false;
  tools::UnknownOptions drawn;
  std::string contract_name;
  std::string file;  // info
  bool schema_json = false;
  std::string listed;
  bool list_json = false;

  /// The command that was chosen.
  std::function<int()> command;
};

constexpr const char* kShard = "I/N: the I-th of N parts of this run; merge puts reports together";

void add_reports(CLI::App* sub, tools::ReportFiles& reports) {
  sub->add_option("--json", reports.json, "write the report as JSON");
  sub->add_option("--junit", reports.junit, "write the report as JUnit XML");
  sub->add_option("--html", reports.html, "write the report as a page");
}

void add_check(CLI::App& app, Options& all) {
  tools::CheckOptions& check = all.check;
  CLI::App* sub = app.add_subcommand("check", "Judge captures against the exact result");
  sub->add_option("files", check.files, "captures in schema goldenrule/1")->required();
  sub->add_option("--contract", check.contract,
                  "a built-in contract (see `contract`) or a .json file (default: by mode and the "
                  "types of the tensors; the file's own where it is tighter)");
  sub->add_flag("--blind", check.blind,
                "say which known mistakes and convention values the capture cannot tell apart");
  sub->add_option("--only", check.only, "judge these outputs and want no others")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->add_option("--terms", check.terms,
                  "show where the budget of an element comes from, as o[1,3,0,7] (repeatable)")
      ->allow_extra_args(false);
  sub->add_option("--precision", check.precision, "auto, double, quad (106 bits), multi (168)");
  add_reports(sub, check.reports);
  sub->add_option("--shard", check.shard, kShard);
  sub->add_flag("!--no-explain", check.explain, "do not look for the mistake behind a failure");
  sub->add_option(
         "--explain-seconds", check.explain_seconds,
         "stop looking for pairs of mistakes, other orders and amplified roundings after so many "
         "core-seconds, as estimated from the shapes, and for single ones after twice as many; 0: "
         "single ones alone (default: ten times the verdict, at least 5, of a file below 100 kB at "
         "most 10)")
      ->check(CLI::NonNegativeNumber);
  sub->callback([&all] { all.command = [&all] { return tools::check(all.check); }; });
}

void add_chain(CLI::App& app, Options& all) {
  tools::ChainOptions& chain = all.chain;
  CLI::App* sub = app.add_subcommand(
      "chain", "Judge the calls of one server in a row: whose state is whose, and since when not");
  sub->add_option("files", chain.files, "captures with request_ids, or directories of them")
      ->required();
  sub->add_option("--contract", chain.contract, "as in check");
  sub->add_flag("--only-chain", chain.only_chain,
                "do not judge each call by itself, only what goes on between calls");
  sub->add_flag("--strict", chain.strict,
                "what is taken for right is no pass: start states from outside of the chain, "
                "requests at position 0 again, other parameters of the layer");
  sub->add_flag("--in-given-order", chain.in_given_order,
                "take the files as they are given, not in the order of their attribute `call`");
  sub->add_option("--json", chain.json, "write the report as JSON");
  sub->callback([&all] { all.command = [&all] { return tools::chain(all.chain); }; });
}

void add_generate(CLI::App& app, Options& all) {
  tools::GenerateOptions& generate = all.generate;
  CLI::App* sub =
      app.add_subcommand("generate", "Write golden fixtures of a suite or of one case line");
  sub->add_option("what", generate.what, "a suite (see list) or a case line")->required();
  sub->add_option("-o,--output", generate.directory, "directory")->required();
  sub->add_option("--shard", generate.shard, kShard);
  sub->add_option("--json", generate.json, "write what is in the fixtures as JSON");
  sub->add_option("--precision", generate.precision, "auto, double, quad, multi");
  sub->add_option("--stages", generate.stages, "add the chunk stages, chunks of this many tokens")
      ->expected(0, 1)
      ->default_str("64")
      ->check(CLI::Range(std::int64_t{1}, verdict::kLongestChunk));
  sub->add_option("--contract", generate.contracts,
                  "add the budgets of these contracts: names or .json files, with commas between")
      ->delimiter(',')
      ->allow_extra_args(false);
  sub->callback([&all] { all.command = [&all] { return tools::generate(all.generate); }; });
}

void add_simulate(CLI::App& app, Options& all) {
  tools::SimulateOptions& simulate = all.simulate;
  CLI::App* sub = app.add_subcommand(
      "simulate", "Write the calls of a simulated server, of a suite of chains or of one line");
  sub->add_option("what", simulate.what,
                  "a suite of chains (see list chains) or a scenario line (see list scenario_keys)")
      ->required();
  sub->add_option("-o,--output", simulate.directory, "directory; a folder in it for each chain")
      ->required();
  sub->callback([&all] { all.command = [&all] { return tools::simulate(all.simulate); }; });
}

void add_recompute(CLI::App& app, Options& all) {
  CLI::App* sub =
      app.add_subcommand("recompute", "Check digests and schema of fixtures and recompute them");
  sub->add_option("directory", all.recompute.directory, "directory or file")->required();
  sub->add_option("--shard", all.recompute.shard, kShard);
  sub->add_option("--json", all.recompute.json, "write the answers as JSON");
  sub->callback([&all] { all.command = [&all] { return tools::recompute(all.recompute); }; });
}

void add_merge(CLI::App& app, Options& all) {
  CLI::App* sub = app.add_subcommand("merge", "Put the JSON reports of many machines together");
  sub->add_option("reports", all.merge.files, "JSON reports of one command")->required();
  sub->add_option("--json", all.merge.json, "write the whole as JSON");
  sub->add_option("--html", all.merge.html, "write the whole of check or diff as a page");
  sub->callback([&all] { all.command = [&all] { return tools::merge(all.merge); }; });
}

void add_diff(CLI::App& app, Options& all) {
  tools::DiffOptions& diff = all.diff;
  CLI::App* sub =
      app.add_subcommand("diff", "Judge a candidate's outputs as outputs of a fixture's call");
  sub->add_option("golden", diff.golden, "a fixture with /golden")->required();
  sub->add_option("candidate", diff.candidate, "a capture of the same inputs")->required();
  sub->add_option("--contract", diff.contract, "as in check");
  sub->add_option("--only", diff.only, "as in check")->delimiter(',')->allow_extra_args(false);
  add_reports(sub, diff.reports);
  sub->add_flag("!--no-explain", diff.explain, "as in check");
  sub->add_option("--explain-seconds", diff.explain_seconds, "as in check")
      ->check(CLI::NonNegativeNumber);
  sub->callback([&all] { all.command = [&all] { return tools::diff(all.diff); }; });
}

void add_budget(CLI::App& app, Options& all) {
  CLI::App* sub =
      app.add_subcommand("budget", "Show what each rounding point of a contract costs on a case");
  sub->add_option("case", all.budget.case_line, "a case line")->required();
  sub->add_option("--contract", all.budget.contract, "a name or a .json file");
  sub->callback([&all] { all.command = [&all] { return tools::budget(all.budget); }; });
}

void add_unknown(CLI::App* sub, Options& all) {
  CLI::Option* unknown =
      sub->add_flag("--unknown", all.unknown,
                    "instead: how often mistakes that no table has are explained correctly");
  sub->add_option("--seed", all.drawn.seed, "of the drawn mistakes (1)")
      ->transform(CLI::Validator(refuse_sign, "UINT"))
      ->needs(unknown);
  CLI::Option* draws = sub->add_option("--draws", all.drawn.draws, "how many are drawn (80)")
                           ->check(CLI::Range(1, 1 << 20))
                           ->needs(unknown);
  CLI::Option* draw = sub->add_option("--draw", all.drawn.draw, "only the one of this number")
                          ->check(CLI::Range(0, 1 << 20))
                          ->needs(unknown)
                          ->excludes(draws);
  sub->add_option("--out", all.drawn.out, "write it as a capture, too")->needs(draw);
}

void add_mutate(CLI::App& app, Options& all) {
  tools::MutateOptions& mutate = all.mutate;
  CLI::App* sub =
      app.add_subcommand("mutate", "Commit known mistakes: which of them do the suites see?");
  sub->add_option(
      "--suite", mutate.matrix.suites,
      "suites or case lines (default: boundary, stress and mtp; of chains: chains_smoke)");
  sub->add_option("--contract", mutate.contract, "as in check (default: by mode and state type)");
  sub->add_option("--mutant", mutate.matrix.mutants, "only these mistakes");
  sub->add_option("--kills", mutate.matrix.kills, "cases that must see a mistake")
      ->check(CLI::Range(1, 1 << 20));
  sub->add_flag("--all", mutate.matrix.all, "every mistake on every case where it applies");
  sub->add_option("--json", mutate.json, "write the matrix as JSON");
  sub->add_option("--shard", mutate.shard, kShard);
  sub->add_flag("--peers", all.peers,
                "instead: what the rules of other projects miss, as markdown");
  sub->add_flag("--chains", all.chains,
                "instead: the mistakes of servers on suites of chains or scenario lines");
  add_unknown(sub, all);
  sub->callback([&all] {
    suites::MatrixOptions& matrix = all.mutate.matrix;
    if (matrix.suites.empty()) {
      matrix.suites = all.chains ? std::vector<std::string>{"chains_smoke"}
                                 : std::vector<std::string>{"boundary", "stress", "mtp"};
    }
    all.command = [&all] {
      if (all.chains) return tools::mutate_chains(all.mutate);
      if (all.unknown) return tools::mutate_unknown(all.drawn);
      if (all.peers) return tools::mutate_peers(all.mutate.shard, all.mutate.json);
      return tools::mutate(all.mutate);
    };
  });
}

void add_contract(CLI::App& app, Options& all) {
  CLI::App* sub =
      app.add_subcommand("contract", "Print a contract as JSON, or list the built-in ones");
  sub->add_option("name", all.contract_name, "a built-in contract or a .json file");
  sub->callback([&all] { all.command = [&all] { return tools::contract(all.contract_name); }; });
}

void add_info(CLI::App& app, Options& all) {
  CLI::App* sub = app.add_subcommand("info", "Show what a file holds");
  sub->add_option("file", all.file, "a capture or fixture")->required();
  sub->callback([&all] { all.command = [&all] { return tools::info(all.file); }; });
}

void add_schema(CLI::App& app, Options& all) {
  CLI::App* sub =
      app.add_subcommand("schema", "Print the tensors and conventions of every operation");
  sub->add_flag("--json", all.schema_json, "as JSON, for programs");
  sub->callback([&all] { all.command = [&all] { return tools::schema(all.schema_json); }; });
}

void add_list(CLI::App& app, Options& all) {
  CLI::App* sub = app.add_subcommand("list", "List suites, patterns, contracts or mistakes");
  sub->add_option(
      "what", all.listed,
      "suites (default), patterns, contracts, "
      "stages, mistakes, chains, server_mistakes, scenario_keys; or a suite: its lines");
  sub->add_flag("--json", all.list_json, "as JSON, for programs");
  sub->callback(
      [&all] { all.command = [&all] { return tools::list(all.listed, all.list_json); }; });
}

// CLI11 says that a command is required, and not that this is none.
void refuse_unknown_command(const CLI::App& app, const std::string& given) {
  std::string known;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_name() == given) return;
    known += (known.empty() ? "" : ", ") + command->get_name();
  }
  throw Error(ErrorKind::kArgument, "command", known, given.empty() ? "none" : "'" + given + "'");
}

// What is missing, as every other error says it.
[[noreturn]] void refuse_missing(const CLI::App& app, const CLI::RequiredError& missing) {
  const auto commands = app.get_subcommands();
  if (commands.empty()) refuse_unknown_command(app, "");
  std::string what = missing.what();
  what = what.substr(0, what.find(" is required"));
  const std::string command = commands.front()->get_name();
  throw Error(ErrorKind::kArgument, command, what + " (" + command + " --help says which)", "none");
}

int run(int argc, char** argv) {
  CLI::App app{
      "goldenrule: is the output of a delta-rule attention kernel right, and where is it wrong?\n"
      "Exit codes: 0 everything passed, 1 something is out of budget, 2 something cannot be "
      "judged"};
  app.set_version_flag("--version", std::string("goldenrule ") + GOLDENRULE_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  Options all;
  app.add_flag("--trust", all.trust,
               "read files in this process: a crafted one may end it (default: each in a child "
               "process with limits)");
  CLI::Option* memory_option =
      app.add_option("--memory", all.memory,
                     "refuse calls that need more, as 500000000 or 4GiB (default: three quarters "
                     "of what is available, of a file below 100 kB at most 1 GiB)")
          ->transform(CLI::AsSizeValue(false))
          ->transform(CLI::Validator(refuse_sign, "SIZE"));  // runs first
  CLI::Option* work_option =
      app.add_option("--work", all.work,
                     "refuse calls whose verdict takes more core-seconds, as estimated before it "
                     "begins (default: 3600, of a file below 100 kB 30)")
          ->check(CLI::PositiveNumber);
  for (const auto add :
       {add_check, add_chain, add_generate, add_simulate, add_recompute, add_diff, add_budget,
        add_mutate, add_merge, add_contract, add_info, add_schema, add_list}) {
    add(app, all);
  }
  if (argc > 1 && argv[1][0] != '-') refuse_unknown_command(app, argv[1]);
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& e) {
    refuse_missing(app, e);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  tools::limits().trusted = all.trust;
  if (memory_option->count() > 0) tools::limits().memory = all.memory;
  if (work_option->count() > 0) tools::limits().core_seconds = all.work;
  return all.command();
}

// Exit codes are the program's own. A library that ends the process (the OpenMP runtime does so,
// with 1, where it cannot start a thread) must not say "out of budget".
bool finished = false;

// Without streams, which may be gone or broken where this is needed.
void say(std::string_view line) {
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

void refuse_other_ends() {
  if (finished) return;
  say("goldenrule: a library has ended the program\n");
  std::_Exit(2);
}

// A file that is opened while one of the three is closed takes its number, and would be written to
// in its place. What is opened here cannot be: writing to it fails.
void hold_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", O_RDONLY);
  }
}

// An explanation takes and frees outputs of hundreds of megabytes for each hypothesis. Blocks that
// the C library maps anew each time cost more than a third of its time as page faults; those that
// it keeps are faulted in once.
void keep_freed_memory() {
#ifdef __GLIBC__
  (void)::mallopt(M_MMAP_MAX, 0);
  (void)::mallopt(M_TRIM_THRESHOLD, -1);
#endif
}

int guarded_run(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "goldenrule: out of memory\n");
  } catch (const std::exception& e) {
    fmt::print(stderr, "goldenrule: {}\n", e.what());
  }
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  hold_standard_descriptors();
  keep_freed_memory();
  std::atexit(refuse_other_ends);
  parallel::limit_threads();
  hdf5::skip_cleanup_at_exit();  // it prints on damaged files
  int code = 2;
  try {
    code = guarded_run(argc, argv);
  } catch (const std::exception&) {
    // stderr cannot be written: nobody can be told.
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    say("goldenrule: standard output: expected a writable file\n");
    code = 2;
  }
  finished = true;
  return code;
}
