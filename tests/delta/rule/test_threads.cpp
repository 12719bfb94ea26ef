// SPDX-License-Identifier: Apache-2.0
//
// The oracle gives the same bits whatever the number of threads.
#include <doctest/doctest.h>
#include <omp.h>

#include <algorithm>
#include <bit>
#include <string>

#include "fixtures/cases/case.hpp"
#include "reference/delta/budget/grant.hpp"
#include "reference/delta/oracle/evaluate.hpp"
#include "reference/delta/oracle/stages.hpp"
#include "tests/threads.hpp"

using namespace goldenrule;

namespace {

template <class T>
bool same(const std::vector<T>& x, const std::vector<T>& y) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  return std::ranges::equal(
      x, y, [](T a, T b) { return std::bit_cast<Bits>(a) == std::bit_cast<Bits>(b); });
}

bool same(const verdict::Expectations& x, const verdict::Expectations& y) {
  return std::ranges::equal(x.outputs, y.outputs, [](const auto& a, const auto& b) {
    const verdict::Expected& p = a.second;
    const verdict::Expected& q = b.second;
    return a.first == b.first && p.exact.shape == q.exact.shape &&
           same(p.exact.golden, q.exact.golden) && same(p.exact.radius, q.exact.radius) &&
           same(p.grant.spread, q.grant.spread) && same(p.exact.reach, q.exact.reach) &&
           same(p.grant.sigma, q.grant.sigma) && same(p.grant.bias, q.grant.bias) &&
           p.exact.undefined == q.exact.undefined;
  });
}

constexpr std::initializer_list<const char*> kLines{
    "op=gdn mode=prefill lens=33,0,70,1 H=2 HV=4 K=32 V=40 gate=log h0=1",
    "op=kda mode=prefill lens=33,0,20 H=1 HV=3 K=32 V=33 gate=bounded",
    "op=gdn mode=mtp B=5 T=4 H=1 HV=2 K=32 V=40 slots=padded accepted=mixed",
    "op=kda mode=decode B=7 H=2 HV=4 K=32 V=33 slots=separate_padded"};

#if defined(__SANITIZE_THREAD__)
constexpr std::initializer_list<int> kThreads{3};  // races do not wait for the right number
#else
constexpr std::initializer_list<int> kThreads{2, 3, 7};
#endif

verdict::Expectations expected(const call::Record& record, scalar::Precision precision) {
  verdict::Expectations e = delta::evaluate(record, precision);
  delta::grant(record, contract::find_contract("recurrent_f32"), verdict::GrantDetail::kTerms, e);
  return e;
}

}  // namespace

TEST_CASE("threads: goldens, radii and spreads do not depend on their number") {
  const test::RestoreThreads restore;
  for (const char* line : kLines) {
    const call::Record record = cases::make_record(cases::parse(line));
    for (const auto precision :
         {scalar::Precision::kDouble, scalar::Precision::kQuad, scalar::Precision::kMulti}) {
      CAPTURE(line);
      CAPTURE(scalar::name_of(precision));
      omp_set_num_threads(1);
      const verdict::Expectations one = expected(record, precision);
      CHECK(same(one, one));
      for (const int threads : kThreads) {
        omp_set_num_threads(threads);
        CHECK(same(expected(record, precision), one));
      }
    }
  }
}

TEST_CASE("threads: nor do the stages") {
  const test::RestoreThreads restore;
  const call::Record record = cases::make_record(cases::parse(kLines.begin()[0]));
  omp_set_num_threads(1);
  const call::TensorMap one = delta::chunk_stages(record, 16);
  omp_set_num_threads(5);
  const call::TensorMap five = delta::chunk_stages(record, 16);
  for (const auto& [name, tensor] : one) {
    CAPTURE(name);
    CHECK(std::ranges::equal(tensor.bytes(), five.at(name).bytes()));
  }
}
