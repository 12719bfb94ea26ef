// SPDX-License-Identifier: Apache-2.0
//
// Times without these facts cannot be compared later. They are asked of the tools that know them,
// when the program runs: the tree that it was built from may have no .git where it runs.
#include "tools/bench_gpu/run_facts.hpp"

#include <cstdio>
#include <memory>
#include <string>

namespace goldenrule::bench {
namespace {

/// What a command of the shell prints, without the last line end; empty if it fails.
std::string answer(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((command + " 2>/dev/null").c_str(), "r"),
                                                   [](FILE* file) { return pclose(file); });
  std::string text;
  char part[256];
  while (pipe && std::fgets(part, sizeof part, pipe.get()) != nullptr) text += part;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

void print_answer(const char* name, const std::string& command) {
  const std::string text = answer(command);
  std::printf("%s: %s\n", name, text.empty() ? "not known" : text.c_str());
}

}  // namespace

void print_run_facts() {
  const std::string root = GOLDENRULE_SOURCE_DIR;
  print_answer("commit", "git -C '" + root + "' describe --always --dirty");
  print_answer("sources, device and driver",
               "'" + root + "/tools/validated' --device | sed 's,gpu/ ,,' | paste -sd ';'");
}

void print_clocks() {
  print_answer("clocks of multiprocessors and memory, power",
               "nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw --format=csv,noheader");
}

}  // namespace goldenrule::bench
