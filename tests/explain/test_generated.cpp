// SPDX-License-Identifier: Apache-2.0
//
// Mistakes that generators enumerate are named where a kernel makes them, and only there: kernels
// with another order of steps compute in fp32, apart from the generator, and mistakes
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
#include "reference/suites/unknown/orders.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

using Order = suites::StepOrder;

constexpr const char* kPlain =
    "op=gdn mode=prefill lens=6,9 H=2 HV=2 K=16 V=8 gate=linear beta=direct io=f32 h0=1 "
    "state_layout=kv qk_l2norm=none";

// The capture of a kernel with that order of steps.
Record kernel_in_order(const Order& order) {
  Record r = make_call(kPlain);
  const contract::Contract& contract = delta::default_contract(r);
  r.outputs = calls::stored(r, contract, suites::outputs_in_order<float>(r, order));
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
