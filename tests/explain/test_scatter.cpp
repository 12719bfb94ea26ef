// SPDX-License-Identifier: Apache-2.0
//
// A mistake that amplifies roundings is named by how widely and where it errs, and not for errors
// of another size, another place or another kind.
#include <doctest/doctest.h>

#include <cmath>
#include <functional>

#include "fixtures/random/philox.hpp"
#include "reference/delta/mistakes/table.hpp"
#include "reference/delta/slice.hpp"
#include "reference/explain/scatter.hpp"
#include "reference/verdict/kernels.hpp"
#include "tests/explain/support.hpp"

namespace goldenrule::explain::test {
namespace {

// Keys of cosine .999, of which the fp16 powers of the inverse make errors of the size of o.
const std::string kRest = "mode=prefill lens=80,33 H=2 HV=4 K=64 V=32 gate=log h0=1 pattern=B999";
const std::string kCollinear = "op=kda " + kRest;
// beta up to 1.9: heavier tails.
const std::string kNegative = "op=gdn " + kRest + " beta=sigmoid2";
constexpr double kHalfUlp = 0x1p-8;  // of bf16, relative

const contract::Contract& contract() { return contract::find_contract("chunk64_bf16"); }

const Mistake& row(std::string_view name) {
  return *std::ranges::find(delta::mistakes(), name, &Mistake::name);
}

// What a kernel with the mistake returns whose own roundings of q, k and v are `roundings`.
TensorMap mistaken(const std::string& line, const Mistake& mistake, std::uint64_t roundings) {
  Record record = make_call(line);
  for (const char* name : {"q", "k", "v"}) {
    call::Tensor& t = record.inputs.at(name);
    const random::Stream stream(roundings, name);
    std::vector<double> x = t.to_doubles();
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] *= 1.0 + kHalfUlp * stream.uniform(static_cast<std::int64_t>(i), -1.0, 1.0);
    }
    t = call::Tensor(call::DType::kF64, t.shape(), x);
  }
  return mistake.commit(record, verdict::emulated_kernel(delta::slice(), contract(), 7));
}

// The errors of one row and head of such a kernel, and what the capture has in their place.
using Errors = std::vector<double>;
using Change = std::function<void(Errors& row)>;

Record capture_of(const std::string& line, const Mistake& mistake, std::uint64_t roundings,
                  const Change& change) {
  Record record = make_call(line);
  record.contract = contract().name;
  record.outputs = mistaken(line, mistake, roundings);
  const auto right = verdict::judgement(
      delta::slice(), record, {.contract = contract(), .precision = scalar::Precision::kDouble});
  for (auto& [name, t] : record.outputs) {
    const std::vector<double>& exact = right.expected.outputs.at(name).exact.golden;
    Errors errors(block_size(t.shape(), name));
    for (std::size_t first = 0; first < exact.size(); first += errors.size()) {
      for (std::size_t i = 0; i < errors.size(); ++i) {
        errors[i] = t[static_cast<std::int64_t>(first + i)] - exact[first + i];
      }
      change(errors);
      for (std::size_t i = 0; i < errors.size(); ++i) {
        t.set(static_cast<std::int64_t>(first + i), exact[first + i] + errors[i]);
      }
    }
  }
  record.outputs = calls::stored(record, contract(), record.outputs);
  return record;
}

ScatterMatch match(const std::string& line, const Mistake& mistake, std::uint64_t roundings,
                   const Change& change) {
  const Record record = capture_of(line, mistake, roundings, change);
  const auto judged = verdict::judgement(
      delta::slice(), record, {.contract = contract(), .precision = scalar::Precision::kDouble});
  CHECK(judged.report.verdict == verdict::Verdict::kOutOfBudget);
  const auto found = match_scatter(make_capture(judged), {&mistake});
  REQUIRE(found);
  return *found;
}

Change times(double factor) {
  return [factor](Errors& row) {
    for (double& e : row) e *= factor;
  };
}

TEST_CASE("scatter: errors as wide as those of the mistake, where it errs, are explained") {
  const ScatterMatch as_made = match(kCollinear, row("inverse_fp16_neumann"), 1, times(1));
  CHECK(as_made.explains());
  CHECK(as_made.ratio <= 1.0);
  // Here the mistaken state is larger than the right one, and the budget that grows with it keeps
  // the ratio below 1.
  CHECK(match(kNegative, row("inverse_fp16_neumann"), 3, times(1)).ratio <= 1.0);
  // The signs of such errors are those of the kernel's own roundings: they say nothing.
  CHECK(match(kCollinear, row("inverse_fp16_neumann"), 1, times(-1)).explains());
}

TEST_CASE("scatter: the diagnosis names the mistake and says how widely it errs") {
  const Record capture = capture_of(kCollinear, row("inverse_fp16_neumann"), 1, times(1));
  const Diagnosis d = diagnosis_of(capture, delta::mistakes());
  REQUIRE(!d.explanations.empty());
  CHECK(d.explanations[0].name() == "inverse_fp16_neumann");
  CHECK(d.explanations[0].explains);
  REQUIRE(d.explanations[0].width);
  CHECK(*d.explanations[0].width >= 0.25);
  CHECK(*d.explanations[0].width <= 4.0);
}

TEST_CASE("scatter: errors beyond the multiple are granted as far as one of the runs has them") {
  const ScatterMatch tail = match(kNegative, row("inverse_fp16_neumann"), 4, times(1));
  CHECK(tail.ratio > 1.0);
  CHECK(tail.ratio <= tail.allowed);
  CHECK(tail.explains());
}

TEST_CASE("scatter: a NaN that no run has is not explained") {
  int rows = 0;
  const ScatterMatch spoilt = match(kCollinear, row("inverse_fp16_neumann"), 1, [&](Errors& row) {
    if (rows++ == 20) row.front() = std::nan("");
  });
  CHECK(spoilt.errs_alike());
  CHECK(!spoilt.explains());
}

TEST_CASE("scatter: errors of another size are not explained") {
  // All are within what the mistake may do; but they are too small for it to have been made.
  const ScatterMatch small = match(kCollinear, row("inverse_fp16_neumann"), 1, times(0.05));
  CHECK(small.ratio <= 1.0);
  CHECK(small.width < 0.25);
  CHECK(!small.explains());
  CHECK(!match(kCollinear, row("inverse_fp16_neumann"), 1, times(20)).explains());
}

// The captures of honest kernels that are refused by a little: an error of a few budgets in a few
// elements has the width of any mistake of that size.
TEST_CASE("scatter: few errors, or errors hardly beyond the budget, identify no mistake") {
  const Mistake& neumann = row("inverse_fp16_neumann");
  const ScatterMatch made = match(kCollinear, neumann, 1, times(1));
  CHECK(made.farthest >= kFar);
  CHECK(made.number >= 0.25);
  CHECK(made.number <= 4.0);
  CHECK(made.blocks >= 50);
  CHECK(made.significance() >= kSignificant);

  // The errors of four rows and heads alone.
  int rows = 0;
  const ScatterMatch few = match(kCollinear, neumann, 1, [&](Errors& row) {
    double largest = 0.0;
    for (const double e : row) largest = std::max(largest, std::fabs(e));
    const bool kept = largest > 0.1 && rows < 4;
    rows += kept ? 1 : 0;
    if (!kept) row.assign(row.size(), 0.0);
  });
  CHECK(few.blocks <= 4);
  CHECK(!few.explains());

  // One element of each row and head.
  const ScatterMatch thin = match(kCollinear, neumann, 1, [&](Errors& row) {
    const auto largest = std::ranges::max_element(row, {}, [](double e) { return std::fabs(e); });
    for (double& e : row) e = &e == &*largest ? e : 0.0;
  });
  CHECK(thin.number < 0.25);
  CHECK(!thin.explains());

  ScatterMatch near = made;
  near.farthest = 8.2;
  CHECK(made.explains());
  CHECK(!near.explains());
}

TEST_CASE("scatter: errors elsewhere are not explained") {
  // Of one size, in some rows and heads in which the mistake errs, whatever it does in them.
  std::int64_t n = 0;
  const ScatterMatch elsewhere =
      match(kCollinear, row("inverse_fp16_neumann"), 1, [&](Errors& row) {
        double square = 0.0;
        for (const double e : row) square += e * e;
        const double rms = std::sqrt(square / static_cast<double>(row.size()));
        const double size = rms < 0.1 ? 0.0 : 0.2 * (1 + 0.2 * static_cast<double>(n++ % 3));
        for (std::size_t i = 0; i < row.size(); ++i) row[i] = i % 2 == 0 ? size : -size;
      });
  CHECK(elsewhere.ratio <= 1.0);
  CHECK(elsewhere.width >= 0.25);
  CHECK(elsewhere.profile < 0.5);
  CHECK(!elsewhere.explains());
}

TEST_CASE("scatter: errors in one sequence are not explained by a mistake in all") {
  const std::string line =
      "op=kda mode=prefill lens=80,80,80 H=2 HV=4 K=64 V=32 gate=log h0=1 "
      "pattern=B999";
  const Mistake& neumann = row("inverse_fp16_neumann");
  const ScatterMatch all = match(line, neumann, 1, times(1));
  CHECK(all.reach == 1.0);
  CHECK(all.explains());
  // Rows and heads of final_state come first, then those of o.
  constexpr int kStates = 3 * 4, kOfSequence = 80 * 4;
  int n = 0;
  const ScatterMatch one = match(line, neumann, 1, [&](Errors& row) {
    const int sequence = n < kStates ? n / 4 : (n - kStates) / kOfSequence;
    ++n;
    if (sequence != 1) row.assign(row.size(), 0.0);
  });
  CHECK(n == kStates + 3 * kOfSequence);
  CHECK(one.number >= 0.25);
  CHECK(one.profile >= 0.5);
  CHECK(one.reach < 0.5);
  CHECK(!one.explains());
}

TEST_CASE("scatter: errors that every run has alike must be predicted, not scattered") {
  // The mirror image of what a truncated inverse returns: as wide, and at the same places.
  const ScatterMatch mirrored = match(kCollinear, row("inverse_truncated"), 1, times(-1));
  CHECK(mirrored.ratio <= 1.0);
  CHECK(mirrored.common > 0.5);
  CHECK(!mirrored.explains());
  // Those of the states alone, beside rows of o that have but the roundings of a right kernel.
  const ScatterMatch states =
      match("op=gdn mode=prefill lens=9,9,9,9,9,9 H=1 HV=3 K=16 V=16 gate=log h0=1",
            row("tail_rows_permuted"), 1, times(-1));
  CHECK(states.common > 0.5);
  CHECK(!states.explains());
}

}  // namespace
}  // namespace goldenrule::explain::test
