// SPDX-License-Identifier: Apache-2.0
#include "tools/bench_gpu/prefill_workload.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/bench_gpu/streaming.hpp"

namespace goldenrule::bench {
namespace {

constexpr std::int64_t kK = 128, kV = 128;
constexpr std::int64_t kDistinctBytes = std::int64_t{512} << 20;
constexpr std::int64_t kTokenBytes = 2, kStateBytes = 4;

goldenrule_gpu_tensor dense(void* data, std::int32_t dtype) {
  return {.data = data, .stride = {}, .dtype = dtype, .dense = 1};
}

bool is_bounded(Gates gates) { return gates != Gates::kSoftplus && gates != Gates::kSteep; }

/// With a bound of -5, log alpha = -5 sigmoid(a + bias), else -e^rate softplus(a + bias); a is
/// spread over (-4, 4).
float bias_of(Gates gates, std::size_t channel) {
  if (gates == Gates::kSteep) return 8.f;
  if (gates == Gates::kSoftplus) return -2.f;
  if (gates == Gates::kNone) return -80.f;
  return gates == Gates::kReal && channel % 3 == 0 ? -10.f : 0.f;
}

float rate_of(const PrefillRow& row, std::size_t head) {
  if (row.gates == Gates::kSteep) return 1.f;
  if (is_bounded(row.gates)) return 0.f;
  return -4.f + 5.f * static_cast<float>(head) / static_cast<float>(row.HV);
}

}  // namespace

std::string PrefillRow::name() const {
  constexpr const char* kGates[] = {" fast", " real", " none", " softplus", " steep"};
  return (kda ? "kda " : "gdn ") + std::to_string(H) + "/" + std::to_string(HV) + " " + lengths +
         (kda ? kGates[static_cast<int>(gates)] : "") + (precise ? " precise" : "");
}

std::int64_t PrefillRow::tokens() const {
  return std::accumulate(lens.begin(), lens.end(), std::int64_t{0});
}

std::int64_t PrefillRow::state_bytes() const {
  return static_cast<std::int64_t>(lens.size()) * HV * kK * kV * kStateBytes;
}

std::int64_t PrefillRow::bytes_read() const {
  const std::int64_t token = 2 * H * kK + HV * kV + HV * (kda ? kK : 1) + HV;
  return state_bytes() + tokens() * token * kTokenBytes;
}

std::int64_t PrefillRow::bytes_written() const {
  return state_bytes() + tokens() * HV * kV * kTokenBytes;
}

std::int64_t PrefillRow::operations() const {
  const std::int64_t chunk = kda ? 32 : 64;
  return tokens() * HV * (6 * kK * kV + 4 * chunk * (kK + kV));
}

void* PrefillWorkload::buffer(std::int64_t bytes) {
  memory_.push_back(gpu::allocate_device(static_cast<std::size_t>(bytes)));
  return memory_.back().get();
}

goldenrule_gpu_tensor PrefillWorkload::random(std::int64_t count, float amplitude,
                                              cudaStream_t stream) {
  void* p = buffer(count * kTokenBytes);
  launch_fill(Fill::kBF16, p, static_cast<std::size_t>(count), amplitude, seed_++, stream);
  return dense(p, GOLDENRULE_GPU_BF16);
}

goldenrule_gpu_tensor PrefillWorkload::floats(const std::vector<float>& values) {
  void* p = buffer(static_cast<std::int64_t>(values.size() * sizeof values[0]));
  gpu::check_cuda(
      cudaMemcpy(p, values.data(), values.size() * sizeof values[0], cudaMemcpyHostToDevice),
      "cudaMemcpy");
  return dense(p, GOLDENRULE_GPU_F32);
}

goldenrule_gpu_prefill_args PrefillWorkload::shared(const PrefillRow& row) {
  goldenrule_gpu_prefill_args call;
  goldenrule_gpu_prefill_defaults(&call, sizeof call);
  call.op = row.kda ? GOLDENRULE_GPU_KDA : GOLDENRULE_GPU_GATED_DELTA_RULE;
  call.gate_kind =
      is_bounded(row.gates) ? GOLDENRULE_GPU_GATE_BOUNDED : GOLDENRULE_GPU_GATE_SOFTPLUS;
  call.total = row.tokens();
  call.N = call.slots = static_cast<std::int64_t>(row.lens.size());
  call.H = row.H;
  call.HV = row.HV;
  call.K = kK;
  call.V = kV;
  call.scale = 1.0 / std::sqrt(static_cast<double>(kK));
  if (row.precise) call.flags |= GOLDENRULE_GPU_FLAG_PRECISE;
  std::vector<float> rates(static_cast<std::size_t>(row.HV));
  for (std::size_t j = 0; j < rates.size(); ++j) rates[j] = rate_of(row, j);
  std::vector<float> bias(rates.size() * (row.kda ? kK : 1));
  for (std::size_t i = 0; i < bias.size(); ++i) {
    bias[i] = bias_of(row.gates, i % kK);
  }
  call.A_log = floats(rates);
  call.dt_bias = floats(bias);
  std::vector<std::int32_t> bounds{0};
  for (const std::int64_t length : row.lens) {
    bounds.push_back(bounds.back() + static_cast<std::int32_t>(length));
  }
  void* p = buffer(static_cast<std::int64_t>(bounds.size() * sizeof bounds[0]));
  gpu::check_cuda(
      cudaMemcpy(p, bounds.data(), bounds.size() * sizeof bounds[0], cudaMemcpyHostToDevice),
      "cudaMemcpy");
  call.cu_seqlens = dense(p, GOLDENRULE_GPU_I32);
  call.workspace_size = goldenrule_gpu_prefill_workspace_size(&call);
  if (call.workspace_size > 0) {
    call.workspace = buffer(static_cast<std::int64_t>(call.workspace_size));
  }
  return call;
}

PrefillWorkload::PrefillWorkload(const PrefillRow& row, cudaStream_t stream) {
  const goldenrule_gpu_prefill_args common = shared(row);
  const std::int64_t bytes = row.bytes_read() + row.bytes_written();
  const std::int64_t sets = std::max<std::int64_t>(2, (kDistinctBytes + bytes - 1) / bytes);
  const std::int64_t state_count = common.N * row.HV * kK * kV;
  for (std::int64_t set = 0; set < sets; ++set) {
    goldenrule_gpu_prefill_args call = common;
    call.q = random(common.total * row.H * kK, 1.f, stream);
    call.k = random(common.total * row.H * kK, 1.f, stream);
    call.v = random(common.total * row.HV * kV, 1.f, stream);
    call.gate = random(common.total * row.HV * (row.kda ? kK : 1), 4.f, stream);
    call.beta = random(common.total * row.HV, 2.f, stream);
    call.o = dense(buffer(common.total * row.HV * kV * kTokenBytes), GOLDENRULE_GPU_BF16);
    call.state = dense(buffer(state_count * kStateBytes), GOLDENRULE_GPU_F32);
    launch_fill(Fill::kF32, call.state.data, static_cast<std::size_t>(state_count), 1.f, seed_++,
                stream);
    calls_.push_back(call);
  }
  gpu::check_cuda(cudaStreamSynchronize(stream), "fill");
}

void PrefillWorkload::launch(int i, cudaStream_t stream) const {
  goldenrule_gpu_prefill_args call = calls_[static_cast<std::size_t>(i)];
  call.stream = stream;
  char message[256];
  if (goldenrule_gpu_prefill(&call, message, sizeof message) != GOLDENRULE_GPU_OK) {
    throw Error(ErrorKind::kArgument, "goldenrule_gpu_prefill", "ok", message);
  }
}

void PrefillWorkload::check_finite() const {
  const goldenrule_gpu_prefill_args& call = calls_.front();
  std::vector<std::uint16_t> o(static_cast<std::size_t>(call.total * call.HV * call.V));
  gpu::check_cuda(cudaMemcpy(o.data(), call.o.data, o.size() * sizeof o[0], cudaMemcpyDeviceToHost),
                  "o");
  constexpr std::uint16_t kExponent = 0x7f80;
  const auto bad =
      std::ranges::count_if(o, [](std::uint16_t bits) { return (bits & kExponent) == kExponent; });
  if (bad > 0) {
    throw Error(ErrorKind::kValue, "o", "finite elements", std::to_string(bad) + " that are not");
  }
}

}  // namespace goldenrule::bench
