// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/oracle/memory.hpp"

#include <algorithm>
#include <initializer_list>

#include "reference/delta/oracle/tree.hpp"
#include "reference/delta/rule/lane.hpp"
#include "reference/scalar/tier.hpp"

namespace goldenrule::delta {
namespace {

constexpr double kMebibyte = 1 << 20;
constexpr double kProcess = 48 * kMebibyte;    // program, libraries, tables
constexpr double kPerThread = 8 * kMebibyte;   // stack, states and chunks of one lane's columns
constexpr double kPerElement = 8 + 4 + 4;      // Expected: golden, radius, spread
constexpr double kPerBlock = 1;                // Expected: touched
constexpr double kPerChannel = 4 + 4;          // Expected: reach, flushed
constexpr double kPerSequence = 256;           // plan entry, snapshot, slots
constexpr double kPerKeptState = 32;           // snapshot of a state on the way
constexpr double kLaneBatch = 64 * kMebibyte;  // oracle/evaluate.cpp
constexpr double kLaneMatrices = 9;            // budget/lane_spread.cpp, [tokens, V] in double
constexpr double kSplitMatrices = 2;           // more where checkpoints may end chunks
constexpr double kExplanationPerElement = 200;

double elements(const call::Shape& shape) {
  double count = 1.0;
  for (const std::int64_t extent : shape) count *= static_cast<double>(extent);
  return count;
}

const call::Shape* find(const verdict::Shapes& shapes, const char* name) {
  const auto it = shapes.find(name);
  return it == shapes.end() ? nullptr : &it->second;
}

bool is_packed(const verdict::Declared& call) {
  return call.mode == call::Mode::kPrefill ||
         (call.mode == call::Mode::kMtp && call.inputs.contains("cu_seqlens"));
}

struct Extents {
  double tokens, rows, HV, K, V, gates, checkpoints;
};

// Those of a call, or zeros.
Extents extents_of(const verdict::Declared& call) {
  const call::Shape* q = find(call.inputs, "q");
  const call::Shape* v = find(call.inputs, "v");
  const bool prefill = is_packed(call);
  const std::size_t rank = prefill ? 3 : 4;
  if (q == nullptr || v == nullptr || q->size() != rank || v->size() != rank) return {};
  const auto extent = [](std::int64_t n) { return static_cast<double>(n); };
  Extents e{.tokens = prefill ? extent((*v)[0]) : extent((*v)[0]) * extent((*v)[1]),
            .rows = extent((*v)[0]),
            .HV = extent((*v)[rank - 2]),
            .K = extent(q->back()),
            .V = extent(v->back()),
            .gates = 1.0,
            .checkpoints = 0.0};
  if (prefill) {
    const call::Shape* bounds = find(call.inputs, "cu_seqlens");
    e.rows = bounds == nullptr ? 1.0 : elements(*bounds);
    const call::Shape* offsets = find(call.inputs, "checkpoint_offsets");
    if (offsets != nullptr) e.checkpoints = elements(*offsets);
  }
  if (call.op == call::Op::kKda) e.gates = e.K;
  return e;
}

// Places of a ring, or 0. A lane that replays one has no more tokens: the pending ones and its own.
double ring_places(const verdict::Declared& call) {
  const call::Shape* ring = find(call.inputs, "initial_ring_d");
  return ring == nullptr || ring->size() != 4 ? 0.0 : static_cast<double>((*ring)[2]);
}

// Blocks of the rings, which are as small as one number.
double ring_blocks(const verdict::Declared& call) {
  double blocks = 0.0;
  for (const char* name : {"ring_d", "ring_k", "ring_g"}) {
    const call::Shape* shape = find(call.outputs, name);
    if (shape != nullptr)
      blocks += elements(
          {shape->begin(), shape->begin() + std::min<std::ptrdiff_t>(3, std::ssize(*shape))});
  }
  return blocks;
}

// Prepared lanes of one token in a tier whose numbers have `scalar` bytes.
double lane_token(const Extents& e, double scalar) {
  return (2 * e.K + e.gates + 1) * scalar + e.gates * 16 + sizeof(TokenBounds);
}

// The stages of a kernel, after the verdict on its outputs.
double stages_needed(const verdict::Declared& call, const Extents& e, double longest, int threads) {
  constexpr double kUsualChunk = 64;
  constexpr double kShortChunk = 16;
  constexpr double kPerStage = 2 * (8 + 4 + 4 + 1);
  constexpr double kRuns = 10;
  if (call.stages.empty()) return 0.0;
  double all = 0.0;
  double chunk = static_cast<double>(call.stage_chunk);
  for (const auto& [name, shape] : call.stages) {
    all += elements(shape);
    if ((name == "A" || name == "T") && !shape.empty()) {
      chunk = std::max(chunk, static_cast<double>(shape.back()));
    }
  }
  const double states = longest / (chunk > 0.0 ? chunk : kShortChunk) + 1.0;
  const double lane = longest * (e.gates + 2.0 * std::max(chunk, kUsualChunk) + e.K + 2.0 * e.V) +
                      states * e.K * e.V;
  const double beside = std::min<double>(threads, e.rows * e.HV);
  return all * kPerStage + beside * lane * (sizeof(scalar::Multi) + kRuns * 8);
}

}  // namespace

verdict::Need memory_needed(const verdict::Declared& call, int threads) {
  const Extents e = extents_of(call);
  const bool prefill = call.mode == call::Mode::kPrefill;
  double states = 0.0;
  double largest = e.tokens * e.HV * e.V;
  for (const char* name :
       {"final_state", "intermediate_states", "checkpoints", "ring_d", "ring_k", "ring_g"}) {
    const call::Shape* shape = find(call.outputs, name);
    if (shape == nullptr) continue;
    states += elements(*shape);
    largest = std::max(largest, elements(*shape));
  }
  // A tree is evaluated beside its paths, which have their own states on the way.
  const double along = call.inputs.contains("parent_tokens") ? e.tokens * kMostPathTokens : 0.0;
  const bool kept_states = call.outputs.contains("intermediate_states");
  const double on_paths = along * e.HV * (e.V + (kept_states ? e.K * e.V : 0.0));
  const double judged = e.tokens * e.HV * e.V + (along > 0.0 ? 2.0 * states : states) + on_paths;
  // A lane has at most all tokens where they are packed, and those of one row elsewhere.
  const double places = ring_places(call);
  const double longest = places > 0.0      ? places
                         : is_packed(call) ? e.tokens
                                           : e.tokens / std::max(e.rows, 1.0);
  const double run = places > 0.0 ? e.rows * places : e.tokens;
  const double tile = 8 + 8 * 8 + 8;  // v, reach and o of eight columns of a token
  const double widest = lane_token(e, sizeof(scalar::Multi)) + e.V;
  const double lanes = std::min((run + along) * e.HV * widest, kLaneBatch + longest * widest) +
                       threads * longest * tile;
  const double beside = std::min<double>(threads, e.rows * e.HV);
  const double matrices = kLaneMatrices + (e.checkpoints > 0.0 ? kSplitMatrices : 0.0);
  const double kept = std::min(beside, e.HV) * e.checkpoints * matrices * 8 * e.K * e.V;
  const double spread = prefill || places > 0.0
                            ? kept + std::min(beside * longest, e.HV * run) *
                                         (2 * lane_token(e, sizeof(double)) + matrices * 8 * e.V)
                            : 0.0;
  const double comparison = 4 * largest;
  const double plan = e.rows * kPerSequence + e.checkpoints * kPerKeptState +
                      (call.mode == call::Mode::kMtp ? e.tokens * kPerKeptState : 0.0);
  const double expectation =
      judged * kPerElement + ((e.tokens + along) * e.HV + ring_blocks(call)) * kPerBlock +
      ((e.tokens + along) * e.HV * e.V + states / std::max(e.K, 1.0)) * kPerChannel + states / 8;
  const double work = std::max({lanes, spread, comparison});
  const double reading = call.file_bytes + 2 * call.tensor_bytes;
  verdict::Need need;
  need.verdict = kProcess + threads * kPerThread +
                 std::max(reading, call.tensor_bytes + plan + expectation + work +
                                       stages_needed(call, e, longest, threads));
  need.explanation = judged * kExplanationPerElement + call.tensor_bytes;
  return need;
}

}  // namespace goldenrule::delta
