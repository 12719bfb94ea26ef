// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/mistakes/tail.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/calls/outputs.hpp"
#include "reference/delta/calls/segments.hpp"
#include "reference/delta/rule/gate.hpp"

namespace goldenrule::delta {
namespace {

using call::Record;
using call::TensorMap;

constexpr std::int64_t kWidest = 128;

// q and k without the channels of the tail.
Record without_key_tail(const Record& r, const Tail& tail) {
  const std::int64_t K = call::validate(r).K;
  const std::int64_t begin = tail_begin(K, tail.tile);
  Record changed = calls::without_outputs(r);
  for (const char* name : {"q", "k"}) {
    const call::Tensor& given = r.inputs.at(name);
    std::vector<double> values = given.to_doubles();
    for (auto row = values.begin(); row != values.end(); row += K) {
      double divisor = 1.0;
      if (tail.read == TailRead::kNothingAfterNorm) {
        double sum = 0.0;
        for (auto x = row; x != row + K; ++x) sum += *x * *x;
        divisor = norm_divisor(r.convention, sum);
      }
      for (std::int64_t i = 0; i < K; ++i) row[i] = i < begin ? row[i] / divisor : 0.0;
    }
    changed.inputs[name] = call::Tensor(call::DType::kF64, given.shape(), values);
  }
  if (tail.read == TailRead::kNothingAfterNorm) {
    changed.convention.qk_l2norm = call::QkNorm::kNone;
  }
  return changed;
}

Record without_value_tail(const Record& r, std::int64_t tile) {
  const std::int64_t V = call::validate(r).V;
  Record changed = calls::without_outputs(r);
  calls::change_input(changed, "v", [&](std::int64_t i, double x) {
    return i % V >= tail_begin(V, tile) ? 0.0 : x;
  });
  return changed;
}

TensorMap without_token_tail(const Record& r, const calls::Kernel& kernel, std::int64_t tile) {
  const call::Plan plan = call::make_plan(r, true);
  std::vector<calls::Segment> kept;
  for (std::int64_t n = 0; n < std::ssize(plan.sequences); ++n) {
    const call::Sequence& s = plan.sequences[static_cast<std::size_t>(n)];
    if (s.padded) continue;
    kept.push_back({s.first_token, s.token_count / tile * tile, s.start_block, n, 0});
  }
  TensorMap outputs = calls::nothing_written(r, plan);
  calls::store_segments(r, plan, kept, calls::run_segments(r, kernel, kept), outputs);
  return outputs;
}

TensorMap results(const Record& r, const calls::Kernel& kernel, const Tail& tail) {
  if (tail.read == TailRead::kAll) return kernel(r);
  switch (tail.axis) {
    case TailAxis::kKeys:
      return kernel(without_key_tail(r, tail));
    case TailAxis::kValues:
      return kernel(without_value_tail(r, tail.tile));
    case TailAxis::kTokens:
      return without_token_tail(r, kernel, tail.tile);
    case TailAxis::kHeads:
    case TailAxis::kRows:
      break;
  }
  return kernel(r);
}

// Fills the tail of the outputs of one call.
class Filler {
 public:
  Filler(const Record& r, const Tail& tail)
      : tail_(tail), plan_(call::make_plan(r, true)), dims_(plan_.dims) {
    strides_["o"] = call::output_strides(r, dims_, "o");
    for (const auto target : {call::Target::kFinalState, call::Target::kIntermediateStates,
                              call::Target::kCheckpoints}) {
      const std::string name(call::name_of(target));
      strides_[name] = call::output_strides(r, dims_, name);
    }
  }

  [[nodiscard]] double at(const call::Tensor& before, const calls::OutputPlace& p, double x) const {
    if (p.is_state ? tail_.of == TailOf::kO : tail_.of == TailOf::kStates) return x;
    const std::int64_t i = place(p);
    const std::int64_t begin = tail_begin(extent(p), tail_.tile);
    if (i < begin) return x;
    switch (tail_.holds) {
      case TailHolds::kResults:
        return x;
      case TailHolds::kUnwritten:
        return p.unwritten;
      case TailHolds::kZero:
        return 0.0;
      case TailHolds::kFirst:
      case TailHolds::kLast:
        break;
    }
    if (begin == 0) return p.unwritten;
    const std::int64_t from = tail_.holds == TailHolds::kLast ? begin - 1 : (i - begin) % begin;
    const std::int64_t index = p.index + distance(p, from, i);
    return index < 0 ? p.unwritten : before[index];
  }

 private:
  [[nodiscard]] const call::Sequence& sequence(std::int64_t n) const {
    return plan_.sequences[static_cast<std::size_t>(n)];
  }
  // Of a place on the axis; -1: it has none.
  [[nodiscard]] std::int64_t place(const calls::OutputPlace& p) const {
    switch (tail_.axis) {
      case TailAxis::kKeys:
        return p.is_state ? p.key : -1;
      case TailAxis::kValues:
        return p.value;
      case TailAxis::kTokens:
        return p.is_state ? -1 : p.block - sequence(p.sequence).first_token;
      case TailAxis::kHeads:
        return p.head;
      case TailAxis::kRows:
        return p.sequence;
    }
    return -1;
  }
  [[nodiscard]] std::int64_t extent(const calls::OutputPlace& p) const {
    switch (tail_.axis) {
      case TailAxis::kKeys:
        return dims_.K;
      case TailAxis::kValues:
        return dims_.V;
      case TailAxis::kTokens:
        return sequence(p.sequence).token_count;
      case TailAxis::kHeads:
        return dims_.HV;
      case TailAxis::kRows:
        return dims_.rows;
    }
    return 0;
  }
  // In elements from place i of the axis to place `from`; a row that has no such element: none.
  [[nodiscard]] std::int64_t distance(const calls::OutputPlace& p, std::int64_t from,
                                      std::int64_t i) const {
    const call::Strides& at = strides_.at(p.is_state ? std::string(call::name_of(*p.target)) : "o");
    switch (tail_.axis) {
      case TailAxis::kKeys:
        return (from - i) * at.key;
      case TailAxis::kValues:
        return (from - i) * at.value;
      case TailAxis::kTokens:
        return (from - i) * at.row;
      case TailAxis::kHeads:
        return (from - i) * at.head;
      case TailAxis::kRows:
        break;
    }
    const std::int64_t block = block_of(p, sequence(from));
    return block < 0 ? -p.index - 1 : (block - p.block) * at.row;
  }
  [[nodiscard]] std::int64_t block_of(const calls::OutputPlace& p, const call::Sequence& s) const {
    if (!p.is_state) {
      const std::int64_t token = p.block - sequence(p.sequence).first_token;
      return token < s.token_count ? s.first_token + token : -1;
    }
    const auto snapshot = std::ranges::find_if(s.snapshots, [&](const call::Snapshot& other) {
      return other.target == *p.target && other.after == p.after;
    });
    return snapshot == s.snapshots.end() ? -1 : snapshot->block;
  }

  const Tail& tail_;
  const call::Plan plan_;
  const call::Dims& dims_;
  std::map<std::string, call::Strides> strides_;
};

}  // namespace

std::int64_t tail_begin(std::int64_t extent, std::int64_t tile) {
  if (tile != kLargestTile) return extent / tile * tile;
  if (extent > kWidest) return kWidest;
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(extent)));
}

bool has_tail(const Record& r, TailAxis axis, std::int64_t tile) {
  const call::Dims d = call::validate(r);
  const auto has = [&](std::int64_t extent) {
    const std::int64_t begin = tail_begin(extent, tile);
    return begin > 0 && begin < extent;
  };
  switch (axis) {
    case TailAxis::kKeys:
      return has(d.K);
    case TailAxis::kValues:
      return has(d.V);
    case TailAxis::kTokens:
      return calls::is_prefill(r) &&
             std::ranges::any_of(call::make_plan(r, false).sequences,
                                 [&](const auto& s) { return s.token_count % tile != 0; });
    case TailAxis::kHeads:
      return has(d.HV);
    case TailAxis::kRows:
      return has(d.rows);
  }
  return false;
}

TensorMap with_tail(const Record& r, const calls::Kernel& kernel, const Tail& tail) {
  TensorMap outputs = results(r, kernel, tail);
  if (tail.holds == TailHolds::kResults) return outputs;
  const Filler filler(r, tail);
  calls::change_outputs(r, outputs,
                        [&](const call::Tensor& before, const calls::OutputPlace& p, double x) {
                          return filler.at(before, p, x);
                        });
  return outputs;
}

}  // namespace goldenrule::delta
