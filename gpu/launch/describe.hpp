// SPDX-License-Identifier: Apache-2.0
//
// The text of goldenrule_gpu_.._fields, made of the lists of a group while the library is built.
#pragma once

#include "gpu/launch/args_lists.hpp"

namespace goldenrule::gpu {

struct Description {
  char text[4096] = {};
  std::size_t length = 0;

  constexpr void put(const char* more) {
    while (*more != '\0') text[length++] = *more++;  // too long: no constant, does not compile
  }
  constexpr void put(std::size_t number) {
    if (number >= 10) put(number / 10);
    text[length++] = static_cast<char>('0' + number % 10);
  }
};

template <class Group>
constexpr Description describe() {
  Description out;
  out.put(Group::kName);
  out.put(" struct ");
  out.put(sizeof(typename Group::Args));
  for_each_field<Group>([&](const auto& field, const char* type) {
    out.put("\n");
    out.put(field.name);
    out.put(" ");
    out.put(type);
    out.put(" ");
    out.put(field.offset);
  });
  return out;
}

}  // namespace goldenrule::gpu
