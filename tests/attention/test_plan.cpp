// SPDX-License-Identifier: Apache-2.0
//
// What a plan makes of the integers of a call, and what it refuses. The visible sets are compared
// with the definition, key by key: no range, no run.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <set>
#include <string>

#include "fixtures/call/integer_inputs.hpp"
#include "reference/attention/plan/plan.hpp"
#include "tests/attention/problems.hpp"

using namespace goldenrule;
using namespace goldenrule::attention;

namespace {

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
}

// The definition of V(i), in the words of fixtures/call/attention_operation.cpp.
bool sees(const call::Convention& a, std::int64_t origin, std::int64_t t, std::int64_t t_q) {
  if (a.window_left >= 0 && t_q - t > a.window_left) return false;
  if (a.window_right >= 0 && t - t_q > a.window_right) return false;
  const std::int64_t base = a.block_base == BlockBase::kSegment ? origin : 0;
  switch (a.mask) {
    case Mask::kCausal:
      return t <= t_q;
    case Mask::kBlockCausal:
      return floor_divide(t - base, a.block) <= floor_divide(t_q - base, a.block);
    default:
      return true;
  }
}

// One request with two cached pages and three fresh tokens.
call::Record good_call() {
  call::Record call;
  call.op = call::Op::kAttention;
  auto& in = call.inputs;
  const auto zeros = [](const call::Shape& shape) {
    return call::Tensor(call::DType::kBF16, shape);
  };
  in["q"] = zeros({3, 4, 8});
  in["cu_seqlens_q"] = call::integer_tensor({0, 3});
  in["k"] = zeros({3, 2, 8});
  in["v"] = zeros({3, 2, 6});
  in["cu_seqlens_k"] = call::integer_tensor({0, 3});
  in["k_cache"] = zeros({5, 4, 2, 8});
  in["v_cache"] = zeros({5, 4, 2, 6});
  in["kv_lens"] = call::integer_tensor({7});
  in["page_table"] = call::integer_tensor({3, 1, -1}, {1, 3});
  return call;
}

std::string refusal(const std::function<void(call::Record&)>& change) {
  call::Record call = good_call();
  change(call);
  try {
    (void)make_plan(call);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The refusal names `where` and says `words`.
void refuses(const std::function<void(call::Record&)>& change, const std::string& where,
             const std::string& words) {
  const std::string what = refusal(change);
  CAPTURE(what);
  CHECK(what.find(where) != std::string::npos);
  CHECK(what.find(words) != std::string::npos);
}

std::function<void(call::Record&)> with(const char* name, const call::Integers& values,
                                        const call::Shape& shape = {}) {
  return [=](call::Record& call) {
    call.inputs[name] =
        call::integer_tensor(values, shape.empty() ? call::Shape{std::ssize(values)} : shape);
  };
}

}  // namespace

TEST_CASE("attention: ranges and runs are the visible sets of the definition") {
  std::int64_t keys = 0;
  std::int64_t empty = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    const call::Record call = random_problem(Pattern::kRandom, call::DType::kBF16, seed);
    const Plan plan = make_plan(call);
    const auto& a = call.convention;
    const auto kv = call::integers(call, "kv_lens");
    const auto cu_k = call::integers(call, "cu_seqlens_k");
    const auto table = call::integers(call, "page_table");
    for (std::size_t n = 0; n < plan.requests.size(); ++n) {
      const Request& request = plan.requests[n];
      const std::int64_t cached = kv ? (*kv)[n] : 0;
      const std::int64_t fresh = cu_k ? (*cu_k)[n + 1] - (*cu_k)[n] : 0;
      const bool in_cache = a.block_kv == BlockKv::kInCache;
      const std::int64_t offset = in_cache ? cached - request.queries : cached;
      CHECK(request.offset == offset);
      for (std::int64_t i = 0; i < request.valid; ++i) {
        std::set<std::int64_t> expected;
        for (std::int64_t t = 0; t < cached + fresh; ++t) {
          const bool brought = in_cache ? t < cached : t >= cached;
          const bool padding =
              brought && t >= offset + request.valid && t < offset + request.queries;
          const bool hole =
              table && t < cached &&
              (*table)[n * static_cast<std::size_t>(call.inputs.at("page_table").shape()[1]) +
                       static_cast<std::size_t>(t / plan.dims.page_size)] < 0;
          if (!padding && !hole && sees(a, offset, t, offset + i)) expected.insert(t);
        }
        std::set<std::int64_t> found;
        for (const Run& run : request.runs) {
          for (std::int64_t j = 0; j < run.count; ++j) {
            const std::int64_t t = run.t + j;
            if (request.visible[static_cast<std::size_t>(i)].contains(t)) found.insert(t);
          }
        }
        CHECK(found == expected);
        keys += std::ssize(found);
        if (found.empty()) ++empty;
      }
    }
  }
  MESSAGE(keys << " visible keys, " << empty << " rows without any");
  CHECK(empty > 20);
}

TEST_CASE("attention: a plan reads of a table what kv_lens needs") {
  call::Record call = good_call();
  const Plan plan = make_plan(call);
  REQUIRE(plan.requests.size() == 1);
  REQUIRE(plan.requests[0].runs.size() == 3);
  CHECK(plan.requests[0].runs[0].row == 12);
  CHECK(plan.requests[0].runs[1].row == 4);
  CHECK(plan.requests[0].runs[1].count == 3);
  CHECK(plan.requests[0].runs[2].source == Source::kFresh);
  CHECK(plan.requests[0].runs[2].t == 7);
  CHECK(plan.requests[0].offset == 7);
  with("page_table", {3, 1, 999999}, {1, 3})(call);  // behind kv_lens
  CHECK(make_plan(call).requests[0].key_count() == 10);
}

TEST_CASE("attention: bad integers are refused with what was expected and what is there") {
  CHECK(refusal([](call::Record&) {}).empty());
  refuses(with("page_table", {3, 5, -1}, {1, 3}), "/inputs/page_table[1]", "0 to 4");
  refuses(with("page_table", {3, -1, -1}, {1, 3}), "/inputs/page_table[1]", "-1");
  refuses(with("page_table", {3, -2, -1}, {1, 3}), "/inputs/page_table[1]", "-2");
  refuses(with("kv_lens", {13}), "/inputs/kv_lens[0]", "at most 3 pages of 4");
  refuses(with("kv_lens", {-1}), "/inputs/kv_lens[0]", "-1");
  refuses(with("kv_lens", {std::int64_t{1} << 60}), "/inputs/kv_lens[0]", "0 to 4194304");
  refuses(with("kv_lens", {7, 7}), "/inputs/kv_lens", "[1]");
  refuses(with("cu_seqlens_q", {0, 4}), "/inputs/cu_seqlens_q[1]", "4");
  refuses(with("cu_seqlens_q", {1, 3}), "/inputs/cu_seqlens_q[0]", "1");
  refuses(with("cu_seqlens_k", {0, 2}), "/inputs/cu_seqlens_k[1]", "3, the rows of k");
  refuses(with("cu_seqlens_k", {0, 3, 3}), "/inputs/cu_seqlens_k", "[2]");
  refuses(with("valid_q", {4}), "/inputs/valid_q[0]", "0 to 3");
  refuses(with("q_offset", {std::int64_t{1} << 40}), "/inputs/q_offset[0]", "1099511627776");
  refuses(with("last_page_len", {4}), "/inputs/last_page_len[0]", "3, from kv_lens=7");
  refuses(with("page_indptr", {0, 2}), "/inputs/page_indices", "none");
  const auto csr = [](const call::Integers& indptr, const call::Integers& indices) {
    return [=](call::Record& call) {
      call.inputs.erase("page_table");
      with("page_indptr", indptr)(call);
      with("page_indices", indices)(call);
    };
  };
  CHECK(refusal(csr({0, 2}, {3, 1})).empty());
  refuses(csr({0, 3}, {3, 1}), "/inputs/page_indptr[1]", "0 to 2");
  refuses(csr({0, 1}, {3, 1}), "/inputs/kv_lens[0]", "at most 1 pages");
  refuses(csr({0, 2}, {3, -1}), "/inputs/page_indices[1]", "-1");
}

TEST_CASE("attention: lengths that do not ascend are refused") {
  call::Record call = good_call();
  call.mode = call::Mode::kPrefill;
  call.inputs.erase("k_cache");
  call.inputs.erase("v_cache");
  call.inputs.erase("kv_lens");
  call.inputs.erase("page_table");
  with("cu_seqlens_q", {0, 3, 3})(call);
  with("cu_seqlens_k", {0, 5, 3})(call);
  CHECK_THROWS_WITH_AS((void)make_plan(call), doctest::Contains("/inputs/cu_seqlens_k[1]"), Error);
  with("cu_seqlens_k", {0, 3, 2})(call);
  CHECK_THROWS_WITH_AS((void)make_plan(call), doctest::Contains("3 to 3"), Error);
}

TEST_CASE("attention: bad tensors and attributes are refused") {
  const auto tensor = [](const char* name, const call::Shape& shape,
                         call::DType type = call::DType::kBF16) {
    return [=](call::Record& call) { call.inputs[name] = call::Tensor(type, shape); };
  };
  refuses(tensor("q", {3, 3, 8}), "/inputs/q", "HV=3");
  refuses(tensor("q", {3, 4, 9}), "/inputs/k", "[3,2,9]");
  refuses(tensor("q", {3, 32}), "/inputs/q", "rank 3");
  refuses(tensor("v_cache", {5, 4, 2, 7}), "/inputs/v_cache", "[5,4,2,6]");
  refuses(tensor("k_cache", {5, 2, 4, 8}), "/inputs/k_cache", "[5,2,2,8]");
  refuses(tensor("kv_lens", {1}), "/inputs/kv_lens", "i32 or i64");
  refuses(tensor("q", {3, 4, 8}, call::DType::kI32), "/inputs/q", "a floating-point dataset");
  refuses(tensor("cu_seqlens_q", {0}, call::DType::kI32), "/inputs/cu_seqlens_q", "[N+1]");
  refuses(tensor("sinks", {4}), "/inputs/sinks", "ignored");
  refuses([](call::Record& c) { c.inputs.erase("v"); }, "/inputs/v", "none");
  refuses([](call::Record& c) { c.inputs.erase("page_table"); }, "/inputs/page_table", "none");
  refuses([](call::Record& c) { c.convention.block_kv = BlockKv::kInCache; },
          "/inputs/cu_seqlens_k", "ignored");
  refuses([](call::Record& c) { c.mode = call::Mode::kMtp; }, "/@mode", "'mtp'");
  refuses([](call::Record& c) { c.mode = call::Mode::kPrefill; }, "/inputs/k_cache", "ignored");
  refuses(with("key_positions", {1, 2}), "/inputs/key_positions", "[3]");
  refuses(with("visible_first", {0, 0, 0}), "/inputs/visible_last", "none");
  refuses([](call::Record& c) { c.convention.block = 0; }, "/convention@block", "0");
  refuses([](call::Record& c) { c.convention.window_left = -2; }, "/convention@window_left", "-2");
  refuses([](call::Record& c) { c.convention.soft_cap = -1.0; }, "/convention@soft_cap",
          "at least 0");
  refuses([](call::Record& c) { c.convention.scale = NAN; }, "/convention@scale", "finite");
}

TEST_CASE("attention: an extent that no element backs allocates nothing") {
  call::Record call;
  call.op = call::Op::kAttention;
  call.mode = call::Mode::kPrefill;
  auto& in = call.inputs;
  constexpr std::int64_t kHuge = std::int64_t{1} << 50;
  in["q"] = call::Tensor(call::DType::kF32, {1, 1, 1});
  in["cu_seqlens_q"] = call::integer_tensor({0, 1});
  in["cu_seqlens_k"] = call::integer_tensor({0, 0});
  in["k"] = call::Tensor(call::DType::kF32, {0, 1, 1});
  in["v"] = call::Tensor(call::DType::kF32, {0, 1, kHuge});
  CHECK_THROWS_WITH_AS((void)make_plan(call), doctest::Contains("V of 1 to 1024"), Error);
  in["v"] = call::Tensor(call::DType::kF32, {0, 1, 1});
  in["q"] = call::Tensor(call::DType::kF32, {0, kHuge, 1});
  CHECK_THROWS_WITH_AS((void)make_plan(call), doctest::Contains("HV of 1 to 65536"), Error);
}
