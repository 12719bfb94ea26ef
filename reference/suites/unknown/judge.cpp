// SPDX-License-Identifier: Apache-2.0
#include "reference/suites/unknown/judge.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>
#include <span>
#include <utility>

#include "reference/explain/match.hpp"
#include "reference/explain/unwritten_part.hpp"
#include "reference/verdict/kernels.hpp"
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
        if (!calls::is_name_of(m, name)) continue;
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

// What the named mistakes do in the planted blocks, each in those that it is said of.
std::optional<call::TensorMap> made_in_blocks(const Draw& draw, const Hypothesis& mistakes,
                                              const Explanation& e) {
  const BlockPlanter planter(*draw.slice, draw.line);
  call::TensorMap outputs = verdict::exact_outputs(*draw.slice, draw.call);
  for (std::size_t i = 0; i < mistakes.size(); ++i) {
    const auto at = std::ranges::find(draw.where, e.where[i]) - draw.where.begin();
    const auto made = planter.mistaken(*mistakes[i], verdict::exact_kernel(*draw.slice));
    if (!made) return std::nullopt;
    planter.plant(outputs, *made, draw.sets[static_cast<std::size_t>(at)]);
  }
  return outputs;
}

bool is_right_name(const Draw& draw, const explain::Matcher& matcher,
                   const explain::Capture& capture, const Explanation& e) {
  if (!e.where.empty() && !std::ranges::is_permutation(e.where, draw.where)) return false;
  const explain::Prediction planted = prediction_of(draw.exact);
  const explain::Predictor predictor(capture);
  return std::ranges::any_of(hypotheses_of(*draw.slice, e), [&](const Hypothesis& h) {
    if (!e.where.empty()) {
      const auto made = made_in_blocks(draw, h, e);
      return made && matcher.same_outputs(prediction_of(*made), planted);
    }
    const auto named = predictor.predict(h, explain::SpreadBy::kScaling);
    return named && matcher.same_outputs(*named, planted);
  });
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : "; ") + text;
  return all;
}

// Whether `words` stand in the text as they are: "token 1" does not stand in "token 12".
bool has_words(const std::string& text, const std::string& words) {
  const auto continues = [&](std::size_t at) {
    return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
  };
  for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) {
    if (at > 0 && continues(at - 1)) continue;
    if (!continues(at + words.size())) return true;
  }
  return false;
}

bool has_all(const std::string& text, const std::vector<std::string>& words) {
  return !words.empty() &&
         std::ranges::all_of(words, [&](const std::string& w) { return has_words(text, w); });
}

bool says_planted(const Draw& draw, const Diagnosis& d) {
  return has_all(d.pattern, draw.pattern) || has_all(joined(d.found), draw.words);
}

bool is_hidden(const Draw& draw, const explain::Capture& capture) {
  const explain::Matcher matcher(capture);
  const explain::Prediction planted = prediction_of(draw.exact);
  if (matcher.same_outputs(matcher.right_call(), planted, 1.0)) return true;
  return std::ranges::any_of(draw.parts, [&](const call::TensorMap& part) {
    return matcher.same_outputs(prediction_of(part), planted, 1.0);
  });
}

verdict::Judgement judgement_of(const Draw& draw, const call::TensorMap& outputs) {
  call::Record record = draw.call;
  record.outputs = outputs;
  record.contract = draw.contract->name;
  return verdict::judgement(*draw.slice, record,
                            {.contract = *draw.contract, .precision = scalar::Precision::kDouble});
}

// What a finding says without how many of the failing elements it is about.
std::string fact_of(const std::string& finding) {
  return finding.substr(0, std::min(finding.find(", and in no other failing element"),
                                    finding.find("; this reproduces")));
}

// Whether each finding is right of one of two mistakes.
bool says_parts(const Draw& draw, const std::vector<std::string>& findings) {
  std::vector<std::string> of_parts;
  for (const call::TensorMap& part : draw.parts) {
    const auto judgement = judgement_of(draw, calls::stored(draw.call, *draw.contract, part));
    std::ranges::transform(explain::diagnose(judgement, {}, {.seconds = 0.0}).found,
                           std::back_inserter(of_parts), fact_of);
    for (const explain::Failures& f :
         explain::find_failures(judgement.record, judgement.contract, judgement.expected)) {
      // What is all that fails alone is a finding beside the other mistake.
      const auto unwritten = explain::unwritten_part(judgement, f, true);
      if (unwritten) of_parts.push_back(fact_of(*unwritten));
    }
  }
  return std::ranges::all_of(findings, [&](const std::string& text) {
    return std::ranges::find(of_parts, fact_of(text)) != of_parts.end() ||
           std::ranges::any_of(draw.partly,
                               [&](const std::string& w) { return has_words(text, w); });
  });
}

bool is_named(const Diagnosis& d) {
  return !d.explanations.empty() && d.explanations.front().explains;
}

std::string first_said(const Diagnosis& d) {
  if (is_named(d)) return d.explanations.front().name_and_place();
  return joined(d.found);
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
  return says_parts(draw, diagnosis.found) ? Answer::kUndecided : Answer::kWrong;
}

AnsweredDraw answered(const Draw& draw, const explain::SearchLimit& limit) {
  const verdict::Judgement judgement = judgement_of(draw, draw.made);
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
