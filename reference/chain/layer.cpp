// SPDX-License-Identifier: Apache-2.0
//
// What a chain shows beside its states: that all calls are of one layer, whose parameters do not
// change, and that a number which grows from call to call has left the type in which it is stored.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "reference/chain/walk.hpp"

namespace goldenrule::chain {
namespace {

bool same_numbers(const call::Tensor& a, const call::Tensor& b) {
  return a.shape() == b.shape() && std::ranges::equal(a.to_doubles(), b.to_doubles());
}

// The narrower type to which all numbers of `from` were rounded to make `to`; empty: none.
std::string_view rounded_through(const call::Tensor& from, const call::Tensor& to) {
  if (from.shape() != to.shape()) return {};
  for (const call::DType type : {call::DType::kBF16, call::DType::kF16}) {
    bool all = true;
    for (std::int64_t i = 0; all && i < from.size(); ++i) {
      all = call::round_to(type, from[i]) == to[i];
    }
    if (all) return call::info(type).name;
  }
  return {};
}

}  // namespace

// Other changes are not judged: weights may be loaded while a server runs.
void CallWalk::judge_parameters() {
  for (const char* name : {"A_log", "dt_bias"}) {
    const call::Tensor* now = record_.find_input(name);
    if (now == nullptr) continue;
    const auto [known, is_new] = memory_.parameters.try_emplace(name, *now);
    if (is_new || same_numbers(known->second, *now)) continue;
    std::string_view type = rounded_through(known->second, *now);
    const bool before = type.empty();
    if (before) type = rounded_through(*now, known->second);
    known->second = *now;
    if (type.empty()) continue;
    RowWalk none;
    none.row = -1;
    none.id.request = call::kNoRequest;
    report(Check::kParameters, none,
           std::string(name) + (before ? " was until here" : " is from here on") +
               " the same numbers rounded to " + std::string(type))
        .mistake = Mistake::kParametersNarrowed;
  }
}

// An infinity that is the right result, rounded: the arithmetic is right, and o is of no use.
void CallWalk::judge_range(const Step& step, const RowWalk& row, Request& request) {
  const call::Tensor* o = output("o");
  if (o == nullptr || request.overflowed || !row.ledger) return;
  const call::Sequence& sequence = step.plan().sequences[static_cast<std::size_t>(row.row)];
  const std::span<const double> exact = step.outputs();
  const std::int64_t token = layout_.HV * layout_.V;
  std::int64_t count = 0;
  double largest = 0.0;
  const std::int64_t tokens = request.kept.value_or(row.tokens);  // the others are rejected
  for (std::int64_t i = sequence.first_token * token; i < (sequence.first_token + tokens) * token;
       ++i) {
    const double right = exact[static_cast<std::size_t>(i)];
    if (!std::isinf((*o)[i]) || !std::isfinite(right)) continue;
    if (call::round_to(o->dtype(), right) != (*o)[i]) continue;  // another mistake
    ++count;
    largest = std::max(largest, std::fabs(right));
  }
  if (count == 0) return;
  request.overflowed = true;
  Finding& finding = report(Check::kRange, row,
                            std::to_string(count) + " elements of o are infinite, as " +
                                std::string(call::info(o->dtype()).name) +
                                " has it for what they are: " + number(largest) + " at most");
  finding.verdict = verdict::Verdict::kMistrusted;
  finding.mistake = Mistake::kOverflowed;
}

}  // namespace goldenrule::chain
