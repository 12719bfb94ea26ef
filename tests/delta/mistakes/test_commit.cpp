// SPDX-License-Identifier: Apache-2.0
//
// Length: one test per mistake whose outputs are known by other means.
//
// Each mistake changes some output of some call where it applies, and its outputs have the form
// that the call prescribes. Some mistakes are held against results that are known without them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

#include "fixtures/call/plan.hpp"
#include "fixtures/cases/suite.hpp"
#include "reference/delta/mistakes/table.hpp"
#include "reference/delta/slice.hpp"
#include "reference/verdict/kernels.hpp"
#include "tests/delta/emulation/support.hpp"

using namespace goldenrule;
using namespace goldenrule::test;

namespace {

// Rows of one name are ways to make one mistake: `way` counts them.
const calls::Mistake& mistake(std::string_view name, int way = 0) {
  for (const calls::Mistake& m : delta::mistakes()) {
    if (m.name == name && way-- == 0) return m;
  }
  FAIL("no such row: ", name);
  return delta::mistakes().front();
}

call::TensorMap commit(std::string_view name, const call::Record& record, int way = 0) {
  REQUIRE(mistake(name, way).applies(record));
  return mistake(name, way).commit(record, verdict::exact_kernel(delta::slice()));
}

// Equal numbers; NaN equals NaN.
bool same(const call::Tensor& a, const call::Tensor& b) {
  if (a.shape() != b.shape()) return false;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    if (a[i] != b[i] && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  }
  return true;
}

// Small calls that together let every mistake be made.
const std::vector<std::string>& sample() {
  static const std::vector<std::string> lines = {
      "op=gdn mode=prefill lens=65,1,0,70 H=2 HV=6 K=20 V=17 gate=log h0=1",
      "op=kda mode=prefill lens=65,1,0,70 H=2 HV=6 K=20 V=17 gate=linear h0=1 state_layout=kv "
      "io=f16",
      "op=kda mode=prefill lens=70 H=1 HV=1 K=16 V=8 gate=log2 beta=sigmoid2 pattern=Dgrow",
      "op=gdn mode=prefill lens=70 H=1 HV=1 K=64 V=16 gate=log pattern=B64",
      "op=gdn mode=decode B=3 H=2 HV=6 K=20 V=17 slots=padded scale=0",
      "op=gdn mode=decode B=5 H=1 HV=2 K=16 V=16 pattern=J100",
      "op=gdn mode=decode B=5 H=1 HV=2 K=16 V=16 pattern=J17",
      "op=kda mode=mtp B=3 T=4 H=2 HV=4 K=16 V=32 slots=permuted pattern=I",
      "op=gdn mode=mtp B=3 T=4 H=1 HV=2 K=16 V=32 slots=permuted disable_state_update=1",
      "op=gdn mode=mtp B=6 T=4 H=1 HV=2 K=16 V=32 slots=scatter_padded pad_slot=0",
      "op=gdn mode=mtp B=6 T=4 H=1 HV=2 K=16 V=32 slots=scatter_from",
      "op=gdn mode=decode B=2 H=1 HV=2 K=16 V=8 qk_l2norm=none l2_eps=0.5",
      "op=gdn mode=decode B=2 H=1 HV=2 K=16 V=8 gate=bounded lower_bound=-1 l2_eps=0.5",
      "op=kda mode=decode B=2 H=1 HV=1 K=16 V=8 gate=log beta=direct",
      "op=gdn mode=prefill lens=65,1,33,0,70 H=1 HV=2 K=16 V=17 gate=log slots=separate_padded "
      "checkpoints=listed",
      "op=kda mode=prefill lens=65,70,4,0 H=1 HV=1 K=16 V=8 gate=bounded slots=padded "
      "checkpoints=before every=32",
      "op=gdn mode=prefill lens=33,70,1 H=2 HV=4 K=16 V=8 gate=log slots=padded fresh=mixed",
      "op=kda mode=mtp B=3 T=4 H=1 HV=2 K=16 V=8 accepted=mixed",
      "op=gdn mode=mtp lens=3,0,1,8 H=1 HV=2 K=16 V=8 slots=scatter",
      "op=kda mode=mtp lens=3,1,8,2 H=1 HV=2 K=16 V=8 slots=permuted kept=buffer track=mixed",
      "op=gdn mode=mtp B=4 T=3 H=1 HV=2 K=16 V=8 slots=permuted ring=io window=9",
      "op=gdn mode=mtp B=4 T=7 H=1 HV=2 K=16 V=8 slots=permuted tree=mixed accepted=mixed",
  };
  return lines;
}

call::Record with_nan(call::Record record, std::int64_t token) {
  call::Tensor& v = record.inputs.at("v");
  const std::int64_t row = v.size() / v.shape()[0];
  for (std::int64_t i = 0; i < row; ++i) {
    v.set(token * row + i, std::numeric_limits<double>::quiet_NaN());
  }
  return record;
}

}  // namespace

TEST_CASE("every mistake that applies can be made in a call without tokens") {
  int made = 0;
  for (const char* h0 : {"0", "1"}) {
    for (const char* op : {"gdn", "kda"}) {
      const call::Record record =
          record_of(std::string("mode=prefill lens=0 H=1 HV=2 K=4 V=3 io=f16 gate=log op=") + op +
                    " h0=" + h0);
      for (const calls::Mistake& m : delta::mistakes()) {
        if (!m.applies(record)) continue;
        CAPTURE(m.name);
        CHECK(m.commit(record, verdict::exact_kernel(delta::slice())).at("o").size() == 0);
        ++made;
      }
    }
  }
  CHECK(made > 20);
}

TEST_CASE("every mistake can be made and changes something") {
  std::vector<call::Record> records;
  for (const std::string& line : sample()) records.push_back(record_of(line));
  records.push_back(with_nan(records[0], 66));
  std::map<std::string, int> changed;
  for (const call::Record& record : records) {
    const call::TensorMap right = verdict::exact_outputs(delta::slice(), record);
    for (const calls::Mistake& m : delta::mistakes()) {
      if (!m.applies(record)) continue;
      CAPTURE(record.case_line);
      CAPTURE(m.name);
      const call::TensorMap wrong = m.commit(record, verdict::exact_kernel(delta::slice()));
      REQUIRE(wrong.size() == right.size());
      bool differs = false;
      for (const auto& [name, tensor] : right) {
        REQUIRE(wrong.contains(name));
        REQUIRE(wrong.at(name).shape() == tensor.shape());
        REQUIRE(wrong.at(name).dtype() == call::DType::kF64);
        differs = differs || !same(wrong.at(name), tensor);
      }
      changed[std::string(m.name)] += differs ? 1 : 0;
    }
  }
  for (const calls::Mistake& m : delta::mistakes()) {
    CAPTURE(m.name);
    CHECK(changed[std::string(m.name)] > 0);
  }
}

TEST_CASE("a mistake does not change the call that it is committed on") {
  const call::Record record = record_of(sample()[0]);
  for (const calls::Mistake& m : delta::mistakes()) {
    if (!m.applies(record)) continue;
    call::Record copy = record;
    copy.outputs["o"] = call::Tensor(call::DType::kBF16, {136, 6, 17});  // a capture has some
    const call::TensorMap wrong = m.commit(copy, verdict::exact_kernel(delta::slice()));
    CAPTURE(m.name);
    CHECK(same(wrong.at("o"), m.commit(record, verdict::exact_kernel(delta::slice())).at("o")));
    for (const auto& [name, tensor] : record.inputs) CHECK(same(copy.inputs.at(name), tensor));
  }
}

TEST_CASE("slots that nobody uses are left alone by every mistake but those about slots") {
  // Three rows, five slots: two of them are nobody's.
  const call::Record record = record_of("op=gdn mode=decode B=3 H=1 HV=2 K=8 V=8 slots=permuted");
  const call::Plan plan = call::make_plan(record, false);
  std::vector<bool> used(static_cast<std::size_t>(plan.dims.slots), false);
  for (const call::Sequence& s : plan.sequences)
    used[static_cast<std::size_t>(s.start_block)] = true;
  REQUIRE(std::ranges::count(used, false) == 2);
  const call::Tensor& initial = record.inputs.at("initial_state");
  const std::int64_t block = initial.size() / plan.dims.slots;
  for (const calls::Mistake& m : delta::mistakes()) {
    if (!m.applies(record) || m.name == "slot_ignored" || m.name == "int32_offset") continue;
    if (&m == &mistake("state_not_written", 1)) continue;  // another pool is looked at
    const call::Tensor states =
        m.commit(record, verdict::exact_kernel(delta::slice())).at("final_state");
    bool untouched = true;
    for (std::int64_t i = 0; i < states.size(); ++i) {
      if (!used[static_cast<std::size_t>(i / block)])
        untouched = untouched && states[i] == initial[i];
    }
    CAPTURE(m.name);
    CHECK(untouched);
  }
}

TEST_CASE("what is rounded to bf16 is, and nothing else") {
  const auto near = [](const call::Tensor& a, const call::Tensor& b, double bound = 1e-13) {
    for (std::int64_t i = 0; i < a.size(); ++i) REQUIRE(std::fabs(a[i] - b[i]) < bound);
  };
  const auto bf16 = [](double x) { return call::round_to(call::DType::kBF16, x); };
  const auto rounded = [&](call::Record record, const char* name) {
    call::Tensor& t = record.inputs.at(name);
    for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, bf16(t[i]));
    return record;
  };
  const call::Record record =
      record_of("op=kda mode=prefill lens=20,1 H=1 HV=2 K=8 V=4 gate=log beta=direct h0=1");
  const call::TensorMap right = verdict::exact_outputs(delta::slice(), record);
  for (const char* output : {"o", "final_state"}) {
    near(commit("gate_bf16", record).at(output),
         verdict::exact_outputs(delta::slice(), rounded(record, "g")).at(output));
    near(commit("beta_bf16", record).at(output),
         verdict::exact_outputs(delta::slice(), rounded(record, "beta")).at(output));
  }
  const call::TensorMap final = commit("final_state_bf16", record);
  CHECK(same(final.at("o"), right.at("o")));
  for (std::int64_t i = 0; i < final.at("final_state").size(); ++i) {
    REQUIRE(final.at("final_state")[i] == bf16(right.at("final_state")[i]));
  }
  // The sum over the first token is its gate.
  const call::Record one = record_of("op=kda mode=prefill lens=1,1 H=1 HV=2 K=8 V=4 gate=log h0=1");
  CHECK_FALSE(mistake("cumsum_bf16").applies(one));
  near(mistake("cumsum_bf16").commit(one, verdict::exact_kernel(delta::slice())).at("o"),
       commit("gate_bf16", one).at("o"));
}

TEST_CASE("gate_sum_f32: sums of few bits are exact, sums of many lose them") {
  call::Record record = record_of("op=gdn mode=prefill lens=70 H=1 HV=2 K=8 V=4 gate=log h0=1");
  call::Tensor& g = record.inputs.at("g");
  const auto off = [&](int way) {
    const call::Tensor right = verdict::exact_outputs(delta::slice(), record).at("o");
    const call::Tensor wrong = commit("gate_sum_f32", record, way).at("o");
    double largest = 0.0;
    for (std::int64_t i = 0; i < right.size(); ++i) {
      largest = std::max(largest, std::fabs(wrong[i] - right[i]) / (std::fabs(right[i]) + 1e-3));
    }
    return largest;
  };
  for (int way = 0; way < 3; ++way) {
    for (std::int64_t i = 0; i < g.size(); ++i) g.set(i, -0.25);
    CHECK(off(way) < 1e-12);
    // Half an ulp of 64 to 128 in the exponent: 4e-6.
    for (std::int64_t i = 0; i < g.size(); ++i) g.set(i, i < 8 ? -20.0 : -0.1);
    CHECK(off(way) > 1e-7);
    CHECK(off(way) < 1e-2);
  }
}

TEST_CASE("l2_eps_ignored is the call with the usual eps") {
  const call::Record record =
      record_of("op=gdn mode=decode B=2 H=1 HV=2 K=16 V=8 l2_eps=0.001 pattern=I");
  call::Record usual = record;
  usual.convention.l2_eps = 1e-6;
  CHECK(same(commit("l2_eps_ignored", record).at("o"),
             verdict::exact_outputs(delta::slice(), usual).at("o")));
  CHECK_FALSE(mistake("l2_eps_ignored").applies(usual));
}

TEST_CASE("gate_log2 and gate_ln2 undo each other's convention") {
  // 2^g of natural gates is what the same numbers mean in a base-2 call, and the reverse.
  const call::Record natural = record_of("op=kda mode=prefill lens=20 H=1 HV=2 K=8 V=4 gate=log");
  call::Record binary = natural;
  binary.convention.gate = call::Gate::kLog2;
  const auto near = [](const call::Tensor& a, const call::Tensor& b) {
    for (std::int64_t i = 0; i < a.size(); ++i) CHECK(std::fabs(a[i] - b[i]) < 1e-13);
  };
  near(commit("gate_log2", natural).at("o"),
       verdict::exact_outputs(delta::slice(), binary).at("o"));
  near(commit("gate_ln2", binary).at("o"), verdict::exact_outputs(delta::slice(), natural).at("o"));
}

TEST_CASE("state_transposed: reading the other layout is what the other convention reads") {
  const call::Record record =
      record_of("op=gdn mode=prefill lens=9,4 H=1 HV=2 K=8 V=6 gate=log h0=1");
  call::Record other = record;
  other.convention.state_layout = call::StateLayout::kKV;
  call::Tensor& state = other.inputs.at("initial_state");
  const call::Tensor bytes = state;
  call::Shape shape = bytes.shape();
  std::swap(shape[2], shape[3]);
  state = call::Tensor(bytes.dtype(), shape, bytes.to_doubles());  // the same memory
  CHECK(same(commit("state_transposed", record).at("o"),
             verdict::exact_outputs(delta::slice(), other).at("o")));
  // Written: the same memory again.
  const call::Tensor right = verdict::exact_outputs(delta::slice(), record).at("final_state");
  call::Record zero = record;
  zero.convention.state_layout = call::StateLayout::kKV;
  const call::Tensor out = commit("state_transposed_out", record).at("final_state");
  for (std::int64_t b = 0; b < 4; ++b) {
    for (std::int64_t v = 0; v < 6; ++v) {
      for (std::int64_t k = 0; k < 8; ++k) {
        REQUIRE(out[(b * 48) + k * 6 + v] == right[(b * 48) + v * 8 + k]);
      }
    }
  }
}

TEST_CASE("state_leaks: two sequences become one") {
  const call::Record record = record_of("op=gdn mode=prefill lens=9,4 H=1 HV=2 K=8 V=6 gate=log");
  call::Record joined = record;
  joined.inputs["cu_seqlens"] = call::Tensor(call::DType::kI64, {2}, std::vector<double>{0, 13});
  CHECK(same(commit("state_leaks", record).at("o"),
             verdict::exact_outputs(delta::slice(), joined).at("o")));
}

TEST_CASE("gate_shifted and token_shifted: rows one token late") {
  const call::Record record =
      record_of("op=kda mode=prefill lens=9,4 H=1 HV=2 K=8 V=6 gate=linear beta=direct");
  const auto shifted = [&](std::initializer_list<const char*> names, bool first_is_one) {
    call::Record late = record;
    for (const char* name : names) {
      const call::Tensor given = record.inputs.at(name);
      call::Tensor& moved = late.inputs.at(name);
      const std::int64_t row = given.size() / 13;
      for (std::int64_t i = 0; i < given.size(); ++i) {
        const bool first = i / row == 0 || i / row == 9;
        moved.set(i, !first ? given[i - row] : first_is_one ? 1.0 : given[i]);
      }
    }
    return verdict::exact_outputs(delta::slice(), late);
  };
  const auto check = [&](const char* name, const call::TensorMap& expected) {
    const call::TensorMap wrong = commit(name, record);
    CHECK(same(wrong.at("o"), expected.at("o")));
    CHECK(same(wrong.at("final_state"), expected.at("final_state")));
  };
  check("gate_shifted", shifted({"g"}, true));
  check("token_shifted", shifted({"q", "k", "v", "g", "beta"}, false));
}

TEST_CASE("chunks of 64: what is dropped, unmasked or not carried") {
  const call::Record record = record_of("op=gdn mode=prefill lens=70,9 H=1 HV=1 K=8 V=6 gate=log");
  const auto packed = [&](const std::vector<double>& bounds) {
    call::Record other = record;
    other.inputs["cu_seqlens"] = call::Tensor(call::DType::kI64, {std::ssize(bounds)}, bounds);
    return verdict::exact_outputs(delta::slice(), other);
  };
  constexpr std::int64_t kState = 48;
  const auto states_equal = [&](const call::Tensor& a, std::int64_t block, const call::Tensor& b,
                                std::int64_t other) {
    for (std::int64_t i = 0; i < kState; ++i) {
      REQUIRE(a[block * kState + i] == b[other * kState + i]);
    }
  };
  const call::TensorMap pieces = packed({0, 64, 70, 79});
  CHECK(same(commit("state_carry_dropped", record).at("o"), pieces.at("o")));
  states_equal(commit("state_carry_dropped", record).at("final_state"), 0, pieces.at("final_state"),
               1);
  const call::TensorMap dropped = commit("tail_chunk_dropped", record);
  states_equal(dropped.at("final_state"), 0, pieces.at("final_state"), 0);
  CHECK(dropped.at("o")[63 * 6] == pieces.at("o")[63 * 6]);
  CHECK(std::isnan(dropped.at("o")[64 * 6]));
  // The tail of 6 tokens is filled up with all 9 that follow in the buffer.
  const call::TensorMap unmasked = commit("tail_chunk_unmasked", record);
  states_equal(unmasked.at("final_state"), 0, packed({0, 79}).at("final_state"), 0);
  CHECK(same(unmasked.at("o"), verdict::exact_outputs(delta::slice(), record).at("o")));
  const call::TensorMap shorter = commit("last_token_dropped", record);
  states_equal(shorter.at("final_state"), 0, packed({0, 69, 79}).at("final_state"), 0);
  CHECK(std::isnan(shorter.at("o")[69 * 6]));
}

TEST_CASE("MTP: the last token dropped, and rows shifted by one") {
  const call::Record record = record_of("op=gdn mode=mtp B=2 T=3 H=1 HV=1 K=4 V=4 slots=permuted");
  const auto slots = record.inputs.at("state_indices").to_integers();
  const call::TensorMap right = verdict::exact_outputs(delta::slice(), record);
  const call::Tensor& rows = right.at("intermediate_states");
  const call::TensorMap dropped = commit("last_token_dropped", record);
  const call::TensorMap shifted = commit("intermediate_shifted", record);
  for (std::int64_t b = 0; b < 2; ++b) {
    const std::int64_t slot = slots[static_cast<std::size_t>(b)];
    for (std::int64_t i = 0; i < 16; ++i) {
      REQUIRE(dropped.at("final_state")[slot * 16 + i] == rows[(b * 3 + 1) * 16 + i]);
      REQUIRE(std::isnan(dropped.at("intermediate_states")[(b * 3 + 2) * 16 + i]));
      const call::Tensor& moved = shifted.at("intermediate_states");
      REQUIRE(moved[b * 48 + i] == record.inputs.at("initial_state")[slot * 16 + i]);
      REQUIRE(moved[b * 48 + 16 + i] == rows[b * 48 + i]);
    }
  }
}

TEST_CASE("another convention than the call's is the right kernel of that convention") {
  const auto check = [](const char* name, const std::string& line, auto&& change, int way = 0) {
    CAPTURE(name);
    const call::Record record = record_of(line);
    call::Record other = record;
    change(other);
    const call::TensorMap wrong = commit(name, record, way);
    const call::TensorMap expected = verdict::exact_outputs(delta::slice(), other);
    for (const auto& [tensor, values] : expected) {
      CAPTURE(tensor);
      CHECK(same(wrong.at(tensor), values));
    }
  };
  const std::string decode = "op=kda mode=decode B=2 H=1 HV=2 K=16 V=16 slots=permuted P=4 ";
  check("gate_other_form", decode,
        [](call::Record& r) { r.convention.gate = call::Gate::kBounded; });
  check("gate_other_form", decode + "gate=bounded",
        [](call::Record& r) { r.convention.gate = call::Gate::kSoftplus; });
  check("scale_ignored", decode + "scale=1", [](call::Record& r) { r.convention.scale = 0.25; });
  check("l2_unasked", decode + "qk_l2norm=none l2_eps=0.5",
        [](call::Record& r) { r.convention.qk_l2norm = call::QkNorm::kRsqrtSumEps; });
  check("beta_doubled", decode,
        [](call::Record& r) { r.convention.beta = call::BetaForm::kSigmoid2; });
  check(
      "state_transposed", decode,
      [](call::Record& r) { r.convention.state_layout = call::StateLayout::kKV; }, 1);
  const auto replace_gate = [](call::Record& r, auto&& log_alpha) {
    call::Tensor g(call::DType::kF64, r.inputs.at("a").shape());
    for (std::int64_t i = 0; i < g.size(); ++i) {
      const std::int64_t head = i / 16 % 2;
      const double z = r.inputs.at("a")[i] + r.inputs.at("dt_bias")[head * 16 + i % 16];
      g.set(i, log_alpha(z, r.inputs.at("A_log")[head]));
    }
    for (const char* name : {"a", "A_log", "dt_bias"}) r.inputs.erase(name);
    r.inputs["g"] = g;
    r.convention.gate = call::Gate::kLog;
  };
  check("softplus_missing", decode, [&](call::Record& r) {
    replace_gate(r, [](double z, double A_log) { return -std::exp(A_log) * z; });
  });
  check("a_log_raw", decode, [&](call::Record& r) {
    replace_gate(r, [](double z, double A_log) { return -A_log * std::log1p(std::exp(z)); });
  });
  check("gate_linear", decode, [&](call::Record& r) {
    replace_gate(r,
                 [](double z, double A_log) { return -std::exp(A_log) * std::log1p(std::exp(z)); });
    r.convention.gate = call::Gate::kLinear;
  });
}

TEST_CASE("stale_state: two calls in a row") {
  call::Record record = record_of("op=kda mode=decode B=3 H=1 HV=2 K=8 V=8 slots=permuted");
  const auto wrong = commit("stale_state", record);
  record.inputs["initial_state"] = verdict::exact_outputs(delta::slice(), record).at("final_state");
  CHECK(same(wrong.at("final_state"),
             verdict::exact_outputs(delta::slice(), record).at("final_state")));
}

TEST_CASE("pads write slot 0 or the last slot, and nothing else") {
  const call::Record record =
      record_of("op=gdn mode=decode B=6 H=1 HV=2 K=8 V=8 slots=padded state_layout=kv");
  const call::TensorMap right = verdict::exact_outputs(delta::slice(), record);
  const std::int64_t slots = right.at("final_state").shape()[0];
  for (const auto& [name, slot] : {std::pair<const char*, std::int64_t>{"pad_writes_slot0", 0},
                                   {"pad_writes_last", slots - 1}}) {
    CAPTURE(name);
    const call::TensorMap wrong = commit(name, record);
    CHECK(same(wrong.at("o"), right.at("o")));
    const call::Tensor& a = wrong.at("final_state");
    const call::Tensor& b = right.at("final_state");
    const std::int64_t block = a.size() / slots;
    for (std::int64_t i = 0; i < a.size(); ++i) {
      if (i / block != slot) REQUIRE(a[i] == b[i]);
    }
    CHECK_FALSE(same(a, b));
  }
}

TEST_CASE("intermediate_by_slot: rows lie at their slots, others are not written") {
  const call::Record record = record_of("op=gdn mode=mtp B=3 T=2 H=1 HV=2 K=8 V=8 slots=permuted");
  const auto slots = record.inputs.at("state_indices").to_integers();
  const call::Tensor right =
      verdict::exact_outputs(delta::slice(), record).at("intermediate_states");
  const call::Tensor wrong = commit("intermediate_by_slot", record).at("intermediate_states");
  const std::int64_t row = right.size() / 3;
  for (std::int64_t place = 0; place < 3; ++place) {
    const auto it = std::ranges::find(slots, place);
    for (std::int64_t i = 0; i < row; ++i) {
      if (it == slots.end()) {
        REQUIRE(std::isnan(wrong[place * row + i]));
      } else {
        REQUIRE(wrong[place * row + i] == right[(it - slots.begin()) * row + i]);
      }
    }
  }
}

TEST_CASE("int32_offset: high slots are low ones, and keep their own content") {
  // Five slots wrap at four.
  const call::Record record =
      record_of("op=gdn mode=decode B=1 H=1 HV=1 K=4 V=4 slots=identity P=5");
  CHECK_FALSE(mistake("int32_offset").applies(record));  // slot 0 does not wrap
  call::Record high = record;
  high.inputs["state_indices"] = call::Tensor(call::DType::kI64, {1}, std::vector<double>{4});
  const call::TensorMap wrong = commit("int32_offset", high);
  const call::TensorMap low = verdict::exact_outputs(delta::slice(), record);
  CHECK(same(wrong.at("o"), low.at("o")));
  CHECK(same(wrong.at("final_state"), low.at("final_state")));
}

TEST_CASE("neighbour_nan reaches the tail of the sequence before it, by channel") {
  const call::Record plain = record_of("op=gdn mode=prefill lens=66,3 H=1 HV=1 K=8 V=4 gate=log");
  CHECK_FALSE(mistake("neighbour_nan").applies(plain));
  call::Record record = plain;
  record.inputs.at("v").set(66 * 4 + 1, std::numeric_limits<double>::quiet_NaN());
  const call::TensorMap wrong = commit("neighbour_nan", record);
  const auto at = [&](std::int64_t t, std::int64_t v) { return wrong.at("o")[t * 4 + v]; };
  CHECK(std::isfinite(at(63, 1)));  // the full chunk
  CHECK(std::isnan(at(64, 1)));     // the tail
  CHECK(std::isfinite(at(64, 0)));
  CHECK(std::isnan(wrong.at("final_state")[1 * 8]));
  CHECK(std::isfinite(wrong.at("final_state")[0]));
}

TEST_CASE("what a kernel leaves unwritten is NaN in its own buffer and old content in a pool") {
  const call::Record pool = record_of("op=gdn mode=decode B=2 H=1 HV=3 K=8 V=6 slots=permuted");
  CHECK(same(commit("state_not_written", pool).at("final_state"), pool.inputs.at("initial_state")));
  const call::Record prefill =
      record_of("op=gdn mode=prefill lens=3 H=1 HV=3 K=8 V=6 gate=log h0=1");
  const call::Tensor states = commit("state_not_written", prefill).at("final_state");
  for (std::int64_t i = 0; i < states.size(); ++i) REQUIRE(std::isnan(states[i]));
  const call::Tensor o = commit("v_tail_unwritten", pool).at("o");
  CHECK(std::isfinite(o[3]));
  CHECK(std::isnan(o[4]));
}

TEST_CASE("initial_state_stale and pad_tokens_active are calls without what they ignore") {
  const call::Record fresh =
      record_of("op=gdn mode=prefill lens=9,4,7 H=1 HV=2 K=8 V=6 gate=log h0=1 fresh=mixed");
  call::Record continued = fresh;
  continued.inputs.erase("has_initial_state");
  CHECK(same(commit("initial_state_stale", fresh).at("o"),
             verdict::exact_outputs(delta::slice(), continued).at("o")));
  // A new sequence is one that starts from zero.
  call::Record zero = continued;
  call::Tensor& states = zero.inputs.at("initial_state");
  for (std::int64_t i = 0; i < states.size(); ++i) {
    if (i < 96 || i >= 192) states.set(i, 0.0);
  }
  CHECK(same(verdict::exact_outputs(delta::slice(), fresh).at("o"),
             verdict::exact_outputs(delta::slice(), zero).at("o")));
  // The last token of the shorter sequence is repeated until it is as long as the other.
  const call::Record two =
      record_of("op=gdn mode=prefill lens=9,7 H=1 HV=1 K=8 V=6 gate=linear beta=direct");
  call::Record filled = two;
  for (const char* name : {"q", "k", "v", "g", "beta"}) {
    const call::Tensor given = two.inputs.at(name);
    const std::int64_t row = given.size() / 16;
    call::Shape shape = given.shape();
    shape[0] = 18;
    call::Tensor& more = filled.inputs.at(name);
    more = call::Tensor(given.dtype(), shape);
    for (std::int64_t i = 0; i < more.size(); ++i) {
      more.set(i, given[std::min(i, 15 * row + i % row)]);
    }
  }
  filled.inputs["cu_seqlens"] = call::Tensor(call::DType::kI64, {3}, std::vector<double>{0, 9, 18});
  CHECK(same(commit("pad_tokens_active", two, 3).at("final_state"),
             verdict::exact_outputs(delta::slice(), filled).at("final_state")));
}

TEST_CASE("accepted_zero_wraps: index -1 of a row, or of memory") {
  const call::Record record =
      record_of("op=kda mode=mtp B=3 T=4 H=1 HV=1 K=8 V=4 accepted=mixed slots=permuted");
  const std::vector<std::int64_t> slots = record.inputs.at("state_indices").to_integers();
  const call::TensorMap right = verdict::exact_outputs(delta::slice(), record);
  const call::Tensor wrapped = commit("accepted_zero_wraps", record).at("final_state");
  const call::Tensor before = commit("accepted_zero_wraps", record, 1).at("final_state");
  for (std::int64_t i = 0; i < 32; ++i) {  // row 0 accepts nothing
    REQUIRE(wrapped[slots[0] * 32 + i] == right.at("intermediate_states")[3 * 32 + i]);
    REQUIRE(std::isnan(before[slots[0] * 32 + i]));
    REQUIRE(wrapped[slots[1] * 32 + i] == right.at("final_state")[slots[1] * 32 + i]);
  }
}

TEST_CASE("k_is_v is the call of a kernel with fewer key channels on the same memory") {
  const call::Record record =
      record_of("op=gdn mode=prefill lens=5,4 H=1 HV=2 K=8 V=4 gate=log h0=1 scale=0.5");
  call::Record narrow = record;
  for (const char* name : {"q", "k", "initial_state"}) {
    const call::Tensor given = record.inputs.at(name);
    call::Shape shape = given.shape();
    shape.back() = 4;
    std::vector<double> values = given.to_doubles();
    values.resize(static_cast<std::size_t>(given.size() / 2));
    narrow.inputs[name] = call::Tensor(given.dtype(), shape, values);
  }
  const call::TensorMap expected = verdict::exact_outputs(delta::slice(), narrow);
  const call::TensorMap wrong = commit("k_is_v", record);
  CHECK(same(wrong.at("o"), expected.at("o")));
  for (std::int64_t i = 0; i < 64; ++i) {
    REQUIRE(wrong.at("final_state")[i] == expected.at("final_state")[i]);
    REQUIRE(std::isnan(wrong.at("final_state")[64 + i]));
  }
}

TEST_CASE("ab_interleaved: every token reads half of a row") {
  const call::Record record = record_of("op=gdn mode=decode B=4 H=2 HV=2 K=8 V=4");
  call::Record mixed = record;
  const call::Tensor a = record.inputs.at("a");
  const call::Tensor b = record.inputs.at("b");
  // Rows of [a, b]: a0 b0 a1 b1 ..; a is read from there, b from one row of HV later.
  const call::Tensor* rows[] = {&a, &b, &a, &b, &a};
  for (std::int64_t row = 0; row < 4; ++row) {
    for (std::int64_t j = 0; j < 2; ++j) {
      mixed.inputs.at("a").set(row * 2 + j, (*rows[row])[row / 2 * 2 + j]);
      mixed.inputs.at("b").set(row * 2 + j, (*rows[row + 1])[(row + 1) / 2 * 2 + j]);
    }
  }
  CHECK(same(commit("ab_interleaved", record).at("o"),
             verdict::exact_outputs(delta::slice(), mixed).at("o")));
}
