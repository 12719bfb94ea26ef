// SPDX-License-Identifier: Apache-2.0
//
// test_gpu_planted MISTAKE LOOK: runs the kernel with a planted mistake and looks for it in one
// way.
//   guards   redzones, inputs, blocks that nobody should write
//   matrix   every element against its expectation and tolerance
//   pool     a slot beyond 2^31 elements
//   bare     nothing but the run: for a tool of compute-sanitizer
// Exit 0: nothing found, 1: found, with one line that says what; 2: wrong arguments. A process for
// each, because an illegal address ends all that a process can do on the device.
#include <algorithm>
#include <cstdio>
#include <string>

#include "tests/gpu/high_slot.hpp"
#include "tests/gpu/live_call.hpp"
#include "tests/gpu/planted/kernels.hpp"

namespace {

using namespace goldenrule::test;  // NOLINT(google-build-using-namespace): the program's own

std::vector<Case> planted_cases() {
  std::vector<Case> cases;
  for (const std::int64_t K : {128, 60}) {
    for (const std::int64_t V : {128, 100, 20}) {
      for (const Slots slots : {Slots::kIdentity, Slots::kPermuted, Slots::kPadded}) {
        Case c;
        c.K = K;
        c.V = V;
        c.H = 1;
        c.HV = 2;
        c.B = 5;
        c.slots = slots;
        c.seed = 4;  // no row owns slot 0
        cases.push_back(c);
      }
    }
  }
  return cases;
}

std::string look_for(Kernel kernel, const std::string& look) {
  if (look == "pool") return high_slot_complaint({}, kernel);
  for (const Case& c : planted_cases()) {
    const Scenario scenario(c);
    LiveCall live(scenario, look == "bare" ? Memory::kBare : Memory::kGuarded);
    live.launch(nullptr, kernel);
    live.synchronize();
    std::string complaint;
    if (look == "guards") complaint = live.stray_write(expect(scenario));
    if (look == "matrix") complaint = live.wrong_value(expect(scenario));
    if (!complaint.empty()) return c.name() + ": " + complaint;
  }
  if (look == "bare") {
    run_in_high_slot({}, kernel);
    std::printf("%zu cases, run in bare memory\n", planted_cases().size() + 1);
  }
  return "";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mistake = argc == 3 ? argv[1] : "", look = argc == 3 ? argv[2] : "";
  const auto* found =
      std::ranges::find(kMistakes, mistake, [](const auto& m) { return std::string(m.second); });
  const bool known = look == "guards" || look == "matrix" || look == "pool" || look == "bare";
  if (found == kMistakes.end() || !known) {
    std::fputs("usage: test_gpu_planted MISTAKE guards|matrix|pool|bare\n", stderr);
    return 2;
  }
  if (goldenrule::gpu::device_count() == 0) {
    std::puts("SKIPPED: no CUDA device");
    return 0;
  }
  if ((look == "pool" || look == "bare") && !has_room_for_high_slot()) {
    std::puts("SKIPPED: less than 11 GiB of device memory free");
    return 0;
  }
  std::string complaint;
  try {
    complaint = look_for(planted_kernel(found->first), look);
  } catch (const goldenrule::Error& e) {
    complaint = e.what();
  }
  std::printf("%s\n", complaint.c_str());
  return complaint.empty() ? 0 : 1;
}
