// SPDX-License-Identifier: Apache-2.0
//
// For programs that are linked with --wrap=dlsym: every look-up by name of this program and of what
// is linked into it statically, of which those of the driver are watched (driver_calls.hpp).
#include <string_view>

#include "tests/gpu/driver_calls.hpp"

extern "C" {
// The names are those that the linker makes.
void* __real_dlsym(void* library, const char* name);  // NOLINT
void* __wrap_dlsym(void* library, const char* name);  // NOLINT

void* __wrap_dlsym(void* library, const char* name) {  // NOLINT
  void* const function = __real_dlsym(library, name);
  const std::string_view known = name;
  const bool asks_driver = known.starts_with("cu") || known.starts_with("nv");
  if (function == nullptr || !asks_driver) return function;
  return goldenrule::test::watch_driver_function(name, function);
}
}
