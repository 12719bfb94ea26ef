// SPDX-License-Identifier: Apache-2.0
//
// The stages of a record while they are judged (stages.hpp): tier after tier, and in each by some
// heads at a time where the slice has them so.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reference/verdict/bad_chunks.hpp"
#include "reference/verdict/stage_places.hpp"
#include "reference/verdict/stages.hpp"
#include "reference/verdict/tally.hpp"

namespace goldenrule::verdict {

/// "/stages/h"
[[nodiscard]] inline std::string stage_path(const std::string& name) { return "/stages/" + name; }

class StageJudging {
 public:
  /// Refers to all of these but the contract. Throws as judge_stages does.
  StageJudging(const Slice& slice, const call::Record& record, const contract::Contract& contract,
               const KernelStages& kernel);

  /// Whether a tier is to be judged yet.
  [[nodiscard]] bool is_open() const { return is_open_; }
  /// Whether the next tier may grant the outputs, evaluated under the same contract.
  [[nodiscard]] bool shares_runs() const { return is_open_ && shares_runs_; }
  /// Judges the next tier, and grants `outputs` unless it is nullptr.
  void judge(Expectations* outputs);

  /// What was judged.
  [[nodiscard]] StagesReport report();

 private:
  // A stage in a form that nobody declared.
  struct OtherForm {
    const StageForm* form;
    Tally tally;
    std::vector<std::string_view> axes = {};
    bool is_right = true;  // so far
  };
  struct Judged {
    const StageRow* row;
    const call::Tensor* tensor;
    std::string form;
    Tally tally;
    BadChunks bad = {};
    std::vector<std::string_view> axes = {};
    std::vector<OtherForm> others = {};
    TensorReport report = {};
  };

  void undo_widening();
  void begin();
  void take(StageHeads&& heads);
  void require_shape(const StageHeads& heads, const Judged& judged) const;
  void take(const StageHeads& heads, const ExpectedStage& stage, Judged& judged) const;
  [[nodiscard]] call::Shape whole_shape(const StageHeads& heads, const ExpectedStage& stage) const;
  [[nodiscard]] ExpectedStage in_form(const Judged& judged, const ExpectedStage& stage) const;
  [[nodiscard]] TensorReport finished(const Tally& tally,
                                      const std::vector<std::string_view>& axes) const;
  void look_for_form(Judged& judged) const;
  [[nodiscard]] std::optional<BadStage> find_first_bad() const;

  const StageSlice* slice_ = nullptr;
  const call::Record& record_;
  const KernelStages& kernel_;
  contract::Contract contract_;  // in chunks of the kernel's size
  call::TensorMap narrowed_;     // those of the kernel that it stored in a narrower type
  std::optional<StagePlaces> places_;
  StagesReport report_;
  bool is_open_ = false, shares_runs_ = false;
  int tier_ = 0;
  std::vector<Judged> judged_;
};

}  // namespace goldenrule::verdict
