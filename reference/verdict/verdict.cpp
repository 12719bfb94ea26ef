// SPDX-License-Identifier: Apache-2.0
#include "reference/verdict/verdict.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fixtures/call/error.hpp"
#include "reference/verdict/budget.hpp"

namespace goldenrule::verdict {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

int ulp_bucket(double ulps) {
  if (ulps <= 0.5) return 0;
  const int bucket = 1 + std::max(0, static_cast<int>(std::ceil(std::log2(ulps))));
  return std::min(bucket, kUlpBuckets - 1);
}

// Sums over a tensor while its elements are compared.
struct Sums {
  double error2 = 0.0, golden2 = 0.0, signed_error = 0.0, absolute_error = 0.0;
  bool all_exact = true, all_zero = true, golden_zero = true;
  double signal2 = 0.0, budget2 = 0.0;  // over the blocks that the rule computes
  bool computed = false;                // some block is computed by the rule
  bool computed_zero = true;            // all exact values there are 0
};

// The sums of squares of one row and head.
struct BlockSums {
  double golden2 = 0.0, scale2 = 0.0, budget2 = 0.0, spread2 = 0.0;
  std::int64_t count = 0;
};

class Comparison {
 public:
  Comparison(TensorReport& report, const call::Tensor& output, const oracle::Expected& expected,
             const Budget& budget)
      : report_(report), output_(output), expected_(expected), budget_(budget) {
    ratios_.reserve(static_cast<std::size_t>(output.size()));
  }

  void run() {
    const std::int64_t leading = report_.shape.empty() ? 1 : report_.shape.front();
    slice_ = leading == 0 ? 1 : std::max<std::int64_t>(output_.size() / leading, 1);
    const std::int64_t row =
        report_.shape.empty() ? 1 : std::max<std::int64_t>(report_.shape.back(), 1);
    const auto block = static_cast<std::int64_t>(expected_.block);
    std::int64_t nan_in_row = 0;
    for (std::int64_t i = 0; i < output_.size(); ++i) {
      if (i % row == 0) nan_in_row = 0;
      if (i % block == 0) block_ = {};
      const double y = output_[i];
      if (visit(i, y) && std::isnan(y) && ++nan_in_row == row) report_.unwritten += row;
      if ((i + 1) % block == 0) finish_block(i);
    }
    finish();
  }

  [[nodiscard]] const Sums& sums() const { return sums_; }

 private:
  // Whether the element has a finite expectation to be compared with.
  bool visit(std::int64_t i, double y) {
    const auto at = static_cast<std::size_t>(i);
    if (!expected_.undefined.empty() && expected_.undefined[at]) {
      ++report_.undefined;
      return false;
    }
    const double golden = expected_.golden[at];
    const double budget = std::isfinite(golden) ? budget_(at) : 0.0;
    if (!is_bounded(expected_, at, budget)) {
      ++report_.unbounded;
      note_unjudged(i);
      return false;
    }
    if (!std::isfinite(golden)) {
      ++report_.nonfinite;
      if (std::isfinite(y)) fail(i, y, golden, budget);
      return false;
    }
    ++report_.compared;
    add_to_block(at, golden, budget);
    if (std::isfinite(y)) {
      compare(i, y, golden, budget);
      return true;
    }
    if (std::isnan(y)) {
      ++report_.nan;
      ++findings(i).nan;
    } else {
      ++report_.inf;
    }
    fail(i, y, golden, budget);
    return true;
  }

  void note_unjudged(std::int64_t i) {
    if (report_.first_unjudged.empty()) report_.first_unjudged = call::unravel(report_.shape, i);
  }

  // A finite value where none may be, or the reverse: an infinite ratio.
  void fail(std::int64_t i, double y, double golden, double budget) {
    ++report_.out_of_budget;
    ++findings(i).out_of_budget;
    sums_.all_exact = false;
    sums_.all_zero = false;
    if (report_.max_ratio < kInfinity) {
      report_.max_ratio = kInfinity;
      report_.worst = Worst{call::unravel(report_.shape, i), y,      golden,
                            std::fabs(y - golden),           budget, kInfinity};
    }
  }

  RowFindings& findings(std::int64_t i) {
    const std::int64_t row = i / slice_;
    auto& rows = report_.failing_rows;  // elements come in order, so only the last can match
    if (rows.empty() || rows.back().row != row)
      rows.push_back({.row = row, .out_of_budget = 0, .nan = 0, .elements = slice_});
    return rows.back();
  }

  void add_to_block(std::size_t at, double golden, double budget) {
    ++block_.count;
    block_.golden2 += golden * golden;
    block_.budget2 += budget * budget;
    const double spread = budget_.spread(at);
    block_.spread2 += spread * spread;
    if (expected_.scale.empty()) return;
    const auto scale = static_cast<double>(expected_.scale[at]);
    if (std::isfinite(scale)) block_.scale2 += scale * scale;
  }

  // `last` is the last element of the block.
  void finish_block(std::int64_t last) {
    const std::size_t block = static_cast<std::size_t>(last) / expected_.block;
    if (!budget_.given() || block_.count == 0 ||
        (!expected_.touched.empty() && expected_.touched[block] != oracle::Touch::kComputed)) {
      return;
    }
    sums_.computed = true;
    sums_.computed_zero = sums_.computed_zero && block_.golden2 == 0.0;
    const double signal2 = std::max(block_.golden2, block_.scale2);
    sums_.signal2 += signal2;
    sums_.budget2 += block_.budget2;
    // Below what fp32 can hold every kernel returns 0, and no budget can tell it from another.
    const double flushed2 =
        static_cast<double>(block_.count) * expected_.flushed * expected_.flushed;
    if (block_.spread2 <= flushed2 || block_.spread2 < signal2) return;
    ++report_.vacuous;
    note_unjudged(last + 1 - static_cast<std::int64_t>(expected_.block));
  }

  void compare(std::int64_t i, double y, double golden, double budget) {
    const auto at = static_cast<std::size_t>(i);
    const double error = std::fabs(y - golden);
    const double radius = static_cast<double>(expected_.radius[at]);
    const double spacing = call::ulp(report_.dtype, golden);
    sums_.error2 += error * error;
    sums_.golden2 += golden * golden;
    sums_.signed_error += y - golden;
    sums_.absolute_error += error;
    sums_.all_exact = sums_.all_exact && y == call::round_to(report_.dtype, golden);
    sums_.all_zero = sums_.all_zero && y == 0.0;
    sums_.golden_zero = sums_.golden_zero && golden == 0.0;
    ++report_.ulp_histogram[static_cast<std::size_t>(ulp_bucket(error / spacing))];
    report_.max_abs = std::max(report_.max_abs, error);
    if (!passes(y, expected_, at, budget)) {
      ++report_.out_of_budget;
      ++findings(i).out_of_budget;
    } else if (error > budget) {
      ++report_.undecided;
      note_unjudged(i);
    }
    // Without a budget the worst element is the one with the largest error.
    const double ratio = budget_.given() ? std::max(error - radius, 0.0) / budget : error;
    ratios_.push_back(static_cast<float>(ratio));
    if (!report_.worst || ratio > report_.max_ratio) {
      report_.max_ratio = ratio;
      report_.worst =
          Worst{call::unravel(report_.shape, i), y, golden, error, budget, error / spacing};
    }
  }

  void finish() {
    if (sums_.golden2 > 0.0) report_.rms_rel = std::sqrt(sums_.error2 / sums_.golden2);
    if (sums_.absolute_error > 0.0) report_.bias = sums_.signed_error / sums_.absolute_error;
    if (ratios_.empty()) return;
    const auto middle = ratios_.begin() + static_cast<std::ptrdiff_t>(ratios_.size() / 2);
    std::nth_element(ratios_.begin(), middle, ratios_.end());
    report_.median_ratio = static_cast<double>(*middle);
  }

  TensorReport& report_;
  const call::Tensor& output_;
  const oracle::Expected& expected_;
  const Budget& budget_;
  Sums sums_;
  BlockSums block_;
  std::int64_t slice_ = 1;  // elements of one index of the leading axis
  std::vector<float> ratios_;
};

void set(TensorReport& report, Verdict verdict, std::string reason) {
  report.verdict = verdict;
  report.reason = std::move(reason);
}

std::string elements(std::int64_t n) {
  return std::to_string(n) + (n == 1 ? " element" : " elements");
}

// Failures first: they are certain whatever else could not be judged.
void decide(TensorReport& report, const Sums& sums) {
  if (report.out_of_budget > 0) {
    report.verdict = Verdict::kOutOfBudget;
  } else if (report.unbounded > 0) {
    set(report, Verdict::kError,
        elements(report.unbounded) +
            " without a finite expectation, radius or budget, though the inputs are finite: the "
            "oracle cannot bound them");
  } else if (report.compared == 0) {
    set(report, Verdict::kSkipped,
        report.nonfinite > 0 ? "no expectation is finite: there is nothing to compare"
                             : "no element to compare");
  } else if (report.undecided > 0) {
    set(report, Verdict::kMistrusted,
        elements(report.undecided) + " within the oracle's own radius only");
  } else if (sums.all_zero && !sums.golden_zero) {
    set(report, Verdict::kMistrusted, "every output is zero, the exact result is not");
  } else if (sums.computed && sums.computed_zero) {
    set(report, Verdict::kMistrusted,
        "every exact value that the rule computes is 0: a kernel that does nothing passes as well");
  } else if (report.vacuous > 0) {
    set(report, Verdict::kMistrusted,
        "what the contract grants is as large as the signal in " + std::to_string(report.vacuous) +
            (report.vacuous == 1 ? " row and head" : " rows and heads"));
  } else if (sums.computed && sums.budget2 >= sums.signal2) {
    set(report, Verdict::kMistrusted, "the budget is as large as the signal");
  } else {
    report.verdict = sums.all_exact ? Verdict::kExact : Verdict::kWithinBudget;
  }
}

// Errors stay in the report; whatever was measured against a budget is taken out of it.
void withhold_verdict(TensorReport& report, const bounds::Contract& contract) {
  if (report.compared > 0) {
    report.reason = "contract " + contract.name +
                    " gives no budget for this tensor: errors are reported, no verdict is given";
  }
  report.verdict = Verdict::kSkipped;
  report.out_of_budget = 0;
  report.undecided = 0;
  report.unbounded = 0;
  report.vacuous = 0;
  report.first_unjudged.clear();
  report.failing_rows.clear();
  report.max_ratio = std::numeric_limits<double>::quiet_NaN();
  report.median_ratio = std::numeric_limits<double>::quiet_NaN();
  if (report.worst) report.worst->budget = std::numeric_limits<double>::quiet_NaN();
}

std::int64_t count_nonfinite(const call::Record& record) {
  std::int64_t count = 0;
  for (const auto& [name, tensor] : record.inputs) {
    if (!call::info(tensor.dtype()).is_float) continue;
    for (std::int64_t i = 0; i < tensor.size(); ++i) count += std::isfinite(tensor[i]) ? 0 : 1;
  }
  return count;
}

oracle::Evaluation expectations(const call::Record& record, const bounds::Contract& contract,
                                scalar::Precision precision) {
  return oracle::evaluate(record, precision,
                          {.certify = true,
                           .contract = &contract,
                           .intermediate_states = record.outputs.contains("intermediate_states")});
}

CaseReport judge_all(const call::Record& record, const bounds::Contract& contract,
                     const oracle::Evaluation& evaluation, int precision_bits) {
  CaseReport report;
  report.contract = contract.name;
  report.precision_bits = precision_bits;
  std::vector<Verdict> verdicts;
  for (const auto& [name, tensor] : record.outputs) {
    report.tensors.push_back(judge(name, tensor, evaluation.outputs.at(name), contract));
    verdicts.push_back(report.tensors.back().verdict);
  }
  report.verdict = combine(verdicts);
  return report;
}

Judgement judge_at(const call::Record& record, const bounds::Contract& contract,
                   scalar::Precision precision) {
  Judgement result{.report = {}, .evaluation = expectations(record, contract, precision)};
  result.report = judge_all(record, contract, result.evaluation, oracle::bits_of(precision));
  return result;
}

std::vector<std::string> produced_outputs(const call::Record& record) {
  std::vector<std::string> names{"o"};
  if (record.convention.disable_state_update == 0) names.emplace_back("final_state");
  return names;
}

bool applies_rule(const oracle::Evaluation& evaluation) {
  return std::ranges::any_of(evaluation.outputs, [](const auto& item) {
    const std::vector<oracle::Touch>& touched = item.second.touched;
    return std::ranges::find(touched, oracle::Touch::kComputed) != touched.end();
  });
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// What the call says of the whole, and the file's reason: that of its first tensor with the file's
// verdict.
void conclude(CaseReport& report, const call::Record& record, const oracle::Evaluation& evaluation,
              const std::vector<std::string>& wanted) {
  report.nonfinite_inputs = count_nonfinite(record);
  for (const std::string& name : wanted.empty() ? produced_outputs(record) : wanted) {
    if (!record.outputs.contains(name)) report.absent.push_back(name);
  }
  const bool passes = report.verdict == Verdict::kExact || report.verdict == Verdict::kWithinBudget;
  if (record.outputs.empty()) {
    report.reason = "no tensor under /outputs";
  } else if ((passes || report.verdict == Verdict::kSkipped) && !applies_rule(evaluation)) {
    report.verdict = Verdict::kSkipped;
    report.reason = "the call applies the rule to no token";
  } else if (passes && !report.absent.empty()) {
    report.verdict = Verdict::kSkipped;
    report.reason = "not among the outputs: " + listed(report.absent) +
                    " (if nothing more is wanted, name what is: --only)";
  }
  for (const TensorReport& t : report.tensors) {
    if (t.verdict == report.verdict && !t.reason.empty() && report.reason.empty()) {
      report.reason = t.name + ": " + t.reason;
    }
  }
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kExact:
      return "EXACT";
    case Verdict::kWithinBudget:
      return "WITHIN_BUDGET";
    case Verdict::kOutOfBudget:
      return "OUT_OF_BUDGET";
    case Verdict::kMistrusted:
      return "MISTRUSTED";
    case Verdict::kSkipped:
      return "SKIPPED";
    case Verdict::kError:
      return "ERROR";
  }
  return "";
}

TensorReport judge(const std::string& name, const call::Tensor& output,
                   const oracle::Expected& expected, const bounds::Contract& contract) {
  if (output.shape() != expected.shape) {
    throw Error(ErrorKind::kShape, "/outputs/" + name, call::to_string(expected.shape),
                call::to_string(output.shape()));
  }
  TensorReport report;
  report.name = name;
  report.dtype = output.dtype();
  report.shape = output.shape();
  const Budget budget(name, output.dtype(), expected, contract);
  Comparison comparison(report, output, expected, budget);
  comparison.run();
  decide(report, comparison.sums());
  if (!budget.given()) withhold_verdict(report, contract);
  return report;
}

Judgement judgement(const call::Record& record, const bounds::Contract& contract,
                    std::optional<scalar::Precision> precision,
                    const std::vector<std::string>& wanted) {
  using scalar::Precision;
  constexpr std::array kTiers{Precision::kDouble, Precision::kQuad, Precision::kMulti};
  Judgement result;
  if (precision) {
    result = judge_at(record, contract, *precision);
  } else {
    for (const Precision tier : kTiers) {
      result = judge_at(record, contract, tier);
      const bool decided = std::ranges::all_of(result.report.tensors, [](const TensorReport& t) {
        return t.undecided == 0 && t.unbounded == 0;
      });
      if (decided) break;
    }
  }
  conclude(result.report, record, result.evaluation, wanted);
  return result;
}

CaseReport judge_record(const call::Record& record, const bounds::Contract& contract,
                        std::optional<scalar::Precision> precision) {
  return judgement(record, contract, precision).report;
}

Verdict combine(const std::vector<Verdict>& parts) {
  for (const Verdict dominant : {Verdict::kOutOfBudget, Verdict::kError, Verdict::kMistrusted,
                                 Verdict::kSkipped, Verdict::kWithinBudget, Verdict::kExact}) {
    if (std::ranges::find(parts, dominant) != parts.end()) return dominant;
  }
  return Verdict::kSkipped;
}

}  // namespace goldenrule::verdict
