// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/share.hpp"

#include <charconv>
#include <nlohmann/json.hpp>

#include "fixtures/call/error.hpp"
#include "reference/report/runs.hpp"
#include "tools/cli/judging.hpp"

namespace goldenrule::tools {
namespace {

[[noreturn]] void refuse(const std::string& text) {
  throw Error(ErrorKind::kArgument, "--shard", "I/N with 1 <= I <= N", "'" + text + "'");
}

std::size_t count_of(const std::string& text, const std::string& whole) {
  std::size_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size()) refuse(whole);
  return value;
}

}  // namespace

Share parse_share(const std::string& text) {
  if (text.empty()) return {};
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) refuse(text);
  const Share share{.part = count_of(text.substr(0, slash), text),
                    .parts = count_of(text.substr(slash + 1), text)};
  constexpr std::size_t kMost = 1'000'000'000;  // what a JSON reader takes for a whole number
  if (share.part < 1 || share.part > share.parts || share.parts > kMost) refuse(text);
  return share;
}

report::Run run_of(const std::string& command, const std::vector<std::string>& items,
                   const std::vector<std::string>& options, const Share& share) {
  report::Run run = report::run_of(command, items, options);
  run.part = share.part;
  run.parts = share.parts;
  return run;
}

void write_covered(const std::string& path, const nlohmann::ordered_json& body,
                   const report::Run& run) {
  nlohmann::ordered_json json{{"runs", nlohmann::ordered_json::array({report::run_json(run)})}};
  json.update(body);
  write_text(path, json.dump(1) + "\n");
}

void write_items(const std::string& path, const char* key, const nlohmann::ordered_json& items,
                 const report::Run& run) {
  write_covered(path, nlohmann::ordered_json{{key, items}}, run);
}

}  // namespace goldenrule::tools
