// SPDX-License-Identifier: Apache-2.0
//
// Length: a table, one row per refusal.
//
// What validate() refuses: one row per way in which presence, type, rank or extents can be wrong.
#include <doctest/doctest.h>

#include "tests/call/support.hpp"

using namespace goldenrule;
using namespace goldenrule::call;
using namespace goldenrule::call::test;

namespace {

struct Row {
  std::string what;
  Record record;
  Refusal refusal;
};

// The record with one input replaced, or removed where there is no tensor.
Record with(Record r, const std::string& name, std::optional<Tensor> tensor) {
  if (tensor) {
    r.inputs[name] = std::move(*tensor);
  } else {
    r.inputs.erase(name);
  }
  return r;
}

Record with_output(Record r, const std::string& name, Tensor tensor) {
  r.outputs[name] = std::move(tensor);
  return r;
}

Record with_convention(Record r, const std::function<void(Convention&)>& change) {
  change(r.convention);
  return r;
}

const std::string kPacked =
    "tokens are packed: [total,H,K] with cu_seqlens; [B,T,..] becomes [B*T,..] with cu_seqlens "
    "[0,T,2T,..]";

// q, k and v in the order of torch's attention functions.
Record head_first(Record r, const Shape& rows_and_tokens) {
  const std::int64_t rows = rows_and_tokens[0], tokens = rows_and_tokens[1];
  r.inputs["q"] = floats({rows, kH, tokens, kK});
  r.inputs["k"] = floats({rows, kH, tokens, kK});
  r.inputs["v"] = floats({rows, kHV, tokens, kV});
  return r;
}

void check_rows(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    CAPTURE(row.what);
    check_refused([&] { (void)validate(row.record); }, row.refusal);
  }
}

}  // namespace

TEST_CASE("validate: extents of good records") {
  const Dims d = validate(mtp(Op::kKda));
  CHECK(d.rows == kRows);
  CHECK(d.T == kT);
  CHECK(d.tokens == kRows * kT);
  CHECK(d.H == kH);
  CHECK(d.HV == kHV);
  CHECK(d.K == kK);
  CHECK(d.V == kV);
  CHECK(d.slots == kSlots);
  CHECK(d.state_size() == kK * kV);
  CHECK(validate(decode()).T == 1);
  const Dims p = validate(prefill());
  CHECK(p.rows == 3);
  CHECK(p.tokens == 8);
  CHECK(p.slots == 3);
}

TEST_CASE("validate: heads of any size on no tokens are refused before they are multiplied") {
  Record r = prefill();
  constexpr std::int64_t kHuge = std::int64_t{1} << 40;
  for (const char* name : {"q", "k"}) r.inputs[name] = floats({0, kH, kHuge});
  r.inputs["v"] = floats({0, kHV, kHuge});
  for (const char* name : {"a", "b"}) r.inputs[name] = floats({0, kHV});
  r.inputs["cu_seqlens"] = integers({0});
  r.inputs.erase("initial_state");
  check_refused([&] { (void)validate(r); },
                {ErrorKind::kShape, "/inputs/q, /inputs/v",
                 "states of all tokens and slots with at most 2^56 elements",
                 "[HV,K,V] [6,1099511627776,1099511627776]"});
}

TEST_CASE("validate: extents that disagree") {
  const auto shape = [](const std::string& name, const std::string& expected,
                        const std::string& actual) {
    return Refusal{ErrorKind::kShape, "/inputs/" + name, expected, actual};
  };
  check_rows({
      {"k: K", with(mtp(), "k", floats({3, 4, 2, 6})), shape("k", "[3,4,2,5]", "[3,4,2,6]")},
      {"k: rank", with(mtp(), "k", floats({3, 4, 10})), shape("k", "[3,4,2,5]", "[3,4,10]")},
      {"q: rank", with(mtp(), "q", floats({3, 4, 10})), shape("q", "rank 4", "rank 3 [3,4,10]")},
      {"q: rank, packed", with(prefill(), "q", floats({1, 8, 2, 5})),
       shape("q", "rank 3", "rank 4 [1,8,2,5]; " + kPacked)},
      {"v: tokens", with(mtp(), "v", floats({3, 5, 6, 7})), shape("v", "[3,4,6,7]", "[3,5,6,7]")},
      {"v: rows", with(mtp(), "v", floats({2, 4, 6, 7})), shape("v", "[3,4,6,7]", "[2,4,6,7]")},
      {"a: per head for GDN", with(mtp(), "a", floats({3, 4, 6, 5})),
       shape("a", "[3,4,6]", "[3,4,6,5]")},
      {"a: per channel for KDA", with(mtp(Op::kKda), "a", floats({3, 4, 6})),
       shape("a", "[3,4,6,5]", "[3,4,6]")},
      {"A_log: heads", with(mtp(), "A_log", floats({2})),
       shape("A_log", "[6]", "[2]; is gate_head qk?")},
      {"A_log: q/k heads",
       with_convention(mtp(), [](Convention& c) { c.gate_head = GateHead::kQK; }),
       shape("A_log", "[2]", "[6]; is gate_head v?")},
      {"dt_bias: KDA", with(mtp(Op::kKda), "dt_bias", floats({6})),
       shape("dt_bias", "[6,5]", "[6]")},
      {"b", with(mtp(), "b", floats({3, 4, 2})), shape("b", "[3,4,6]", "[3,4,2]")},
      {"state: heads", with(mtp(), "initial_state", floats({9, 2, 7, 5})),
       shape("initial_state", "[9,6,7,5]", "[9,2,7,5]")},
      {"state: transposed", with(mtp(), "initial_state", floats({9, 6, 5, 7})),
       shape("initial_state", "[9,6,7,5]", "[9,6,5,7]; is state_layout kv?")},
      {"state: layout",
       with_convention(mtp(), [](Convention& c) { c.state_layout = StateLayout::kKV; }),
       shape("initial_state", "[9,6,5,7]", "[9,6,7,5]; is state_layout vk?")},
      {"state: sequences", with(prefill(), "initial_state", floats({4, 6, 7, 5})),
       shape("initial_state", "[3,6,7,5]", "[4,6,7,5]")},
      {"state_indices", with(mtp(), "state_indices", integers({0, 1})),
       shape("state_indices", "[3]", "[2]")},
      {"output_state_indices", with(mtp(), "output_state_indices", integers({0, 1, 2, 3})),
       shape("output_state_indices", "[3]", "[4]")},
      {"ssm_state_indices",
       with(with(mtp(), "num_accepted_tokens", integers({1, 1, 1})), "ssm_state_indices",
            integers({0, 1, 2})),
       shape("ssm_state_indices", "[3,4]", "[3]")},
      {"accepted_tokens", with(mtp(), "accepted_tokens", integer_rows(1, {1, 2, 3})),
       shape("accepted_tokens", "[3]", "[1,3]")},
      {"cu_seqlens: rank", with(prefill(), "cu_seqlens", integer_rows(2, {0, 3, 3, 8})),
       shape("cu_seqlens", "rank 1", "rank 2 [2,2]")},
      {"cu_seqlens: empty", with(prefill(), "cu_seqlens", Tensor(DType::kI64, {0})),
       shape("cu_seqlens", "[N+1] with N >= 0", "[0]")},
      {"HV % H", with(mtp(), "v", floats({3, 4, 5, 7})),
       shape("v", "HV a multiple of H=2", "HV=5")},
      {"HV < H", with(mtp(), "v", floats({3, 4, 1, 7})),
       shape("v", "HV a multiple of H=2",
             "HV=1; 2 query heads share 1 state: repeat k, v, the gate, beta and the states to 2 "
             "heads")},
      {"decode of four tokens",
       [] {
         Record r = mtp();
         r.mode = Mode::kDecode;
         return r;
       }(),
       shape("q", "T=1 in decode", "T=4; mtp is for few tokens, prefill a prompt")},
      {"K = 0",
       with(mtp(), "q", floats({3, 4, 2, 0})),
       {ErrorKind::kShape, "/inputs/q, /inputs/v", "H, HV, K, V >= 1", "[2,6,0,7]"}},
      {"H = 0",
       with(mtp(), "q", floats({3, 4, 0, 5})),
       {ErrorKind::kShape, "/inputs/q, /inputs/v", "H, HV, K, V >= 1", "[0,6,5,7]"}},
  });
}

TEST_CASE("validate: missing inputs, by convention") {
  const auto missing = [](const std::string& name, const std::string& shape,
                          const std::string& gate, const std::string& beta) {
    return Refusal{ErrorKind::kSchema, "/inputs/" + name,
                   "a dataset " + shape + " (gate '" + gate + "', beta '" + beta + "')", "none"};
  };
  check_rows({
      {"q",
       with(mtp(), "q", std::nullopt),
       {ErrorKind::kSchema, "/inputs/q", "a dataset of rank 4", "none"}},
      {"k", with(mtp(), "k", std::nullopt), missing("k", "[3,4,2,5]", "softplus", "sigmoid")},
      {"v",
       with(prefill(), "v", std::nullopt),
       {ErrorKind::kSchema, "/inputs/v", "a dataset of rank 3", "none"}},
      {"state",
       with(decode(), "initial_state", std::nullopt),
       {ErrorKind::kSchema, "/inputs/initial_state", "a dataset of rank 4",
        "none; give zeros [3,6,7,5] where the kernel starts from none"}},
      {"cu_seqlens",
       with(prefill(), "cu_seqlens", std::nullopt),
       {ErrorKind::kSchema, "/inputs/cu_seqlens", "a dataset of rank 1",
        "none; one sequence is [0,8]"}},
      {"a", with(mtp(), "a", std::nullopt), missing("a", "[3,4,6]", "softplus", "sigmoid")},
      {"A_log", with(mtp(), "A_log", std::nullopt), missing("A_log", "[6]", "softplus", "sigmoid")},
      {"b", with(mtp(), "b", std::nullopt), missing("b", "[3,4,6]", "softplus", "sigmoid")},
      {"beta",
       with_convention(with(mtp(), "b", std::nullopt),
                       [](Convention& c) { c.beta = BetaForm::kDirect; }),
       missing("beta", "[3,4,6]", "softplus", "direct")},
      {"g",
       with_convention(with(mtp(Op::kKda), "a", std::nullopt),
                       [](Convention& c) { c.gate = Gate::kLog2; }),
       missing("g", "[3,4,6,5]", "log2", "sigmoid")},
      {"num_accepted_tokens", with(mtp(), "ssm_state_indices", Tensor(DType::kI64, {kRows, kT})),
       missing("num_accepted_tokens", "[3]", "softplus", "sigmoid")},
  });
  // What may be absent: the bias, and A_log of a bounded gate; the state of a prefill.
  CHECK_NOTHROW((void)validate(with(mtp(), "dt_bias", std::nullopt)));
  CHECK_NOTHROW(
      (void)validate(with(with_convention(mtp(), [](Convention& c) { c.gate = Gate::kBounded; }),
                          "A_log", std::nullopt)));
  CHECK_NOTHROW((void)validate(with_convention(with(mtp(), "a", std::nullopt),
                                               [](Convention& c) { c.gate = Gate::kNone; })));
}

TEST_CASE("validate: a gate or a beta that was not declared, its input being here") {
  const auto missing = [](const std::string& name, const std::string& shape,
                          const std::string& gate, const std::string& beta,
                          const std::string& hint) {
    return Refusal{ErrorKind::kSchema, "/inputs/" + name,
                   "a dataset " + shape + " (gate '" + gate + "', beta '" + beta + "')",
                   "none; " + hint};
  };
  const Record with_g = with(with(mtp(), "a", std::nullopt), "g", floats({3, 4, 6}));
  const Record with_beta = with(with(mtp(), "b", std::nullopt), "beta", floats({3, 4, 6}));
  check_rows({
      {"a", with_g,
       missing("a", "[3,4,6]", "softplus", "sigmoid",
               "g is here: is the gate log, log2 or linear?")},
      {"A_log", with(with(mtp(), "g", floats({3, 4, 6})), "A_log", std::nullopt),
       missing("A_log", "[6]", "softplus", "sigmoid",
               "g is here: is the gate log, log2 or linear?")},
      {"g", with_convention(mtp(), [](Convention& c) { c.gate = Gate::kLog; }),
       missing("g", "[3,4,6]", "log", "sigmoid", "a is here: is the gate softplus or bounded?")},
      {"b", with_beta,
       missing("b", "[3,4,6]", "softplus", "sigmoid", "beta is here: is beta direct?")},
      {"beta", with_convention(mtp(), [](Convention& c) { c.beta = BetaForm::kDirect; }),
       missing("beta", "[3,4,6]", "softplus", "direct", "b is here: is beta sigmoid or sigmoid2?")},
  });
}

TEST_CASE("validate: [B,H,T,K] is told where other tensors prove it") {
  const auto refused = [](const std::string& expected, const std::string& actual) {
    return Refusal{ErrorKind::kShape, "/inputs/q", expected, actual};
  };
  const std::string transpose =
      "; this is [B,H,T,K]: transpose axes 1 and 2 of q, k, v, o and what else has tokens";
  const std::string transpose_and_pack =
      "; this is [B,H,T,K]: transpose it to [B,T,H,K], then pack it to [B*T,H,K] with cu_seqlens "
      "[0,T,2T,..]";
  const auto equal_heads = [](Record r, std::int64_t rows, std::int64_t tokens) {
    for (const char* name : {"q", "k"}) r.inputs[name] = floats({rows, kHV, tokens, kK});
    r.inputs["v"] = floats({rows, kHV, tokens, kV});
    return r;
  };
  check_rows({
      {"mtp", head_first(mtp(), {kRows, kT}), refused("[B,T,H,K]", "[3,2,4,5]" + transpose)},
      {"decode", head_first(decode(), {kRows, 1}), refused("[B,T,H,K]", "[3,2,1,5]" + transpose)},
      {"decode without a state", with(head_first(decode(), {kRows, 1}), "initial_state", {}),
       refused("[B,T,H,K]", "[3,2,1,5]" + transpose)},
      {"prefill", head_first(prefill(), {1, 8}),
       refused("rank 3", "rank 4 [1,2,8,5]" + transpose_and_pack)},
      {"H = HV, told by the state", equal_heads(decode(), kRows, 1),
       refused("[B,T,H,K]", "[3,6,1,5]" + transpose)},
      {"H = HV, told by A_log", equal_heads(prefill(), 1, 8),
       refused("rank 3", "rank 4 [1,6,8,5]" + transpose_and_pack)},
      {"H = HV, told by the final state",
       with_output(with(equal_heads(prefill(), 1, 8), "A_log", std::nullopt), "final_state",
                   floats({1, 6, 7, 5})),
       refused("rank 3", "rank 4 [1,6,8,5]" + transpose_and_pack)},
      {"H = HV, nothing tells", with(equal_heads(prefill(), 1, 8), "A_log", std::nullopt),
       refused("rank 3", "rank 4 [1,6,8,5]; " + kPacked)},
      // The right order is not taken for the wrong one.
      {"[B,T,H,K] of a prefill",
       with(with(prefill(), "q", floats({1, 8, 2, 5})), "v", floats({1, 8, 6, 7})),
       refused("rank 3", "rank 4 [1,8,2,5]; " + kPacked)},
  });
  // T = H = HV in the right order.
  Record square = with_tokens(Op::kGatedDeltaRule, Mode::kMtp, {kRows, kHV});
  for (const char* name : {"q", "k"}) square.inputs[name] = floats({kRows, kHV, kHV, kK});
  square.inputs["initial_state"] = floats({kSlots, kHV, kV, kK});
  CHECK_NOTHROW((void)validate(square));
}

TEST_CASE("validate: more query heads than states") {
  const auto grouped = [](Record r, std::int64_t queries, std::int64_t states) {
    r.inputs["q"] = floats({3, 4, queries, 5});
    r.inputs["k"] = floats({3, 4, states, 5});
    r.inputs["v"] = floats({3, 4, states, 7});
    return r;
  };
  check_rows({
      {"8 on 2",
       grouped(mtp(), 8, 2),
       {ErrorKind::kShape, "/inputs/v", "HV a multiple of H=8",
        "HV=2; 8 query heads share 2 states: repeat k, v, the gate, beta and the states to 8 "
        "heads"}},
      {"8 on 3",
       grouped(mtp(), 8, 3),
       {ErrorKind::kShape, "/inputs/v", "HV a multiple of H=8", "HV=3"}},
  });
}

TEST_CASE("validate: cu_seqlens that are lengths are named before the states that they misfit") {
  const auto lengths = [](std::initializer_list<double> values, const char* expected,
                          const char* actual, DType t = DType::kI64) {
    Row row{"lengths",
            with(prefill(), "cu_seqlens", integers(values, t)),
            {ErrorKind::kValue, "/inputs/cu_seqlens",
             "where the sequences begin and end, " + std::string(expected),
             "their lengths, " + std::string(actual)}};
    row.record.inputs["initial_state"] =
        floats({static_cast<std::int64_t>(values.size()), kHV, kV, kK});
    return row;
  };
  check_rows({
      lengths({3, 0, 5}, "[0,3,3,8]", "[3,0,5]"),
      lengths({3, 0, 5}, "[0,3,3,8]", "[3,0,5]", DType::kI32),
      lengths({8}, "[0,8]", "[8]"),
      lengths({0, 3, 5}, "[0,0,3,8]", "[0,3,5]"),
      lengths({1, 1, 1, 1, 1, 1, 1, 1}, "[0,1,2,3,4,5,..]", "[1,1,1,1,1,1,..]"),
  });
  // Bounds that look like lengths, and lengths of some other call.
  CHECK_NOTHROW((void)validate(with(prefill(), "cu_seqlens", integers({0, 0, 8}))));
  CHECK_NOTHROW((void)validate(with(prefill(), "cu_seqlens", integers({3, 0, 4}))));
}

TEST_CASE("validate: several tokens in decode are told before the state that is missing") {
  Record r = with(mtp(), "initial_state", std::nullopt);
  r.mode = Mode::kDecode;
  check_refused([&] { (void)validate(r); }, {ErrorKind::kShape, "/inputs/q", "T=1 in decode",
                                             "T=4; mtp is for few tokens, prefill a prompt"});
}

TEST_CASE("validate: inputs that the call would not read") {
  const auto ignored = [](const std::string& name, const std::string& mode,
                          const std::string& present = "") {
    return Refusal{ErrorKind::kSchema, "/inputs/" + name, "an input that mode '" + mode + "' reads",
                   "a dataset that would be ignored" + present};
  };
  check_rows({
      {"misspelt", with(mtp(), "state_indexes", integers({0, 1, 2})),
       ignored("state_indexes", "mtp")},
      {"other slots of a prefill without a pool",
       with(prefill(), "output_state_indices", integers({0, 1, 2})),
       ignored("output_state_indices", "prefill",
               " (optional (= state_indices), in prefill with state_indices)")},
      {"lengths of a decode", with(decode(), "cu_seqlens", integers({0, 1})),
       ignored("cu_seqlens", "decode",
               " (prefill; mtp: optional, packed rows of unequal length (else B,T))")},
      {"accepted counts of a decode", with(decode(), "accepted_tokens", integers({1, 1, 1})),
       ignored("accepted_tokens", "decode", " (mtp without rings: optional (= T))")},
      {"scatter of a decode", with(decode(), "ssm_state_indices", integer_rows(3, {0, 1, 2})),
       ignored("ssm_state_indices", "decode",
               " (mtp without rings: optional, a slot per token, with num_accepted_tokens or "
               "state_indices)")},
      {"counts without the slots that they select",
       with(mtp(), "num_accepted_tokens", integers({1, 1, 1})),
       ignored("num_accepted_tokens", "mtp",
               " (mtp: with ssm_state_indices alone, the token whose slot the row starts from)")},
  });
  // A caller may dump every gate input and let the convention choose.
  CHECK_NOTHROW((void)validate(with(mtp(), "g", floats({3, 4, 6}))));
}

TEST_CASE("validate: storage types") {
  const auto type = [](const std::string& where, const std::string& expected,
                       const std::string& actual) {
    return Refusal{ErrorKind::kType, where, expected, actual};
  };
  check_rows({
      {"k", with(mtp(), "k", Tensor(DType::kI32, {3, 4, 2, 5})),
       type("/inputs/k", "a floating-point dataset", "i32")},
      {"state", with(mtp(), "initial_state", Tensor(DType::kI64, {9, 6, 7, 5})),
       type("/inputs/initial_state", "a floating-point dataset", "i64")},
      {"state_indices", with(mtp(), "state_indices", floats({3})),
       type("/inputs/state_indices", "i32 or i64", "f32")},
      {"cu_seqlens", with(prefill(), "cu_seqlens", Tensor(DType::kF64, {4})),
       type("/inputs/cu_seqlens", "i32 or i64", "f64")},
      {"o", with_output(mtp(), "o", Tensor(DType::kI32, {3, 4, 6, 7})),
       type("/outputs/o", "a floating-point dataset", "i32")},
  });
}

TEST_CASE("validate: outputs") {
  check_rows({
      {"o",
       with_output(mtp(), "o", floats({3, 4, 6, 5})),
       {ErrorKind::kShape, "/outputs/o", "[3,4,6,7]", "[3,4,6,5]"}},
      {"o, packed",
       with_output(prefill(), "o", floats({1, 8, 6, 7})),
       {ErrorKind::kShape, "/outputs/o", "[8,6,7]", "[1,8,6,7]"}},
      {"final_state",
       with_output(mtp(), "final_state", floats({3, 6, 7, 5})),
       {ErrorKind::kShape, "/outputs/final_state", "[9,6,7,5]", "[3,6,7,5]"}},
      {"final_state, packed",
       with_output(prefill(), "final_state", floats({2, 6, 7, 5})),
       {ErrorKind::kShape, "/outputs/final_state", "[3,6,7,5]", "[2,6,7,5]"}},
      {"intermediate_states",
       with_output(mtp(), "intermediate_states", floats({3, 5, 6, 7, 5})),
       {ErrorKind::kShape, "/outputs/intermediate_states", "[3,4,6,7,5]", "[3,5,6,7,5]"}},
      {"intermediate_states of a decode",
       with_output(decode(), "intermediate_states", floats({3, 1, 6, 7, 5})),
       {ErrorKind::kSchema, "/outputs/intermediate_states", "o or final_state",
        "'intermediate_states'"}},
      {"unknown",
       with_output(mtp(), "lse", floats({3})),
       {ErrorKind::kSchema, "/outputs/lse", "o, final_state or intermediate_states", "'lse'"}},
  });
}
