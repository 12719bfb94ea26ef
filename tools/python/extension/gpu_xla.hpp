// SPDX-License-Identifier: Apache-2.0
//
// Handlers of XLA's foreign function interface, by which a program that JAX has compiled calls the
// GPU library: no Python and no lock of the interpreter while it runs.
//
// Shapes and types of a traced call are constants, so its aggregate is made while JAX traces, over
// addresses that nobody reads (gpu_xla_calls.cpp). The program holds its bytes, and for each
// operand and result the offset of the address in it; a handler fills those in and launches on
// XLA's stream.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "tools/python/extension/gpu_library.hpp"

namespace goldenrule::python::gpu {

/// The aggregates by number, as a program holds it.
enum class Aggregate : std::int32_t { kRecurrentCall, kPrefillCall, kAttentionCall };

/// Stage of XLA -> capsule of a handler, for programs of CUDA devices or of the host, that calls
/// this library. Defined where GOLDENRULE_HAS_XLA is 1.
nanobind::dict xla_handlers(const Library& library, bool on_host);

/// Adds the class XlaCalls to the module.
void add_xla_calls(nanobind::module_& m);

}  // namespace goldenrule::python::gpu
