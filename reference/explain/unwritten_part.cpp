// SPDX-License-Identifier: Apache-2.0
#include "reference/explain/unwritten_part.hpp"

#include <cstdint>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "reference/explain/index_set.hpp"
#include "reference/explain/line_view.hpp"

namespace goldenrule::explain {
namespace {

// One number may be 0, and a handful may be what they were.
constexpr std::int64_t kFewestUnwritten = 16;

// Of the failing elements those that `holds`, where they are all failing elements of a box that is
// not all of the tensor.
template <class Holds>
std::optional<std::string> box_words(const std::vector<LineAxis>& axes, const Failures& failures,
                                     bool or_all, const Holds& holds) {
  std::vector<BoxAxis> box;
  box.reserve(axes.size());
  for (const LineAxis& axis : axes) {
    box.push_back(
        {axis.word, axis.letter, std::vector<std::int64_t>(static_cast<std::size_t>(axis.extent))});
  }
  const auto at = [&](std::size_t a, std::int64_t i) -> std::int64_t& {
    return box[a].hits[static_cast<std::size_t>(i / axes[a].stride % axes[a].extent)];
  };
  std::int64_t count = 0;
  const std::int64_t size = std::ssize(failures.failing);
  for (std::int64_t i = 0; i < size; ++i) {
    if (failures.failing[static_cast<std::size_t>(i)] == 0 || !holds(i)) continue;
    ++count;
    for (std::size_t a = 0; a < axes.size(); ++a) ++at(a, i);
  }
  if (count < kFewestUnwritten || (count == failures.count && !or_all)) return std::nullopt;
  for (std::int64_t i = 0; i < size; ++i) {
    if (failures.failing[static_cast<std::size_t>(i)] == 0 || holds(i)) continue;
    bool inside = true;
    for (std::size_t a = 0; a < axes.size(); ++a) inside = inside && at(a, i) > 0;
    if (inside) return std::nullopt;
  }
  const std::string text = box_in_words(box);
  if (text.empty()) return std::nullopt;
  return text + ", as if nobody wrote it there, and in no other failing element: " +
         std::to_string(count) + " of " + std::to_string(failures.count) + " failing elements";
}

}  // namespace

const call::Tensor* old_content(const call::Record& record, const std::string& output) {
  if (output != call::name_of(call::Target::kFinalState)) return nullptr;
  const call::Tensor* initial = record.find_input("initial_state");
  if (initial == nullptr || initial->shape() != record.outputs.at(output).shape()) return nullptr;
  return initial;
}

std::optional<std::string> unwritten_part(const verdict::Judgement& judgement,
                                          const Failures& failures, bool or_all) {
  const call::Record& record = judgement.record;
  const call::Tensor& output = record.outputs.at(failures.name);
  const std::vector<LineAxis> axes = line_axes(
      record, output.shape(),
      call::axes_of(record, *call::find_row(record, call::Group::kOutput, failures.name)));
  if (auto zero =
          box_words(axes, failures, or_all, [&](std::int64_t i) { return output[i] == 0.0; })) {
    return failures.name + " holds 0 in " + *zero;
  }
  const call::Tensor* old = old_content(record, failures.name);
  if (old == nullptr) return std::nullopt;
  if (auto kept = box_words(axes, failures, or_all,
                            [&](std::int64_t i) { return output[i] == (*old)[i]; })) {
    return failures.name + " holds what it held before the call in " + *kept;
  }
  return std::nullopt;
}

}  // namespace goldenrule::explain
