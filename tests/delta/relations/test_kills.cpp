// SPDX-License-Identifier: Apache-2.0
//
// Relations can fail: which of them sees which known mistake, on kernels that make it in every
// call that they are given. No oracle is asked, so a mistake that is consistent with itself in all
// calls (a gate read in the wrong base) is seen by none, and that is stated here as well.
#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <thread>

#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/mistakes/table.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/kernels.hpp"
#include "tests/delta/relations/support.hpp"

using namespace goldenrule;
using namespace goldenrule::relations;
using namespace goldenrule::relations::test;

namespace {

// Mistakes of causality and isolation that the table does not have, since no public kernel made
// them: the next token is read, and the key of the next row is.
call::TensorMap reads_ahead(const call::Record& r, const Kernel& kernel) {
  const call::Plan plan = call::make_plan(r, false);
  std::vector<std::int64_t> source;
  for (const call::Sequence& s : plan.sequences) {
    for (std::int64_t t = 0; t < s.token_count; ++t) {
      source.push_back(s.first_token + std::min(t + 1, s.token_count - 1));
    }
  }
  return kernel(calls::with_tokens(r, source));
}
call::TensorMap reads_neighbour(const call::Record& r, const Kernel& kernel) {
  const std::int64_t tokens = call::validate(r).tokens;
  std::vector<std::int64_t> source;
  for (std::int64_t t = 0; t < tokens; ++t) source.push_back((t + 1) % tokens);
  call::Record changed = calls::without_outputs(r);
  changed.inputs["k"] = calls::with_tokens(r, source).inputs.at("k");
  return kernel(changed);
}
bool always(const call::Record& r) { return call::validate(r).tokens > 0; }

// The gates of a sequence are kept as fp32 differences from the last of them: later tokens change
// the last bits of earlier results (FLA #1240).
call::TensorMap anchors_ahead(const call::Record& r, const Kernel& kernel) {
  const call::Plan plan = call::make_plan(r, false);
  const call::Tensor& g = r.inputs.at("g");
  const std::int64_t width = g.size() / plan.dims.tokens;
  std::vector<double> anchor(static_cast<std::size_t>(g.size()));
  for (const call::Sequence& s : plan.sequences) {
    for (std::int64_t i = 0; i < s.token_count * width; ++i) {
      anchor[static_cast<std::size_t>(s.first_token * width + i)] =
          g[(s.first_token + s.token_count - 1) * width + i % width];
    }
  }
  call::Record changed = calls::without_outputs(r);
  calls::change_input(changed, "g", [&](std::int64_t i, double x) {
    const double last = anchor[static_cast<std::size_t>(i)];
    return static_cast<double>(static_cast<float>(x - last)) + last;
  });
  return kernel(changed);
}
bool has_log_gate(const call::Record& r) {
  return always(r) && r.convention.gate == call::Gate::kLog;
}

// The values of a head of the call before, as they still lie in a workspace that is filled too
// late.
call::TensorMap reads_workspace(const call::Record& r, const Kernel& kernel) {
  static call::Tensor workspace;
  call::Record changed = calls::without_outputs(r);
  const call::Tensor values = changed.inputs.at("v");
  if (workspace.shape() == values.shape()) {
    calls::change_input(changed, "v", [](std::int64_t i, double x) {
      return i < workspace.shape().back() ? workspace[i] : x;
    });
  }
  workspace = values;
  return kernel(changed);
}

std::vector<calls::Mistake> suspects() {
  std::vector<calls::Mistake> all(delta::mistakes().begin(), delta::mistakes().end());
  all.push_back(
      {"(reads_ahead)", "", "token t reads the inputs of token t + 1", always, reads_ahead});
  all.push_back({"(reads_neighbour)", "", "token t reads the key of the next token of the batch",
                 always, reads_neighbour});
  all.push_back({"(anchors_ahead)", "", "gates are rounded as differences from the last one",
                 has_log_gate, anchors_ahead});
  all.push_back({"(reads_workspace)", "", "the first values are those of the call before", always,
                 reads_workspace});
  return all;
}

// mistake -> relations that see it on some call.
using Kills = std::map<std::string, std::set<std::string_view>>;

Kills kills_of_all() {
  Kills kills;
  const contract::Contract& contract = contract::find_contract("recurrent_f32");
  for (const calls::Mistake& mistake : suspects()) {
    std::set<std::string_view>& seen = kills[std::string(mistake.name)];
    for_each_call([&](const char* line) {
      const call::Record record = record_of(line);
      const Kernel wrong = [&](const call::Record& r) {
        return mistake.applies(r) ? mistake.commit(r, verdict::exact_kernel(delta::slice()))
                                  : verdict::exact_outputs(delta::slice(), r);
      };
      for (const Outcome& outcome : check_all(record, wrong, contract)) {
        if (!outcome.findings.empty()) seen.insert(outcome.relation);
      }
    });
  }
  return kills;
}

}  // namespace

TEST_CASE("every relation sees mistakes, and the expected ones") {
  const Kills kills = kills_of_all();
  fmt::print("\n{:<28}", "mistake");
  for (const Relation& relation : table()) fmt::print(" {:.6}", relation.name);
  fmt::print("\n");
  for (const auto& [mistake, seen] : kills) {
    fmt::print("{:<28}", mistake);
    for (const Relation& relation : table()) {
      fmt::print(" {:>6}", seen.contains(relation.name) ? "x" : ".");
    }
    fmt::print("\n");
  }
  for (const Relation& relation : table()) {
    CAPTURE(relation.name);
    CHECK(std::ranges::any_of(kills,
                              [&](const auto& row) { return row.second.contains(relation.name); }));
  }
  // What each mistake is about, and the relation that is about the same.
  constexpr std::pair<const char*, const char*> kExpected[] = {
      {"state_leaks", "rows_alone"},
      {"state_leaks", "neighbour_nan"},
      {"tail_chunk_unmasked", "neighbour_nan"},
      {"neighbour_nan", "neighbour_nan"},
      {"(reads_neighbour)", "neighbour_nan"},
      {"(reads_ahead)", "future_changed"},
      {"(reads_ahead)", "future_nan"},
      {"(anchors_ahead)", "future_changed"},
      {"checkpoint_shifted", "restart"},
      {"checkpoint_not_written", "restart"},
      {"checkpoint_bf16", "restart"},
      {"gate_shifted", "split"},
      {"token_shifted", "split"},
      {"token_shifted", "as_decode"},
      {"initial_state_ignored", "split"},
      {"state_carry_dropped", "as_decode"},
      {"last_token_dropped", "split"},
      {"delta_diagonal", "as_decode"},
      {"pad_writes_slot0", "slots_permuted"},
      {"pad_writes_last", "slots_permuted"},
      {"slot_ignored", "slots_permuted"},
      {"int32_offset", "slots_permuted"},
      {"intermediate_by_slot", "slots_permuted"},
      {"intermediate_shifted", "as_decode"},
      {"stale_state", "as_prefill"},
      {"batch_first_only", "rows_reversed"},
      {"head_tiled", "heads_permuted"},
      {"head_zero", "heads_permuted"},
      {"a_log_wrong_head", "heads_permuted"},
      {"row_modulo", "values_reversed"},
      {"fp16_bits_as_bf16", "power_of_two"},
      {"beta_ignored", "beta_zero"},
      {"tf32_operands", "linearity"},
      {"intermediate_shifted", "counts_changed"},
      {"(reads_workspace)", "repeated"},
  };
  for (const auto& [mistake, relation] : kExpected) {
    CAPTURE(mistake);
    CAPTURE(relation);
    CHECK(kills.at(mistake).contains(relation));
  }
  // Consistent with themselves in every call: other functions, but linear and causal ones.
  for (const char* mistake : {"gate_log2", "scale_missing", "no_delta", "read_before_update"}) {
    CAPTURE(mistake);
    CHECK(kills.at(mistake).empty());
  }
}

// A captured graph: what it was first called with is what it goes on with, whatever stands in the
// tensors now (vllm-ascend #13277).
TEST_CASE("a graph that replays slots, counts or lengths of its capture breaks a relation") {
  struct Captured {
    const char *input, *line, *relation;
  };
  constexpr Captured kCaptured[] = {
      {"state_indices", "op=gdn mode=decode B=5 H=2 HV=4 K=16 V=8 slots=permuted",
       "slots_permuted"},
      {"accepted_tokens", "op=kda mode=mtp B=5 T=6 H=2 HV=4 K=16 V=8 slots=padded accepted=mixed",
       "counts_changed"},
      {"cu_seqlens", "op=gdn mode=prefill lens=20,0,7,33 H=2 HV=4 K=16 V=8 gate=log h0=1",
       "rows_reversed"},
  };
  const contract::Contract& contract = contract::find_contract("recurrent_f32");
  for (const Captured& c : kCaptured) {
    CAPTURE(c.input);
    std::optional<call::Tensor> first;
    const Kernel graph = [&](const call::Record& r) {
      call::Record given = calls::without_outputs(r);
      call::Tensor& now = given.inputs.at(c.input);
      if (!first) first = now;
      if (first->shape() == now.shape()) now = *first;
      return verdict::exact_outputs(delta::slice(), given);
    };
    const Kernel eager = [](const call::Record& r) {
      return verdict::exact_outputs(delta::slice(), r);
    };
    const call::Record record = record_of(c.line);
    for (const Relation& relation : table()) {
      if (relation.name != c.relation) continue;
      CHECK(!check(relation, record, graph, contract).findings.empty());
      CHECK(check(relation, record, eager, contract).holds());
    }
  }
}

// Two streams share the memory in which a kernel keeps the values of its call between two steps;
// neither goes on before both have written.
TEST_CASE("streams that share a workspace break a relation") {
  const call::Record record = record_of("op=gdn mode=decode B=3 H=2 HV=4 K=16 V=8");
  const contract::Contract& contract = contract::find_contract("recurrent_f32");
  const auto relation = std::ranges::find(table(), std::string_view("repeated"), &Relation::name);
  REQUIRE(relation != table().end());
  const Kernel own = [](const call::Record& r) {
    return verdict::exact_outputs(delta::slice(), r);
  };
  const Outcome honest = check(*relation, record, own, contract, {.repeats = 20, .streams = 3});
  CHECK_MESSAGE(honest.holds(), to_text(honest));
  CHECK(!check(*relation, record, own, contract, {.repeats = 0}).holds());

  const std::thread::id first = std::this_thread::get_id();
  std::barrier both(2);
  std::mutex mutex;
  call::Tensor workspace;
  const Kernel sharing = [&](const call::Record& r) {
    const auto use_workspace = [&](auto&& f) {
      const std::lock_guard lock(mutex);
      f(workspace);
    };
    call::Record given = calls::without_outputs(r);
    call::Tensor& values = given.inputs.at("v");
    use_workspace([&](call::Tensor& w) { w = values; });
    if (std::this_thread::get_id() != first) both.arrive_and_wait();
    use_workspace([&](const call::Tensor& w) { values = w; });
    if (std::this_thread::get_id() != first) both.arrive_and_wait();
    return verdict::exact_outputs(delta::slice(), given);
  };
  const Options streams{.repeats = 3, .streams = 2};
  const Outcome shared = check(*relation, record, sharing, contract, streams);
  REQUIRE(shared.findings.size() == 2);
  CHECK(shared.findings[0].violations + shared.findings[1].violations == shared.compared);
  CHECK(check(*relation, record, sharing, contract, {.repeats = 3}).holds());

  const Kernel failing = [&](const call::Record& r) {
    if (std::this_thread::get_id() != first) throw std::runtime_error("the device is lost");
    return own(r);
  };
  CHECK_THROWS_WITH(static_cast<void>(check(*relation, record, failing, contract, streams)),
                    "the device is lost");
}
