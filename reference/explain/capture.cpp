// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/capture.hpp"

#include <algorithm>

#include "fixtures/call/delta_axes.hpp"
#include "fixtures/call/operation.hpp"
#include "fixtures/call/take.hpp"
#include "reference/verdict/budget.hpp"

namespace goldenrule::explain {
namespace {

using Indices = std::vector<std::int64_t>;

// A selection on one axis.
struct Selection {
  std::size_t axis;
  const Indices* indices;
};

template <class T>
void select(std::vector<T>& x, const call::Shape& shape, const Selection& s) {
  if (!x.empty()) x = call::take(x, shape, s.axis, *s.indices);
}

// The rows and heads that are left. A cut through value channels leaves them all; their blocks are
// smaller.
void select_blocks(verdict::Expected& expected, const Selection& s) {
  verdict::Exact& e = expected.exact;
  std::vector<float>& flushed = expected.grant.flushed;
  std::size_t inner = e.shape.size();
  std::size_t block = 1;
  while (inner > 0 && block < e.block) block *= static_cast<std::size_t>(e.shape[--inner]);
  if (s.axis < inner) {
    const call::Shape rows(e.shape.begin(), e.shape.begin() + static_cast<std::ptrdiff_t>(inner));
    select(e.touched, rows, s);
    call::Shape channels = rows;
    channels.push_back(static_cast<std::int64_t>(e.channels));
    select(flushed, channels, s);
  } else {
    e.block = e.block / static_cast<std::size_t>(e.shape[s.axis]) * s.indices->size();
    // An axis of the channels ends where the elements of one begin.
    std::size_t behind = 1;
    for (std::size_t i = s.axis + 1; i < e.shape.size(); ++i) {
      behind *= static_cast<std::size_t>(e.shape[i]);
    }
    if (behind == e.run && e.channels > 1) {
      const call::Shape channels{std::ssize(e.touched), static_cast<std::int64_t>(e.channels)};
      select(flushed, channels, {.axis = 1, .indices = s.indices});
      e.channels = s.indices->size();
    } else if (e.run > 1) {
      e.run = e.run / static_cast<std::size_t>(e.shape[s.axis]) * s.indices->size();
    }
  }
  e.reach.clear();
  e.unit.clear();  // only a verdict on the whole asks for it
}

void select(verdict::Expected& e, const Selection& s) {
  e.grant.anything.clear();  // only a verdict on the whole asks for it
  select_blocks(e, s);
  select(e.exact.golden, e.exact.shape, s);
  select(e.exact.radius, e.exact.shape, s);
  select(e.grant.spread, e.exact.shape, s);
  select(e.grant.overflows, e.exact.shape, s);
  select(e.grant.infinities, e.exact.shape, s);
  select(e.exact.undefined, e.exact.shape, s);
  e.exact.shape = call::taken_shape(e.exact.shape, s.axis, std::ssize(*s.indices));
}

// The checkpoints that a cut call still reaches.
struct Checkpoints {
  Indices offsets, bounds;  // empty: the call has none
  Indices kept;
  std::vector<double> new_bounds{0.0};

  explicit Checkpoints(const call::Record& call) {
    if (call.find_input("checkpoint_offsets") == nullptr) return;
    offsets = call.inputs.at("checkpoint_offsets").to_integers();
    bounds = call.inputs.at("cu_checkpoints").to_integers();
  }

  /// Those of sequence `n`, which keeps its first `tokens` tokens.
  void keep(std::size_t n, std::int64_t tokens) {
    if (bounds.empty()) return;
    for (std::int64_t r = bounds[n]; r < bounds[n + 1]; ++r) {
      if (offsets[static_cast<std::size_t>(r)] <= tokens) kept.push_back(r);
    }
    new_bounds.push_back(static_cast<double>(kept.size()));
  }
};

class Cutter {
 public:
  explicit Cutter(const Capture& capture) : result_(capture) {}

  void values(const Indices& indices) {
    cut(call::validate(result_.call), call::axis::kValue, indices);
  }

  void prefill(std::int64_t sequences, std::int64_t tokens) {
    const Indices bounds = result_.call.inputs.at("cu_seqlens").to_integers();
    const std::int64_t n = sequences < 0
                               ? std::ssize(bounds) - 1
                               : std::min<std::int64_t>(sequences, std::ssize(bounds) - 1);
    Indices kept;
    std::vector<double> new_bounds{0.0};
    Checkpoints checkpoints(result_.call);
    bool shortened = false;
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      const std::int64_t length = bounds[i + 1] - bounds[i];
      const std::int64_t count = tokens < 0 ? length : std::min(length, tokens);
      shortened = shortened || count < length;
      for (std::int64_t t = 0; t < count; ++t) kept.push_back(bounds[i] + t);
      new_bounds.push_back(static_cast<double>(kept.size()));
      checkpoints.keep(i, count);
    }
    const Indices rows = call::all_indices(n);
    const call::Dims dims = call::validate(result_.call);
    if (shortened) {
      result_.outputs.erase("final_state");
      result_.expected.outputs.erase("final_state");
    }
    cut(dims, call::axis::kPackedToken, kept);
    cut(dims, call::axis::kSequence, rows);
    cut(dims, call::axis::kCheckpoint, checkpoints.kept);
    set_bounds("cu_seqlens", new_bounds);
    if (!checkpoints.bounds.empty()) set_bounds("cu_checkpoints", checkpoints.new_bounds);
  }

  Capture take() { return std::move(result_); }

 private:
  void set_bounds(const char* name, const std::vector<double>& bounds) {
    call::Tensor& tensor = result_.call.inputs.at(name);
    tensor = call::Tensor(tensor.dtype(), {std::ssize(bounds)}, bounds);
  }

  // The same indices of every tensor that has this axis. Inputs that nobody reads may have any
  // shape; those that fit are cut as well, since a mistake may be to read them.
  void cut(const call::Dims& dims, call::Axis axis, const Indices& indices) {
    call::Record& call = result_.call;
    call::for_each_input(call, dims, [&](const auto&, const auto& axes, call::Tensor& tensor) {
      if (const auto at = call::find_axis(axes, axis)) tensor = call::take(tensor, *at, indices);
    });
    for (auto& [name, tensor] : result_.outputs) {
      const call::TensorRow& row = *call::find_row(call, call::Group::kOutput, name);
      const auto at = call::find_axis(call::axes_of(call, row), axis);
      if (at) output(name, {*at, &indices});
    }
  }

  void output(const std::string& name, const Selection& s) {
    call::Tensor& tensor = result_.outputs.at(name);
    tensor = call::take(tensor, s.axis, *s.indices);
    select(result_.expected.outputs.at(name), s);
  }

  Capture result_;
};

}  // namespace

Capture make_capture(const verdict::Judgement& judgement) {
  Capture capture{.slice = judgement.slice,
                  .call = judgement.record,
                  .outputs = {},
                  .expected = {},
                  .contract = &judgement.contract};
  capture.expected.precision = judgement.expected.precision;
  capture.outputs = std::move(capture.call.outputs);
  capture.call.outputs.clear();
  std::erase_if(capture.outputs, [&](const auto& item) {
    return !judgement.expected.outputs.at(item.first).grant.given;
  });
  for (const auto& [name, tensor] : capture.outputs) {
    capture.expected.outputs[name] = judgement.expected.outputs.at(name);
  }
  return capture;
}

bool is_cut_by_tokens(const call::Record& call) {
  return call.mode == call::Mode::kPrefill && !call::has_pool(call) &&
         call::operation(call.op).has_states;
}

Capture cut(const Capture& capture, const Cut& what) {
  Cutter cutter(capture);
  if (is_cut_by_tokens(capture.call) && (what.sequences >= 0 || what.tokens >= 0)) {
    cutter.prefill(what.sequences, what.tokens);
  }
  if (!what.values.empty()) cutter.values(what.values);
  return cutter.take();
}

}  // namespace goldenrule::explain
