// SPDX-License-Identifier: Apache-2.0
//
// A record (fixtures/call) in memory as a placement asks for it, every tensor in a guarded buffer,
// launched through the C interface. What a call wrote that it should not have is found here; what
// it computed is judged like any capture (judge.hpp).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "fixtures/call/record.hpp"
#include "gpu/goldenrule_gpu.h"
#include "tests/gpu/guarded_buffer.hpp"
#include "tests/gpu/placement.hpp"
#include "tests/gpu/write_set.hpp"
#include "tools/gpu_run/record_call.hpp"

namespace goldenrule::test {

template <class Args>
using EntryPoint = std::function<goldenrule_gpu_status(const Args*, char*, std::size_t)>;

/// The library's entry points, or what stands in for one of them.
struct Kernel {
  EntryPoint<goldenrule_gpu_recurrent_args> recurrent = goldenrule_gpu_recurrent;
  EntryPoint<goldenrule_gpu_prefill_args> prefill = goldenrule_gpu_prefill;
  EntryPoint<goldenrule_gpu_attention_args> attention = goldenrule_gpu_attention;

  Kernel() = default;
  template <class F>
  requires std::is_invocable_v<F, const goldenrule_gpu_recurrent_args*, char*, std::size_t> Kernel(
      F f)
      : recurrent(std::move(f)) {}  // NOLINT(google-explicit-constructor)
  template <class F>
  requires std::is_invocable_v<F, const goldenrule_gpu_prefill_args*, char*, std::size_t> Kernel(
      F f)
      : prefill(std::move(f)) {}  // NOLINT(google-explicit-constructor)
};

/// Where the elements of a tensor lie: at sum of index * stride, in `size` elements of memory. What
/// is between them belongs to nobody.
struct Layout {
  call::Shape shape, strides;
  std::int64_t size = 0;

  /// Calls f(first element, its place, count) for runs of elements that lie side by side, none of
  /// which reaches beyond the last two axes: a block of states is whole runs.
  void for_each_run(const std::function<void(std::size_t, std::size_t, std::size_t)>& f) const;
};
[[nodiscard]] Layout layout_of(const call::Record& record, const std::string& name,
                               const call::Tensor& tensor, const Placement& placement);

class LiveCall {
 public:
  /// Bare memory: what is only written is left uninitialised.
  explicit LiveCall(call::Record record, const Placement& placement = {},
                    Memory memory = Memory::kGuarded);

  /// Of a decode or MTP call.
  [[nodiscard]] goldenrule_gpu_recurrent_args& args() { return args_; }
  /// Of a prefill call.
  [[nodiscard]] goldenrule_gpu_prefill_args& prefill_args() { return prefill_args_; }
  /// Of an attention call.
  [[nodiscard]] goldenrule_gpu_attention_args& attention_args() { return attention_args_; }
  /// That of the kernel which serves the call on this device.
  [[nodiscard]] const char* contract() const;

  /// Gives a prefill call the workspace that its arguments ask for now.
  void fit_workspace();
  /// Launches, with a workspace that fits, and does not wait. Throws Error with the status and the
  /// message of a refusal.
  void launch(cudaStream_t stream = nullptr, const Kernel& kernel = {});
  void synchronize() const;
  /// Gives all buffers the contents of another record of the same shapes; addresses stay.
  void reset(const call::Record& record);
  /// Gives the buffer of one input numbers that no record may hold; the record stays.
  void overwrite(const std::string& name, const call::Tensor& tensor);

  /// As a capture has them, final_state also where the pool was updated in place; poison where the
  /// kernel wrote nothing.
  [[nodiscard]] call::TensorMap outputs() const;

  /// "" or the first trace of a write that should not be: a touched redzone, a changed input, a
  /// changed byte of an output that is no element or lies in a block that nobody writes.
  [[nodiscard]] std::string stray_write() const { return stray_write(writes_of(record_)); }
  [[nodiscard]] std::string stray_write(const WriteSet& writes) const;

 private:
  struct Placed {
    std::string name;
    Layout layout;
    call::DType dtype;
    Bytes image;  // what was in the buffer before the call
    std::unique_ptr<GuardedBuffer> buffer;
  };
  goldenrule_gpu_tensor place(const std::string& name, const call::Tensor& tensor);
  void fill(Placed& placed, const call::Tensor& tensor);
  [[nodiscard]] bool is_attention() const { return record_.op == call::Op::kAttention; }
  [[nodiscard]] bool is_prefill() const {
    return record_.mode == call::Mode::kPrefill && !is_attention();
  }
  /// Nothing of the buffer is there before the call: o, states on the way, and the final states of
  /// a prefill call without slots.
  [[nodiscard]] bool only_written(const std::string& name) const;
  /// Read, written and kept where it is, as a pool that is updated in place: rings, buffers.
  [[nodiscard]] bool is_updated(const std::string& name) const {
    return record_.outputs.contains(name) && gpu::holds_before(record_, name);
  }
  [[nodiscard]] const char* final_name() const {
    return record_.outputs.contains("final_state") ? "final_state" : "initial_state";
  }

  call::Record record_;  // outputs: what make_outputs gives
  Placement placement_;
  Memory memory_;
  std::vector<Placed> placed_;
  std::unique_ptr<GuardedBuffer> workspace_;
  goldenrule_gpu_recurrent_args args_{};
  goldenrule_gpu_prefill_args prefill_args_{};
  goldenrule_gpu_attention_args attention_args_{};
};

/// The outputs of one call, launched and waited for. Throws Error on a refusal or a stray write.
[[nodiscard]] call::TensorMap outputs_of(const call::Record& record,
                                         const Placement& placement = {},
                                         Memory memory = Memory::kGuarded,
                                         const Kernel& kernel = {});
/// Likewise of a call that stands ready; `name` is that of the call in an error.
[[nodiscard]] call::TensorMap outputs_of(LiveCall& live, const std::string& name,
                                         const Kernel& kernel = {});

/// "" or the first output of `a` of which not all bits are those of `b`, with the place.
[[nodiscard]] std::string difference(const call::TensorMap& a, const call::TensorMap& b);

/// How many of so many further runs give other bits than `first`.
[[nodiscard]] int different_runs(LiveCall& live, const call::TensorMap& first, int runs);

}  // namespace goldenrule::test
