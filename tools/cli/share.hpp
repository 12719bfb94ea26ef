// SPDX-License-Identifier: Apache-2.0
//
// `--shard I/N`: one run of a long command on N machines. Every machine is given all items, in one
// order, and takes its share; the JSON reports are put together by `goldenrule merge`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "reference/report/report.hpp"

namespace goldenrule::tools {

struct Share {
  std::size_t part = 1, parts = 1;

  [[nodiscard]] bool is_whole() const { return parts == 1; }
};

/// "2/8"; the whole for an empty text. Throws Error(kArgument).
[[nodiscard]] Share parse_share(const std::string& text);

/// Every parts-th item from the part-th on: it depends on nothing but the order.
template <class T>
[[nodiscard]] std::vector<T> take_share(const std::vector<T>& items, const Share& share) {
  std::vector<T> mine;
  for (std::size_t i = share.part - 1; i < items.size(); i += share.parts) mine.push_back(items[i]);
  return mine;
}

/// report::run_of of this share.
[[nodiscard]] report::Run run_of(const std::string& command, const std::vector<std::string>& items,
                                 const std::vector<std::string>& options, const Share& share);

/// Writes a JSON report: what it covers, then the keys of `body`.
void write_covered(const std::string& path, const nlohmann::ordered_json& body,
                   const report::Run& run);

/// Writes the JSON report of a command that lists one answer for each item under `key`.
void write_items(const std::string& path, const char* key, const nlohmann::ordered_json& items,
                 const report::Run& run);

}  // namespace goldenrule::tools
