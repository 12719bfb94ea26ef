// SPDX-License-Identifier: Apache-2.0
#include "reference/suites/peers.hpp"

#include <cmath>
#include <functional>
#include <numeric>

#include "fixtures/random/philox.hpp"

namespace goldenrule::suites {
namespace {

using call::DType;
using call::TensorMap;

// --- Rules. A NaN or an infinity fails every one of them.

template <class F>
bool every_element(const TensorMap& outputs, const TensorMap& exact, F&& passes) {
  for (const auto& [name, tensor] : outputs) {
    const call::Tensor& golden = exact.at(name);
    for (std::int64_t i = 0; i < tensor.size(); ++i) {
      if (std::isnan(golden[i])) continue;  // nobody writes it
      if (!passes(name, tensor[i], golden[i])) return false;
    }
  }
  return true;
}

// |y - x| <= atol + rtol |x|, o and states apart.
struct Tolerance {
  double atol, rtol;
};
bool all_close(const TensorMap& outputs, const TensorMap& exact, Tolerance o, Tolerance state) {
  return every_element(outputs, exact, [&](const std::string& name, double y, double x) {
    const Tolerance& t = name == "o" ? o : state;
    return std::fabs(y - x) <= t.atol + t.rtol * std::fabs(x);
  });
}

struct Sums {
  double error2 = 0.0, y2 = 0.0, x2 = 0.0, product = 0.0, largest = 0.0;
  std::int64_t count = 0;
  bool finite = true;

  void add(const call::Tensor& output, const call::Tensor& golden) {
    for (std::int64_t i = 0; i < output.size(); ++i) {
      const double x = golden[i];
      const double y = output[i];
      if (std::isnan(x)) continue;
      finite = finite && std::isfinite(y);
      error2 += (y - x) * (y - x);
      x2 += x * x;
      y2 += y * y;
      product += x * y;
      largest = std::max(largest, std::fabs(y - x));
      ++count;
    }
  }
};

// RMSE over RMS, of one whole tensor; anything within 1e-6 passes.
bool fla_ratio(const call::Tensor& output, const call::Tensor& golden) {
  constexpr double kRatio = 0.005;
  Sums sums;
  sums.add(output, golden);
  if (!sums.finite) return false;
  if (sums.largest <= 1e-6) return true;
  const auto n = static_cast<double>(sums.count);
  return std::sqrt(sums.error2 / n) / (std::sqrt(sums.x2 / n) + 1e-8) < kRatio;
}
bool fla(const TensorMap& outputs, const TensorMap& exact, const TensorMap&) {
  return fla_ratio(outputs.at("o"), exact.at("o")) &&
         fla_ratio(outputs.at("final_state"), exact.at("final_state"));
}
bool fla_output_only(const TensorMap& outputs, const TensorMap& exact, const TensorMap&) {
  return fla_ratio(outputs.at("o"), exact.at("o"));
}

bool flashinfer_prefill_bf16(const TensorMap& y, const TensorMap& x, const TensorMap&) {
  return all_close(y, x, {1e-2, 1e-2}, {5e-3, 1e-3});
}
bool flashinfer_prefill_fp16(const TensorMap& y, const TensorMap& x, const TensorMap&) {
  return all_close(y, x, {2e-3, 1e-3}, {1e-3, 1e-4});
}
bool flashinfer_decode(const TensorMap& y, const TensorMap& x, const TensorMap&) {
  return all_close(y, x, {1.6e-2, 5e-3}, {1.6e-2, 5e-3});
}
bool one_percent(const TensorMap& y, const TensorMap& x, const TensorMap&) {
  return all_close(y, x, {1e-2, 1e-2}, {1e-2, 1e-2});
}
bool sglang(const TensorMap& y, const TensorMap& x, const TensorMap&) {
  return all_close(y, x, {2e-2, 1e-2}, {2e-2, 1e-2});
}
bool vllm(const TensorMap& y, const TensorMap& x, const TensorMap&) {
  return all_close(y, x, {3e-2, 3e-2}, {3e-2, 3e-2});
}

// One normalised mean square error over output and state together.
bool ggml(const TensorMap& outputs, const TensorMap& exact, const TensorMap&) {
  Sums sums;
  for (const auto& [name, tensor] : outputs) sums.add(tensor, exact.at(name));
  return sums.finite && sums.error2 <= 1e-7 * sums.x2;
}

bool deep_gemm(const TensorMap& outputs, const TensorMap& exact, const TensorMap&) {
  for (const auto& [name, tensor] : outputs) {
    Sums sums;
    sums.add(tensor, exact.at(name));
    if (!sums.finite || !(1.0 - 2.0 * sums.product / (sums.x2 + sums.y2) < 1e-5)) return false;
  }
  return true;
}

bool same_bits(const TensorMap& outputs, const TensorMap&, const TensorMap& right) {
  for (const auto& [name, tensor] : outputs) {
    const auto a = tensor.bytes();
    const auto b = right.at(name).bytes();
    if (!std::equal(a.begin(), a.end(), b.begin(), b.end())) return false;
  }
  return true;
}

// --- Inputs.

struct Extents {
  std::vector<std::int64_t> lengths{};  // prefill
  std::int64_t B = 0, T = 0;            // decode, MTP
  std::int64_t H = 0, HV = 0, K = 0, V = 0;
};

using Draw = std::function<double(const random::Stream&, std::int64_t)>;

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
Draw normal(double deviation) {
  return [=](const random::Stream& s, std::int64_t i) { return deviation * s.normal(i); };
}
Draw uniform(double low, double high) {
  return [=](const random::Stream& s, std::int64_t i) { return s.uniform(i, low, high); };
}
Draw constant(double value) {
  return [=](const random::Stream&, std::int64_t) { return value; };
}
// logsigmoid(U[0,1)) / normalizer
Draw fla_gate(double normalizer) {
  return [=](const random::Stream& s, std::int64_t i) {
    return std::log(sigmoid(s.uniform(i))) / normalizer;
  };
}
// sigmoid(U[0,1))
double fla_beta(const random::Stream& s, std::int64_t i) { return sigmoid(s.uniform(i)); }

// Builds one call, tensor by tensor.
class Call {
 public:
  Call(call::Op op, call::Mode mode, Extents extents, DType io, std::uint64_t seed)
      : extents_(std::move(extents)), io_(io), seed_(seed) {
    record_.op = op;
    record_.mode = mode;
    if (mode == call::Mode::kPrefill) {
      std::vector<double> bounds{0.0};
      for (const std::int64_t n : extents_.lengths) {
        bounds.push_back(bounds.back() + static_cast<double>(n));
      }
      tokens_ = {static_cast<std::int64_t>(bounds.back())};
      rows_ = std::ssize(extents_.lengths);
      record_.inputs["cu_seqlens"] = call::Tensor(DType::kI64, {std::ssize(bounds)}, bounds);
    } else {
      tokens_ = {extents_.B, extents_.T};
      rows_ = extents_.B;
    }
  }

  call::Convention& convention() { return record_.convention; }

  Call& vectors(const Draw& q, const Draw& k, const Draw& v) {
    fill("q", io_, tokens({extents_.H, extents_.K}), q);
    fill("k", io_, tokens({extents_.H, extents_.K}), k);
    fill("v", io_, tokens({extents_.HV, extents_.V}), v);
    return *this;
  }
  /// As torch.nn.functional.normalize, before the call.
  Call& normalized(const char* name) {
    const call::Tensor given = record_.inputs.at(name);
    std::vector<double> x = given.to_doubles();
    const auto K = static_cast<std::size_t>(extents_.K);
    for (std::size_t row = 0; row < x.size(); row += K) {
      double sum = 0.0;
      for (std::size_t i = row; i < row + K; ++i) sum += x[i] * x[i];
      for (std::size_t i = row; i < row + K; ++i) x[i] /= std::sqrt(sum);
    }
    record_.inputs[name] = call::Tensor(io_, given.shape(), x);
    return *this;
  }
  Call& given_gate(call::Gate gate, const Draw& g) {
    convention().gate = gate;
    fill("g", DType::kF32, tokens(gate_axes()), g);
    return *this;
  }
  Call& projected_gate(call::Gate gate, const Draw& a, const Draw& A_log, const Draw& dt_bias) {
    convention().gate = gate;
    fill("a", io_, tokens(gate_axes()), a);
    fill("A_log", DType::kF32, {extents_.HV}, A_log);
    fill("dt_bias", DType::kF32, gate_axes(), dt_bias);
    return *this;
  }
  Call& given_beta(const Draw& beta) {
    convention().beta = call::BetaForm::kDirect;
    fill("beta", DType::kF32, tokens({extents_.HV}), beta);
    return *this;
  }
  Call& beta_logit(const Draw& b) {
    fill("b", io_, tokens({extents_.HV}), b);
    return *this;
  }
  Call& state(DType type, const Draw& x) {
    const bool vk = convention().state_layout == call::StateLayout::kVK;
    fill("initial_state", type,
         {rows_, extents_.HV, vk ? extents_.V : extents_.K, vk ? extents_.K : extents_.V}, x);
    return *this;
  }
  Call& identity_slots() {
    std::vector<double> slots(static_cast<std::size_t>(rows_));
    std::iota(slots.begin(), slots.end(), 0.0);
    record_.inputs["state_indices"] = call::Tensor(DType::kI32, {rows_}, slots);
    return *this;
  }

  [[nodiscard]] PeerCase judged_by(PeerRule rule, std::string contract) const {
    return {.record = record_, .contract = std::move(contract), .rule = rule};
  }

 private:
  [[nodiscard]] call::Shape tokens(const call::Shape& tail) const {
    call::Shape shape = tokens_;
    shape.insert(shape.end(), tail.begin(), tail.end());
    return shape;
  }
  [[nodiscard]] call::Shape gate_axes() const {
    return record_.op == call::Op::kKda ? call::Shape{extents_.HV, extents_.K}
                                        : call::Shape{extents_.HV};
  }
  void fill(const char* name, DType type, const call::Shape& shape, const Draw& draw) {
    const random::Stream stream(seed_, name);
    call::Tensor tensor(type, shape);
    for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.set(i, draw(stream, i));
    record_.inputs[name] = std::move(tensor);
  }

  call::Record record_;
  const Extents extents_;
  const DType io_;
  const std::uint64_t seed_;
  call::Shape tokens_;
  std::int64_t rows_ = 0;
};

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

}  // namespace goldenrule::suites
