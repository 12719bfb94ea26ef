// SPDX-License-Identifier: Apache-2.0
#include "tools/python/extension/turns.hpp"

#include <utility>

#include "fixtures/parallel/stop.hpp"

namespace goldenrule::python {

call::TensorMap Turns::ask(const call::Record& call) {
  std::unique_lock lock(mutex_);
  question_ = &call;
  answered_.wait(lock, [this] { return ended_ || question_ == nullptr; });
  if (question_ != nullptr) {
    question_ = nullptr;
    throw parallel::Stopped();
  }
  call::TensorMap outputs = std::move(*outputs_);
  outputs_.reset();
  return outputs;
}

void Turns::answer(const Answer& how) {
  std::unique_lock lock(mutex_);
  if (question_ == nullptr) return;
  outputs_ = how(*question_);  // the computation waits, and holds the call
  question_ = nullptr;
  answered_.notify_one();
}

void Turns::end() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  answered_.notify_one();
}

}  // namespace goldenrule::python
