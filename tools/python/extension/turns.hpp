// SPDX-License-Identifier: Apache-2.0
//
// A computation on a thread of its own (interruptible.hpp) that asks its caller's thread: a kernel
// of a user is called where its user would call it, with that thread's device, stream, context
// variables and interpreter lock. The computation waits for the answer; the caller answers when it
// next looks.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>

#include "fixtures/call/record.hpp"

namespace goldenrule::python {

class Turns {
 public:
  using Answer = std::function<call::TensorMap(const call::Record&)>;

  /// Of the computation: the answer to this call. Throws parallel::Stopped once the caller has
  /// ended.
  [[nodiscard]] call::TensorMap ask(const call::Record& call);

  /// Of the caller: answers a question that waits, if there is one. Where `how` throws the question
  /// goes on waiting: until end().
  void answer(const Answer& how);

  /// Of the caller: there are no more answers.
  void end();

 private:
  std::mutex mutex_;
  std::condition_variable answered_;
  const call::Record* question_ = nullptr;
  std::optional<call::TensorMap> outputs_;
  bool ended_ = false;
};

}  // namespace goldenrule::python
