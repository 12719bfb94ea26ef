// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace goldenrule::gpu {

/// Whether the C interface numbers what a call says as fixtures/call does. Casts, here and in the
/// tests, are right because of it.
template <class E>
constexpr bool same(E of_call, int of_interface) {
  return static_cast<int>(of_call) == of_interface;
}

}  // namespace goldenrule::gpu
