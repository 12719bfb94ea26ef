// SPDX-License-Identifier: Apache-2.0
//
// The arbiter as a library: what `goldenrule check` says of a capture, in a program of one's own.
#include <cstdio>

#include "reference/arbiter/examine.hpp"

int main(int count, char** arguments) {
  if (count != 2) return 2;
  const goldenrule::report::FileReport file =
      goldenrule::arbiter::examine_file(arguments[1], {.maps = true});
  std::fputs(goldenrule::report::text_report(file).c_str(), stdout);
  for (const auto& tensor : file.report.tensors) {
    std::printf("%s: %.3g of its budget\n", tensor.name.c_str(), tensor.max_ratio);
  }
  return goldenrule::report::exit_code({file});
}
