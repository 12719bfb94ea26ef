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

/// The library's entry point, or a kernel that the tests plant a mistake in.
using Kernel = goldenrule_gpu_status (*)(const goldenrule_gpu_recurrent_args*, char*, std::size_t);

class LiveCall {
 public:
  /// Bare memory: tensors that are only written are left uninitialised.
  explicit LiveCall(const Scenario& scenario, Memory memory = Memory::kGuarded);

  [[nodiscard]] goldenrule_gpu_recurrent_args& args() { return args_; }

  /// Launches on `stream` and does not wait. Throws Error with the message of a refusal.
  void launch(cudaStream_t stream = nullptr, Kernel kernel = goldenrule_gpu_recurrent);
  void synchronize() const;

  [[nodiscard]] Outputs outputs() const;
  /// Gives all buffers the contents of another scenario of the same case; addresses stay.
  void reset(const Scenario& scenario);

  /// "" or the first trace of a write that should not be: a touched redzone, a changed input, a
  /// changed byte of an output that nobody should have written.
  [[nodiscard]] std::string stray_write(const Expected& expected) const;
  /// "" or the first element outside its tolerance.
  [[nodiscard]] std::string wrong_value(const Expected& expected) const;
  /// "" or the first complaint of both.
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
  [[nodiscard]] const HostTensor& final_tensor() const {
    return s_.final_state.present() ? s_.final_state : s_.state;
  }
  [[nodiscard]] bool is_output(const HostTensor* tensor) const {
    return tensor == &s_.o || tensor == &s_.intermediates || tensor == &final_tensor();
  }

  Scenario s_;
  Memory memory_;
  std::vector<Slot> slots_;
  goldenrule_gpu_recurrent_args args_{};
  mutable double worst_ = 0;
};

/// Builds, runs and judges a case: "" or its name and the complaint.
[[nodiscard]] std::string run_case(const Case& c);

/// Outputs of one run, for bit comparisons.
[[nodiscard]] Outputs outputs_of(const Case& c, std::uint64_t poison_seed = 1);

}  // namespace goldenrule::test
