// SPDX-License-Identifier: Apache-2.0
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
#include "reference/mistakes/kernels.hpp"

using namespace goldenrule;

namespace {

call::Record record_of(const std::string& line) { return cases::make_record(cases::parse(line)); }

const mistakes::Mistake& mistake(std::string_view name) {
  const auto table = mistakes::table();
  const auto it = std::ranges::find(table, name, &mistakes::Mistake::name);
  REQUIRE(it != table.end());
  return *it;
}

call::TensorMap commit(std::string_view name, const call::Record& record) {
  REQUIRE(mistake(name).applies(record));
  return mistake(name).commit(record, mistakes::exact_kernel);
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
      "op=kda mode=prefill lens=70 H=1 HV=1 K=16 V=8 gate=log2 beta=sigmoid2 family=Dgrow",
      "op=gdn mode=prefill lens=70 H=1 HV=1 K=64 V=16 gate=log family=B64",
      "op=gdn mode=decode B=3 H=2 HV=6 K=20 V=17 slots=padded scale=0",
      "op=gdn mode=decode B=5 H=1 HV=2 K=16 V=16 family=J100",
      "op=gdn mode=decode B=5 H=1 HV=2 K=16 V=16 family=J17",
      "op=kda mode=mtp B=3 T=4 H=2 HV=4 K=16 V=32 slots=permuted family=I",
      "op=gdn mode=mtp B=3 T=4 H=1 HV=2 K=16 V=32 slots=permuted disable_state_update=1",
      "op=gdn mode=mtp B=6 T=4 H=1 HV=2 K=16 V=32 slots=scatter_padded pad_slot=0",
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

TEST_CASE("every mistake can be made and changes something") {
  std::vector<call::Record> records;
  for (const std::string& line : sample()) records.push_back(record_of(line));
  records.push_back(with_nan(records[0], 66));
  std::map<std::string, int> changed;
  for (const call::Record& record : records) {
    const call::TensorMap right = mistakes::exact_kernel(record);
    for (const mistakes::Mistake& m : mistakes::table()) {
      if (!m.applies(record)) continue;
      CAPTURE(record.case_line);
      CAPTURE(m.name);
      const call::TensorMap wrong = m.commit(record, mistakes::exact_kernel);
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
  for (const mistakes::Mistake& m : mistakes::table()) {
    CAPTURE(m.name);
    CHECK(changed[std::string(m.name)] > 0);
  }
}

TEST_CASE("a mistake does not change the call that it is committed on") {
  const call::Record record = record_of(sample()[0]);
  for (const mistakes::Mistake& m : mistakes::table()) {
    if (!m.applies(record)) continue;
    call::Record copy = record;
    copy.outputs["o"] = call::Tensor(call::DType::kBF16, {136, 6, 17});  // a capture has some
    const call::TensorMap wrong = m.commit(copy, mistakes::exact_kernel);
    CAPTURE(m.name);
    CHECK(same(wrong.at("o"), m.commit(record, mistakes::exact_kernel).at("o")));
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
  for (const mistakes::Mistake& m : mistakes::table()) {
    if (!m.applies(record) || m.name == "slot_ignored" || m.name == "int32_offset") continue;
    const call::Tensor states = m.commit(record, mistakes::exact_kernel).at("final_state");
    bool untouched = true;
    for (std::int64_t i = 0; i < states.size(); ++i) {
      if (!used[static_cast<std::size_t>(i / block)])
        untouched = untouched && states[i] == initial[i];
    }
    CAPTURE(m.name);
    CHECK(untouched);
  }
}

TEST_CASE("gate_log2 and gate_ln2 undo each other's convention") {
  // 2^g of natural gates is what the same numbers mean in a base-2 call, and the reverse.
  const call::Record natural = record_of("op=kda mode=prefill lens=20 H=1 HV=2 K=8 V=4 gate=log");
  call::Record binary = natural;
  binary.convention.gate = call::Gate::kLog2;
  const auto near = [](const call::Tensor& a, const call::Tensor& b) {
    for (std::int64_t i = 0; i < a.size(); ++i) CHECK(std::fabs(a[i] - b[i]) < 1e-13);
  };
  near(commit("gate_log2", natural).at("o"), mistakes::exact_kernel(binary).at("o"));
  near(commit("gate_ln2", binary).at("o"), mistakes::exact_kernel(natural).at("o"));
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
  CHECK(same(commit("state_transposed", record).at("o"), mistakes::exact_kernel(other).at("o")));
  // Written: the same memory again.
  const call::Tensor right = mistakes::exact_kernel(record).at("final_state");
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
  CHECK(same(commit("state_leaks", record).at("o"), mistakes::exact_kernel(joined).at("o")));
}

TEST_CASE("stale_state: two calls in a row") {
  call::Record record = record_of("op=kda mode=decode B=3 H=1 HV=2 K=8 V=8 slots=permuted");
  const auto wrong = commit("stale_state", record);
  record.inputs["initial_state"] = mistakes::exact_kernel(record).at("final_state");
  CHECK(same(wrong.at("final_state"), mistakes::exact_kernel(record).at("final_state")));
}

TEST_CASE("pads write slot 0 or the last slot, and nothing else") {
  const call::Record record =
      record_of("op=gdn mode=decode B=6 H=1 HV=2 K=8 V=8 slots=padded state_layout=kv");
  const call::TensorMap right = mistakes::exact_kernel(record);
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
  const call::Tensor right = mistakes::exact_kernel(record).at("intermediate_states");
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
  const call::TensorMap low = mistakes::exact_kernel(record);
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
