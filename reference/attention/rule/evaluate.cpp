// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/rule/evaluate.hpp"

#include <cmath>
#include <limits>

#include "fixtures/parallel/for_each_index.hpp"
#include "reference/scalar/infinity.hpp"

namespace goldenrule::attention {
namespace {

using verdict::Exact;
using verdict::Touch;

Exact empty_output(call::Shape shape, std::size_t block, double value) {
  Exact exact;
  exact.shape = std::move(shape);
  const auto size = static_cast<std::size_t>(call::element_count(exact.shape));
  exact.golden.assign(size, value);
  exact.radius.assign(size, 0.0F);
  exact.block = block;
  exact.touched.assign(size / block, Touch::kCopied);
  return exact;
}

// Stores a result rounded to double and its radius, that rounding included.
template <class S>
void store(Exact& to, std::size_t at, const S& value, double radius, bool certified) {
  const double golden = scalar::to_double(value);
  to.golden[at] = golden;
  if (!certified) {
    to.radius[at] = std::numeric_limits<float>::infinity();
    return;
  }
  const bool rounds = scalar::Tier<S>::kPrecision != scalar::Precision::kDouble;
  if (rounds && std::isfinite(golden)) radius += std::fabs(golden) * 0x1p-53 + 0x1p-1074;
  to.radius[at] = call::f32_not_below(radius);
}

template <class S>
verdict::Expectations evaluate_in(const call::Record& record, const Plan& plan, bool certify) {
  const Dims& d = plan.dims;
  const Tensors tensors(record);
  verdict::Expectations expected;
  expected.precision = scalar::Tier<S>::kPrecision;
  Exact& o = expected.outputs["o"].exact;
  Exact& lse = expected.outputs["lse"].exact;
  o = empty_output({d.tokens, d.HV, d.V}, static_cast<std::size_t>(d.V), 0.0);
  lse = empty_output(lse_shape(plan), 1, -kInfinity);
  lse.has_right_infinities = true;
  lse.logarithms = true;
  if (certify) o.unit.assign(o.golden.size(), 0.0F);
  const std::vector<RowJob> jobs = row_jobs(plan);
  parallel::for_each_index(std::ssize(jobs), [&](std::int64_t i) {
    const RowJob& job = jobs[static_cast<std::size_t>(i)];
    const auto values = two_pass<S>(tensors, plan, *job.request, job.rows, certify);
    for (std::size_t r = 0; r < job.rows.size(); ++r) {
      const RowValue<S>& value = values[r];
      if (!value.has_keys) continue;
      const auto first = static_cast<std::size_t>(o_index(plan, *job.request, job.rows[r]));
      for (std::size_t x = 0; x < value.o.size(); ++x) {
        store(o, first + x, value.o[x], certify ? value.radius[x] : kInfinity, certify);
        if (certify) o.unit[first + x] = call::f32_not_below(value.largest[x]);
      }
      o.touched[first / o.block] = Touch::kComputed;
      const std::size_t at =
          lse_index(plan, job.request->first_query + job.rows[r].query, job.rows[r].head);
      store(lse, at, value.lse, value.lse_radius, certify);
      lse.touched[at] = Touch::kComputed;
    }
  });
  return expected;
}

}  // namespace

std::vector<RowJob> row_jobs(const Plan& plan) {
  const Dims& d = plan.dims;
  std::vector<std::vector<std::int64_t>> heads(static_cast<std::size_t>(d.H));
  for (std::int64_t j = 0; j < d.HV; ++j) {
    heads[static_cast<std::size_t>(plan.key_head[static_cast<std::size_t>(j)])].push_back(j);
  }
  std::vector<RowJob> jobs;
  for (const Request& request : plan.requests) {
    for (const std::vector<std::int64_t>& group : heads) {
      bool open = false;
      for (std::int64_t i = 0; i < request.valid; ++i) {
        for (const std::int64_t head : group) {
          if (!open || std::ssize(jobs.back().rows) == kRowsTogether)
            jobs.push_back({&request, {}});
          open = true;
          jobs.back().rows.push_back({i, head});
        }
      }
    }
  }
  return jobs;
}

verdict::Expectations evaluate(const call::Record& record, const Plan& plan,
                               scalar::Precision precision, bool certify) {
  switch (precision) {
    case scalar::Precision::kDouble:
      return evaluate_in<double>(record, plan, certify);
    case scalar::Precision::kQuad:
      return evaluate_in<scalar::Quad>(record, plan, certify);
    case scalar::Precision::kMulti:
      break;
  }
  return evaluate_in<scalar::Multi>(record, plan, certify);
}

verdict::Expectations evaluate(const call::Record& call, scalar::Precision precision,
                               bool certify) {
  return evaluate(call, make_plan(call), precision, certify);
}

call::TensorMap outputs_of(const call::Record& record, const Plan& plan) {
  verdict::Expectations expected = evaluate(record, plan, scalar::Precision::kDouble, false);
  call::TensorMap outputs;
  for (auto& [name, output] : expected.outputs) {
    outputs[name] = call::Tensor(call::DType::kF64, output.exact.shape, output.exact.golden);
  }
  return outputs;
}

}  // namespace goldenrule::attention
