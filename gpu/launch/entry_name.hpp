// SPDX-License-Identifier: Apache-2.0
//
// Names of table entries, put together while the library is built.
#pragma once

namespace goldenrule::gpu {

struct EntryName {
  static constexpr int kCapacity = 48;
  char text[kCapacity] = {};
  int length = 0;

  constexpr EntryName& operator<<(const char* more) {
    while (*more != '\0' && length < kCapacity - 1) text[length++] = *more++;
    return *this;
  }
  constexpr EntryName& operator<<(int number) {
    if (number >= 10) *this << number / 10;
    const char digit[2] = {static_cast<char>('0' + number % 10), '\0'};
    return *this << digit;
  }
};

}  // namespace goldenrule::gpu
