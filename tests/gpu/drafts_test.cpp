// SPDX-License-Identifier: Apache-2.0
//
// Acceptance of drafts in the forms of serving engines: rows of unequal length, trees, buffers of
// states, second slots. Against the oracle, element by element; that a tree in which each token
// follows the one before it, a packed call of equal rows and a buffer are the calls that they look
// like; that branches do not see each other; and lists of any value.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/check_cases.hpp"

namespace goldenrule::test {
namespace {

TEST_CASE("drafts: every shape, type and form") { check_list("drafts"); }
TEST_CASE("drafts: every pattern of values") { check_list("drafts, patterns"); }
TEST_CASE("drafts: every element of the suite within its budget") {
  check_suite("mtp", [](call::Mode mode) { return mode != call::Mode::kPrefill; });
}

/// The outputs that both have, in the shapes of `to`.
call::TensorMap reshaped(const call::TensorMap& from, const call::TensorMap& to) {
  call::TensorMap result;
  for (const auto& [name, tensor] : to) {
    result[name] = call::Tensor(tensor.dtype(), tensor.shape());
    std::ranges::copy(from.at(name).bytes(), result[name].bytes().begin());
  }
  return result;
}

const std::string kEqualRows =
    "op={gdn,kda} mode=mtp B=3 T=4 H=1 HV=2 K={128,60} V=64 state_layout={vk,kv} state={f32,bf16} ";

/// The call with its tokens packed: rows of equal length.
call::Record packed(const call::Record& dense) {
  call::Record result = dense;
  const call::Dims d = call::validate(dense);
  for (auto& [name, tensor] : result.inputs) {
    call::Shape shape = tensor.shape();
    if (shape.size() < 2 || shape[0] != d.rows || shape[1] != d.T) continue;
    shape.erase(shape.begin());
    shape[0] = d.tokens;
    call::Tensor flat(tensor.dtype(), shape);
    std::ranges::copy(std::as_const(tensor).bytes(), flat.bytes().begin());
    tensor = flat;
  }
  call::Tensor bounds(call::DType::kI32, {d.rows + 1});
  for (std::int64_t n = 0; n <= d.rows; ++n) bounds.set(n, double(n * d.T));
  result.inputs["cu_seqlens"] = bounds;
  return result;
}

// A packed call takes the tokens where its bounds say, so rows of equal length are those of a dense
// one: where a second slot, which is padding, makes drafts of both, and where the kernels for few
// tokens serve both.
TEST_CASE("drafts: packed rows of equal length are dense ones, bit for bit") {
  REQUIRE_GPU();
  const auto check = [](const LiveCase&, const call::Record& dense) {
    const call::TensorMap a = outputs_of(dense), b = outputs_of(packed(dense));
    CHECK(difference(reshaped(a, b), b) == "");
  };
  for_each_case(kEqualRows + "slots={permuted,padded} track=mixed accepted=mixed", check);
  for_each_case(
      "op={gdn,kda} mode=mtp B={3,70} T={2,8} H=1 HV=2 K=128 V=128 state_layout={vk,kv} "
      "state={f32,bf16} slots={permuted,padded}",
      check);
}

TEST_CASE("drafts: a tree of one branch is a chain, bit for bit") {
  REQUIRE_GPU();
  for_each_case(kEqualRows + "slots=permuted track=mixed",
                [](const LiveCase&, const call::Record& chain) {
                  call::Record tree = chain;
                  const call::Dims d = call::validate(chain);
                  call::Tensor parents(call::DType::kI64, {d.rows, d.T});
                  for (std::int64_t i = 0; i < d.tokens; ++i) {
                    parents.set(i, static_cast<double>(i % d.T - 1));
                  }
                  tree.inputs["parent_tokens"] = parents;
                  CHECK(difference(outputs_of(chain), outputs_of(tree)) == "");
                });
}

// Token 3 continues the start state: whatever stands in front of it may be NaN.
TEST_CASE("drafts: a NaN stays on its branch") {
  REQUIRE_GPU();
  for_each_case(kEqualRows + "slots=permuted tree=mixed", [](const LiveCase&, call::Record record) {
    const call::Dims d = call::validate(record);
    for (std::int64_t b = 0; b < d.rows; ++b) {
      const std::int64_t parents[] = {-1, 0, 1, -1};
      for (std::int64_t t = 0; t < d.T; ++t) {
        record.inputs.at("parent_tokens").set(b * d.T + t, static_cast<double>(parents[t]));
      }
    }
    const call::TensorMap clean = outputs_of(record);
    for (const char* name : {"q", "k", "v"}) {
      CAPTURE(name);
      call::Record poisoned = record;
      call::Tensor& tensor = poisoned.inputs.at(name);
      const std::int64_t row = tensor.size() / d.tokens;
      for (std::int64_t i = 0; i < tensor.size(); ++i) {
        if (i / row % d.T != d.T - 1) tensor.set(i, std::numeric_limits<double>::quiet_NaN());
      }
      const call::TensorMap outputs = outputs_of(poisoned);
      std::int64_t different = 0;
      for (const char* output : {"o", "intermediate_states", "final_state"}) {
        const call::Tensor &a = clean.at(output), &b = outputs.at(output);
        const bool slots = std::string_view(output) == "final_state";
        const std::int64_t run = a.size() / (slots ? 1 : d.tokens);
        for (std::int64_t i = 0; i < a.size(); ++i) {
          if (!slots && i / run % d.T != d.T - 1) continue;
          if (a[i] != b[i]) ++different;
        }
      }
      CHECK(different == 0);
    }
  });
}

TEST_CASE("drafts: a row does not depend on the rows beside it") {
  REQUIRE_GPU();
  for_each_case(
      "op={gdn,kda} mode=mtp lens=3,0,1,8,5 H=1 HV=2 K={128,60} V=64 state_layout={vk,kv} "
      "slots=permuted",
      [](const LiveCase&, const call::Record& record) {
        const call::TensorMap whole = outputs_of(record);
        call::Record other = record;  // the same for the rows in front of the last
        const call::Dims d = call::validate(record);
        for (const char* name : {"q", "k", "v"}) {
          call::Tensor& tensor = other.inputs.at(name);
          const std::int64_t row = tensor.size() / d.tokens;
          for (std::int64_t i = (d.tokens - 5) * row; i < tensor.size(); ++i) tensor.set(i, 0.5);
        }
        const call::TensorMap changed = outputs_of(other);
        const std::int64_t same = whole.at("o").size() / d.tokens * (d.tokens - 5);
        std::int64_t different = 0;
        for (std::int64_t i = 0; i < same; ++i) {
          different += whole.at("o")[i] == changed.at("o")[i] ? 0 : 1;
        }
        CHECK(different == 0);
        CHECK(difference(whole, changed) != "");
      });
}

}  // namespace
}  // namespace goldenrule::test
