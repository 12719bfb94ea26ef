// SPDX-License-Identifier: Apache-2.0
//
// test_gpu_planted MISTAKE LOOK: runs the kernel with a planted mistake and looks for it in one
// way.
//   guards   redzones, inputs, blocks that nobody should write
//   matrix   every element against the oracle, within its budget
//   pool     a slot beyond 2^31 elements
//   bare     nothing but the run: for a tool of compute-sanitizer
// Exit 0: nothing found, 1: found, with one line that says what; 2: wrong arguments. A process for
// each, because an illegal address ends all that a process can do on the device.
#include <algorithm>
#include <cstdio>
#include <string>

#include "tests/gpu/case_lists.hpp"
#include "tests/gpu/high_slot.hpp"
#include "tests/gpu/judge.hpp"
#include "tests/gpu/planted/kernels.hpp"

namespace {

using namespace goldenrule::test;  // NOLINT(google-build-using-namespace): the program's own

const std::string kHighCall = "op=gdn mode=decode change=gates_f32 " + kHighSlotShape;

std::string look_for(const Kernel& kernel, const std::string& look) {
  const LiveCase high = parse_live(kHighCall);
  if (look == "pool") return high_slot_complaint(high, kernel);
  const std::vector<LiveCase> cases = parse_list(case_list("planted").lines);
  for (const LiveCase& c : cases) {
    goldenrule::call::Record record = make_record(c);
    LiveCall live(record, c.placement, look == "bare" ? Memory::kBare : Memory::kGuarded);
    live.launch(nullptr, kernel);
    live.synchronize();
    std::string complaint;
    if (look == "guards") complaint = live.stray_write();
    if (look == "matrix") {
      record.outputs = live.outputs();
      Tally tally;
      complaint = judge(record, false, tally);
    }
    if (!complaint.empty()) return canonical(c) + ": " + complaint;
  }
  if (look == "bare") {
    run_in_high_slot(high, kernel);
    std::printf("%zu cases, run in bare memory\n", cases.size() + 1);
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
