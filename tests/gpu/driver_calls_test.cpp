// SPDX-License-Identifier: Apache-2.0
//
// The counter of driver calls counts: without it a growing cache that allocated at every step would
// pass.
#include "tests/gpu/driver_calls.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <initializer_list>

namespace goldenrule::test {
namespace {

/// As long a list of arguments as functions of the driver have, in registers and on the stack.
double add_all(int a, double b, long c, const void* d, int e, float f, int g, long h, double i) {
  return a + b + static_cast<double>(c) + (d == nullptr ? 0 : 1) + e + static_cast<double>(f) + g +
         static_cast<double>(h) + i;
}

TEST_CASE("driver calls: counted by name, with all arguments passed on") {
  void* const function = reinterpret_cast<void*>(&add_all);
  for (const char* name :
       {"cuMemFree_v2", "cuLaunchKernelEx", "cuFuncGetAttribute", "cuCtxGetId"}) {
    CHECK(counted_driver_call(name, function) == function);
  }
  struct Named {
    const char* name;
    DriverCall kind;
  };
  for (const Named& row :
       std::initializer_list<Named>{{"cuModuleLoadData", DriverCall::kLoad},
                                    {"cuLibraryLoadData", DriverCall::kLoad},
                                    {"cuLinkCreate_v2", DriverCall::kCompile},
                                    {"nvrtcCompileProgram", DriverCall::kCompile},
                                    {"cuMemAlloc_v2", DriverCall::kAllocate},
                                    {"cuMemAllocAsync_ptsz", DriverCall::kAllocate},
                                    {"cuCtxSynchronize", DriverCall::kWait},
                                    {"cuStreamSynchronize_ptsz", DriverCall::kWait},
                                    {"cuMemcpyDtoHAsync_v2", DriverCall::kCopy}}) {
    CAPTURE(row.name);
    const DriverCalls before = driver_calls();
    auto* const counted =
        reinterpret_cast<decltype(&add_all)>(counted_driver_call(row.name, function));
    for (int i = 0; i < 3; ++i) {
      CHECK(counted(1, 2, 3, &before, 5, 6, 7, 8, 9) == add_all(1, 2, 3, &before, 5, 6, 7, 8, 9));
    }
    const DriverCalls more = driver_calls().since(before);
    CHECK(more[row.kind] == 3);
    CHECK(more.text().starts_with("3 "));
    CHECK(more.text().find(',') == std::string::npos);
  }
}

int add_one(int x) { return x + 1; }

/// A driver that knows one function by whatever name.
int find_add_one(const char*, void** function, int, std::uint64_t, void* status) {
  *function = reinterpret_cast<void*>(&add_one);
  *static_cast<int*>(status) = 7;
  return 0;
}

TEST_CASE("driver calls: functions that cuGetProcAddress gives out are counted, and itself found") {
  using Find = decltype(&find_add_one);
  const auto watched = [](const char* name, Find find) {
    return reinterpret_cast<Find>(watch_driver_function(name, reinterpret_cast<void*>(find)));
  };
  const std::uint64_t functions = watched_driver_functions();
  for (const char* finder : {"cuGetProcAddress", "cuGetProcAddress_v2"}) {
    const Find find = watched(finder, &find_add_one);
    CHECK((find != &find_add_one));
    const DriverCalls before = driver_calls();
    void* function = nullptr;
    int status = 0;
    CHECK(find("cuMemAlloc", &function, 12000, 0, &status) == 0);
    CHECK(status == 7);
    CHECK(reinterpret_cast<decltype(&add_one)>(function)(4) == 5);
    CHECK(driver_calls().since(before).text() == "1 allocations");
    CHECK(find("cuLaunchKernel", &function, 12000, 0, &status) == 0);
    CHECK(function == reinterpret_cast<void*>(&add_one));
  }
  CHECK(watched_driver_functions() == functions + 6);
}

}  // namespace
}  // namespace goldenrule::test
