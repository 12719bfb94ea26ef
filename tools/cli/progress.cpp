// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "fixtures/call/text.hpp"

namespace goldenrule::tools {
namespace {

constexpr std::chrono::seconds kLong{2};
constexpr std::chrono::milliseconds kApart{100};

}  // namespace

Progress::Progress(std::size_t total) : total_(total), terminal_(isatty(STDERR_FILENO) != 0) {
  parallel::Observer& observer = *this;  // for emplace, which may not see a private base
  if (terminal_) observed_.emplace(observer);
}

Progress::~Progress() { clear(); }

void Progress::show(std::size_t index, const std::string& what) {
  if (!terminal_) return;
  constexpr std::size_t kWidth = 100;
  const std::lock_guard lock(mutex_);
  item_ = fmt::format("[{}/{}] {}", index + 1, total_, call::printable(what).substr(0, kWidth));
  began_ = Clock::now();
  next_ = began_ + kLong;
  print(item_);
}

void Progress::clear() {
  const std::lock_guard lock(mutex_);
  if (shown_) fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  shown_ = false;
}

// A thread that would have to wait has nothing to say that another one does not.
void Progress::progressed(const char* phase, std::int64_t done, std::int64_t total) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || item_.empty()) return;
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + kApart;
  print(fmt::format("{}: {} {} of {}", item_, phase, done, total));
}

void Progress::print(const std::string& line) {
  fmt::print(stderr, "\r\033[K{}", line);
  std::fflush(stderr);
  shown_ = true;
}

}  // namespace goldenrule::tools
