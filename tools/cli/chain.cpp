// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "fixtures/call/error.hpp"
#include "fixtures/call/text.hpp"
#include "fixtures/schema/read.hpp"
#include "reference/arbiter/choices.hpp"
#include "reference/chain/judge.hpp"
#include "reference/suites/slices.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/files.hpp"
#include "tools/cli/judging.hpp"
#include "tools/cli/progress.hpp"

namespace goldenrule::tools {
namespace {

using Json = nlohmann::json;
using verdict::Verdict;

struct ChainFile {
  std::string path;
  std::optional<std::int64_t> index;  ///< absent: the file does not say
};

// What is given, the .h5 files of directories among it, in the order of their calls.
std::vector<ChainFile> files_of(const std::vector<std::string>& paths) {
  std::vector<ChainFile> files;
  for (const std::string& path : paths) {
    std::error_code code;
    if (!std::filesystem::is_directory(path, code)) {
      files.push_back({path, {}});
      continue;
    }
    std::vector<std::string> inside;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.path().extension() == ".h5") inside.push_back(entry.path().string());
    }
    std::ranges::sort(inside);
    for (std::string& file : inside) files.push_back({std::move(file), {}});
  }
  if (files.empty()) {
    throw Error(ErrorKind::kArgument, "files",
                "at least one .h5 file, or a folder that has some itself (of `simulate`: one of "
                "DIR/chain_*)",
                "none in " + fmt::format("{}", fmt::join(paths, ", ")));
  }
  return files;
}

// The places of the calls from the headers alone; files without one keep their order at the end.
void sort_by_call(std::vector<ChainFile>& files, const ChainOptions& options) {
  if (options.in_given_order) return;
  const schema::Reader reader = reading({}).reader;
  for (ChainFile& file : files) {
    try {
      file.index = schema::describe(file.path, reader).header.call_index;
    } catch (const Error&) {  // said where it is read
    }
  }
  std::ranges::stable_sort(files, [](const ChainFile& a, const ChainFile& b) {
    if (a.index.has_value() != b.index.has_value()) return a.index.has_value();
    return a.index && *a.index < *b.index;
  });
}

Json to_json(const chain::Finding& f, const std::string& file) {
  return {{"file", file},
          {"check", call::name_of(f.check)},
          {"verdict", verdict::name_of(f.verdict)},
          {"mistake", call::name_of(f.mistake)},
          {"call", f.call},
          {"request", f.request},
          {"page", f.page},
          {"slot", f.slot},
          {"row", f.row},
          {"position", f.position},
          {"text", f.text}};
}

std::string finding_text(const chain::Finding& f) {
  std::string at = fmt::format("call {}", f.call);
  if (f.request >= 0) at += fmt::format(", request {}", f.request);
  if (f.page >= 0) at += fmt::format(", page {}", f.page);
  if (f.slot >= 0) at += fmt::format(", slot {}", f.slot);
  if (f.row >= 0) at += fmt::format(", row {}, position {}", f.row, f.position);
  const std::string name =
      f.mistake == chain::Mistake::kNone ? "" : fmt::format(" {}:", call::name_of(f.mistake));
  return fmt::format("{} {} [{}]{} {}", verdict::name_of(f.verdict), at, call::name_of(f.check),
                     name, call::printable(f.text));
}

// The judge of a chain, made with its first call.
class Reading {
 public:
  explicit Reading(const ChainOptions& options) : options_(options) {}

  std::vector<chain::Finding> add(const std::string& file) {
    try {
      schema::ReadOptions read = reading({});
      read.golden = read.budgets = read.stages = false;
      schema::Fixture fixture = schema::read_fixture(file, read);
      const std::int64_t next = last_ + 1;
      last_ = fixture.call_index.value_or(next);
      return judge().add(
          {.chain = fixture.chain, .index = last_, .record = std::move(fixture.record)});
    } catch (const Error& error) {
      ++last_;
      return judge().lost(error.in_file(file).what());
    } catch (const std::bad_alloc&) {  // while it was read
      ++last_;
      return judge().lost(file + ": expected memory for this call");
    }
  }

  [[nodiscard]] chain::Summary finish() { return judge().finish(); }

 private:
  chain::Judge& judge() {
    if (!judge_) {
      chain::Options options{.only_chain = options_.only_chain,
                             .strict = options_.strict,
                             .call_bytes = static_cast<double>(limits().most_bytes())};
      if (!options_.contract.empty()) options.contract = arbiter::named_contract(options_.contract);
      judge_.emplace(suites::slice_of, std::move(options));
    }
    return *judge_;
  }

  const ChainOptions& options_;
  std::optional<chain::Judge> judge_;
  std::int64_t last_ = -1;
};

std::string summary_text(const chain::Summary& s) {
  std::string text =
      fmt::format("{}, {}, {}: {} of {} judged, {} that calls do not name compared\n",
                  call::numbered(s.calls, "call"), call::numbered(s.requests, "request"),
                  call::numbered(s.tokens, "token"), s.judged, call::numbered(s.states, "state"),
                  call::numbered(s.slots_compared, "slot"));
  if (s.taken > 0) {
    text += fmt::format(
        "{} {} taken for right: of requests that began before the chain, or were restored from "
        "what "
        "it does not know\n",
        call::numbered(s.taken, "start state"), call::agreeing(s.taken, "is", "are"));
  }
  if (s.restarts > 0) {
    text += fmt::format("{} a request was at position 0 again: taken to be preempted\n",
                        call::numbered(s.restarts, "time"));
  }
  if (s.parameter_changes > 0) {
    text += fmt::format("{} of parameters of the layer {} taken for other weights\n",
                        call::numbered(s.parameter_changes, "change"),
                        call::agreeing(s.parameter_changes, "is", "are"));
  }
  if (s.vacuous > 0) {
    text += fmt::format(
        "{} with a budget as large as the state: continuity says more than the ledger\n",
        call::numbered(s.vacuous, "state"));
  }
  if (s.outputs > 0) {
    text += fmt::format("o of calls without states: {} of {} judged\n", s.outputs_judged,
                        call::numbered(s.outputs, "row"));
  }
  if (s.rows > 0) {
    text += fmt::format("caches: {} of {} that attention reads judged\n", s.rows_judged,
                        call::numbered(s.rows, "row"));
  }
  if (s.acceptances > 0) {
    text += fmt::format("draft acceptances: what the server did after {} of {} is known\n",
                        s.acceptances_followed, call::numbered(s.acceptances, "row"));
  }
  if (s.forgotten > 0)
    text += fmt::format("{} given up for memory\n", call::numbered(s.forgotten, "ledger"));
  if (s.first) text += "first: " + finding_text(*s.first) + "\n";
  text += fmt::format("{}", verdict::name_of(s.verdict));
  if (!s.first && !s.reason.empty()) text += ": " + s.reason;
  return text;
}

Json summary_json(const chain::Summary& s) {
  return {{"verdict", verdict::name_of(s.verdict)},
          {"reason", s.reason},
          {"calls", s.calls},
          {"requests", s.requests},
          {"tokens", s.tokens},
          {"states", s.states},
          {"judged", s.judged},
          {"vacuous", s.vacuous},
          {"blind_starts", s.blind_starts},
          {"outputs", s.outputs},
          {"outputs_judged", s.outputs_judged},
          {"outputs_blind", s.outputs_blind},
          {"slots_compared", s.slots_compared},
          {"rows", s.rows},
          {"rows_judged", s.rows_judged},
          {"acceptances", s.acceptances},
          {"acceptances_followed", s.acceptances_followed},
          {"taken", s.taken},
          {"restarts", s.restarts},
          {"parameter_changes", s.parameter_changes},
          {"forgotten", s.forgotten},
          {"mistrusted", s.mistrusted}};
}

}  // namespace

int chain(const ChainOptions& options) {
  if (!options.contract.empty()) {
    chain::require_contract(arbiter::named_contract(options.contract));
  }
  std::vector<ChainFile> files = files_of(options.files);
  std::vector<std::string> inputs{options.contract};
  for (const ChainFile& file : files) inputs.push_back(file.path);
  refuse_overwriting(inputs, {.json = options.json, .junit = {}, .html = {}});
  sort_by_call(files, options);
  Reading reading(options);
  Json findings = Json::array();
  Progress progress(files.size());
  for (std::size_t i = 0; i < files.size(); ++i) {
    progress.show(i, files[i].path);
    const std::vector<chain::Finding> found = reading.add(files[i].path);
    progress.clear();
    for (const chain::Finding& finding : found) {
      fmt::print("{}\n", finding_text(finding));
      findings.push_back(to_json(finding, files[i].path));
    }
  }
  const chain::Summary summary = reading.finish();
  fmt::print("{}\n", summary_text(summary));
  if (!options.json.empty()) {
    const Json report{{"findings", findings}, {"summary", summary_json(summary)}};
    write_text(options.json, report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  }
  switch (summary.verdict) {
    case Verdict::kExact:
    case Verdict::kWithinBudget:
      return 0;
    case Verdict::kOutOfBudget:
      return 1;
    default:
      return 2;
  }
}

}  // namespace goldenrule::tools
