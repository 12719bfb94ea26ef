// SPDX-License-Identifier: Apache-2.0
//
// The operators of the GPU library as functions of Python. What a call costs on the host is what a
// kernel of 3 us is seen at, so a call goes from the interpreter's own list of arguments to the
// aggregate of gpu/goldenrule_gpu.h without an object in between, and what does not change between
// calls (names, defaults, the functions of the library and of the framework) is prepared once.
#pragma once

#include <nanobind/nanobind.h>

namespace goldenrule::python::gpu {

/// Adds the class GpuCalls to the module.
void add_calls(nanobind::module_& m);

}  // namespace goldenrule::python::gpu
