// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu_host/simt/fiber.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

static_assert(sizeof(void*) == 8, "the switch below is for x86-64");

extern "C" void goldenrule_simt_switch(void** save, void* load);
// Saves what a callee keeps (System V ABI) and the stack pointer in *save, and loads the same.
asm(R"(
.text
.globl goldenrule_simt_switch
.type goldenrule_simt_switch, @function
goldenrule_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size goldenrule_simt_switch, .-goldenrule_simt_switch
)");

namespace goldenrule::simt {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kStackBytes = 256 << 10;
#else
constexpr std::size_t kStackBytes = 64 << 10;
#endif
constexpr std::size_t kGuardBytes = 4096;  // an overflow ends the program, and corrupts nothing

Fiber* running_fiber = nullptr;
void* scheduler_stack = nullptr;  // its stack pointer while a fiber runs

/// Stacks that no fiber uses; they are kept, since blocks come and go by the thousand.
std::vector<void*>& free_stacks() {
  static std::vector<void*> stacks;
  return stacks;
}

void* take_stack() {
  if (free_stacks().empty()) {
    void* memory = mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, kGuardBytes, PROT_NONE);
    return static_cast<char*>(memory) + kGuardBytes;
  }
  void* stack = free_stacks().back();
  free_stacks().pop_back();
#ifdef __SANITIZE_ADDRESS__
  // The frames of a fiber that was given up are still marked.
  __asan_unpoison_memory_region(stack, kStackBytes);
#endif
  return stack;
}

#ifdef __SANITIZE_ADDRESS__
const void* scheduler_bottom = nullptr;
std::size_t scheduler_size = 0;
void* scheduler_fake_stack = nullptr;

void before_resume(const void* stack) {
  __sanitizer_start_switch_fiber(&scheduler_fake_stack, stack, kStackBytes);
}
void after_resume() { __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr); }
void before_pause(void** fake_stack) {
  __sanitizer_start_switch_fiber(fake_stack, scheduler_bottom, scheduler_size);
}
void after_pause(void* fake_stack) {
  __sanitizer_finish_switch_fiber(fake_stack, &scheduler_bottom, &scheduler_size);
}
#else
void before_resume(const void* /*stack*/) {}
void after_resume() {}
void before_pause(void** /*fake_stack*/) {}
void after_pause(void* /*fake_stack*/) {}
#endif

}  // namespace

/// Where a new fiber begins.
struct FiberEntry {
  static void run() {
    Fiber* self = running_fiber;
    after_pause(nullptr);
    self->entry_(self->argument_);
    std::abort();
  }
};

Fiber::Fiber(Fiber&& other) noexcept
    : stack_(std::exchange(other.stack_, nullptr)),
      saved_(other.saved_),
      entry_(other.entry_),
      argument_(other.argument_),
      fake_stack_(other.fake_stack_) {}

Fiber::~Fiber() {
  if (stack_ != nullptr) free_stacks().push_back(stack_);
}

void Fiber::start(void (*entry)(void*), void* argument) {
  if (stack_ == nullptr) stack_ = take_stack();
  entry_ = entry;
  argument_ = argument;
  fake_stack_ = nullptr;
  // As goldenrule_simt_switch leaves it: six registers and an address; at the entry of a function
  // the stack is 8 bytes off a multiple of 16.
  auto* top = reinterpret_cast<std::uint64_t*>(static_cast<char*>(stack_) + kStackBytes);
  *--top = 0;
  *--top = reinterpret_cast<std::uint64_t>(&FiberEntry::run);
  for (int i = 0; i < 6; ++i) *--top = 0;
  saved_ = top;
}

void Fiber::resume() {
  running_fiber = this;
  before_resume(stack_);
  goldenrule_simt_switch(&scheduler_stack, saved_);
  after_resume();
  running_fiber = nullptr;
}

void Fiber::pause() {
  before_pause(&fake_stack_);
  goldenrule_simt_switch(&saved_, scheduler_stack);
  after_pause(fake_stack_);
}

Fiber* Fiber::running() { return running_fiber; }

}  // namespace goldenrule::simt
