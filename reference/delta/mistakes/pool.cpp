// SPDX-License-Identifier: Apache-2.0
//
// Length: a row and a function per mistake of pools.
//
// Mistakes in state pools, their index tensors and the intermediate states of MTP.
#include <array>
#include <bit>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/take.hpp"
#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/calls/outputs.hpp"
#include "reference/delta/mistakes/common.hpp"
#include "reference/delta/mistakes/tables.hpp"

namespace goldenrule::delta {
namespace {

using call::Record;
using call::TensorMap;

// Rows of intermediate_states taken from `rows` of the right ones; -1 stays unwritten.
TensorMap with_intermediate_rows(TensorMap outputs, const call::Dims& d,
                                 const std::vector<std::int64_t>& rows) {
  const auto it = outputs.find("intermediate_states");
  if (it == outputs.end()) return outputs;
  call::Tensor moved = calls::unwritten_tensor(it->second.shape());
  calls::copy_blocks(it->second, block_size(d), rows, moved);
  it->second = std::move(moved);
  return outputs;
}

// Row t is the state before token t.
TensorMap intermediate_shifted(const Record& r, const calls::Kernel& kernel) {
  const call::Plan plan = call::make_plan(r, true);
  const call::Dims& d = plan.dims;
  TensorMap outputs = kernel(r);
  const auto it = outputs.find("intermediate_states");
  if (it == outputs.end()) return outputs;
  const call::Tensor& initial = r.inputs.at("initial_state");
  std::vector<std::int64_t> before(static_cast<std::size_t>(d.tokens), -1);
  std::vector<std::int64_t> starts(static_cast<std::size_t>(d.tokens), -1);
  for (std::int64_t b = 0; b < d.rows; ++b) {
    const call::Sequence& s = plan.sequences[static_cast<std::size_t>(b)];
    if (s.padded || s.token_count == 0) continue;
    starts[static_cast<std::size_t>(s.first_token)] = s.start_block;
    for (std::int64_t t = s.first_token + 1; t < s.first_token + s.token_count; ++t) {
      before[static_cast<std::size_t>(t)] = t - 1;
    }
  }
  call::Tensor moved = calls::unwritten_tensor(it->second.shape());
  calls::copy_blocks(it->second, block_size(d), before, moved);
  calls::copy_blocks(initial, block_size(d), starts, moved);
  it->second = std::move(moved);
  return outputs;
}

// Rows whose slot lies beyond the batch are written outside the buffer.
bool by_slot_applies(const Record& r) {
  if (!leaves_states(r) || r.find_input("state_indices") == nullptr) return false;
  const call::Plan plan = call::make_plan(r, false);
  for (std::int64_t b = 0; b < plan.dims.rows; ++b) {
    const call::Sequence& s = plan.sequences[static_cast<std::size_t>(b)];
    if (!s.padded && s.token_count > 0 && s.start_block != b) return true;
  }
  return false;
}
TensorMap intermediate_by_slot(const Record& r, const calls::Kernel& kernel) {
  const call::Plan plan = call::make_plan(r, true);
  const call::Dims& d = plan.dims;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(d.tokens), -1);
  for (std::int64_t b = 0; b < d.rows; ++b) {
    const call::Sequence& s = plan.sequences[static_cast<std::size_t>(b)];
    if (s.padded || s.start_block >= d.rows) continue;
    const call::Sequence& there = plan.sequences[static_cast<std::size_t>(s.start_block)];
    for (std::int64_t t = 0; t < s.token_count && there.first_token + t < d.tokens; ++t) {
      rows[static_cast<std::size_t>(there.first_token + t)] = s.first_token + t;
    }
  }
  return with_intermediate_rows(kernel(r), d, rows);
}

// A buffer of [B, T + 1] rows of which a call with T tokens fills the first T of each: row (b, t)
// lies at b (T + 1) + t, and is written at b T + t.
bool stride_applies(const Record& r) {
  return leaves_states(r) && !call::is_packed(r) && call::validate(r).rows > 1;
}
TensorMap intermediate_stride_T(const Record& r, const calls::Kernel& kernel) {
  const call::Dims d = call::validate(r);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(d.tokens), -1);
  for (std::int64_t b = 0; b < d.rows; ++b) {
    for (std::int64_t t = 0; t < d.T; ++t) {
      const std::int64_t read = b * (d.T + 1) + t;
      if (read < d.tokens) rows[static_cast<std::size_t>(b * d.T + t)] = read;
    }
  }
  return with_intermediate_rows(kernel(r), d, rows);
}

// Which a kernel that ignores the first ones may write a second time.
bool has_second_slots(const Record& r) {
  return r.find_input("checkpoint_state_indices") != nullptr;
}

bool slot_ignored_applies(const Record& r) {
  const call::Tensor* slots = r.find_input("state_indices");
  const call::Dims d = call::validate(r);
  const bool scatter = r.find_input("ssm_state_indices") != nullptr;
  if (slots == nullptr || scatter || d.slots < d.rows || has_second_slots(r)) return false;
  if (r.find_input("output_state_indices") != nullptr) return true;
  for (std::int64_t b = 0; b < d.rows; ++b) {
    if (slots->to_integers()[static_cast<std::size_t>(b)] != b) return true;
  }
  return false;
}
TensorMap slot_ignored(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  changed.inputs.erase("state_indices");
  changed.inputs.erase("output_state_indices");
  if (calls::is_prefill(r)) {  // where indices make the pool
    const std::int64_t rows = call::validate(r).rows;
    const std::vector<std::int64_t> slots = call::all_indices(rows);
    changed.inputs["state_indices"] =
        call::Tensor(call::DType::kI64, {rows}, std::vector<double>(slots.begin(), slots.end()));
    changed.convention.pad_slot = -1;
  }
  return kernel(changed);
}

bool output_slot_applies(const Record& r) {
  const call::Tensor* output = r.find_input("output_state_indices");
  const call::Tensor* slots = r.find_input("state_indices");
  if (output == nullptr || slots == nullptr || r.convention.disable_state_update != 0 ||
      has_second_slots(r)) {
    return false;
  }
  return output->to_integers() != slots->to_integers();
}
TensorMap output_slot_ignored(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  changed.inputs.erase("output_state_indices");
  return kernel(changed);
}

bool scatter_start_applies(const Record& r) {
  const call::Tensor* start = r.find_input("state_indices");
  const call::Tensor* written = r.find_input("ssm_state_indices");
  std::int64_t b = start == nullptr || written == nullptr ? 0 : start->size();
  while (b > 0 && (*start)[b - 1] == (*written)[(b - 1) * written->shape()[1]]) --b;
  return b > 0;
}
TensorMap scatter_start_ignored(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  auto counts = changed.inputs.extract("state_indices");
  counts.key() = "num_accepted_tokens";
  for (std::int64_t b = 0; b < counts.mapped().size(); ++b) counts.mapped().set(b, 1);
  changed.inputs.insert(std::move(counts));
  return kernel(changed);
}

// The tensor that says where states are written.
const call::Tensor* written_slots(const Record& r) {
  for (const char* name : {"ssm_state_indices", "output_state_indices", "state_indices"}) {
    const call::Tensor* slots = r.find_input(name);
    if (slots != nullptr) return slots;
  }
  return nullptr;
}

bool pad_write_applies(const Record& r) {
  const call::Tensor* slots = written_slots(r);
  if (slots == nullptr || r.convention.disable_state_update != 0) return false;
  const call::Dims d = call::validate(r);
  if (r.convention.pad_slot >= d.slots || d.tokens == 0) return false;
  for (const std::int64_t slot : slots->to_integers()) {
    if (slot == r.convention.pad_slot) return true;
  }
  return false;
}

// Every pad becomes a slot of its own behind the pool, filled as `target` is; the state that the
// last of them ends with is what `target` ends with, whoever else writes there. o stays right.
TensorMap pad_writes(const Record& r, const calls::Kernel& kernel, std::int64_t target) {
  const call::Dims d = call::validate(r);
  Record changed = calls::without_outputs(r);
  std::vector<std::int64_t> blocks(static_cast<std::size_t>(d.slots));
  for (std::int64_t slot = 0; slot < d.slots; ++slot) blocks[static_cast<std::size_t>(slot)] = slot;
  std::int64_t last = -1;
  call::for_each_input(changed, d, [&](const auto& row, const auto&, call::Tensor& slots) {
    if (row.storage != call::Storage::kSlot) return;
    for (std::int64_t i = 0; i < slots.size(); ++i) {
      if (static_cast<std::int64_t>(slots[i]) != r.convention.pad_slot) continue;
      last = std::ssize(blocks);
      slots.set(i, static_cast<double>(last));
      blocks.push_back(target);
    }
  });
  const call::Tensor& given = r.inputs.at("initial_state");
  call::Shape shape = given.shape();
  shape[0] = std::ssize(blocks);
  call::Tensor pool(given.dtype(), shape);
  calls::copy_blocks(given, block_size(d), blocks, pool);
  changed.inputs["initial_state"] = std::move(pool);
  const call::Tensor states = kernel(changed).at("final_state");
  TensorMap outputs = kernel(r);
  std::vector<std::int64_t> written(static_cast<std::size_t>(d.slots), -1);
  written[static_cast<std::size_t>(target)] = last;
  calls::copy_blocks(states, block_size(d), written, outputs.at("final_state"));
  return outputs;
}
TensorMap pad_writes_slot0(const Record& r, const calls::Kernel& kernel) {
  return pad_writes(r, kernel, 0);
}
TensorMap pad_writes_last(const Record& r, const calls::Kernel& kernel) {
  return pad_writes(r, kernel, call::validate(r).slots - 1);
}

TensorMap state_updated_when_disabled(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  changed.convention.disable_state_update = 0;
  return kernel(changed);
}

// The width of the offset. 2^31 elements where a pool is that large; no fixture is, and there the
// row shows the same mistake at the largest power of two below the pool: slot s is slot s mod W.
std::int64_t wrapped_slots(const call::Dims& d) {
  constexpr std::int64_t kInt32 = std::int64_t{1} << 31;
  const std::int64_t block = std::max<std::int64_t>(block_size(d), 1);
  if (d.slots > kInt32 / block) return std::max<std::int64_t>(kInt32 / block, 1);
  return d.slots < 2
             ? 1
             : static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(d.slots - 1)));
}
bool int32_applies(const Record& r) {
  if (!call::has_pool(r)) return false;
  const call::Plan plan = call::make_plan(r, false);
  const std::int64_t width = wrapped_slots(plan.dims);
  for (const call::Sequence& s : plan.sequences) {
    if (!s.padded && s.token_count > 0 && s.start_block >= width) return true;
    for (const call::Snapshot& snapshot : s.snapshots) {
      if (snapshot.block >= width) return true;
    }
  }
  return false;
}
TensorMap int32_offset(const Record& r, const calls::Kernel& kernel) {
  const call::Plan plan = call::make_plan(r, false);
  const call::Dims& d = plan.dims;
  const std::int64_t width = wrapped_slots(d);
  const call::Tensor given = r.inputs.at("initial_state");
  std::vector<std::int64_t> read;
  for (std::int64_t slot = 0; slot < d.slots; ++slot) read.push_back(slot % width);
  Record changed = calls::without_outputs(r);
  calls::copy_blocks(given, block_size(d), read, changed.inputs.at("initial_state"));
  TensorMap outputs = kernel(changed);
  std::vector<std::int64_t> writer(static_cast<std::size_t>(d.slots), -1);
  for (const call::Sequence& s : plan.sequences) {
    for (const call::Snapshot& snapshot : s.snapshots) {
      writer[static_cast<std::size_t>(snapshot.block % width)] = snapshot.block;
    }
  }
  call::Tensor pool = calls::widened(given);
  calls::copy_blocks(outputs.at("final_state"), block_size(d), writer, pool);
  outputs["final_state"] = std::move(pool);
  return outputs;
}

constexpr calls::Meant kUpdated[] = {{"disable_state_update", "", "0"}};

constexpr std::string_view kPoolGroup = "MTP and pools";
constexpr std::array kPoolMistakes{
    calls::Mistake{"intermediate_shifted", kPoolGroup,
                   "row t of intermediate_states is the state before token t instead of after it",
                   leaves_states, intermediate_shifted},
    calls::Mistake{"intermediate_by_slot", kPoolGroup,
                   "intermediate_states is indexed by the pool slot of a row instead of by the row",
                   by_slot_applies, intermediate_by_slot},
    calls::Mistake{
        "intermediate_stride_T", kPoolGroup,
        "rows of intermediate_states are written at stride T where the buffer has more rows "
        "(here T + 1)",
        stride_applies, intermediate_stride_T},
    calls::Mistake{"slot_ignored", kPoolGroup, "row b uses pool slot b whatever state_indices says",
                   slot_ignored_applies, slot_ignored},
    calls::Mistake{"output_slot_ignored", kPoolGroup,
                   "the state is written where it was read, whatever output_state_indices says",
                   output_slot_applies, output_slot_ignored},
    calls::Mistake{"scatter_start_ignored", kPoolGroup,
                   "a slot per token: rows start from that of token 0, not from state_indices",
                   scatter_start_applies, scatter_start_ignored},
    calls::Mistake{"pad_writes_slot0", kPoolGroup,
                   "a pad slot is taken for slot 0: padded requests overwrite its state",
                   pad_write_applies, pad_writes_slot0},
    calls::Mistake{"pad_writes_last", kPoolGroup,
                   "a pad slot of -1 wraps around: padded requests overwrite the last slot",
                   pad_write_applies, pad_writes_last},
    calls::Mistake{
        "state_updated_when_disabled", kPoolGroup,
        "the pool is updated although disable_state_update is set",
        [](const Record& r) { return r.convention.disable_state_update != 0 && call::has_pool(r); },
        state_updated_when_disabled, kUpdated},
    calls::Mistake{"int32_offset", kPoolGroup,
                   "the offset of a pool slot wraps: high slots read and write low ones",
                   int32_applies, int32_offset},
};

}  // namespace

std::span<const calls::Mistake> pool_mistakes() { return kPoolMistakes; }

}  // namespace goldenrule::delta
