// SPDX-License-Identifier: Apache-2.0
//
// Mistakes that generators enumerate are named where a kernel makes them, and only there: kernels
// with another order of steps are written out here in fp32, apart from the generator, and mistakes
// of the table are held out.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "fixtures/random/philox.hpp"
#include "reference/delta/mistakes/generated.hpp"
#include "reference/delta/mistakes/table.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

using State = std::vector<float>;  // [K,V]

// A decode of one head per row in fp32: which of its states each step meets is an index into
// old, decayed, old and write, decayed and write, decay of both; -1: none.
struct Order {
  int predicts, leaves, reads;
};

struct Token {
  std::vector<float> q, k, v;
  float alpha, beta;
};

State product(const State& state, float factor) {
  State result = state;
  for (float& x : result) x *= factor;
  return result;
}

std::vector<float> times(const std::vector<float>& row, const State& state, std::size_t V) {
  std::vector<float> result(V, 0.0F);
  for (std::size_t i = 0; i < row.size(); ++i) {
    for (std::size_t x = 0; x < V; ++x) result[x] += row[i] * state[i * V + x];
  }
  return result;
}

std::vector<float> step(const Order& order, const Token& t, float scale, State& state) {
  const std::size_t V = t.v.size();
  const State decayed = product(state, t.alpha);
  std::vector<float> d = t.v;
  if (order.predicts >= 0) {
    const auto predicted = times(t.k, order.predicts == 0 ? state : decayed, V);
    for (std::size_t x = 0; x < V; ++x) d[x] -= predicted[x];
  }
  const auto written = [&](State s) {
    for (std::size_t i = 0; i < t.k.size(); ++i) {
      for (std::size_t x = 0; x < V; ++x) s[i * V + x] += t.k[i] * (t.beta * d[x]);
    }
    return s;
  };
  const std::vector<State> states{state, decayed, written(state), written(decayed),
                                  product(written(state), t.alpha)};
  auto o = times(t.q, states[static_cast<std::size_t>(order.reads)], V);
  for (float& x : o) x *= scale;
  state = states[static_cast<std::size_t>(order.leaves)];
  return o;
}

constexpr const char* kPlain =
    "op=gdn mode=prefill lens=6,9 H=2 HV=2 K=16 V=8 gate=linear beta=direct io=f32 h0=1 "
    "state_layout=kv qk_l2norm=none";

std::vector<float> row_of(const call::Tensor& tensor, std::int64_t row, std::int64_t size) {
  std::vector<float> values;
  for (std::int64_t i = row * size; i < (row + 1) * size; ++i) {
    values.push_back(static_cast<float>(tensor[i]));
  }
  return values;
}

// The capture of a kernel with that order of steps.
Record kernel_in_order(const Order& order) {
  Record r = make_call(kPlain);
  const call::Dims d = call::validate(r);
  const auto scale = static_cast<float>(call::resolved_scale(r.convention, d.K));
  std::vector<double> o(static_cast<std::size_t>(d.tokens * d.HV * d.V));
  std::vector<double> final_state;
  for (const call::Sequence& s : call::make_plan(r, true).sequences) {
    for (std::int64_t h = 0; h < d.HV; ++h) {
      State state =
          row_of(r.inputs.at("initial_state"), std::ssize(final_state) / (d.K * d.V), d.K * d.V);
      for (std::int64_t t = s.first_token; t < s.first_token + s.token_count; ++t) {
        const std::int64_t row = t * d.HV + h;
        const Token token{.q = row_of(r.inputs.at("q"), row, d.K),
                          .k = row_of(r.inputs.at("k"), row, d.K),
                          .v = row_of(r.inputs.at("v"), row, d.V),
                          .alpha = row_of(r.inputs.at("g"), row, 1).front(),
                          .beta = row_of(r.inputs.at("beta"), row, 1).front()};
        const auto out = step(order, token, scale, state);
        std::ranges::copy(out, o.begin() + row * d.V);
      }
      final_state.insert(final_state.end(), state.begin(), state.end());
    }
  }
  const contract::Contract& contract = delta::default_contract(r);
  const auto exact = verdict::exact_outputs(delta::slice(), r);
  TensorMap outputs;
  outputs["o"] = call::Tensor(call::DType::kF64, exact.at("o").shape(), o);
  outputs["final_state"] =
      call::Tensor(call::DType::kF64, exact.at("final_state").shape(), final_state);
  r.outputs = calls::stored(r, contract, outputs);
  r.contract = contract.name;
  return r;
}

// Whether `name` is the first explanation, or one with the same outputs in this call.
bool is_named_first(const Diagnosis& d, std::string_view name) {
  if (d.explanations.empty() || !d.explanations.front().explains) return false;
  const Explanation& first = d.explanations.front();
  return first.name() == name || std::ranges::find(first.same, name) != first.same.end();
}

std::string first_name(const Diagnosis& d) {
  return d.explanations.empty() || !d.explanations.front().explains
             ? ""
             : d.explanations.front().name_and_place();
}

// What the generator, or the table, calls the order.
std::string name_of(const Order& order) {
  if (order.predicts < 0 && order.leaves == 3 && order.reads == 3) return "no_delta";
  if (order.predicts == 1 && order.leaves == 3 && order.reads == 0) return "read_before_update";
  if (order.predicts == 1 && order.leaves == 3 && order.reads == 1) return "own_token_unread";
  if (order.predicts == 0 && order.leaves == 4 && order.reads == 4) return "decay_after_delta";
  if (order.predicts == 0 && order.leaves == 2 && order.reads == 2) return "gate_ignored";
  std::vector<std::string> words;
  if (order.predicts <= 0) {
    words.emplace_back(order.predicts == 0 ? "predicts_undecayed" : "predicts_nothing");
  }
  if (order.leaves != 3) {
    words.emplace_back(order.leaves == 2 ? "leaves_undecayed" : "decays_own_write");
  }
  constexpr const char* kReads[]{"reads_old", "reads_unwritten", "reads_undecayed", "reads_decayed",
                                 "reads_decayed_write"};
  if (order.reads != order.leaves) words.emplace_back(kReads[order.reads]);
  std::string name;
  for (const std::string& word : words) name += (name.empty() ? "" : "_") + word;
  return name;
}

constexpr std::uint64_t kSeed = 0x6f72646572;

std::int64_t drawn(const random::Stream& stream, std::int64_t i, std::int64_t below) {
  return static_cast<std::int64_t>(stream.bits(i) % static_cast<std::uint64_t>(below));
}

}  // namespace

TEST_CASE("generated mistakes have names and meanings of their own") {
  std::set<std::string_view> names;
  std::set<std::string_view> meanings;
  for (const Mistake& m : delta::mistakes()) names.insert(m.name);
  for (const Mistake& m : delta::generated_mistakes()) {
    CAPTURE(m.name);
    CHECK(names.insert(m.name).second);
    CHECK(meanings.insert(m.meaning).second);
    CHECK(m.meaning.size() > 10);
    CHECK(m.meaning.size() < 250);
    CHECK_FALSE(m.meaning.ends_with("."));
  }
}

TEST_CASE("an order of steps written in fp32 is named by its steps") {
  CHECK(first_name(diagnosis_of(kernel_in_order({1, 3, 3}), delta::mistakes())).empty());
  const random::Stream stream(kSeed, "orders");
  for (std::int64_t i = 0; i < 12; ++i) {
    const Order order{static_cast<int>(drawn(stream, 3 * i, 3)) - 1,
                      static_cast<int>(drawn(stream, 3 * i + 1, 3)) + 2,
                      static_cast<int>(drawn(stream, 3 * i + 2, 5))};
    if (order.predicts == 1 && order.leaves == 3 && order.reads == 3) continue;
    const std::string name = name_of(order);
    const Diagnosis d = diagnosis_of(kernel_in_order(order), delta::mistakes());
    CAPTURE(first_name(d));
    CAPTURE(name);
    CHECK(is_named_first(d, name));
  }
}

TEST_CASE("drawn points of the generators are named") {
  constexpr const char* kCalls[] = {
      "op=gdn mode=prefill lens=100,150 H=1 HV=2 K=24 V=20 gate=log h0=1 io=f32",
      "op=kda mode=prefill lens=137 H=1 HV=3 K=40 V=16 gate=bounded h0=1 io=f32",
      "op=kda mode=decode B=5 H=2 HV=6 K=40 V=24 slots=padded",
      "op=gdn mode=mtp B=3 T=4 H=1 HV=2 K=24 V=20 accepted=mixed"};
  const auto table = delta::generated_mistakes();
  const random::Stream stream(kSeed, "points");
  std::int64_t at = 0;
  for (const char* line : kCalls) {
    CAPTURE(line);
    const Record r = make_call(line);
    for (int planted = 0; planted < 8;) {
      const Mistake& m = table[static_cast<std::size_t>(drawn(stream, at++, std::ssize(table)))];
      if (!m.applies(r)) continue;
      ++planted;
      CAPTURE(m.name);
      const Diagnosis d = diagnosis_of(capture_of(line, {&m}), delta::mistakes());
      CAPTURE(first_name(d));
      CHECK(is_named_first(d, m.name));
    }
  }
}

// Told by the generators alone, a mistake of the table has no name, or that of an equal one.
TEST_CASE("mistakes of the table that are held out get no generated name") {
  constexpr const char* kCalls[] = {
      "op=gdn mode=prefill lens=70,9 H=1 HV=2 K=24 V=20 gate=log h0=1 io=f32",
      "op=kda mode=decode B=3 H=1 HV=3 K=24 V=20"};
  for (const char* line : kCalls) {
    CAPTURE(line);
    const Record r = make_call(line);
    for (const Mistake& m : delta::mistakes()) {
      if (!m.applies(r)) continue;
      CAPTURE(m.name);
      const Diagnosis d = diagnosis_of(capture_of(line, {&m}), {});
      const std::string name = first_name(d);
      CAPTURE(name);
      const auto found = std::ranges::find(delta::generated_mistakes(), name, &Mistake::name);
      if (found == delta::generated_mistakes().end()) continue;
      const Kernel exact = [](const Record& call) {
        return verdict::exact_outputs(delta::slice(), call);
      };
      const TensorMap generated = found->commit(r, exact);
      for (const auto& [output, tensor] : m.commit(r, exact)) {
        double difference = 0.0;
        for (std::int64_t i = 0; i < tensor.size(); ++i) {
          const double distance = std::fabs(tensor[i] - generated.at(output)[i]);
          difference = std::max(difference, std::isnan(distance) ? 0.0 : distance);
        }
        CHECK(difference < 1e-4);
      }
    }
  }
}

}  // namespace goldenrule::explain::test
