// SPDX-License-Identifier: Apache-2.0
//
// The exact stages of a call while its lanes fill them in: the forward stages (stages.hpp) and
// those of the backward pass (backward/rule/stages.hpp). A number is stored as a double, with the
// radius that its certificate proves and the half ulp of that rounding.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fixtures/call/f32_bound.hpp"
#include "fixtures/call/plan.hpp"
#include "reference/scalar/tier.hpp"
#include "reference/verdict/stages.hpp"

namespace goldenrule::delta {

/// One stage: rows of `width` numbers, one per (token or chunk, head).
struct FilledStage {
  verdict::ExpectedStage stage;
  std::int64_t heads = 1, width = 1;
  std::vector<char> defined;  // no vector<bool>: lanes run side by side

  [[nodiscard]] verdict::Exact& exact() { return stage.expected.exact; }
  [[nodiscard]] std::size_t row(std::int64_t outer, std::int64_t head) const {
    return static_cast<std::size_t>((outer * heads + head) * width);
  }
  template <class S>
  void put(std::size_t at, const S& value, double error, bool is_defined) {
    const double x = scalar::to_double(value);
    exact().golden[at] = x;
    const double radius = error + std::fabs(x) * 0x1p-53;
    constexpr double kUnbounded = std::numeric_limits<double>::infinity();
    exact().radius[at] =
        call::f32_not_below(std::isfinite(x) && !std::isnan(radius) ? radius : kUnbounded);
    defined[at] = is_defined ? 1 : 0;
  }
};

class StageTensors {
 public:
  /// Those of these names alone are kept.
  explicit StageTensors(const std::vector<std::string>& names) : names_(names) {}

  /// Axis 1 counts the heads.
  void add(const std::string& name, call::Shape shape, std::vector<std::string_view> axes,
           std::int64_t width) {
    if (std::ranges::find(names_, name) == names_.end()) return;
    const auto count = static_cast<std::size_t>(call::element_count(shape));
    FilledStage f{.stage = {.expected = {}, .axes = std::move(axes)},
                  .heads = shape[1],
                  .width = width,
                  .defined = std::vector<char>(count, 0)};
    verdict::Exact& e = f.exact();
    e.shape = std::move(shape);
    e.golden.assign(count, 0.0);
    e.radius.assign(count, 0.0F);
    e.block = static_cast<std::size_t>(width);
    e.touched.assign(count / std::max<std::size_t>(e.block, 1), verdict::Touch::kCopied);
    stages_.emplace(name, std::move(f));
  }

  /// [tokens,HV,V], channels of their own with a reach.
  void add_values(const std::string& name, std::int64_t tokens, const call::Dims& d) {
    add(name, {tokens, d.HV, d.V}, {"token", "head", "value"}, d.V);
    FilledStage* f = find(name);
    if (f == nullptr) return;
    f->exact().channels = static_cast<std::size_t>(d.V);
    f->exact().reach.assign(f->exact().golden.size(), 0.0F);
  }

  /// A state for each chunk and head, in the layout of the call.
  void add_states(const std::string& name, std::int64_t chunks, const call::Dims& d, bool vk) {
    const std::vector<std::string_view> axes =
        vk ? std::vector<std::string_view>{"chunk", "head", "value", "key"}
           : std::vector<std::string_view>{"chunk", "head", "key", "value"};
    add(name, {chunks, d.HV, vk ? d.V : d.K, vk ? d.K : d.V}, axes, d.K * d.V);
    FilledStage* f = find(name);
    if (f == nullptr) return;
    f->exact().channels = static_cast<std::size_t>(d.V);
    if (vk) f->exact().run = static_cast<std::size_t>(d.K);
  }

  /// Nothing where the stage is not asked for.
  [[nodiscard]] FilledStage* find(const std::string& name) {
    const auto found = stages_.find(name);
    return found == stages_.end() ? nullptr : &found->second;
  }

  [[nodiscard]] verdict::ExpectedStages take() && {
    verdict::ExpectedStages result;
    for (auto& [name, filled] : stages_) {
      verdict::Exact& e = filled.exact();
      if (std::ranges::find(filled.defined, 0) != filled.defined.end()) {
        e.undefined.resize(filled.defined.size());
        for (std::size_t i = 0; i < e.undefined.size(); ++i) {
          e.undefined[i] = filled.defined[i] == 0;
        }
      }
      result.emplace(name, std::move(filled.stage));
    }
    return result;
  }

 private:
  const std::vector<std::string>& names_;
  std::map<std::string, FilledStage> stages_;
};

}  // namespace goldenrule::delta
