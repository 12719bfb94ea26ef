// SPDX-License-Identifier: Apache-2.0
//
// The first bad stage. The author of a chunked kernel may add to a capture the intermediate results
// that the kernel has, and learns in which of them it first leaves what its contract allows. An
// operation's slice says which stages there are (StageSlice); what is compared with what, and which
// of them is the first, is decided here.
//
// Order. Stages that read no state are computed for all chunks before any other, in the order of
// the table. Those that follow the states are computed chunk after chunk, in the order of the table
// within each; behind them those of a backward pass, from the last chunk of a sequence to its first
// (StageWalk). So of two bad stages the first is that of the earlier walk; in one walk the one in
// the chunk that is computed earlier, and where that is the same, or no state is read, the one that
// stands before the other in the table. In the first bad stage the element that is shown is the
// worst one of its first bad chunk.
//
// What a bad stage means. A stage does not decide whether a kernel is right: outputs do, by what
// they are. A kernel with right outputs and a bad stage has a stage that is not the one of the
// table, or an error that does not reach its outputs in this call; one with wrong outputs and no
// bad stage goes wrong behind the stages that it gave. So the verdict of a record and the exit code
// are those of its outputs, and stages are reported beside them.
//
// A saved stage is an exception. One kernel leaves it for another (the forward pass for the
// backward pass), so it is an output of the first: where it is out of budget the record is refused,
// whatever its gradients are.
//
// Conventions. Kernels hold the same stage in different forms (log or log2, either layout of a
// state). A kernel may declare the form of a stage; where it does not, the first form of the row
// holds. A stage that is bad in a form that was not declared, and right in another one, is accused
// of nothing: it is not judged (SKIPPED), and the form is named. A declared form is taken at its
// word.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fixtures/call/record.hpp"
#include "reference/contract/contract.hpp"
#include "reference/verdict/expectation.hpp"
#include "reference/verdict/verdict.hpp"

namespace goldenrule::verdict {

/// Tokens of a chunk: no kernel has longer ones, whose triangles would take C^3 / 3 steps.
inline constexpr std::int64_t kLongestChunk = 256;

/// A convention in which kernels hold a stage.
struct StageForm {
  std::string_view name, meaning;
};

/// When a stage is computed.
enum class StageWalk : std::uint8_t {
  kNone,     ///< it reads no state: for all chunks, before any state
  kForward,  ///< it reads the state at the start of its chunk
  kReverse,  ///< it reads the gradient of the state at the end of its chunk
};

struct StageRow {
  std::string_view name;
  std::string_view shape;       ///< "tokens,HV,C"
  std::string_view formula;     ///< what it is, exactly
  std::string_view not_judged;  ///< which elements; empty: all are judged
  StageWalk walk;
  std::span<const StageForm> forms;  ///< the first: of a kernel that declares none; may be empty
  bool saved = false;                ///< by one kernel for another
};

/// Stages as a kernel had them.
struct KernelStages {
  call::TensorMap tensors;
  std::int64_t chunk = 0;                         ///< tokens of a chunk; 0: those of the contract
  std::map<std::string, std::string> forms = {};  ///< of those that declare one
};

/// One stage of a call: what is exact, what a contract grants, and what its axes count ("token",
/// "chunk", "head", "key", "value", "column").
struct ExpectedStage {
  Expected expected;
  std::vector<std::string_view> axes;
};
using ExpectedStages = std::map<std::string, ExpectedStage>;

/// Some value heads of a call, rising, and their stages: axis 1 counts these heads alone.
struct StageHeads {
  std::vector<std::int64_t> heads = {};  ///< none: all
  bool last = true;                      ///< of the call
  ExpectedStages stages;
};

/// What a slice whose kernels work by chunks gives.
struct StageSlice {
  std::span<const StageRow> (*table)();
  /// The exact stages `names` in chunks of `chunk` tokens, each in the first form of its row.
  /// Throws Error for a call that has no stages.
  ExpectedStages (*evaluate)(const call::Record& record, std::int64_t chunk,
                             const std::vector<std::string>& names, scalar::Precision precision);
  /// Fills in what `contract` grants them, in the types that a kernel stores them in. A stage that
  /// its kernels do not have is granted nothing.
  void (*grant)(const call::Record& record, const contract::Contract& contract,
                const std::map<std::string, call::DType>& stored, ExpectedStages& stages);
  /// The same stage in another form of its row. Throws Error(kValue) for an unknown one.
  ExpectedStage (*in_form)(const call::Record& record, const std::string& name,
                           std::string_view form, const ExpectedStage& stage);
  /// evaluate and grant, of the stages in `stored`, by some heads at a time: `take` is given these
  /// one after another, so that the others need not be held. The runs that grant them also grant
  /// `outputs`, as Slice::grant does, unless it is nullptr. nullptr: all heads are taken together.
  void (*by_heads)(const call::Record& record, const contract::Contract& contract,
                   const std::map<std::string, call::DType>& stored, scalar::Precision precision,
                   Expectations* outputs,
                   const std::function<void(StageHeads&& heads)>& take) = nullptr;
};

/// Where the first bad stage is bad.
struct BadStage {
  std::string name;
  std::int64_t sequence = 0, chunk = 0;  ///< the chunk counted in its sequence
  std::int64_t step = 0;                 ///< chunks of its sequence that are computed before
  Worst worst;                           ///< of that chunk and head, coordinates filled in
  std::int64_t elements = 0;             ///< out of budget in that chunk and head
};

struct StageReport {
  TensorReport tensor;
  std::string form;     ///< in which it was judged; empty: there is only one
  std::string formula;  ///< of the table
  bool saved = false;   ///< by one kernel for another: it counts to the verdict
};

struct StagesReport {
  std::int64_t chunk = 0;
  std::string chunk_origin;  ///< who says so
  std::string contract;
  std::string reason;               ///< why nothing was judged; else empty
  std::vector<StageReport> stages;  ///< in the order of the table
  std::vector<std::string> order;   ///< the names of the table
  std::vector<std::string> absent;  ///< those that the kernel did not give
  std::optional<BadStage> first_bad;
};

/// Stages of the table before `name` that the kernel did not give.
[[nodiscard]] std::vector<std::string> absent_before(const StagesReport& report,
                                                     const std::string& name);

/// The first of the saved stages that is out of budget; empty: none.
[[nodiscard]] std::string refused_saved(const StagesReport& report);

/// All stages of `slice` in the 106-bit tier, in f64, for a fixture; what is not defined is 0.
/// Throws as StageSlice::evaluate does.
[[nodiscard]] call::TensorMap exact_stages(const StageSlice& slice, const call::Record& record,
                                           std::int64_t chunk);

/// Judges the stages of a record, which are those of `kernel`. Throws Error for unknown names and
/// forms, shapes that are wrong, and calls whose stages nobody has.
[[nodiscard]] StagesReport judge_stages(const Slice& slice, const call::Record& record,
                                        const contract::Contract& contract,
                                        const KernelStages& kernel);

/// Judges a record and its stages, which are those of `kernel`, as judgement and judge_stages do.
[[nodiscard]] Judgement judgement(const Slice& slice, call::Record record, const Question& question,
                                  const KernelStages& kernel, StagesReport& stages);

}  // namespace goldenrule::verdict
