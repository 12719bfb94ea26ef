// SPDX-License-Identifier: Apache-2.0
//
// The text of goldenrule_gpu_recurrent_fields, made of the lists while the library is built.
#pragma once

#include "gpu/recurrent/args_fields.hpp"

namespace goldenrule::gpu::recurrent {

struct Description {
  char text[2048] = {};
  std::size_t length = 0;

  constexpr void put(const char* more) {
    while (*more != '\0') text[length++] = *more++;  // too long: no constant, does not compile
  }
  constexpr void put(std::size_t number) {
    if (number >= 10) put(number / 10);
    text[length++] = static_cast<char>('0' + number % 10);
  }
};

constexpr Description describe() {
  Description out;
  out.put("goldenrule_gpu_recurrent_args struct ");
  out.put(sizeof(Args));
  for_each_field([&](const auto& field, const char* type) {
    out.put("\n");
    out.put(field.name);
    out.put(" ");
    out.put(type);
    out.put(" ");
    out.put(field.offset);
  });
  return out;
}
inline constexpr Description kDescription = describe();

}  // namespace goldenrule::gpu::recurrent
