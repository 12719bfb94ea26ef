// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/capture.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "reference/verdict/budget.hpp"

namespace goldenrule::explain {
namespace {

using Indices = std::vector<std::int64_t>;

Indices all_of(std::int64_t n) {
  Indices indices(static_cast<std::size_t>(n));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// A selection on one axis of a shape.
struct Selection {
  std::size_t axis;
  const Indices* indices;

  // f(to, from, count): runs of elements to copy.
  template <class F>
  void for_each_run(const call::Shape& shape, F&& f) const {
    std::int64_t outer = 1;
    std::int64_t inner = 1;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (i < axis) outer *= shape[i];
      if (i > axis) inner *= shape[i];
    }
    std::size_t to = 0;
    for (std::int64_t o = 0; o < outer; ++o) {
      for (const std::int64_t index : *indices) {
        f(to, static_cast<std::size_t>((o * shape[axis] + index) * inner),
          static_cast<std::size_t>(inner));
        to += static_cast<std::size_t>(inner);
      }
    }
  }

  [[nodiscard]] call::Shape shape(call::Shape before) const {
    before[axis] = std::ssize(*indices);
    return before;
  }
};

call::Tensor select(const call::Tensor& t, const Selection& s) {
  call::Tensor result(t.dtype(), s.shape(t.shape()));
  const std::size_t bytes = call::info(t.dtype()).bytes;
  s.for_each_run(t.shape(), [&](std::size_t to, std::size_t from, std::size_t count) {
    std::memcpy(result.bytes().data() + to * bytes, t.bytes().data() + from * bytes, count * bytes);
  });
  return result;
}

template <class T>
void select(std::vector<T>& x, const call::Shape& shape, const Selection& s) {
  if (x.empty()) return;
  std::vector<T> result(static_cast<std::size_t>(call::element_count(s.shape(shape))));
  s.for_each_run(shape, [&](std::size_t to, std::size_t from, std::size_t count) {
    std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(from), count,
                result.begin() + static_cast<std::ptrdiff_t>(to));
  });
  x = std::move(result);
}

// The rows and heads that are left. A cut through value channels leaves them all; their blocks are
// smaller.
void select_blocks(oracle::Expected& e, const Selection& s) {
  std::size_t inner = e.shape.size();
  std::size_t block = 1;
  while (inner > 0 && block < e.block) block *= static_cast<std::size_t>(e.shape[--inner]);
  if (s.axis < inner) {
    const call::Shape rows(e.shape.begin(), e.shape.begin() + static_cast<std::ptrdiff_t>(inner));
    select(e.touched, rows, s);
    select(e.reach2, rows, s);
  } else {
    e.block = e.block / static_cast<std::size_t>(e.shape[s.axis]) * s.indices->size();
    e.reach2.clear();  // sums over all channels; only a verdict on the whole asks for them
  }
}

void select(oracle::Expected& e, const Selection& s) {
  select_blocks(e, s);
  select(e.golden, e.shape, s);
  select(e.radius, e.shape, s);
  select(e.spread, e.shape, s);
  select(e.undefined, e.shape, s);
  e.shape = s.shape(e.shape);
}

class Cutter {
 public:
  explicit Cutter(const Capture& capture) : result_(capture) {}

  void values(const Indices& indices) {
    const bool vk = result_.call.convention.state_layout == call::StateLayout::kVK;
    for (const char* name : {"v", "initial_state"}) {
      const auto found = result_.call.inputs.find(name);
      if (found == result_.call.inputs.end()) continue;
      const bool state = std::string(name) == "initial_state";
      const std::size_t rank = found->second.shape().size();
      found->second = select(found->second, {rank - (state && vk ? 2 : 1), &indices});
    }
    for (auto& [name, tensor] : result_.outputs) {
      const std::size_t rank = tensor.shape().size();
      output(name, {rank - (name != "o" && vk ? 2 : 1), &indices});
    }
  }

  void prefill(std::int64_t sequences, std::int64_t tokens) {
    const Indices bounds = result_.call.inputs.at("cu_seqlens").to_integers();
    const std::int64_t n = sequences < 0
                               ? std::ssize(bounds) - 1
                               : std::min<std::int64_t>(sequences, std::ssize(bounds) - 1);
    Indices kept;
    std::vector<double> new_bounds{0.0};
    bool shortened = false;
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      const std::int64_t length = bounds[i + 1] - bounds[i];
      const std::int64_t count = tokens < 0 ? length : std::min(length, tokens);
      shortened = shortened || count < length;
      for (std::int64_t t = 0; t < count; ++t) kept.push_back(bounds[i] + t);
      new_bounds.push_back(static_cast<double>(kept.size()));
    }
    const Indices rows = all_of(n);
    auto& inputs = result_.call.inputs;
    for (const char* name : {"q", "k", "v", "a", "b", "g", "beta"}) {
      const auto found = inputs.find(name);
      if (found != inputs.end()) found->second = select(found->second, {0, &kept});
    }
    const auto state = inputs.find("initial_state");
    if (state != inputs.end()) state->second = select(state->second, {0, &rows});
    inputs["cu_seqlens"] =
        call::Tensor(inputs.at("cu_seqlens").dtype(), {std::ssize(new_bounds)}, new_bounds);
    if (shortened) {
      result_.outputs.erase("final_state");
      result_.expected.outputs.erase("final_state");
    }
    for (auto& [name, tensor] : result_.outputs) output(name, {0, name == "o" ? &kept : &rows});
  }

  Capture take() { return std::move(result_); }

 private:
  void output(const std::string& name, const Selection& s) {
    result_.outputs.at(name) = select(result_.outputs.at(name), s);
    select(result_.expected.outputs.at(name), s);
  }

  Capture result_;
};

}  // namespace

Capture make_capture(const call::Record& record, const bounds::Contract& contract,
                     const oracle::Evaluation& evaluation) {
  Capture capture{.call = record, .outputs = {}, .expected = {}, .contract = &contract};
  capture.expected.precision = evaluation.precision;
  capture.outputs = std::move(capture.call.outputs);
  capture.call.outputs.clear();
  std::erase_if(capture.outputs, [&](const auto& item) {
    const oracle::Expected& e = evaluation.outputs.at(item.first);
    return !verdict::Budget(item.first, item.second.dtype(), e, contract).given();
  });
  for (const auto& [name, tensor] : capture.outputs) {
    capture.expected.outputs[name] = evaluation.outputs.at(name);
  }
  return capture;
}

Capture cut(const Capture& capture, const Cut& what) {
  Cutter cutter(capture);
  if (capture.call.mode == call::Mode::kPrefill && (what.sequences >= 0 || what.tokens >= 0)) {
    cutter.prefill(what.sequences, what.tokens);
  }
  if (!what.values.empty()) cutter.values(what.values);
  return cutter.take();
}

}  // namespace goldenrule::explain
