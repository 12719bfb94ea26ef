// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_gpu/workload.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "tools/bench_gpu/streaming.hpp"

namespace goldenrule::bench {
namespace {

constexpr std::int64_t kK = 128, kV = 128;
constexpr std::int64_t kDistinctBytes = std::int64_t{512} << 20;
constexpr std::int64_t kTokenBytes = 2;  // bf16
constexpr std::int64_t kPending = 16;    // the most tokens that may wait in a ring

goldenrule_gpu_tensor dense(void* data, std::int32_t dtype) {
  return {.data = data, .stride = {}, .dtype = dtype, .dense = 1};
}

}  // namespace

std::string Row::name() const {
  std::string name = kda ? "kda" : "gdn";
  name += kv ? " kv" : " vk";
  name += bf16 ? " bf16" : " f32";
  name += " B=" + std::to_string(B) + " T=" + std::to_string(T);
  if (intermediates) name += " +states";
  if (!update) name += " no update";
  if (random_slots) name += " random slots";
  if (has_rings()) {
    name += " replay " + std::to_string(pending);
    if (flush_every > 0) name += " flush 1/" + std::to_string(flush_every);
  }
  return name;
}

std::int64_t Row::state_bytes() const { return B * HV * kK * kV * (bf16 ? 2 : 4); }

std::int64_t Row::written_rows() const {
  if (!has_rings()) return update ? B : 0;
  return flush_every > 0 ? (B + flush_every - 1) / flush_every : 0;
}

std::int64_t Row::ring_token_bytes() const {
  return (HV * kV + H * kK) * kTokenBytes + HV * (kda ? kK : 1) * 4;
}

std::int64_t Row::bytes_read() const {
  const std::int64_t token = 2 * H * kK + HV * kV + HV * (kda ? kK : 1) + HV;
  return state_bytes() + B * T * token * kTokenBytes +
         (has_rings() ? B * pending * ring_token_bytes() : 0);
}

std::int64_t Row::bytes_written() const {
  return state_bytes() / B * written_rows() + (has_rings() ? B * T * ring_token_bytes() : 0) +
         (intermediates ? T * state_bytes() : 0) + B * T * HV * kV * kTokenBytes;
}

std::int64_t Row::operations() const {
  const std::int64_t products = 4 * T * kK * kV;  // S_0 with k^ and q^
  const std::int64_t follow = (update && !has_rings()) || intermediates ? 3 * T * kK * kV : 0;
  const std::int64_t triangles = 2 * T * T * (kK + kV);
  const std::int64_t waiting = has_rings() ? pending : 0;
  const std::int64_t replayed = 4 * T * waiting * (kK + kV);  // their weights, and with d
  const std::int64_t folded = 2 * waiting * kK * kV;
  return B * HV * (products + follow + triangles + replayed) +
         (has_rings() ? written_rows() * HV * folded : 0);
}

void* Workload::buffer(std::size_t bytes) {
  memory_.push_back(gpu::allocate_device(bytes));
  return memory_.back().get();
}

void* Workload::random(std::size_t count, bool f32, float amplitude, cudaStream_t stream) {
  void* p = buffer(count * (f32 ? 4 : 2));
  launch_fill(f32 ? Fill::kF32 : Fill::kBF16, p, count, amplitude, seed_++, stream);
  return p;
}

template <class F>
goldenrule_gpu_tensor Workload::row_list(std::int64_t rows, F&& f) {
  std::vector<std::int32_t> list;
  for (std::int64_t b = 0; b < rows; ++b) list.push_back(static_cast<std::int32_t>(f(b)));
  void* data = buffer(list.size() * sizeof(list[0]));
  gpu::check_cuda(
      cudaMemcpy(data, list.data(), list.size() * sizeof(list[0]), cudaMemcpyHostToDevice),
      "cudaMemcpy");
  return dense(data, GOLDENRULE_GPU_I32);
}

std::vector<goldenrule_gpu_tensor> Workload::random_slots(const Row& row, std::int64_t sets) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(sets * row.B));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 bits(1);  // the generator alone is the same everywhere, so no std::shuffle
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[bits() % i]);
  std::vector<goldenrule_gpu_tensor> lists;
  for (std::int64_t set = 0; set < sets; ++set) {
    lists.push_back(row_list(
        row.B, [&](std::int64_t b) { return order[static_cast<std::size_t>(set * row.B + b)]; }));
  }
  return lists;
}

void Workload::give_cursors(const Row& row, goldenrule_gpu_recurrent_args& call) {
  call.rings = row.B;
  call.ring_places = kPending + row.T;
  call.ring_indices = row_list(row.B, [](std::int64_t b) { return b; });
  call.ring_start = row_list(row.B, [](std::int64_t b) { return b % kPending; });
  call.ring_count = row_list(row.B, [&](std::int64_t) { return row.pending; });
  if (row.flush_every > 0) {
    call.ring_flush =
        row_list(row.B, [&](std::int64_t b) { return b % row.flush_every == 0 ? 1 : 0; });
  }
}

// Pending tokens do not decay: the state of a run of many launches stays finite.
void Workload::give_rings(const Row& row, goldenrule_gpu_recurrent_args& call,
                          cudaStream_t stream) {
  const auto n = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  const std::int64_t places = row.B * (kPending + row.T);
  call.ring_d = dense(random(n(places * row.HV * kV), false, 0.5f, stream), GOLDENRULE_GPU_BF16);
  call.ring_k = dense(random(n(places * row.H * kK), false, 0.1f, stream), GOLDENRULE_GPU_BF16);
  const std::size_t gates = n(places * row.HV * (row.kda ? kK : 1) * 4);
  call.ring_g = dense(buffer(gates), GOLDENRULE_GPU_F32);
  gpu::check_cuda(cudaMemsetAsync(call.ring_g.data, 0, gates, stream), "cudaMemset");
}

Workload::Workload(const Row& row, cudaStream_t stream) {
  const auto n = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  const std::int64_t sets =
      std::max<std::int64_t>(2, (kDistinctBytes + row.state_bytes() - 1) / row.state_bytes());
  const std::int64_t tokens = row.B * row.T;
  const std::int32_t state_type = row.bf16 ? GOLDENRULE_GPU_BF16 : GOLDENRULE_GPU_F32;

  goldenrule_gpu_recurrent_args shared;
  goldenrule_gpu_recurrent_defaults(&shared, sizeof shared);
  shared.op = row.kda ? GOLDENRULE_GPU_KDA : GOLDENRULE_GPU_GATED_DELTA_RULE;
  shared.state_layout = row.kv ? GOLDENRULE_GPU_STATE_KV : GOLDENRULE_GPU_STATE_VK;
  shared.disable_state_update = row.update ? 0 : 1;
  shared.B = row.B;
  shared.T = row.T;
  shared.H = row.H;
  shared.HV = row.HV;
  shared.K = kK;
  shared.V = kV;
  shared.slots = row.B;
  shared.intermediate_rows = row.T;
  shared.scale = 1.0 / std::sqrt(static_cast<double>(kK));
  auto* states = static_cast<char*>(
      random(n(sets * row.state_bytes() / (row.bf16 ? 2 : 4)), !row.bf16, 1.f, stream));
  shared.A_log = dense(random(n(row.HV), true, 2.f, stream), GOLDENRULE_GPU_F32);
  shared.dt_bias =
      dense(random(n(row.HV * (row.kda ? kK : 1)), true, 3.f, stream), GOLDENRULE_GPU_F32);

  shared.state_indices = row_list(row.B, [](std::int64_t b) { return b; });
  if (row.has_rings()) give_cursors(row, shared);
  accepted_ = row_list(row.B, [&](std::int64_t) { return (row.T + 1) / 2; });
  std::vector<goldenrule_gpu_tensor> slots;
  if (row.random_slots) {
    slots = random_slots(row, sets);
    shared.slots = sets * row.B;
  }

  for (std::int64_t set = 0; set < sets; ++set) {
    goldenrule_gpu_recurrent_args call = shared;
    call.state = dense(states + (row.random_slots ? 0 : set * row.state_bytes()), state_type);
    if (row.random_slots) call.state_indices = slots[n(set)];
    const auto values = [&](std::int64_t count) {
      if (count == 0) return goldenrule_gpu_tensor{};  // a commit alone
      return dense(random(n(count), false, 1.f, stream), GOLDENRULE_GPU_BF16);
    };
    call.q = values(tokens * row.H * kK);
    call.k = values(tokens * row.H * kK);
    call.v = values(tokens * row.HV * kV);
    call.gate = values(tokens * row.HV * (row.kda ? kK : 1));
    call.beta = values(tokens * row.HV);
    if (tokens > 0) {
      call.o = dense(buffer(n(tokens * row.HV * kV * kTokenBytes)), GOLDENRULE_GPU_BF16);
    }
    if (row.intermediates) {
      call.intermediate_states = dense(buffer(n(row.T * row.state_bytes())), state_type);
    }
    if (row.has_rings()) give_rings(row, call, stream);
    calls_.push_back(call);
  }
  gpu::check_cuda(cudaStreamSynchronize(stream), "fill");
}

namespace {

void launch_call(goldenrule_gpu_recurrent_args call, cudaStream_t stream, std::uint32_t flags) {
  call.stream = stream;
  call.flags = flags;
  char message[256];
  if (goldenrule_gpu_recurrent(&call, message, sizeof message) != GOLDENRULE_GPU_OK) {
    throw Error(ErrorKind::kArgument, "goldenrule_gpu_recurrent", "ok", message);
  }
}

}  // namespace

void Workload::launch(int i, cudaStream_t stream, std::uint32_t flags) const {
  launch_call(calls_[static_cast<std::size_t>(i)], stream, flags);
}

void Workload::launch_commit(int i, cudaStream_t stream, std::uint32_t flags) const {
  goldenrule_gpu_recurrent_args call = calls_[static_cast<std::size_t>(i)];
  call.disable_state_update = 0;
  call.accepted_tokens = accepted_;
  call.o = {};
  launch_call(call, stream, flags | GOLDENRULE_GPU_FLAG_NO_OUTPUT);
}

}  // namespace goldenrule::bench
