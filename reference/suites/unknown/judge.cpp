// SPDX-License-Identifier: Apache-2.0
#include "reference/suites/unknown/judge.hpp"

#include <algorithm>
#include <span>

#include "reference/explain/match.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::suites {
namespace {

using explain::Diagnosis;
using explain::Explanation;
using explain::Hypothesis;

explain::Prediction prediction_of(const call::TensorMap& outputs) {
  explain::Prediction prediction;
  for (const auto& [name, tensor] : outputs) {
    prediction.outputs[name].value = tensor.to_doubles();
  }
  return prediction;
}

// What names may mean: rows of one name are ways to make one mistake.
std::vector<Hypothesis> hypotheses_of(const verdict::Slice& slice, const Explanation& e) {
  std::vector<Hypothesis> found{{}};
  for (const std::string& name : e.mistakes) {
    std::vector<Hypothesis> longer;
    const auto add = [&](std::span<const calls::Mistake> mistakes) {
      for (const calls::Mistake& m : mistakes) {
        if (m.name != name) continue;
        for (Hypothesis h : found) {
          h.push_back(&m);
          longer.push_back(std::move(h));
        }
      }
    };
    add(slice.mistakes());
    if (slice.generated != nullptr) add(slice.generated());
    found = std::move(longer);
  }
  return found;
}

bool is_called(const Explanation& e, const std::vector<std::string>& names) {
  if (std::ranges::is_permutation(e.mistakes, names)) return true;
  if (names.size() == 1) return std::ranges::find(e.same, names[0]) != e.same.end();
  return std::ranges::any_of(e.same, [&](const std::string& same) {
    return same == names[0] + " + " + names[1] || same == names[1] + " + " + names[0];
  });
}

bool is_right_name(const Draw& draw, const explain::Matcher& matcher,
                   const explain::Capture& capture, const Explanation& e) {
  if (!e.where.empty()) {
    return std::ranges::is_permutation(e.where, draw.where) && is_called(e, draw.names);
  }
  const explain::Prediction planted = prediction_of(draw.exact);
  const explain::Predictor predictor(capture);
  return std::ranges::any_of(hypotheses_of(*draw.slice, e), [&](const Hypothesis& h) {
    const auto named = predictor.predict(h, explain::SpreadBy::kScaling);
    return named && matcher.same_outputs(*named, planted);
  });
}

bool has_all(const std::string& text, const std::vector<std::string>& words) {
  return !words.empty() && std::ranges::all_of(words, [&](const std::string& w) {
    return text.find(w) != std::string::npos;
  });
}

bool says_planted(const Draw& draw, const Diagnosis& d) {
  return has_all(d.pattern, draw.pattern) ||
         std::ranges::any_of(d.found,
                             [&](const std::string& text) { return has_all(text, draw.words); });
}

bool is_hidden(const Draw& draw, const explain::Capture& capture) {
  const explain::Matcher matcher(capture);
  const explain::Prediction planted = prediction_of(draw.exact);
  if (matcher.same_outputs(matcher.right_call(), planted, 1.0)) return true;
  return std::ranges::any_of(draw.parts, [&](const call::TensorMap& part) {
    return matcher.same_outputs(prediction_of(part), planted, 1.0);
  });
}

verdict::Judgement judgement_of(const Draw& draw) {
  call::Record record = draw.call;
  record.outputs = draw.made;
  record.contract = draw.contract->name;
  return verdict::judgement(*draw.slice, record,
                            {.contract = *draw.contract, .precision = scalar::Precision::kDouble});
}

bool is_named(const Diagnosis& d) {
  return !d.explanations.empty() && d.explanations.front().explains;
}

std::string first_said(const Diagnosis& d) {
  if (is_named(d)) return d.explanations.front().name_and_place();
  std::string text;
  for (const std::string& found : d.found) text += (text.empty() ? "" : "; ") + found;
  return text;
}

}  // namespace

Answer answer(const Draw& draw, const verdict::Judgement& judged, const Diagnosis& diagnosis) {
  if (is_named(diagnosis)) {
    const explain::Capture capture = explain::make_capture(judged);
    const explain::Matcher matcher(capture);
    const bool right = is_right_name(draw, matcher, capture, diagnosis.explanations.front());
    return right ? Answer::kRight : Answer::kWrong;
  }
  if (says_planted(draw, diagnosis)) return Answer::kRight;
  return diagnosis.found.empty() ? Answer::kUndecided : Answer::kWrong;
}

AnsweredDraw answered(const Draw& draw, const explain::SearchLimit& limit) {
  const verdict::Judgement judgement = judgement_of(draw);
  AnsweredDraw result;
  if (judgement.report.verdict != verdict::Verdict::kOutOfBudget ||
      is_hidden(draw, explain::make_capture(judgement))) {
    return result;
  }
  result.diagnosis = explain::diagnose(judgement, draw.slice->mistakes(), limit);
  result.answer = answer(draw, judgement, result.diagnosis);
  result.said = first_said(result.diagnosis);
  return result;
}

}  // namespace goldenrule::suites
