// SPDX-License-Identifier: Apache-2.0
//
// A scenario on the device, every tensor in a guarded buffer, and its judgement.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpu/goldenrule_gpu.h"
#include "tests/gpu/expected.hpp"
#include "tests/gpu/guarded_buffer.hpp"
#include "tests/gpu/scenario.hpp"

namespace goldenrule::test {

/// The outputs of a call as they lie in memory.
struct Outputs {
  Bytes o, final_state, intermediates;
  bool operator==(const Outputs&) const = default;
};

class LiveCall {
 public:
  explicit LiveCall(const Scenario& scenario);

  [[nodiscard]] goldenrule_gpu_recurrent_args& args() { return args_; }

  /// Launches on `stream` and does not wait. Throws Error with the message of a refusal.
  void launch(cudaStream_t stream = nullptr);
  void synchronize() const;

  [[nodiscard]] Outputs outputs() const;
  /// Gives all buffers the contents of another scenario of the same case; addresses stay.
  void reset(const Scenario& scenario);

  /// "" or the first complaint: a touched redzone, a changed input, a changed byte that nobody
  /// should have written, an element outside its tolerance.
  [[nodiscard]] std::string judge(const Expected& expected) const;
  /// Largest error / tolerance over all elements of the last judge.
  [[nodiscard]] double worst() const { return worst_; }

 private:
  struct Slot {
    const HostTensor* host;
    std::unique_ptr<GuardedBuffer> buffer;
  };
  goldenrule_gpu_tensor place(const HostTensor& tensor, const char* name);
  [[nodiscard]] const GuardedBuffer* find(const HostTensor& tensor) const;
  [[nodiscard]] std::string judge_tensor(const HostTensor& tensor,
                                         const ExpectedTensor& expected) const;

  Scenario s_;
  std::vector<Slot> slots_;
  goldenrule_gpu_recurrent_args args_{};
  mutable double worst_ = 0;
};

/// Builds, runs and judges a case: "" or its name and the complaint.
[[nodiscard]] std::string run_case(const Case& c);

/// Outputs of one run, for bit comparisons.
[[nodiscard]] Outputs outputs_of(const Case& c, std::uint64_t poison_seed = 1);

}  // namespace goldenrule::test
