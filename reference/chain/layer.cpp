// SPDX-License-Identifier: Apache-2.0
//
// What a chain shows beside its states: that all calls are of one layer, whose parameters do not
// change, that a number which grows from call to call has left the type in which it is stored, and
// what the outputs of calls without states are.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "fixtures/call/take.hpp"
#include "fixtures/call/text.hpp"
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

// Whether element i of o is an infinity that its type makes of the right result.
bool is_rounded_to_infinity(const call::Tensor& o, std::int64_t i, double right) {
  return std::isinf(o[i]) && std::isfinite(right) && call::round_to(o.dtype(), right) == o[i];
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
    if (type.empty()) {
      ++memory_.summary.parameter_changes;
      continue;
    }
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
  // The others are rejected.
  const auto tokens =
      request.kept ? call::path_to(request.parents, *request.kept) : call::all_indices(row.tokens);
  for (const std::int64_t t : tokens) {
    const std::int64_t first = (sequence.first_token + t) * token;
    for (std::int64_t i = first; i < first + token; ++i) {
      const double right = exact[static_cast<std::size_t>(i)];
      if (!is_rounded_to_infinity(*o, i, right)) continue;
      ++count;
      largest = std::max(largest, std::fabs(right));
    }
  }
  if (count == 0) return;
  request.overflowed = true;
  Finding& finding = report(Check::kRange, row,
                            call::numbered(count, "element") + " of o " +
                                std::string(call::agreeing(count, "is", "are")) + " infinite, as " +
                                std::string(call::info(o->dtype()).name) +
                                " has it for the exact result: " + number(largest) + " at most");
  finding.verdict = verdict::Verdict::kMistrusted;
  finding.mistake = Mistake::kOverflowed;
}

// By itself a call without states says nothing of its o. All tokens of an MTP call are judged: each
// has a right value, whichever of them are kept.
void CallWalk::judge_outputs(const Step& step, std::vector<Request>& requests) {
  const call::Tensor* o = output("o");
  if (stored_ || o == nullptr) return;
  verdict::Expected expected = step.outputs_from_ledgers();
  std::vector<bool>& undefined = expected.exact.undefined;
  const std::int64_t token = layout_.HV * layout_.V;
  const auto elements_of = [&](const RowWalk& row) {
    const call::Sequence& s = step.plan().sequences[static_cast<std::size_t>(row.row)];
    return std::pair(s.first_token * token, (s.first_token + s.token_count) * token);
  };
  bool any = false;
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    const auto [first, last] = elements_of(rows_[row]);
    if (first == last) continue;
    const bool judged = rows_[row].ledger && !requests[row].strayed;
    any = any || judged;
    ++memory_.summary.outputs;
    if (judged) ++memory_.summary.outputs_judged;
    for (std::int64_t i = first; i < last; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (!judged || is_rounded_to_infinity(*o, i, expected.exact.golden[at])) undefined[at] = true;
    }
  }
  if (!any) return;
  const verdict::TensorReport found = verdict::judge("o", *o, expected, contract_);
  if (found.vacuous + found.undecided + found.unbounded > 0) ++memory_.summary.outputs_blind;
  const std::int64_t slice = o->size() / o->shape().front();
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    const auto [first, last] = elements_of(rows_[row]);
    std::int64_t out = 0;
    for (const verdict::RowFindings& failing : found.failing_rows) {
      const std::int64_t at = failing.row * slice;
      if (at >= first && at < last) out += failing.out_of_budget;
    }
    if (out == 0) continue;
    requests[row].strayed = true;
    std::string text = "o is not what the state of the request makes of its tokens (" +
                       std::to_string(out) + " of " + call::numbered(last - first, "element") +
                       " beyond their budget";
    const std::int64_t worst = found.worst->index.front() * slice;
    if (worst >= first && worst < last) {
      text += ", " + number(found.worst->value) + " where " + number(found.worst->golden) +
              " is right and " + number(found.worst->budget) + " is allowed";
    }
    report(Check::kOutputs, rows_[row], text + ")");
  }
}

}  // namespace goldenrule::chain
