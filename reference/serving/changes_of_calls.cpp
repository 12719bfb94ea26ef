// SPDX-License-Identifier: Apache-2.0
//
// Mistakes of calls: what they are given and return, and when they are made.
#include "reference/serving/changes.hpp"

#include "fixtures/call/operation.hpp"

namespace goldenrule::serving {

using call::Mode;
using Where = Place::Where;

bool parameters_bf16(Step& step, const Past& past) {
  if (step.mode != Mode::kDecode) return false;
  if (!call::has_logit_gate(past.scenario->convention)) return false;
  step.parameters = call::DType::kBF16;
  return true;
}

// Where the outputs of a model are that large.
bool output_f16(Step& step, const Past& past) {
  constexpr double kLargeScale = 1e4;
  if (past.scenario->convention.scale < kLargeScale) return false;
  step.outputs = call::DType::kF16;
  return true;
}

bool key_buffer_reused(Step& step, const Past& past) {
  step.keys_of_last = step.mode == Mode::kDecode && past.last.mode == Mode::kDecode &&
                      past.last.rows.size() >= step.rows.size();
  return step.keys_of_last;
}

bool convention_of_decode(Step& step, const Past& past, void (*change)(call::Convention&)) {
  if (step.mode != Mode::kDecode) return false;
  step.convention = past.scenario->convention;
  change(*step.convention);
  return true;
}

bool layer_of_another(Step& step, const Past& past) {
  if (!call::has_logit_gate(past.scenario->convention)) return false;
  step.other_parameters = step.mode == Mode::kDecode;
  return step.other_parameters;
}

// Of decodes, whose states are left out.
static bool spoil(Step& step, Spoiled spoiled) {
  if (step.mode != Mode::kDecode) return false;
  step.stored = false;
  step.spoiled = spoiled;
  return true;
}
bool outputs_noise(Step& step, const Past&) { return spoil(step, Spoiled::kNoise); }
bool outputs_nan(Step& step, const Past&) { return spoil(step, Spoiled::kNan); }
bool outputs_of_next_row(Step& step, const Past&) {
  const auto live = [](const Row& row) { return row.request >= 0; };
  const bool several = std::ranges::count_if(step.rows, live) > 1;
  return spoil(step, several ? Spoiled::kNextRows : Spoiled::kNothing) && several;
}

bool empty_pool_of_another_type(Step& step, const Past& past) {
  if (!spoil(step, Spoiled::kNothing)) return false;
  const bool wide = past.scenario->state != call::DType::kBF16;
  step.empty_pool = wide ? call::DType::kBF16 : call::DType::kF32;
  return true;
}

// Not each of them: what follows is to show that it is missing.
static bool is_third(const Step& step) {
  constexpr std::int64_t kThird = 3;
  return step.mode == Mode::kDecode && step.rows.front().position % kThird == 0;
}

bool call_lost(Step& step, const Past&) {
  step.lost = is_third(step);
  return step.lost;
}

bool calls_exchanged(Step& step, const Past&) {
  step.late = is_third(step);
  return step.late;
}

// Of the first attempt the states are there, and no call.
bool call_retried(Step& step, const Past&) {
  if (step.mode != Mode::kDecode) return false;
  return any_changed(step.rows, [&](const Row& row) {
    if (row.request < 0) return false;
    const Place slot{Where::kSlot, -1, row.slot};
    step.moves.push_back(
        {.from = slot, .to = slot, .replay = Stretch{row.request, row.position, row.count}});
    return true;
  });
}

// The tokens lie as they should, the bounds between them one token early.
bool bounds_off_by_one(Step& step, const Past&) {
  if (step.mode != Mode::kPrefill || step.rows.size() < 2) return false;
  Row& row = step.rows.back();
  if (row.count < 2) return false;
  --row.count;
  for (std::int64_t& after : row.checkpoints) after = std::min(after, row.count);
  return true;
}

}  // namespace goldenrule::serving
