// SPDX-License-Identifier: Apache-2.0
//
// A fiber: a function with a stack of its own that runs until it gives way, and is resumed where it
// stopped. A block has hundreds of threads that meet thousands of times, so a switch must cost
// nanoseconds: it saves the registers that a function call keeps and changes the stack (x86-64).
// AddressSanitizer is told of each switch.
#pragma once

#include <cstddef>

namespace goldenrule::simt {

class Fiber {
 public:
  Fiber() = default;
  Fiber(Fiber&& other) noexcept;
  Fiber& operator=(Fiber&&) = delete;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  /// The next resume() calls entry(argument), which never returns: it ends with pause().
  void start(void (*entry)(void*), void* argument);
  /// Runs the fiber until it pauses. Not from within a fiber.
  void resume();
  /// Back to resume(); from within the fiber.
  void pause();

  /// The fiber that runs; nullptr outside.
  static Fiber* running();

 private:
  friend struct FiberEntry;

  void* stack_ = nullptr;
  void* saved_ = nullptr;  // its stack pointer while it does not run
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  void* fake_stack_ = nullptr;  // AddressSanitizer's
};

}  // namespace goldenrule::simt
