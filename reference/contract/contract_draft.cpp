// SPDX-License-Identifier: Apache-2.0
#include "reference/contract/contract_draft.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace goldenrule::contract {
namespace {

// What the budget of attention assumes of sums (attention/budget/grant.hpp).

std::string number(double x) { return nlohmann::json(x).dump(); }

Model model_of(const Draft& draft) {
  if (draft.is("ideal")) return Ideal{};
  if (draft.is("softmax")) {
    return Softmax{.unit_roundoff = draft.unit_roundoff,
                   .rounds = draft.softmax_rounds,
                   .exp2_error = draft.exp2,
                   .tanh_error = draft.tanh};
  }
  if (draft.is("chunked_adjoint")) {
    return ChunkedAdjoint{
        .unit_roundoff = draft.unit_roundoff, .chunk = draft.chunk, .points = draft.adjoint};
  }
  if (draft.is("recurrent")) {
    Recurrent recurrent{.unit_roundoff = draft.unit_roundoff};
    std::copy_n(draft.rounding.begin(), kActivations, recurrent.rounding.begin());
    return recurrent;
  }
  return Chunked{.unit_roundoff = draft.unit_roundoff,
                 .chunk = draft.chunk,
                 .segment = draft.segment,
                 .form = draft.form,
                 .rounding = draft.rounding};
}

std::optional<Misfit> misfit_of_extents(const Draft& c) {
  const bool ideal = c.is("ideal"), chunked = c.is("chunked");
  const bool has_chunks = chunked || c.is("chunked_adjoint");
  if (ideal != (c.unit_roundoff == 0.0)) {
    return Misfit{"unit_roundoff",
                  ideal ? "none in an ideal contract"
                        : "the unit roundoff of the kernel's arithmetic, above 0",
                  c.unit_roundoff == 0.0 ? "none" : number(c.unit_roundoff)};
  }
  if (has_chunks != (c.chunk > 0)) {
    return Misfit{"chunk", has_chunks ? "a chunk size" : "none in a contract that is not chunked",
                  c.chunk > 0 ? std::to_string(c.chunk) : "none"};
  }
  if (c.segment > 0 && (!chunked || c.segment % c.chunk != 0)) {
    return Misfit{"segment",
                  chunked ? "a multiple of the chunk, " + std::to_string(c.chunk)
                          : "none in a contract that is not chunked",
                  std::to_string(c.segment)};
  }
  return std::nullopt;
}

// Points and functions of the delta rule.
std::optional<Misfit> misfit_of_delta(const Draft& c) {
  const bool ideal = c.is("ideal"), softmax = c.is("softmax");
  if (c.functions != FunctionErrors{}) {
    if (ideal) return Misfit{"functions", "none in an ideal contract", "some"};
    if (softmax) return Misfit{"functions", "exp2 and tanh in a contract of attention", "others"};
  }
  for (std::size_t i = 0; i < kPoints; ++i) {
    const bool legal = c.is("chunked") || (c.is("recurrent") && i < kActivations);
    if (!c.rounding[i] || legal) continue;
    return Misfit{"round." + std::string(point_name(i)),
                  ideal     ? "no rounding in an ideal contract"
                  : softmax ? "a point of a kernel of attention: scores, weights or sum"
                  : c.is("chunked_adjoint")
                      ? "none: points of the backward pass stand under adjoint"
                      : "a point of a recurrent kernel: query, key, beta or gate",
                  i < kActivations ? "a point of the delta rule" : "a point of a chunked kernel"};
  }
  return std::nullopt;
}

// Points and functions of attention. The sum and the stored scores say what becomes of weights that
// are rounded; a budget for other combinations is not derived.
std::optional<Misfit> misfit_of_softmax(const Draft& c) {
  const auto rounds = [&](SoftmaxPoint p) { return c.softmax_rounds[static_cast<std::size_t>(p)]; };
  if (!c.is("softmax")) {
    for (std::size_t i = 0; i < kSoftmaxPoints; ++i) {
      if (!c.softmax_rounds[i]) continue;
      return Misfit{"round." + std::string(name_of(static_cast<SoftmaxPoint>(i))),
                    "none of attention in a contract of kind " + std::string(kModelNames[c.kind]),
                    "a point of a kernel of attention"};
    }
    if (c.exp2 == 0.0 && c.tanh == 0.0) return std::nullopt;
    return Misfit{"functions",
                  "none of attention in a contract of kind " + std::string(kModelNames[c.kind]),
                  c.exp2 != 0.0 ? "exp2" : "tanh"};
  }
  if (c.state) return Misfit{"state", "none in a contract of attention", "one"};
  if (c.unit_roundoff != kFp32) {
    return Misfit{"unit_roundoff", number(kFp32) + ": kernels of attention add in fp32",
                  number(c.unit_roundoff)};
  }
  if (rounds(SoftmaxPoint::kScores) && !rounds(SoftmaxPoint::kWeights)) {
    return Misfit{"round.scores", "rounded weights beside stored scores", "weights that are not"};
  }
  if (rounds(SoftmaxPoint::kSum) &&
      (!rounds(SoftmaxPoint::kWeights) || rounds(SoftmaxPoint::kScores))) {
    return Misfit{"round.sum", "rounded weights beside it, and no stored scores",
                  rounds(SoftmaxPoint::kScores) ? "stored scores" : "weights that are not rounded"};
  }
  return std::nullopt;
}

// Points of the backward pass.
std::optional<Misfit> misfit_of_adjoint(const Draft& c) {
  if (c.is("chunked_adjoint")) {
    if (c.state) return Misfit{"state", "none in a contract of the backward pass", "one"};
    if (c.unit_roundoff == kFp32) return std::nullopt;
    return Misfit{"unit_roundoff", number(kFp32) + ": kernels of the backward pass add in fp32",
                  number(c.unit_roundoff)};
  }
  for (std::size_t i = 0; i < kAdjointPoints; ++i) {
    if (c.adjoint[i] == AdjointRounding::kNone) continue;
    return Misfit{"adjoint." + std::string(name_of(static_cast<AdjointPoint>(i))),
                  "none in a contract of kind " + std::string(kModelNames[c.kind]),
                  "a point of the backward pass"};
  }
  return std::nullopt;
}

}  // namespace

Draft draft_of(const Contract& c) {
  Draft draft{.name = c.name,
              .meaning = c.meaning,
              .kind = c.model.index(),
              .state = c.state_dtype,
              .unit_roundoff = c.unit_roundoff(),
              .functions = c.functions};
  std::ranges::copy(c.roundings(), draft.rounding.begin());
  if (const Chunked* chunked = c.chunked()) {
    draft.chunk = chunked->chunk;
    draft.segment = chunked->segment;
    draft.form = chunked->form;
  }
  if (const ChunkedAdjoint* adjoint = c.adjoint()) {
    draft.chunk = adjoint->chunk;
    draft.adjoint = adjoint->points;
  }
  if (const Softmax* softmax = c.softmax()) {
    draft.softmax_rounds = softmax->rounds;
    draft.exp2 = softmax->exp2_error;
    draft.tanh = softmax->tanh_error;
  }
  return draft;
}

std::optional<Misfit> misfit(const Draft& draft) {
  for (const auto part :
       {misfit_of_extents, misfit_of_delta, misfit_of_softmax, misfit_of_adjoint}) {
    if (std::optional<Misfit> found = part(draft)) return found;
  }
  return std::nullopt;
}

Contract contract_of(const Draft& draft) {
  return {.name = draft.name,
          .meaning = draft.meaning,
          .state_dtype = draft.state,
          .functions = draft.functions,
          .model = model_of(draft)};
}

}  // namespace goldenrule::contract
