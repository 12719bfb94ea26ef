// SPDX-License-Identifier: Apache-2.0
//
// Relations between two calls that hold bit for bit, whatever the right values are: what the inputs
// of one have in common with those of the other, their outputs have in common too. They need no
// oracle, and each would fail for a kernel that reads across rows, heads, slots, tokens or value
// channels.
#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "fixtures/cases/case.hpp"
#include "tests/gpu/gpu_test.hpp"
#include "tests/gpu/record_run.hpp"

namespace goldenrule::test {
namespace {

using call::Record;
using call::Tensor;
using call::TensorMap;
using Order = std::vector<std::int64_t>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// On a fast and on a general shape, in both layouts and state types.
void for_each_record(const std::string& line, const std::function<void(const Record&)>& f) {
  for (const char* op : {"gdn", "kda"}) {
    for (const char* layout : {"vk", "kv"}) {
      for (const char* state : {"f32", "bf16"}) {
        for (const char* shape : {"K=128 V=128", "K=60 V=37"}) {
          const std::string whole = "op=" + std::string(op) + " state_layout=" + layout +
                                    " state=" + state + " " + shape + " " + line;
          CAPTURE(whole);
          f(cases::make_record(cases::parse(whole)));
        }
      }
    }
  }
}

TensorMap run(const Record& record) { return outputs_of(record, gpu::Update::kInPlace); }

std::string difference(const TensorMap& a, const TensorMap& b) {
  for (const auto& [name, tensor] : a) {
    std::string text = first_difference(name, tensor.bytes(), b.at(name).bytes());
    if (!text.empty()) return text;
  }
  return "";
}

/// Element [.., i, ..] of the result is element [.., order[i], ..] of `t`, on one axis.
Tensor permuted(const Tensor& t, std::size_t axis, const Order& order) {
  const auto size = [&](std::size_t first, std::size_t last) {
    return call::element_count({t.shape().begin() + static_cast<std::ptrdiff_t>(first),
                                t.shape().begin() + static_cast<std::ptrdiff_t>(last)});
  };
  const auto inner =
      static_cast<std::size_t>(size(axis + 1, t.shape().size())) * call::info(t.dtype()).bytes;
  Tensor result = t;
  for (std::int64_t outer = 0; outer < size(0, axis); ++outer) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      const std::size_t base = static_cast<std::size_t>(outer) * order.size();
      std::memcpy(&result.bytes()[(base + i) * inner],
                  &t.bytes()[(base + static_cast<std::size_t>(order[i])) * inner], inner);
    }
  }
  return result;
}

/// 1, 2, .., n-1, 0, but with the halves reversed: no element stays, no pattern of two helps.
Order mixed(std::int64_t n) {
  Order order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::rotate(order.begin(), order.begin() + 1, order.end());
  std::reverse(order.begin() + n / 2, order.end());
  return order;
}

/// The same permutation on one axis of several tensors.
void permute(TensorMap& tensors, const std::vector<std::pair<const char*, std::size_t>>& axes,
             const Order& order) {
  for (const auto& [name, axis] : axes) {
    const auto it = tensors.find(name);
    if (it != tensors.end()) it->second = permuted(it->second, axis, order);
  }
}

void multiply(Tensor& t, double factor) {
  for (std::int64_t i = 0; i < t.size(); ++i) t.set(i, t[i] * factor);
}

/// Elements [begin, end) of the leading axes of `t`, flattened to `count` rows, become `x`.
void overwrite(Tensor& t, std::int64_t count, std::int64_t begin, std::int64_t end, double x) {
  const std::int64_t row = t.size() / count;
  for (std::int64_t i = begin * row; i < end * row; ++i) t.set(i, x);
}

const char* const kTokens[] = {"q", "k", "v", "a", "b"};

TEST_CASE("permuted rows give permuted rows") {
  REQUIRE_GPU();
  for_each_record("mode=mtp B=5 T=3 H=2 HV=4 slots=padded accepted=mixed", [](const Record& r) {
    const Order order = mixed(5);
    Record other = r;
    permute(other.inputs,
            {{"q", 0},
             {"k", 0},
             {"v", 0},
             {"a", 0},
             {"b", 0},
             {"state_indices", 0},
             {"accepted_tokens", 0}},
            order);
    TensorMap expected = run(r);
    permute(expected, {{"o", 0}, {"intermediate_states", 0}}, order);
    const TensorMap actual = run(other);
    // Not the intermediate states: the rows of a padded row hold the poison of their place.
    for (const char* name : {"o", "final_state"}) {
      CHECK(first_difference(name, expected.at(name).bytes(), actual.at(name).bytes()) == "");
    }
  });
}

TEST_CASE("permuted heads give permuted heads") {
  REQUIRE_GPU();
  for_each_record("mode=mtp B=2 T=3 H=3 HV=6 head_map=tiled", [](const Record& r) {
    // Tiled: value heads j and j + 3 read q/k head j.
    const Order order = mixed(3);
    Order values;
    for (const std::int64_t base : {0, 3}) {
      for (const std::int64_t h : order) values.push_back(base + h);
    }
    Record other = r;
    permute(other.inputs, {{"q", 2}, {"k", 2}}, order);
    permute(other.inputs,
            {{"v", 2}, {"a", 2}, {"b", 2}, {"A_log", 0}, {"dt_bias", 0}, {"initial_state", 1}},
            values);
    TensorMap expected = run(r);
    permute(expected, {{"o", 2}, {"final_state", 1}, {"intermediate_states", 2}}, values);
    CHECK(difference(expected, run(other)) == "");
  });
}

TEST_CASE("permuted slots give the same rows in permuted slots") {
  REQUIRE_GPU();
  for_each_record("mode=mtp B=4 T=2 H=1 HV=2 slots=separate", [](const Record& r) {
    const std::int64_t slots = r.inputs.at("initial_state").shape()[0];
    const Order order = mixed(slots);
    Record other = r;
    permute(other.inputs, {{"initial_state", 0}}, order);
    for (const char* name : {"state_indices", "output_state_indices"}) {
      Tensor& indices = other.inputs.at(name);
      for (std::int64_t b = 0; b < indices.size(); ++b) {
        const auto moved = std::ranges::find(order, static_cast<std::int64_t>(indices[b]));
        indices.set(b, static_cast<double>(moved - order.begin()));
      }
    }
    TensorMap expected = run(r);
    permute(expected, {{"final_state", 0}}, order);
    CHECK(difference(expected, run(other)) == "");
  });
}

TEST_CASE("permuted value channels give permuted value channels") {
  REQUIRE_GPU();
  for_each_record("mode=mtp B=2 T=3 H=1 HV=2", [](const Record& r) {
    const bool vk = r.convention.state_layout == call::StateLayout::kVK;
    const Order order = mixed(r.inputs.at("v").shape()[3]);
    Record other = r;
    permute(other.inputs, {{"v", 3}, {"initial_state", vk ? 2U : 3U}}, order);
    TensorMap expected = run(r);
    permute(expected,
            {{"o", 3}, {"final_state", vk ? 2U : 3U}, {"intermediate_states", vk ? 3U : 4U}},
            order);
    CHECK(difference(expected, run(other)) == "");
  });
}

TEST_CASE("a power of two times (v, S) is that power of two times (o, S)") {
  REQUIRE_GPU();
  for_each_record("mode=mtp B=2 T=3 H=1 HV=2", [](const Record& r) {
    for (const double factor : {0.0625, 32.0}) {
      Record other = r;
      multiply(other.inputs.at("v"), factor);
      multiply(other.inputs.at("initial_state"), factor);
      TensorMap expected = run(r);
      for (auto& [name, tensor] : expected) multiply(tensor, factor);
      CHECK(difference(expected, run(other)) == "");
    }
  });
}

TEST_CASE("beta = 0: v does not matter, and without a gate the state stays bit for bit") {
  REQUIRE_GPU();
  for (const char* gate : {"softplus", "none"}) {
    for_each_record("mode=mtp B=2 T=3 H=1 HV=2 beta=direct gate=" + std::string(gate),
                    [&](const Record& r) {
                      Record still = r;
                      multiply(still.inputs.at("beta"), 0.0);
                      Record other = still;
                      multiply(other.inputs.at("v"), -3.0);
                      const TensorMap expected = run(still);
                      CHECK(difference(expected, run(other)) == "");
                      CHECK(difference(expected, run(r)) != "");
                      if (std::strcmp(gate, "none") == 0) {
                        CHECK(first_difference("state", r.inputs.at("initial_state").bytes(),
                                               expected.at("final_state").bytes()) == "");
                      }
                    });
  }
}

TEST_CASE("alpha = 0 erases: what the state was does not matter") {
  REQUIRE_GPU();
  for_each_record("mode=mtp B=2 T=2 H=1 HV=2 gate=linear", [](const Record& r) {
    Record erased = r;
    Tensor& g = erased.inputs.at("g");
    const std::int64_t row = g.size() / 4;  // the first token of both rows
    for (std::int64_t i = 0; i < g.size(); ++i) {
      if (i / row % 2 == 0) g.set(i, 0.0);
    }
    Record other = erased;
    multiply(other.inputs.at("initial_state"), -1e3);
    CHECK(difference(run(erased), run(other)) == "");
    CHECK(difference(run(r), run(other)) != "");
  });
}

TEST_CASE("a token sees nothing of the tokens behind it") {
  REQUIRE_GPU();
  for_each_record("mode=mtp B=1 T=8 H=1 HV=2", [](const Record& r) {
    const TensorMap clean = run(r);
    for (const std::int64_t begin : {1, 5, 7}) {
      Record other = r;
      for (const char* name : kTokens) overwrite(other.inputs.at(name), 8, begin, 8, kNaN);
      const TensorMap poisoned = run(other);
      for (const char* name : {"o", "intermediate_states"}) {
        const auto before = clean.at(name).bytes(), after = poisoned.at(name).bytes();
        const std::size_t kept = before.size() / 8 * static_cast<std::size_t>(begin);
        CHECK(first_difference(name, before.first(kept), after.first(kept)) == "");
        CHECK(first_difference(name, before.subspan(kept), after.subspan(kept)) != "");
      }
    }
  });
}

TEST_CASE("NaN in padded rows and in slots that nobody reads reaches nobody") {
  REQUIRE_GPU();
  for_each_record("mode=mtp B=6 T=2 H=1 HV=2 slots=padded", [](const Record& r) {
    const TensorMap clean = run(r);
    Record other = r;
    const Tensor& slots = r.inputs.at("state_indices");
    const std::int64_t pool = r.inputs.at("initial_state").shape()[0];
    std::vector<bool> read(static_cast<std::size_t>(pool), false);
    int padded = 0;
    for (std::int64_t b = 0; b < 6; ++b) {
      const auto slot = static_cast<std::int64_t>(slots[b]);
      if (slot >= 0) {
        read[static_cast<std::size_t>(slot)] = true;
        continue;
      }
      ++padded;
      for (const char* name : kTokens) overwrite(other.inputs.at(name), 6, b, b + 1, kNaN);
    }
    REQUIRE(padded > 0);
    for (std::int64_t p = 0; p < pool; ++p) {
      if (!read[static_cast<std::size_t>(p)]) {
        overwrite(other.inputs.at("initial_state"), pool, p, p + 1, kNaN);
      }
    }
    const TensorMap poisoned = run(other);
    CHECK(first_difference("o", clean.at("o").bytes(), poisoned.at("o").bytes()) == "");
    const std::size_t block =
        clean.at("final_state").bytes().size() / static_cast<std::size_t>(pool);
    for (std::size_t p = 0; p < read.size(); ++p) {
      if (!read[p]) continue;
      CHECK(first_difference("slot", clean.at("final_state").bytes().subspan(p * block, block),
                             poisoned.at("final_state").bytes().subspan(p * block, block)) == "");
    }
  });
}

TEST_CASE("an accepted count is a shorter call") {
  REQUIRE_GPU();
  for_each_record("mode=mtp B=4 T=6 H=1 HV=2 accepted=mixed", [](const Record& r) {
    const TensorMap whole = run(r);
    const Tensor& accepted = r.inputs.at("accepted_tokens");
    const std::size_t block = whole.at("final_state").bytes().size() /
                              static_cast<std::size_t>(whole.at("final_state").shape()[0]);
    for (std::int64_t b = 0; b < 4; ++b) {
      const auto n = static_cast<std::int64_t>(accepted[b]);
      if (n == 0) continue;
      const auto at = static_cast<std::size_t>(b), last = static_cast<std::size_t>(b * 6 + n - 1);
      CHECK(first_difference(
                "state", whole.at("final_state").bytes().subspan(at * block, block),
                whole.at("intermediate_states").bytes().subspan(last * block, block)) == "");
    }
  });
}

}  // namespace
}  // namespace goldenrule::test
