// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace goldenrule::tools {

Progress::Progress(std::size_t total) : total_(total), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() { clear(); }

void Progress::show(std::size_t index, const std::string& what) {
  if (!terminal_) return;
  constexpr std::size_t kWidth = 100;
  fmt::print(stderr, "\r\033[K[{}/{}] {}", index + 1, total_, what.substr(0, kWidth));
  std::fflush(stderr);
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace goldenrule::tools
