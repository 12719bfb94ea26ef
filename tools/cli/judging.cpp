// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/judging.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>

#include "fixtures/call/error.hpp"
#include "fixtures/call/text.hpp"
#include "fixtures/schema/atomic_file.hpp"
#include "reference/report/page.hpp"

namespace goldenrule::tools {

void refuse_overwriting(const std::vector<std::string>& inputs, const ReportFiles& reports) {
  const auto same = [](const std::string& a, const std::string& b) {
    std::error_code code;
    return !a.empty() && !b.empty() && (a == b || std::filesystem::equivalent(a, b, code));
  };
  const std::vector<std::pair<std::string, std::string>> written{
      {"--json", reports.json}, {"--junit", reports.junit}, {"--html", reports.html}};
  for (std::size_t i = 0; i < written.size(); ++i) {
    const auto& [option, path] = written[i];
    for (const std::string& input : inputs) {
      if (!same(path, input)) continue;
      throw Error(ErrorKind::kArgument, option, "a report beside the input files",
                  "'" + path + "', which is one of them");
    }
    for (std::size_t other = 0; other < i; ++other) {
      if (!same(path, written[other].second)) continue;
      throw Error(ErrorKind::kArgument, option, "another file than " + written[other].first,
                  "'" + path + "'");
    }
  }
}

int finish(const std::vector<report::FileReport>& files, const report::Run& run,
           const ReportFiles& wanted) {
  if (files.size() > 1) fmt::print("{}", report::text_summary(files));
  if (wanted.show_maps()) {
    const std::string json = report::json_report(files, run);
    if (!wanted.json.empty()) write_text(wanted.json, json);
    if (!wanted.html.empty()) write_text(wanted.html, report::page(json));
  }
  if (!wanted.junit.empty()) write_text(wanted.junit, report::junit_report(files));
  return report::exit_code(files);
}

namespace {

// A device, a pipe or a link is what the user means, and so is a file in a directory that nothing
// can be added to.
bool can_be_replaced(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::file_type type = fs::symlink_status(path, code).type();
  if (type == fs::file_type::not_found) return true;
  const fs::path directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  return type == fs::file_type::regular && ::access(directory.c_str(), W_OK) == 0;
}

}  // namespace

void write_text(const std::string& path, const std::string& text) {
  if (can_be_replaced(path)) {
    return schema::write_file_atomically(path, std::as_bytes(std::span(text)));
  }
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw Error(ErrorKind::kFile, path, "report", "a writable file", "a failed write");
}

std::string judged_by(const std::string& contract, const std::vector<std::string>& only) {
  std::string options;
  if (!contract.empty()) options += " --contract " + shell_word(contract);
  if (!only.empty()) options += " --only " + shell_word(fmt::format("{}", fmt::join(only, ",")));
  return options;
}

std::string shell_word(const std::string& word) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("_-./,=+:@%").find(c) != std::string_view::npos;
  };
  std::string path = word.starts_with('-') ? "./" + word : word;
  if (!path.empty() && std::ranges::all_of(path, plain)) return path;
  const bool printable = call::is_printable_utf8(path);
  std::string quoted = printable ? "'" : "$'";
  for (const char c : printable ? path : call::printable(path)) {
    // The backslashes of printable() are those that $'..' reads.
    quoted += c != '\'' ? std::string(1, c) : printable ? "'\\''" : "\\'";
  }
  return quoted + "'";
}

}  // namespace goldenrule::tools
