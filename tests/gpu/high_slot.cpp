// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/high_slot.hpp"

#include "tests/gpu/device_list.hpp"

namespace goldenrule::test {
namespace {

constexpr std::int64_t kSlots = 4600, kHigh = 4500, kLow = 3;
constexpr std::size_t kSlotBytes = std::size_t{32} * 128 * 128 * 4;
constexpr std::size_t kPoolBytes = kSlotBytes * kSlots;
constexpr std::size_t kSlack = 256;  // for a pool that is off its alignment

std::span<const std::byte> start_state(const call::Record& record) {
  return record.inputs.at("initial_state").bytes().first(kSlotBytes);
}

/// The call with its row's state in `slot` of a pool of zeros; what is in the slot and in o after
/// it.
Bytes run_in_slot(const LiveCase& c, std::int64_t slot, const Kernel& kernel, void* memory) {
  const call::Record record = make_record(c);
  std::byte* pool =
      static_cast<std::byte*>(memory) + c.placement.shift * std::int64_t{sizeof(float)};
  std::byte* at = pool + kSlotBytes * static_cast<std::size_t>(slot);
  gpu::check_cuda(cudaMemcpy(at, start_state(record).data(), kSlotBytes, cudaMemcpyHostToDevice),
                  "upload");
  LiveCall live(record, c.placement);
  const DeviceList index("state_indices", {slot}, false);
  const auto use_pool = [&](auto& args) {
    args.state.data = pool;
    args.slots = kSlots;
    args.state_indices = index.tensor();
  };
  if (record.mode == call::Mode::kPrefill) {
    use_pool(live.prefill_args());
  } else {
    use_pool(live.args());
  }
  live.launch(nullptr, kernel);
  live.synchronize();
  Bytes result(kSlotBytes);
  gpu::check_cuda(cudaMemcpy(result.data(), at, kSlotBytes, cudaMemcpyDeviceToHost), "result");
  const call::TensorMap outputs = live.outputs();
  const std::span<const std::byte> o = outputs.at("o").bytes();
  result.insert(result.end(), o.begin(), o.end());
  return result;
}

}  // namespace

bool has_room_for_high_slot() {
  std::size_t free = 0, total = 0;
  gpu::check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free > kPoolBytes + (std::size_t{1} << 30);
}

std::string high_slot_complaint(const LiveCase& c, const Kernel& kernel) {
  const gpu::DeviceMemory pool = gpu::allocate_device(kPoolBytes + kSlack);
  Bytes results[2];
  for (const std::int64_t slot : {kLow, kHigh}) {
    gpu::check_cuda(cudaMemset(pool.get(), 0, kPoolBytes + kSlack), "cudaMemset");
    results[slot == kHigh ? 1 : 0] = run_in_slot(c, slot, kernel, pool.get());
  }
  const call::Record record = make_record(c);
  if (first_difference("", start_state(record), results[0]).empty())
    return "the low slot was not written";
  return first_difference("high slot", results[0], results[1]);
}

void run_in_high_slot(const LiveCase& c, const Kernel& kernel) {
  const gpu::DeviceMemory pool = gpu::allocate_device(kPoolBytes + kSlack);
  static_cast<void>(run_in_slot(c, kHigh, kernel, pool.get()));
}

}  // namespace goldenrule::test
