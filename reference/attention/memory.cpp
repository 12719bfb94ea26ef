// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/memory.hpp"

#include <algorithm>

#include "reference/attention/rule/evaluate.hpp"
#include "reference/attention/visible/failing_rows.hpp"

namespace goldenrule::attention {
namespace {

constexpr double kMebibyte = 1 << 20;
constexpr double kProcess = 48 * kMebibyte;
constexpr double kPerThread = 8 * kMebibyte;
constexpr double kPerElement = 8 + 4 + 4 + 4 + 1;
constexpr double kPerRun = 2 * sizeof(Run);
constexpr double kPerRequest = 256;
constexpr double kBudgetPerKey = 256;  // budget/row_budget.cpp
constexpr double kExplanationPerElement = 200;

// What the search for visible sets holds (visible/): the orders of keys of each request, failing
// and passing rows with what is found in each, and on every thread place, weight and columns of the
// keys of one order. Vectors grow by doubling: while one does, three times what it holds exists.
double of_visible_sets(double requests, double keys, double rows, double threads) {
  constexpr double kGrows = 3.0;
  constexpr double kFoundInRow = 1024, kSearchedKey = sizeof(KeyPlace) + 9 * sizeof(double);
  const double line = keys + kKeysBehind;
  const double lines = kKeyOrders * requests * line * (sizeof(KeyPlace) + sizeof(std::int64_t));
  const double of_rows = 2 * rows * sizeof(JudgedRow) + std::min(rows, 4096.0) * kFoundInRow;
  return kGrows * (lines + of_rows + threads * line * kSearchedKey);
}

double elements(const call::Shape& shape) {
  double count = 1.0;
  for (const std::int64_t extent : shape) count *= static_cast<double>(extent);
  return count;
}

// The extent of an input along an axis, or 0.
double extent(const verdict::Declared& call, const char* name, std::size_t axis) {
  const auto it = call.inputs.find(name);
  return it == call.inputs.end() || it->second.size() <= axis
             ? 0.0
             : static_cast<double>(it->second[axis]);
}

}  // namespace

verdict::Need memory_needed(const verdict::Declared& call, int threads) {
  const double tokens = extent(call, "q", 0);
  const double HV = extent(call, "q", 1);
  const double K = extent(call, "q", 2);
  const double V = std::max(extent(call, "v", 2), extent(call, "v_cache", 3));
  const double requests = extent(call, "cu_seqlens_q", 0);
  const double fresh = extent(call, "k", 0);
  const double page = extent(call, "k_cache", call.kv_layout == call::KvLayout::kNhd ? 1 : 2);
  const double entries =
      std::max(elements({static_cast<std::int64_t>(extent(call, "page_table", 0)),
                         static_cast<std::int64_t>(extent(call, "page_table", 1))}),
               extent(call, "page_indices", 0));
  const double longest = std::max(extent(call, "page_table", 1), extent(call, "page_indices", 0));
  constexpr auto kMost = static_cast<double>(kMaxKeys);
  const double keys = std::min(fresh + longest * page, kMost);
  const double all_keys = fresh + std::min(entries * page, requests * kMost);
  const double rows = tokens * HV;
  const double plan =
      kPerRequest * requests + kPerRun * (entries + fresh) + 2 * sizeof(Range) * tokens;
  const double expectation = rows * (V + 1) * (kPerElement + 1);
  const double wide = sizeof(scalar::Multi) + 16;
  const double of_rule = kRowsTogether * (keys * 2 * wide + (K + 4 * V) * wide) +
                         static_cast<double>(kTile) * (K + V) * 8;
  const double of_budget = keys * kBudgetPerKey + 16 * V * 8;
  const double beside = std::min<double>(threads, std::max(rows, 1.0));
  const double work = std::max(beside * std::max(of_rule, of_budget), 4 * rows * V);
  verdict::Need need;
  need.verdict = kProcess + threads * kPerThread +
                 std::max(call.file_bytes + 2 * call.tensor_bytes,
                          call.tensor_bytes + plan + expectation + work);
  // Keys that are gathered keep their type where they have one, for every query head at worst.
  const double gathered = all_keys * HV * (K + V) * call.key_bytes + all_keys * 8 * 2;
  need.explanation = rows * (V + 1) * kExplanationPerElement + 2 * call.tensor_bytes +
                     2 * gathered + 2 * plan + of_visible_sets(requests, keys, rows, beside);
  return need;
}

}  // namespace goldenrule::attention
