// SPDX-License-Identifier: Apache-2.0
//
// Relations between the gradients of related calls: right kernels keep each of them, the exact one
// and the emulated ones of every contract, and each relation sees mistakes, made in every call that
// a kernel is given.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reference/backward/mistakes/mistake.hpp"
#include "reference/backward/relations/relation.hpp"
#include "reference/backward/slice.hpp"
#include "reference/calls/kernel.hpp"
#include "reference/delta/calls/inputs.hpp"
#include "reference/scalar/infinity.hpp"
#include "reference/verdict/kernels.hpp"
#include "tests/record_of.hpp"

using namespace goldenrule;
using cases::record_of;
using relations::Finding;
using relations::Outcome;
using relations::Relation;

namespace {

constexpr std::array kRelated{
    "op=gdn_backward mode=prefill lens=70,64 H=1 HV=2 K=16 V=8 io=f32 h0=1 dstate=1 pattern=A",
    "op=kda_backward mode=prefill lens=20,1,0,33 H=2 HV=4 K=16 V=8 io=f32 gate=bounded h0=1 "
    "dstate=1 state_layout=kv",
    "op=gdn_backward mode=prefill lens=40,9 H=1 HV=2 K=16 V=8 io=f32 gate=log beta=direct "
    "pattern=A",
    "op=kda_backward mode=prefill lens=150,30 H=1 HV=2 K=8 V=8 io=f32 gate=log2 beta=direct "
    "qk_l2norm=none scale=1 dstate=1 h0=1 pattern=Dslow",
    "op=kda_backward mode=prefill lens=12,66 H=2 HV=4 K=16 V=8 io=f32 gate_head=qk head_map=tiled "
    "h0=1 dstate=1 pattern=B95",
};
// On which mistakes are tried.
constexpr std::array kSmallRelated{
    "op=gdn_backward mode=prefill lens=40,9 H=1 HV=2 K=8 V=4 io=f32 gate=log beta=direct h0=1 "
    "dstate=1 pattern=A",
    "op=kda_backward mode=prefill lens=66,5 H=1 HV=2 K=8 V=4 io=f32 gate=bounded pattern=A",
};
constexpr std::array kShortRelated{
    "op=gdn_backward mode=prefill lens=70,30 H=1 HV=2 K=16 V=8 h0=1 dstate=1 pattern=A",
    "op=kda_backward mode=prefill lens=20,1,0,33 H=2 HV=4 K=16 V=8 gate=log beta=direct h0=1 "
    "dstate=1",
    "op=kda_backward mode=prefill lens=66,5 H=1 HV=2 K=16 V=8 gate=bounded pattern=Dbound dstate=1",
};

call::TensorMap exact_gradients(const call::Record& r) {
  return verdict::exact_outputs(backward::slice(), r);
}

// A failing relation in words.
std::string in_words(const Outcome& outcome) {
  std::string text(outcome.relation);
  text +=
      fmt::format(": {} compared, bound/signal {:.3g}", outcome.compared, outcome.bound_to_signal);
  for (const Finding& f : outcome.findings) {
    text += fmt::format("; {}: {} elements, worst at {}: expected {}, actual {}, bound {}",
                        f.tensor, f.violations, verdict::to_string(f.coordinates), f.worst.golden,
                        f.worst.value, f.worst.budget);
  }
  return text;
}

// Elementwise clipping: no linear function of do.
call::TensorMap clipped(const call::Record& r, const calls::Kernel& kernel) {
  call::TensorMap outputs = kernel(r);
  call::Tensor& dv = outputs.at("dv");
  for (std::int64_t i = 0; i < dv.size(); ++i) dv.set(i, std::clamp(dv[i], -0.5, 0.5));
  return outputs;
}
// What is granted must not follow it: not where it is infinite, nor through the call that takes it.
// Only calls with do of the first two tokens: of the addends of linearity none is infinite.
call::TensorMap dv_infinite(const call::Record& r, const calls::Kernel& kernel) {
  call::TensorMap outputs = kernel(r);
  const call::Tensor& given = r.inputs.at("do");
  const std::int64_t width = given.size() / call::validate(r).tokens;
  const bool of_both = given.size() > width && given[0] != 0.0 && given[width] != 0.0;
  if (of_both) outputs.at("dv").set(0, kInfinity);
  return outputs;
}
call::TensorMap start_gradient_nan(const call::Record& r, const calls::Kernel& kernel) {
  call::TensorMap outputs = kernel(r);
  const auto start = outputs.find("dinitial_state");
  if (start != outputs.end()) start->second.set(0, std::nan(""));
  return outputs;
}
bool always_possible(const call::Record& r) { return call::validate(r).tokens > 0; }

std::vector<calls::Mistake> related_suspects() {
  std::vector<calls::Mistake> all(backward::mistakes().begin(), backward::mistakes().end());
  all.push_back({.name = "(dv_clipped)",
                 .group = "",
                 .meaning = "dv is clipped to +-0.5",
                 .applies = always_possible,
                 .commit = clipped});
  const auto add = [&](std::string_view name, const auto& commit) {
    all.push_back(
        {.name = name, .group = "", .meaning = "", .applies = always_possible, .commit = commit});
  };
  add("(dv_infinite)", dv_infinite);
  add("(start_gradient_nan)", start_gradient_nan);
  return all;
}

using Seen = std::map<std::string, std::set<std::string_view>>;

Seen seen_of_all() {
  Seen seen;
  const contract::Contract& contract = contract::find_contract("adjoint_f32");
  for (const calls::Mistake& mistake : related_suspects()) {
    std::set<std::string_view>& by = seen[std::string(mistake.name)];
    for (const char* line : kSmallRelated) {
      const call::Record record = record_of(line);
      if (!mistake.applies(record)) continue;
      const calls::Kernel wrong = [&](const call::Record& r) {
        return mistake.applies(r) ? mistake.commit(r, exact_gradients) : exact_gradients(r);
      };
      for (const Outcome& outcome : backward::check_relations(record, wrong, contract)) {
        if (!outcome.findings.empty()) by.insert(outcome.relation);
      }
    }
  }
  return seen;
}

}  // namespace

TEST_CASE("relations of gradients: the exact kernel keeps each with the same bits") {
  std::set<std::string_view> tried;
  const contract::Contract& contract = contract::find_contract("adjoint_f32");
  for (const char* line : kRelated) {
    CAPTURE(std::string(line));
    for (const Outcome& outcome :
         backward::check_relations(record_of(line), exact_gradients, contract)) {
      tried.insert(outcome.relation);
      CHECK_MESSAGE(outcome.holds(), in_words(outcome));
      CHECK_MESSAGE(outcome.bound_to_signal < 1.0, in_words(outcome));
    }
  }
  CHECK(tried.size() == backward::relation_table().size());
}

TEST_CASE("relations of gradients: emulated kernels of every contract keep each") {
  for (const char* line : kShortRelated) {
    const call::Record record = record_of(line);
    for (const contract::Contract& contract : contract::contracts_of(call::Family::kBackward)) {
      if (contract.adjoint() == nullptr) continue;
      CAPTURE(std::string(line));
      CAPTURE(std::string(contract.name));
      for (std::uint64_t seed = 1; seed <= 2; ++seed) {
        const calls::Kernel kernel = verdict::emulated_kernel(backward::slice(), contract, seed);
        for (const Outcome& outcome :
             backward::check_relations(record, kernel, contract, {.batch_invariant = false})) {
          CHECK_MESSAGE(outcome.holds(), in_words(outcome));
        }
      }
    }
  }
}

TEST_CASE("relations of gradients: each sees mistakes, and the expected ones") {
  const Seen seen = seen_of_all();
  fmt::print("\n{:<36}", "mistake");
  for (const Relation& relation : backward::relation_table()) fmt::print(" {:.6}", relation.name);
  fmt::print("\n");
  for (const auto& [mistake, by] : seen) {
    fmt::print("{:<36}", mistake);
    for (const Relation& relation : backward::relation_table()) {
      fmt::print(" {:>6}", by.contains(relation.name) ? "x" : ".");
    }
    fmt::print("\n");
  }
  for (const Relation& relation : backward::relation_table()) {
    CAPTURE(relation.name);
    CHECK(std::ranges::any_of(seen,
                              [&](const auto& row) { return row.second.contains(relation.name); }));
  }
  // What each mistake is about, and the relation that is about the same.
  constexpr std::pair<const char*, const char*> kExpected[] = {
      {"(dv_clipped)", "power_of_two"},
      {"(dv_clipped)", "linearity"},
      {"(dv_infinite)", "linearity"},
      {"(dv_infinite)", "euler"},
      {"(start_gradient_nan)", "euler"},
      {"(start_gradient_nan)", "split"},
      {"dbeta_bf16", "linearity"},
      {"erase_adjoint_lost", "euler"},
      {"state_gradient_ignored", "euler"},
      {"dstart_missing", "euler"},
      {"dstart_transposed", "euler"},
      {"parameter_gradient_of_one_sequence", "rows_alone"},
      {"dstate_of_next_sequence", "rows_alone"},
      {"states_of_neighbour", "rows_alone"},
      {"norm_adjoint_missing", "query_scale"},
      {"norm_adjoint_missing", "key_scale"},
      {"dk_without_state", "rotation"},
      {"dg_sum_forward", "state_scale"},
      {"rate_gradient_halved", "parameters"},
      {"gate_slope_without_bias", "parameters"},
      {"parameter_gradient_of_one_sequence", "parameters"},
      {"pair_mask_reversed", "later_zero"},
      {"grad_tail_rows_unwritten", "later_zero"},
      {"dg_sum_forward", "truncated"},
      {"parameter_gradient_of_one_tile", "truncated"},
      {"state_gradient_ignored", "split"},
      {"segment_without_erase", "split"},
      {"dm_negated", "split"},
      {"dg_state_product_missing", "split"},
  };
  for (const auto& row : kExpected) {
    const auto* mistake = row.first;
    const auto* relation = row.second;
    CAPTURE(mistake);
    CAPTURE(relation);
    CHECK(seen.at(mistake).contains(relation));
  }
  // Another linear, causal function of do in every call alike.
  const std::set<std::string_view> symmetries{"query_scale", "key_scale", "state_scale",
                                              "rotation"};
  for (const char* mistake : {"norm_adjoint_missing", "dq_scale_missing", "dk_without_state"}) {
    CAPTURE(mistake);
    CHECK(std::ranges::includes(symmetries, seen.at(mistake)));
  }
}

TEST_CASE("relations of gradients: what a kernel returns does not grant itself") {
  const contract::Contract& contract = contract::find_contract("adjoint_f32");
  const auto outcome = [&](const char* line, std::string_view name, const calls::Kernel& kernel) {
    const auto table = backward::relation_table();
    return backward::check_relation(*std::ranges::find(table, name, &Relation::name),
                                    record_of(line), kernel, contract);
  };
  // One wrong dg in all of the many later tokens, which is in the sum of their sizes.
  const calls::Kernel later_gates = [](const call::Record& r) {
    call::TensorMap outputs = exact_gradients(r);
    call::Tensor& dg = outputs.at("dg");
    if (dg.size() < 6000) return outputs;
    for (std::int64_t i = 3000; i < dg.size(); ++i) dg.set(i, 1e6);
    return outputs;
  };
  CHECK_FALSE(outcome("op=gdn_backward mode=prefill lens=6000 H=1 HV=1 K=2 V=1 io=f32 gate=log "
                      "beta=direct pattern=A",
                      "truncated", later_gates)
                  .findings.empty());
}
