// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/overflow.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"

namespace goldenrule::explain {
namespace {

// Whether one of `count` values from `first` on may leave fp32. NaN is what nobody writes, or what
// became of an Inf in double.
bool exceeds(const PredictedOutput& output, std::size_t first, std::size_t count) {
  constexpr auto kLargest = static_cast<double>(std::numeric_limits<float>::max());
  for (std::size_t i = first; i < first + count; ++i) {
    if (std::fabs(output.value[i]) + static_cast<double>(output.spread[i]) > kLargest) return true;
  }
  return false;
}

void mark(PredictedOutput& output, std::size_t first, std::size_t count) {
  if (output.may_overflow.empty()) output.may_overflow.resize(output.value.size());
  std::fill_n(output.may_overflow.begin() + static_cast<std::ptrdiff_t>(first), count, true);
}

// One value head of one sequence.
class Lane {
 public:
  Lane(const call::Record& record, const call::Dims& dims, const call::Sequence& sequence,
       std::int64_t head, Prediction& prediction)
      : dims_(dims),
        output_(call::output_strides(record, dims, "o")),
        state_(call::output_strides(record, dims, "final_state")),
        sequence_(sequence),
        head_(head),
        prediction_(prediction) {}

  // Tokens before the first overflow; all of them where there is none.
  [[nodiscard]] std::int64_t finite_tokens() const {
    std::int64_t finite = sequence_.token_count;
    const auto o = prediction_.outputs.find("o");
    for (std::int64_t t = 0; o != prediction_.outputs.end() && t < finite; ++t) {
      if (exceeds(o->second, row(t), static_cast<std::size_t>(dims_.V))) finite = t;
    }
    for (const call::Snapshot& s : sequence_.snapshots) {
      const auto state = prediction_.outputs.find(name(s));
      if (state == prediction_.outputs.end() || s.after > finite) continue;
      if (exceeds(state->second, block(s), static_cast<std::size_t>(dims_.state_size()))) {
        finite = std::max<std::int64_t>(s.after - 1, 0);
      }
    }
    return finite;
  }

  // Everything after `finite` tokens.
  void mark_from(std::int64_t finite) {
    const auto o = prediction_.outputs.find("o");
    for (std::int64_t t = finite; o != prediction_.outputs.end() && t < sequence_.token_count;
         ++t) {
      mark(o->second, row(t), static_cast<std::size_t>(dims_.V));
    }
    for (const call::Snapshot& s : sequence_.snapshots) {
      const auto state = prediction_.outputs.find(name(s));
      if (state == prediction_.outputs.end() || s.after <= finite) continue;
      mark(state->second, block(s), static_cast<std::size_t>(dims_.state_size()));
    }
  }

 private:
  static std::string name(const call::Snapshot& s) { return std::string(call::name_of(s.target)); }
  // Where the values of one token, or of one state, begin.
  [[nodiscard]] std::size_t row(std::int64_t t) const {
    return output_(sequence_.first_token + t, head_, 0, 0);
  }
  [[nodiscard]] std::size_t block(const call::Snapshot& s) const {
    return state_(s.block, head_, 0, 0);
  }

  const call::Dims& dims_;
  const call::Strides output_, state_;
  const call::Sequence& sequence_;
  const std::int64_t head_;
  Prediction& prediction_;
};

}  // namespace

void mark_overflows(const Capture& capture, Prediction& prediction) {
  // What follows a token is not what stands behind it, and a flushed state has no token of the
  // call; queries of attention follow none another.
  if (!call::operation(capture.call.op).has_states) return;
  if (call::has_tree(capture.call) || call::has_ring(capture.call)) return;
  const call::Plan plan = call::make_plan(capture.call, true);
  const std::int64_t chunk = capture.contract->tokens_together();
  for (const call::Sequence& sequence : plan.sequences) {
    if (sequence.padded) continue;
    for (std::int64_t head = 0; head < plan.dims.HV; ++head) {
      Lane lane(capture.call, plan.dims, sequence, head, prediction);
      const std::int64_t finite = lane.finite_tokens();
      if (finite < sequence.token_count) lane.mark_from(finite / chunk * chunk);
    }
  }
}

void mark_overflows(const call::TensorMap& emulated, Prediction& prediction) {
  for (auto& [name, output] : prediction.outputs) {
    const call::Tensor& made = emulated.at(name);
    for (std::size_t i = 0; i < output.value.size(); ++i) {
      if (std::isfinite(output.value[i]) && !std::isfinite(made[static_cast<std::int64_t>(i)])) {
        mark(output, i, 1);
      }
    }
  }
}

bool overflowed(const Capture& capture) {
  constexpr std::int64_t kSteps = std::int64_t{1} << 23;  // of one emulated call, 0.1 s
  if (capture.contract->chunked() == nullptr ||
      call::work_of(capture.call, call::validate(capture.call)) > kSteps) {
    return false;
  }
  return std::ranges::any_of(capture.outputs, [&](const auto& entry) {
    const auto& exact = capture.expected.outputs.at(entry.first).exact;
    for (std::int64_t i = 0; i < entry.second.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (exact.is_defined(at) && std::isfinite(exact.golden[at]) &&
          !std::isfinite(entry.second[i])) {
        return true;
      }
    }
    return false;
  });
}

}  // namespace goldenrule::explain
