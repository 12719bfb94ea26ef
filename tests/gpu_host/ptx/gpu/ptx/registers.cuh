// SPDX-License-Identifier: Apache-2.0
//
// gpu/ptx/registers.cuh on the CPU.
#pragma once

namespace goldenrule::gpu::ptx {

template <class T>
T hidden(T x) {
  return x;
}

template <class T>
T hidden_off_90(T x) {
  return x;
}

template <int N>
void define_off_90(float (&/*x*/)[N]) {}

inline void read_no_further_off_90() {}

}  // namespace goldenrule::gpu::ptx
