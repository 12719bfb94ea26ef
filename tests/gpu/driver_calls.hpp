// SPDX-License-Identifier: Apache-2.0
//
// What this program asks of the CUDA driver, counted. The CUDA runtime, which is linked statically,
// finds every function of the driver by name: the first ones by dlsym, all others by
// cuGetProcAddress. Programs that are linked with --wrap=dlsym (driver_watch.cpp) get both from
// here, and where a name belongs to one of the kinds below, a few instructions that count and go on
// to the function with all its arguments (x86-64). So a call is counted whoever makes it: the
// library, or the runtime within it, as it does where it loads a kernel late.
//
// What the driver does on its own within another call, and functions that the runtime knows by the
// tables of cuGetExportTable, are not seen.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace goldenrule::test {

enum class DriverCall : std::uint8_t {
  kLoad,      ///< of modules and libraries of kernels
  kCompile,   ///< the linker of the driver; nvrtc, nvJitLink and nvvm
  kAllocate,  ///< memory of the device, pinned memory, pools, arrays
  kWait,      ///< for a stream, an event, the device
  kCopy,      ///< cuMemcpy and cuMemset of every kind
  kNone,      ///< not counted
};
inline constexpr int kDriverCallKinds = 5;

[[nodiscard]] DriverCall kind_of_driver_call(std::string_view name);

/// So far, by kind.
struct DriverCalls {
  std::array<std::uint64_t, kDriverCallKinds> counts{};

  [[nodiscard]] std::uint64_t operator[](DriverCall kind) const {
    return counts[static_cast<std::size_t>(kind)];
  }
  /// What these have more than `before`.
  [[nodiscard]] DriverCalls since(const DriverCalls& before) const;
  void add(const DriverCalls& more);
  /// As "2 loads, 1 wait"; "" for none.
  [[nodiscard]] std::string text() const;
};
[[nodiscard]] DriverCalls driver_calls();
/// How many functions of the driver the runtime has been given; 0 where it is not watched.
[[nodiscard]] std::uint64_t watched_driver_functions();

/// What a caller that looks up this function of the driver is given instead: a cuGetProcAddress
/// that watches what it gives out, or what counted_driver_call gives.
[[nodiscard]] void* watch_driver_function(const char* name, void* function);
/// `function`, or what counts a call of that name and goes on to it.
[[nodiscard]] void* counted_driver_call(const char* name, void* function);

}  // namespace goldenrule::test
