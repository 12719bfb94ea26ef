// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/failures.hpp"

#include <algorithm>
#include <cmath>

#include "fixtures/call/delta_axes.hpp"
#include "fixtures/call/operation.hpp"
#include "reference/verdict/budget.hpp"

namespace goldenrule::explain {

Grid::Grid(const call::Record& record, const call::Dims& dims, const std::string& name)
    : heads(dims.HV), values(dims.V) {
  const call::TensorRow& row = *call::find_row(record, call::Group::kOutput, name);
  const std::vector<call::Axis> axes = call::axes_of(record, row);
  const call::Strides strides = call::strides_of(record, dims, row);
  keys = strides.key > 0 ? dims.K : 1;
  key_stride = std::max<std::int64_t>(strides.key, 1);
  if (strides.value == 0) values = 1;
  value_stride = std::max<std::int64_t>(strides.value, 1);
  if (call::find_axis(axes, call::axis::kQkHead)) heads = dims.H;
  const bool of_heads =
      axes.front() == call::axis::kValueHead || axes.front() == call::axis::kQkHead;
  heads_first = of_heads && call::find_axis(axes, call::axis::kPackedToken).has_value();
  if (of_heads && !heads_first) {
    parameter = true;
    rows.push_back({0, -1});
    return;
  }
  if (!call::find_axis(axes, call::axis::kValueHead) &&
      !call::find_axis(axes, call::axis::kQkHead)) {
    plain = true;
    heads = keys = key_stride = value_stride = 1;
    values = axes.size() == 1 ? 1 : call::shape_of(record, dims, row).back();
    for (std::int64_t n = 0; n < dims.rows; ++n) rows.push_back({n, -1});
    return;
  }
  if (axes.front() == call::axis::kRing) {
    const call::Shape shape = call::shape_of(record, dims, row);
    rings = true;
    heads = shape[1];
    keys = shape[2];
    values = shape.size() > 3 ? shape[3] : 1;
    key_stride = values;
    value_stride = 1;
    for (std::int64_t r = 0; r < shape[0]; ++r) rows.push_back({r, -1});
    return;
  }
  slots = axes.front() == call::axis::kSlot;
  checkpoints = axes.front() == call::axis::kCheckpoint;
  buffer = axes.front() == call::axis::kKeptRow;
  if (slots || checkpoints || buffer || axes.front() == call::axis::kSequence) {
    const std::int64_t steps = buffer ? dims.kept_steps : 1;
    const std::int64_t count = call::extent_of(dims, axes.front()) * steps;
    for (std::int64_t r = 0; r < count; ++r) rows.push_back({r, -1});
  } else if (axes.front() == call::axis::kPackedToken || heads_first) {
    const std::vector<std::int64_t> bounds =
        record.inputs.at(call::bounds_name(record.op)).to_integers();
    for (std::size_t n = 0; n + 1 < bounds.size(); ++n) {
      for (std::int64_t t = bounds[n]; t < bounds[n + 1]; ++t) {
        rows.push_back({static_cast<std::int64_t>(n), t - bounds[n]});
      }
    }
  } else {
    for (std::int64_t b = 0; b < dims.rows; ++b) {
      for (std::int64_t t = 0; t < dims.T; ++t) rows.push_back({b, t});
    }
  }
}

std::vector<Failures> find_failures(const call::Record& record, const contract::Contract& contract,
                                    const verdict::Expectations& evaluation) {
  std::vector<Failures> all;
  for (const auto& [name, output] : record.outputs) {
    const verdict::Expected& expected = evaluation.outputs.at(name);
    const verdict::Budget budget(name, output.dtype(), expected, contract);
    if (!budget.given()) continue;
    Failures f{.name = name, .failing = {}, .count = 0, .compared = 0};
    f.failing.assign(expected.exact.golden.size(), 0);
    for (std::size_t i = 0; i < f.failing.size(); ++i) {
      if (!expected.exact.is_defined(i)) continue;
      const double granted = std::isfinite(expected.exact.golden[i]) ? budget(i) : 0.0;
      if (!verdict::is_bounded(expected, i, granted)) continue;
      ++f.compared;
      const double y = output[static_cast<std::int64_t>(i)];
      if (verdict::passes(y, expected, i, granted)) continue;
      f.failing[i] = 1;
      ++f.count;
    }
    all.push_back(std::move(f));
  }
  return all;
}

}  // namespace goldenrule::explain
