// SPDX-License-Identifier: Apache-2.0
//
// A line on the terminal that says how far a long command is. Nothing where stderr is no terminal.
#pragma once

#include <cstddef>
#include <string>

namespace goldenrule::tools {

class Progress {
 public:
  explicit Progress(std::size_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Work on item `index` (from 0) begins.
  void show(std::size_t index, const std::string& what);
  /// Removes the line, so that other output can be printed.
  void clear();

 private:
  std::size_t total_;
  bool terminal_;
  bool shown_ = false;
};

}  // namespace goldenrule::tools
