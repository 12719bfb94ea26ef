// SPDX-License-Identifier: Apache-2.0
#include "tests/explain/confusions.hpp"
#include "reference/delta/mistakes/table.hpp"
#include "reference/delta/oracle/evaluate.hpp"
#include "reference/delta/slice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/delta_patterns.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "reference/explain/match.hpp"
#include "reference/verdict/kernels.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

// Storage types as a kernel under the contract has them.
Record capture_of(const Call& call, const Hypothesis& made) {
  Kernel kernel = verdict::emulated_kernel(delta::slice(), *call.contract, 3);
  for (auto m = made.rbegin(); m != made.rend(); ++m) {
    kernel = [mistake = *m, inner = kernel](const Record& r) {
      return mistake->applies(r) ? mistake->commit(r, inner) : inner(r);
    };
  }
  Record record = call.record;
  record.outputs = calls::stored(record, *call.contract, kernel(record));
  return record;
}

// What an explanation may mean: rows of one name are ways to make one mistake.
std::vector<Hypothesis> hypotheses_of(const Explanation& e) {
  std::vector<Hypothesis> found{{}};
  for (const std::string& name : e.mistakes) {
    std::vector<Hypothesis> longer;
    for (const Hypothesis& h : found) {
      for (const Mistake& m : delta::mistakes()) {
        if (m.name != name) continue;
        longer.push_back(h);
        longer.back().push_back(&m);
      }
    }
    found = std::move(longer);
  }
  return found;
}

bool equal(const Capture& capture, const Hypothesis& a, const Hypothesis& b,
           double budgets = Matcher::kSame) {
  if (a == b) return true;
  const Predictor predictor(capture);
  const auto x = predictor.predict(a, SpreadBy::kScaling);
  const auto y = predictor.predict(b, SpreadBy::kScaling);
  return x && y && Matcher(capture).same_outputs(*x, *y, budgets);
}

bool all_seen(const Capture& capture, const Hypothesis& made) {
  if (made.size() == 1) return !equal(capture, made, {}, 1.0);
  return std::ranges::none_of(made,
                              [&](const Mistake* m) { return equal(capture, made, {m}, 1.0); });
}

}  // namespace

Outcome diagnosed(const Call& call, const Hypothesis& made) {
  const verdict::Judgement judged{.slice = &delta::slice(),
                                  .record = capture_of(call, made),
                                  .contract = *call.contract,
                                  .contract_origin = {},
                                  .report = {},
                                  .expected = call.expected};
  const Diagnosis d = diagnose(judged, delta::mistakes());
  Outcome outcome;
  outcome.shown = !d.pattern.empty();
  if (!outcome.shown) return outcome;
  const bool any = !d.explanations.empty() && d.explanations[0].explains;
  outcome.named = any ? d.explanations[0].name() : "none";
  const Capture capture = make_capture(judged);
  outcome.shown = all_seen(capture, made);
  outcome.right = outcome.shown && any &&
                  std::ranges::any_of(hypotheses_of(d.explanations[0]),
                                      [&](const Hypothesis& h) { return equal(capture, h, made); });
  if (outcome.right) return outcome;
  for (const Explanation& e : d.explanations) {
    outcome.details += fmt::format(
        "      {}: explains {} ratio {:.3g} accounted {:.4f} failing {} same {}\n", e.name(),
        e.explains, e.residual_ratio, e.accounted, e.failing, fmt::join(e.same, ","));
  }
  return outcome;
}

std::string name_of(const Hypothesis& made) {
  std::string name;
  for (const Mistake* m : made) name += (name.empty() ? "" : " + ") + std::string(m->name);
  return name;
}

const std::vector<std::string>& various_calls() {
  static const std::vector<std::string> lines{
      "op=gdn mode=decode B=3 H=2 HV=4 K=64 V=64 slots=permuted",
      "op=gdn mode=decode B=5 H=2 HV=4 K=128 V=136 slots=padded pattern=production",
      "op=kda mode=decode B=3 H=2 HV=4 K=64 V=32 gate=bounded slots=separate_padded",
      "op=kda mode=decode B=4 H=2 HV=6 K=136 V=128 gate=log slots=permuted state_layout=kv",
      "op=gdn mode=decode B=4 H=1 HV=2 K=64 V=64 slots=padded pad_slot=0 pattern=J20p",
      "op=gdn mode=decode B=3 H=1 HV=2 K=64 V=64 beta=sigmoid2 gate=log2 io=f16 pattern=E",
      "op=gdn mode=mtp B=2 T=4 H=2 HV=4 K=64 V=64 slots=permuted P=7",
      "op=gdn mode=mtp B=3 T=5 H=2 HV=4 K=32 V=48 slots=padded accepted=mixed",
      "op=kda mode=mtp B=3 T=3 H=2 HV=4 K=32 V=32 gate=linear beta=direct slots=separate",
      "op=gdn mode=mtp B=3 T=4 H=1 HV=2 K=64 V=32 slots=permuted disable_state_update=1",
      "op=gdn mode=mtp B=4 T=4 H=1 HV=2 K=64 V=32 slots=scatter",
      "op=gdn mode=prefill lens=70,33,1 H=2 HV=4 K=64 V=64 gate=log h0=1",
      "op=kda mode=prefill lens=70,0,130 H=2 HV=4 K=64 V=64 gate=bounded h0=1 pattern=Dslow",
      "op=gdn mode=prefill lens=137,63 H=2 HV=4 K=64 V=136 gate=softplus h0=1 pattern=production",
      "op=kda mode=prefill lens=137,63 H=1 HV=2 K=136 V=64 gate=log h0=1 pattern=B95",
      "op=gdn mode=prefill lens=137,63 H=1 HV=2 K=64 V=64 gate=linear beta=direct pattern=B999",
      "op=gdn mode=prefill lens=137,63 H=1 HV=2 K=64 V=64 gate=log io=f16 h0=1 pattern=F",
  };
  return lines;
}

std::vector<std::string> calls_of_patterns() {
  const std::vector<std::string> forms{
      "op=gdn mode=decode B=3 H=2 HV=4 K=64 V=32 slots=permuted gate=log",
      "op=kda mode=mtp B=2 T=4 H=2 HV=4 K=32 V=48 slots=permuted gate=bounded",
      "op=gdn mode=prefill lens=70,33 H=2 HV=4 K=64 V=32 gate=log h0=1 beta=sigmoid2",
      "op=gdn mode=prefill lens=70,33 H=2 HV=4 K=64 V=32 gate=linear beta=direct qk_l2norm=none "
      "scale=1 h0=1",
  };
  std::vector<std::string> lines;
  for (const cases::DeltaPattern& pattern : cases::delta_patterns()) {
    for (const std::string& form : forms) {
      const bool plain = form.find("scale=1") != std::string::npos;
      if (plain != (pattern.name == "K")) continue;
      const std::string line = fmt::format("{} pattern={}", form, pattern.name);
      try {
        cases::check_pattern(cases::parse(line));
        lines.push_back(line);
      } catch (const Error&) {  // a pattern that this form of the call cannot express
      }
    }
  }
  return lines;
}

Call expected_call(const std::string& line) {
  Call call{.line = line, .record = make_call(line), .contract = nullptr, .expected = {}};
  call.contract = &delta::default_contract(call.record);
  call.expected =
      verdict::expect(delta::slice(), call.record, *call.contract, scalar::Precision::kDouble);
  return call;
}

Calls::Calls(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) calls_.push_back(expected_call(line));
}

std::vector<Outcome> diagnose_all(const Calls& calls, const std::vector<Attempt>& attempts) {
  std::vector<Outcome> outcomes(attempts.size());
  parallel::for_each_index(std::ssize(attempts), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    outcomes[at] = diagnosed(calls[attempts[at].call], attempts[at].made);
  });
  return outcomes;
}

Score print_confusions(const Calls& calls, const std::vector<Attempt>& attempts,
                       const std::vector<Outcome>& outcomes) {
  Score score;
  for (std::size_t i = 0; i < attempts.size(); ++i) {
    const Outcome& outcome = outcomes[i];
    score.shown += outcome.shown ? 1 : 0;
    score.right += outcome.right ? 1 : 0;
    if (!outcome.shown || outcome.right) continue;
    fmt::print("  {:<40} {:<26} in {}\n{}", name_of(attempts[i].made), outcome.named,
               calls[attempts[i].call].line, outcome.details);
  }
  fmt::print("the right name or an equal one first in {} of {} ({:.1f} %)\n", score.right,
             score.shown, 100.0 * score.share());
  return score;
}

}  // namespace goldenrule::explain::test
