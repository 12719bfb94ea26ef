// SPDX-License-Identifier: Apache-2.0
//
// A line on the terminal that says how far a long command is: which item, and how far within it
// once it takes longer than two seconds. At most ten times a second; nothing at all where stderr is
// no terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>
#include <optional>
#include <string>

#include "fixtures/parallel/observer.hpp"

namespace goldenrule::tools {

class Progress : private parallel::Observer {
 public:
  explicit Progress(std::size_t total);
  ~Progress() override;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Work on item `index` (from 0) begins.
  void show(std::size_t index, const std::string& what);
  /// Removes the line, so that other output can be printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  void progressed(const char* phase, std::int64_t done, std::int64_t total) override;
  void print(const std::string& line);

  std::size_t total_;
  bool terminal_;
  std::mutex mutex_;  // of what follows: loops report from their threads
  bool shown_ = false;
  std::string item_;
  Clock::time_point began_, next_;
  std::optional<parallel::Observed> observed_;  // the last member: it goes before the others do
};

}  // namespace goldenrule::tools
