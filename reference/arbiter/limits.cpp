// SPDX-License-Identifier: Apache-2.0
#include "reference/arbiter/limits.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <set>

#include "fixtures/call/error.hpp"
#include "reference/suites/slices.hpp"

namespace goldenrule::arbiter {
namespace {

// Nobody waits long for a small file: it may be a crafted one, whose tensors are large but equal.
constexpr std::uintmax_t kSmallFile = 100'000;
constexpr double kWork = 3600.0, kSmallWork = 30.0, kSmallExplanation = 10.0;
constexpr std::uint64_t kSmallMemory = std::uint64_t{1} << 30;

bool is_small(const std::string& file) {
  std::error_code code;
  const std::uintmax_t bytes = std::filesystem::file_size(file, code);
  return !code && bytes < kSmallFile;
}

constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();

// The number behind `label` in a file of the system; without a label, its first.
std::uint64_t number_in(const char* path, const std::string& label) {
  std::ifstream file(path);
  std::string word;
  while (!label.empty() && file >> word && word != label) {
  }
  std::uint64_t number = 0;
  return file >> number ? number : kUnknown;
}

std::uint64_t available_bytes() {
  const std::uint64_t kilobytes = number_in("/proc/meminfo", "MemAvailable:");
  std::uint64_t bytes = kilobytes == kUnknown ? kUnknown : kilobytes << 10;
  // "max" where the group has no limit: no number.
  const std::uint64_t group = number_in("/sys/fs/cgroup/memory.max", "");
  const std::uint64_t used = number_in("/sys/fs/cgroup/memory.current", "");
  if (group != kUnknown && used != kUnknown) bytes = std::min(bytes, group - std::min(group, used));
  return bytes;
}

verdict::Declared declared_by(const schema::Description& file, const Use& use) {
  verdict::Declared call{.op = file.header.record.op,
                         .mode = file.header.record.mode,
                         .inputs = {},
                         .outputs = {},
                         .file_bytes = static_cast<double>(file.file_bytes)};
  call.stage_chunk = file.header.stage_chunk;
  call.kv_layout = file.header.record.convention.kv_layout;
  std::set<call::DType> of_keys;
  for (const schema::DatasetInfo& d : file.datasets) {
    call.tensor_bytes += static_cast<double>(d.logical_bytes) * (use.compared ? 2 : 1);
    const auto slash = d.path.rfind('/');
    const std::string group = d.path.substr(0, slash);
    const std::string name = d.path.substr(slash + 1);
    if (group == "/inputs") call.inputs[name] = d.shape;
    if (group == "/inputs" && (name == "k" || name == "v" || name.ends_with("_cache"))) {
      of_keys.insert(d.dtype);
    }
    if (group == "/stages" && !file.header.stages_of_oracle) call.stages[name] = d.shape;
    const bool judged = use.only.empty() || std::ranges::find(use.only, name) != use.only.end();
    if ((group == "/outputs" || group == "/golden") && judged) call.outputs[name] = d.shape;
  }
  if (of_keys.size() == 1) {
    call.key_bytes = static_cast<double>(call::info(*of_keys.begin()).bytes);
  }
  return call;
}

std::string bytes_of(double bytes) { return fmt::format("{:.0f} bytes", bytes); }

void refuse_beyond(std::uint64_t limit, const verdict::Declared& call, bool explained) {
  const verdict::Need need = suites::slice_of(call.op).memory_needed(call, omp_get_max_threads());
  const double explanation = explained ? need.explanation : 0.0;
  if (need.verdict + explanation <= static_cast<double>(limit)) return;
  throw Error(ErrorKind::kUnsafe, "",
              "a call that can be judged in " + std::to_string(limit) + " bytes (--memory)",
              "one that needs " + bytes_of(need.verdict + explanation) + ", " +
                  bytes_of(call.tensor_bytes) + " of them tensors" +
                  (explanation > 0.0
                       ? " and " + bytes_of(explanation) + " for an explanation (--no-explain)"
                       : ""));
}

void admit_bytes(std::uint64_t limit, double bytes, const std::string& where,
                 const std::string& before_limit, const std::string& behind_limit,
                 const std::string& before_bytes) {
  if (bytes <= static_cast<double>(limit)) return;
  throw Error(ErrorKind::kUnsafe, where,
              before_limit + std::to_string(limit) + " bytes" + behind_limit,
              before_bytes + bytes_of(bytes));
}

}  // namespace

std::uint64_t Limits::most_bytes() const {
  if (memory) return *memory;
  const std::uint64_t bytes = available_bytes();
  return bytes == kUnknown ? kUnknown : bytes / 4 * 3;
}

void Limits::admit(const verdict::Declared& call, bool explained) const {
  refuse_beyond(most_bytes(), call, explained);
}

void Limits::admit_tensors(double bytes) const {
  admit_bytes(most_bytes(), bytes, "", "a call that can be judged in ", "", "tensors of ");
}

void Limits::admit_scenario(const std::string& line, double bytes) const {
  admit_bytes(most_bytes(), bytes, "scenario line '" + line + "'", "a server that takes at most ",
              " (--memory)", "one that takes ");
}

verdict::WorkLimit Limits::work(const std::string& file) const {
  const double usual = is_small(file) ? kSmallWork : kWork;
  return {.core_seconds = core_seconds.value_or(usual), .announce = announce};
}

schema::ReadOptions Limits::reading(const Use& use) const {
  const std::uint64_t limit = most_bytes();
  const std::uint64_t of_small = memory ? limit : std::min(limit, kSmallMemory);
  return {.reader = trusted ? schema::Reader::kHere : schema::Reader::kChild,
          .max_bytes = limit,
          .admit = [use, limit, of_small](const schema::Description& file) {
            refuse_beyond(file.file_bytes < kSmallFile ? of_small : limit, declared_by(file, use),
                          use.explained);
          }};
}

double most_explain_seconds(const std::string& file) {
  return is_small(file) ? kSmallExplanation : std::numeric_limits<double>::infinity();
}

}  // namespace goldenrule::arbiter
