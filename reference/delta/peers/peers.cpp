// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/peers/peers.hpp"

#include "reference/delta/peers/peer_call.hpp"
#include "reference/delta/peers/peer_rules.hpp"

namespace goldenrule::peers {
namespace {

using namespace peer;  // NOLINT(google-build-using-namespace): its calls and its rules
using call::DType;

constexpr auto kGdn = call::Op::kGatedDeltaRule;
constexpr auto kKda = call::Op::kKda;
constexpr auto kPrefill = call::Mode::kPrefill;
constexpr auto kMtp = call::Mode::kMtp;
constexpr const char* kChunk64 = "chunk64_bf16";
constexpr const char* kChunk16 = "chunk16_bf16_state";
constexpr const char* kRecurrent = "recurrent_f32";

std::vector<PeerCase> fla_cases(DType io, PeerRule rule) {
  std::vector<PeerCase> made;
  const struct {
    std::vector<std::int64_t> lengths;
    std::int64_t HV, D;
    double scale, normalizer;
  } rows[] = {{{75}, 2, 64, 1.0, 1.0},
              {{256, 256}, 4, 64, 1.0, 10.0},
              {{15, 85, 200}, 4, 100, 0.1, 1.0},
              {{500}, 2, 60, 1.0, 0.1}};
  for (const auto& row : rows) {
    Call c(kGdn, kPrefill, {.lengths = row.lengths, .H = 2, .HV = row.HV, .K = row.D, .V = row.D},
           io, 42);
    c.convention().state_layout = call::StateLayout::kKV;
    c.convention().scale = row.scale;
    c.vectors(uniform(0, 1), uniform(0, 1), uniform(0, 1));
    c.given_gate(call::Gate::kLog, fla_gate(row.normalizer)).given_beta(fla_beta);
    c.state(DType::kF32, constant(0.0));
    made.push_back(c.judged_by(rule, kChunk64));
  }
  return made;
}

std::vector<PeerCase> flashinfer_prefill_cases() {
  std::vector<PeerCase> made;
  for (const std::vector<std::int64_t>& lengths :
       {std::vector<std::int64_t>{64, 128, 256}, {31, 63, 93, 123}}) {
    Call c(kGdn, kPrefill, {.lengths = lengths, .H = 2, .HV = 4, .K = 128, .V = 128}, DType::kBF16,
           0);
    c.convention().qk_l2norm = call::QkNorm::kNone;
    c.vectors(normal(1), normal(1), normal(1)).normalized("k");
    c.given_gate(call::Gate::kLinear, uniform(0, 1)).given_beta(uniform(0, 1));
    made.push_back(c.judged_by(flashinfer_prefill_bf16, kChunk64));
  }
  Call c(kGdn, kPrefill, {.lengths = {64, 111, 192}, .H = 1, .HV = 1, .K = 128, .V = 128},
         DType::kF16, 0);
  c.convention().qk_l2norm = call::QkNorm::kNone;
  c.convention().scale = 1.0;
  c.vectors(normal(1), normal(1), normal(1)).normalized("k");
  c.given_gate(call::Gate::kLinear, uniform(0.99, 1)).given_beta(uniform(0.99, 1));
  made.push_back(c.judged_by(flashinfer_prefill_fp16, kChunk64));
  return made;
}

std::vector<PeerCase> flashinfer_decode_cases() {
  Call c(kGdn, call::Mode::kDecode, {.B = 4, .T = 1, .H = 2, .HV = 4, .K = 128, .V = 128},
         DType::kBF16, 0);
  c.convention().scale = 1.0;
  c.vectors(normal(1), normal(1), normal(1)).normalized("k");
  c.projected_gate(call::Gate::kSoftplus, normal(0.1), normal(0.1), normal(0.1));
  c.beta_logit(normal(1)).state(DType::kF32, normal(1));
  return {c.judged_by(flashinfer_decode, kRecurrent)};
}

// q, k, v of 0.1 N and a state of 0.01 N: FlashInfer's fp32 MTP and vLLM's fused MTP.
std::vector<PeerCase> small_mtp_cases(PeerRule rule) {
  std::vector<PeerCase> made;
  for (const std::int64_t T : {2, 8}) {
    Call c(kGdn, kMtp, {.B = 4, .T = T, .H = 2, .HV = 4, .K = 128, .V = 128}, DType::kBF16, 0);
    if (T == 2) c.convention().scale = 1.0;
    c.vectors(normal(0.1), normal(0.1), normal(0.1));
    c.projected_gate(call::Gate::kSoftplus, normal(0.1), normal(0.1), normal(0.1));
    c.beta_logit(normal(0.1)).state(DType::kF32, normal(0.01)).identity_slots();
    made.push_back(c.judged_by(rule, kRecurrent));
  }
  return made;
}

std::vector<PeerCase> flashinfer_kda_cases() {
  Call c(kKda, kPrefill, {.lengths = {31, 64, 129}, .H = 2, .HV = 2, .K = 128, .V = 128},
         DType::kBF16, 0);
  c.vectors(normal(1), normal(1), normal(1));
  c.projected_gate(call::Gate::kBounded, normal(0.1), normal(0.1), normal(0.1));
  c.beta_logit(normal(1));
  return {c.judged_by(one_percent, kChunk64)};
}

std::vector<PeerCase> sglang_cases() {
  std::vector<PeerCase> made;
  for (const std::int64_t T : {7, 64, 256}) {
    Call c(kGdn, kPrefill, {.lengths = {T, T}, .H = 2, .HV = 2, .K = 128, .V = 128}, DType::kBF16,
           0);
    c.vectors(normal(1), normal(1), normal(1));
    c.given_gate(call::Gate::kLog, fla_gate(1.0)).given_beta(fla_beta);
    c.state(DType::kF32, constant(0.0));
    made.push_back(c.judged_by(sglang, kChunk64));
  }
  return made;
}

std::vector<PeerCase> ggml_cases() {
  std::vector<PeerCase> made;
  const struct {
    std::int64_t H, HV, D, T;
  } rows[] = {{32, 32, 128, 1}, {8, 8, 128, 4}, {4, 4, 64, 64}, {2, 4, 64, 127}, {4, 4, 64, 256}};
  for (const auto& row : rows) {
    Call c(kGdn, kPrefill, {.lengths = {row.T}, .H = row.H, .HV = row.HV, .K = row.D, .V = row.D},
           DType::kF32, 0);
    c.convention().head_map = call::HeadMap::kTiled;
    c.vectors(uniform(-1, 1), uniform(-1, 1), uniform(-0.3, 5));
    c.given_gate(call::Gate::kLog, uniform(-20, -1e-4)).given_beta(uniform(0, 1));
    c.state(DType::kF32, uniform(-1, 1));
    made.push_back(c.judged_by(ggml, kRecurrent));
  }
  return made;
}

std::vector<PeerCase> flash_kda_cases() {
  Call c(kKda, kPrefill, {.lengths = {16, 37, 97}, .H = 2, .HV = 2, .K = 128, .V = 128},
         DType::kBF16, 0);
  c.vectors(normal(1), normal(1), normal(1)).normalized("q").normalized("k");
  c.projected_gate(call::Gate::kBounded, normal(1), uniform(0, 1), uniform(0, 1));
  c.beta_logit(normal(1));
  c.state(DType::kBF16,
          [](const random::Stream&, std::int64_t i) { return static_cast<double>(i); });
  return {c.judged_by(same_bits, kChunk16)};
}

std::vector<PeerCase> flash_kda_fla_cases() {
  std::vector<PeerCase> made;
  for (const Draw& gate : {constant(-8), constant(0), constant(8), uniform(-8, 8)}) {
    Call c(kKda, kPrefill, {.lengths = {256}, .H = 1, .HV = 1, .K = 128, .V = 128}, DType::kBF16,
           42);
    c.vectors(uniform(0, 1), uniform(0, 1), uniform(0, 1));
    c.projected_gate(call::Gate::kBounded, gate, constant(0), constant(0));
    c.beta_logit(normal(1)).state(DType::kF32, normal(1));
    made.push_back(c.judged_by(fla_output_only, kChunk16));
  }
  return made;
}

}  // namespace

std::vector<Peer> peers() {
  return {
      {.name = "FLA, chunk GDN",
       .rule = "RMSE / RMS < .005 of o and of the state; or all within 1e-6",
       .inputs = "fp16; q, k, v ~ U(0,1), g = logsigmoid(U(0,1)) / {.1, 1, 10}, zero state",
       .cases = fla_cases(DType::kF16, fla),
       .shared = {}},
      {.name = "FlashInfer, GDN prefill",
       .rule = "abs(y - x) <= 1e-2 + 1e-2 abs(x) (o), 5e-3 + 1e-3 abs(x) (state); fp16 2e-3, 1e-3",
       .inputs = "alpha, beta ~ U(0,1), one fp16 case with U(.99,1); k normalised; no state",
       .cases = flashinfer_prefill_cases(),
       .shared = {}},
      {.name = "FlashInfer, GDN decode",
       .rule = "abs(y - x) <= 1.6e-2 + 5e-3 abs(x)",
       .inputs = "A_log, dt_bias, a ~ .1 N(0,1); state ~ N(0,1); scale 1",
       .cases = flashinfer_decode_cases(),
       .shared = {}},
      {.name = "FlashInfer, GDN MTP",
       .rule = "abs(y - x) <= 1e-2 + 1e-2 abs(x)",
       .inputs = "q, k, v ~ .1 N(0,1); gate parameters .1 N(0,1); state ~ .01 N(0,1)",
       .cases = small_mtp_cases(one_percent),
       .shared = {}},
      {.name = "FlashInfer, KDA prefill",
       .rule = "abs(y - x) <= 1e-2 + 1e-2 abs(x)",
       .inputs = "gate parameters .1 N(0,1), lower bound -5: log alpha near -2.5; no state",
       .cases = flashinfer_kda_cases(),
       .shared = {}},
      {.name = "SGLang, chunk GDN",
       .rule = "abs(y - x) <= 2e-2 + 1e-2 abs(x)",
       .inputs = "q, k, v ~ N(0,1), g = logsigmoid(U(0,1)), zero state",
       .cases = sglang_cases(),
       .shared = {}},
      {.name = "vLLM, fused MTP",
       .rule = "abs(y - x) <= 3e-2 + 3e-2 abs(x)",
       .inputs = "q, k, v ~ .1 N(0,1), state ~ .01 N(0,1)",
       .cases = small_mtp_cases(vllm),
       .shared = {}},
      {.name = "ggml, GATED_DELTA_NET",
       .rule = "sum of squared errors <= 1e-7 of the sum of squares, o and state together",
       .inputs = "f32; g ~ U(-20, -1e-4), v ~ U(-.3, 5), state ~ U(-1, 1)",
       .cases = ggml_cases(),
       .shared = {}},
      {.name = "DeepGEMM's similarity",
       .rule = "1 - 2 <x, y> / (x^2 + y^2) < 1e-5 of o and of the state",
       .inputs = "bf16; as FLA's",
       .cases = fla_cases(DType::kBF16, deep_gemm),
       .shared = {}},
      {.name = "FlashKDA, own emulation",
       .rule = "every bit is that of an emulation of the kernel",
       .inputs = "normalised q, k; v, gate, beta ~ N(0,1); state 0, 1, 2, ..",
       .cases = flash_kda_cases(),
       .shared = {"inverse_fp16_neumann"}},
      {.name = "FlashKDA, versus FLA",
       .rule = "RMSE / RMS < .005 of o; the state only warns",
       .inputs = "q, k, v ~ U(0,1); gate logits -8, 0, 8, U(-8,8); state ~ N(0,1)",
       .cases = flash_kda_fla_cases(),
       .shared = {}},
  };
}

}  // namespace goldenrule::peers
