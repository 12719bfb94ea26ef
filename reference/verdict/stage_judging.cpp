// SPDX-License-Identifier: Apache-2.0
#include "reference/verdict/stage_judging.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "fixtures/call/error.hpp"
#include "fixtures/call/widening.hpp"

namespace goldenrule::verdict {
namespace {

constexpr std::array kTiers{scalar::Precision::kDouble, scalar::Precision::kQuad,
                            scalar::Precision::kMulti};

}  // namespace

// Each in the type that its kernel stored it in, as far as that can be told (call/widening.hpp).
void StageJudging::undo_widening() {
  for (const auto& [name, tensor] : kernel_.tensors) {
    if (call::info(tensor.dtype()).bytes <= 2) continue;
    call::Tensor narrow = tensor;
    call::undo_widening(narrow, record_.inputs.at("v"));
    if (narrow.dtype() != tensor.dtype()) narrowed_[name] = std::move(narrow);
  }
}

// The stages of the kernel, nothing of them judged.
void StageJudging::begin() {
  judged_.clear();
  for (const StageRow& row : slice_->table()) {
    const std::string name(row.name);
    const auto given = kernel_.tensors.find(name);
    if (given == kernel_.tensors.end()) continue;
    const auto narrowed = narrowed_.find(name);
    const call::Tensor& tensor = narrowed == narrowed_.end() ? given->second : narrowed->second;
    const auto declared = kernel_.forms.find(name);
    Judged judged{.row = &row, .tensor = &tensor, .form = {}, .tally = Tally(name, tensor)};
    if (declared != kernel_.forms.end()) {
      judged.form = declared->second;
    } else if (!row.forms.empty()) {
      judged.form = row.forms.front().name;
      for (const StageForm& other : row.forms.subspan(1)) {
        judged.others.push_back({.form = &other, .tally = Tally(name, tensor)});
      }
    }
    judged_.push_back(std::move(judged));
  }
}

void StageJudging::judge(Expectations* outputs) {
  begin();
  std::map<std::string, call::DType> stored;
  std::vector<std::string> names;
  for (const Judged& judged : judged_) {
    names.emplace_back(judged.row->name);
    stored[names.back()] = judged.tensor->dtype();
  }
  places_.emplace(record_, report_.chunk);
  const scalar::Precision tier = kTiers[static_cast<std::size_t>(tier_++)];
  if (slice_->by_heads != nullptr) {
    slice_->by_heads(record_, contract_, stored, tier, outputs,
                     [&](StageHeads&& heads) { take(std::move(heads)); });
  } else {
    StageHeads all{.stages = slice_->evaluate(record_, report_.chunk, names, tier)};
    for (const Judged& judged : judged_) require_shape(all, judged);
    slice_->grant(record_, contract_, stored, all.stages);
    take(std::move(all));
  }
  bool decided = true;
  for (Judged& judged : judged_) {
    judged.report = finished(judged.tally, judged.axes);
    decided = decided && judged.report.undecided == 0 && judged.report.unbounded == 0;
  }
  is_open_ = !decided && static_cast<std::size_t>(tier_) < kTiers.size();
}

void StageJudging::take(StageHeads&& heads) {
  for (const Judged& judged : judged_) require_shape(heads, judged);
  for (Judged& judged : judged_) {
    const ExpectedStage stage = std::move(heads.stages.at(std::string(judged.row->name)));
    take(heads, stage, judged);
  }
}

call::Shape StageJudging::whole_shape(const StageHeads& heads, const ExpectedStage& stage) const {
  call::Shape shape = stage.expected.exact.shape;
  if (!heads.heads.empty()) shape[1] = record_.inputs.at("v").shape()[1];
  return shape;
}

ExpectedStage StageJudging::in_form(const Judged& judged, const ExpectedStage& stage) const {
  return slice_->in_form(record_, std::string(judged.row->name), judged.form, stage);
}

void StageJudging::require_shape(const StageHeads& heads, const Judged& judged) const {
  const std::string name(judged.row->name);
  const ExpectedStage& stage = heads.stages.at(name);
  ExpectedStage shape{.expected = {}, .axes = stage.axes};
  shape.expected.exact.shape = stage.expected.exact.shape;
  if (!judged.form.empty()) shape = in_form(judged, shape);
  const call::Shape whole = whole_shape(heads, shape);
  if (judged.tensor->shape() == whole) return;
  throw Error(ErrorKind::kShape, stage_path(name),
              call::to_string(whole) + " = " + std::string(judged.row->shape) + " in chunks of " +
                  std::to_string(report_.chunk),
              call::to_string(judged.tensor->shape()));
}

void StageJudging::take(const StageHeads& heads, const ExpectedStage& stage, Judged& judged) const {
  call::Tensor copied;
  if (!heads.heads.empty()) copied = heads_of(*judged.tensor, heads.heads);
  const call::Tensor& part = heads.heads.empty() ? *judged.tensor : copied;
  const bool is_first = judged.row->forms.empty() || judged.form == judged.row->forms.front().name;
  std::optional<ExpectedStage> other_form;
  if (!is_first) other_form = in_form(judged, stage);
  const ExpectedStage& in = is_first ? stage : *other_form;
  judged.axes = in.axes;
  const std::int64_t before = judged.tally.out_of_budget();
  judged.tally.add(part, heads.heads, in.expected, contract_);
  if (judged.tally.out_of_budget() > before) {
    judged.bad.add(*judged.row, part, heads.heads, in, contract_, *places_);
  }
  if (heads.last && judged.tally.out_of_budget() == 0) return;  // nobody asks for another form
  for (OtherForm& other : judged.others) {
    if (!other.is_right) continue;
    const ExpectedStage form =
        slice_->in_form(record_, std::string(judged.row->name), other.form->name, stage);
    other.is_right = whole_shape(heads, form) == judged.tensor->shape();
    if (!other.is_right) continue;
    other.axes = form.axes;
    other.tally.add(part, heads.heads, form.expected, contract_);
    other.is_right = other.tally.out_of_budget() == 0;
  }
}

TensorReport StageJudging::finished(const Tally& tally,
                                    const std::vector<std::string_view>& axes) const {
  TensorReport report = tally.finished(contract_);
  report.row_word = std::string(axes.front());
  if (report.worst) report.worst->coordinates = places_->named(axes, report.worst->index);
  if (!report.first_unjudged.empty()) {
    report.first_unjudged_at = places_->named(axes, report.first_unjudged);
  }
  return report;
}

// A stage that is bad in the first form, which nobody declared: the form in which it is right.
void StageJudging::look_for_form(Judged& judged) const {
  for (const OtherForm& other : judged.others) {
    if (!other.is_right || !is_pass(other.tally.finished(contract_).verdict)) continue;
    TensorReport& report = judged.report;
    report.verdict = Verdict::kSkipped;
    report.reason = "every element is right in the form '" + std::string(other.form->name) + "' (" +
                    std::string(other.form->meaning) +
                    "), which was not declared: if your kernel means that, declare it";
    report.out_of_budget = 0;
    report.failing_rows.clear();
    return;
  }
}

std::optional<BadStage> StageJudging::find_first_bad() const {
  std::optional<BadStage> first;
  StageWalk walk{};  // of the first
  for (const Judged& judged : judged_) {
    if (judged.report.verdict != Verdict::kOutOfBudget) continue;
    BadStage bad = judged.bad.first(*judged.row);
    if (judged.row->walk == StageWalk::kNone) return bad;  // in the order of the table
    if (first && (walk < judged.row->walk || bad.step >= first->step)) continue;
    walk = judged.row->walk;
    first = std::move(bad);
  }
  return first;
}

StagesReport StageJudging::report() {
  for (Judged& judged : judged_) {
    if (judged.report.verdict == Verdict::kOutOfBudget) look_for_form(judged);
  }
  report_.first_bad = find_first_bad();
  for (Judged& judged : judged_) {
    report_.stages.push_back({.tensor = std::move(judged.report),
                              .form = judged.form,
                              .formula = std::string(judged.row->formula),
                              .saved = judged.row->saved});
  }
  return std::move(report_);
}

}  // namespace goldenrule::verdict
