// SPDX-License-Identifier: Apache-2.0
//
// The way without stored states (carry.hpp) leaves the ledgers that a Step leaves, bit for bit, so
// that it makes no difference to a verdict which calls of a chain were stored.
#include <doctest/doctest.h>

#include <limits>

#include "reference/chain/carry.hpp"
#include "reference/chain/step.hpp"
#include "reference/delta/slice.hpp"
#include "tests/chain/server.hpp"

namespace {

using namespace goldenrule;
using call::Mode;
using chain::Carry;
using testing::Server;

// Two rows of a decode or MTP call.
call::Record call_of(Server& server, Mode mode) {
  return server
      .serve(mode,
             {{.request = 1, .slot = 2, .accepted = 3}, {.request = 2, .slot = 0, .accepted = 4}})
      .record;
}

// A state that is not the same in both layouts.
chain::Known some_ledger(const chain::Layout& layout) {
  chain::Block state(layout.size());
  for (std::size_t i = 0; i < state.size(); ++i) {
    state[i] = 0.01 * static_cast<double>(i % 97) - 0.4;
  }
  return layout.exact(std::move(state));
}

void check_same(const chain::Ledger& a, const chain::Ledger& b) {
  CHECK(a.state == b.state);
  CHECK(a.noise == b.noise);
  CHECK(a.error == b.error);
  CHECK(a.bias == b.bias);
}

void check_calls(const call::Record& first, const call::Record& second,
                 const contract::Contract& contract) {
  const chain::Layout layout(first, call::validate(first));
  const std::vector<chain::Known> starts(2, some_ledger(layout));
  const call::Record tokens = chain::tokens_of(first);
  REQUIRE(Carry::serves(contract, tokens));
  const chain::Step step(delta::slice(), contract, layout, tokens, starts);
  const Carry carry(contract, layout, tokens, 2);
  const call::Record more = chain::tokens_of(second);
  for (std::int64_t row = 0; row < 2; ++row) {
    for (const std::int64_t after : step.known(row)) {
      CAPTURE(after);
      const chain::Known ledger = carry.after(row, starts[0], after);
      REQUIRE(ledger);
      check_same(*ledger, *step.after(row, after));
      CHECK(ledger->noise.front().front() != 0.0);
      // And once more, from a ledger with errors.
      const std::vector<chain::Known> from(2, ledger);
      const chain::Step again(delta::slice(), contract, layout, more, from);
      const std::int64_t last = again.known(row).back();
      check_same(*Carry(contract, layout, more, 2).after(row, ledger, last),
                 *again.after(row, last));
    }
    CHECK(carry.after(row, starts[0], 0) == starts[0]);
  }
}

}  // namespace

TEST_CASE("without stored states a call leaves the same ledgers") {
  for (const call::Op op : {call::Op::kGatedDeltaRule, call::Op::kKda}) {
    for (const char* name :
         {"ideal", "recurrent_f32", "recurrent_f32_bf16_activations", "recurrent_bf16_state"}) {
      CAPTURE(name);
      Server server({.op = op, .seed = 21});
      const call::Record decode = call_of(server, Mode::kDecode);
      const call::Record mtp = call_of(server, Mode::kMtp);
      const contract::Contract& contract = contract::find_contract(name);
      check_calls(decode, mtp, contract);
      check_calls(mtp, decode, contract);
    }
  }
}

TEST_CASE("where a NaN reaches the state, or tokens are no chain, a Step is needed") {
  Server server({.seed = 22});
  const call::Record record = call_of(server, Mode::kDecode);
  const contract::Contract& contract = contract::find_contract("recurrent_f32");
  const chain::Layout layout(record, call::validate(record));
  call::Record tokens = chain::tokens_of(record);
  tokens.inputs.at("v").set(0, std::numeric_limits<double>::quiet_NaN());
  const Carry carry(contract, layout, tokens, 2);
  CHECK(carry.after(0, some_ledger(layout), 1) == nullptr);
  CHECK(carry.after(1, some_ledger(layout), 1) != nullptr);
  CHECK_FALSE(Carry::serves(contract::find_contract("chunk64_bf16"), tokens));
  tokens.mode = Mode::kPrefill;
  CHECK_FALSE(Carry::serves(contract, tokens));
}

TEST_CASE("the same findings whether the calls between two stored ones are stored or not") {
  for (const bool wrong : {false, true}) {
    Server server({.pool = call::DType::kBF16, .seed = 23});
    std::vector<chain::Call> calls;
    for (int i = 0; i < 12; ++i) {
      calls.push_back(server.serve(i % 3 == 1 ? Mode::kMtp : Mode::kDecode,
                                   {{.request = 1, .slot = 2, .accepted = 2, .fresh = i == 0}}));
      if (i == 6 && wrong) {  // the kernel was given other keys
        call::Tensor& k = calls.back().record.inputs.at("k");
        k.set(0, k[0] + 0.5);
      }
    }
    const testing::Judged stored = testing::judge(calls, {.only_chain = true});
    for (std::size_t i = 1; i + 1 < calls.size(); ++i) {
      calls[i] = testing::without_states(std::move(calls[i]));
    }
    const testing::Judged bare = testing::judge(calls, {.only_chain = true});
    CHECK(stored.findings.empty() != wrong);
    CHECK(bare.findings.empty() != wrong);
    if (!wrong) continue;
    CHECK(stored.findings.front().call == 6);
    CHECK(bare.findings.front().call == 11);
    CHECK(bare.findings.front().check == chain::Check::kLedger);
  }
}
