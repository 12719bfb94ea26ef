// SPDX-License-Identifier: Apache-2.0
//
// The kernels that can be launched: a launch names a kernel by an address without a type, so each
// is made known with the types of its parameters.
#pragma once

#include <functional>
#include <string>
#include <tuple>
#include <utility>

namespace goldenrule::simt {

/// From the addresses of the arguments, what each thread calls; the arguments are copied.
using Binder = std::function<std::function<void()>(void** arguments)>;

void add_kernel(const void* function, std::string name, Binder binder);

template <class... P>
void add_kernel(void (*kernel)(P...), std::string name) {
  add_kernel(reinterpret_cast<const void*>(kernel), std::move(name), [kernel](void** arguments) {
    return [&]<std::size_t... I>(std::index_sequence<I...>)->std::function<void()> {
      return [kernel, values = std::tuple<P...>(*static_cast<P*>(arguments[I])...)] {
        std::apply(kernel, values);
      };
    }
    (std::index_sequence_for<P...>{});
  });
}

struct KnownKernel {
  std::string name;
  Binder binder;
};
/// nullptr for one that nobody has made known.
[[nodiscard]] const KnownKernel* find_kernel(const void* function);

/// Makes the kernels of the library known (tests/gpu_host/kernels.cpp).
void add_library_kernels();

}  // namespace goldenrule::simt
