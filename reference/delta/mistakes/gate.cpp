// SPDX-License-Identifier: Apache-2.0
//
// Length: a row and a function per mistake of the gate.
//
// Mistakes in the gate and the decay. Where several kernels erred in several ways under one name,
// the function says which of them it commits.
#include <algorithm>
#include <array>
#include <cmath>

#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/calls/outputs.hpp"
#include "reference/delta/mistakes/common.hpp"
#include "reference/delta/mistakes/gates.hpp"
#include "reference/delta/mistakes/permits.hpp"
#include "reference/delta/mistakes/tables.hpp"
#include "reference/delta/mistakes/variant.hpp"
#include "reference/delta/rule/gate.hpp"

namespace goldenrule::delta {
namespace {

using call::Gate;
using call::Record;
using call::TensorMap;
using contract::Activation;
using contract::Point;

bool is_kda_gate(const Record& r) { return call::gate_channels(r, call::validate(r).K) > 1; }
bool is_softplus(const Record& r) { return r.convention.gate == Gate::kSoftplus; }
bool has_bias(const Record& r) { return has_logit_gate(r) && r.find_input("dt_bias") != nullptr; }
bool has_amplitude(const Record& r) {
  return has_logit_gate(r) && r.find_input("A_log") != nullptr;
}
bool is_chunked_gate(const Record& r, std::int64_t tokens) {
  return calls::is_prefill(r) && has_gate(r) && calls::longest_sequence(r) >= tokens;
}

// A natural logarithm is at hand: given, or computed from a.
bool log2_applies(const Record& r) { return has_logit_gate(r) || r.convention.gate == Gate::kLog; }
TensorMap gate_log2(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_alpha(r, [](const GatePlace& p) { return std::exp2(p.log_alpha); }));
}

// Given base-2 gates, or cumulated ones that one sub-kernel keeps in base 2 and another one reads.
bool ln2_applies(const Record& r) { return log2_applies(r) || r.convention.gate == Gate::kLog2; }
TensorMap gate_ln2(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_alpha(r, [](const GatePlace& p) { return std::exp(p.log_alpha * kLog2OfE); }));
}

// A computed gate is a logarithm too.
TensorMap gate_linear(const Record& r, const calls::Kernel& kernel) {
  const Gate gate = r.convention.gate;
  return kernel(with_alpha(r, [&](const GatePlace& p) {
    if (gate == Gate::kLinear) return std::exp(p.input);
    return has_logit_gate(r) ? p.log_alpha : p.input;
  }));
}

// The other of the two ways from a, A_log and dt_bias to alpha.
TensorMap gate_other_form(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  changed.convention.gate = is_softplus(r) ? Gate::kBounded : Gate::kSoftplus;
  return kernel(changed);
}

TensorMap softplus_missing(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_alpha(r, [](const GatePlace& p) { return std::exp(-p.amplitude * p.logit); }));
}

TensorMap softplus_relu(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_alpha(
      r, [](const GatePlace& p) { return std::exp(-p.amplitude * std::max(p.logit, 0.0)); }));
}

// A softplus gate, cut off at the bound, where the bounded gate is meant.
TensorMap gate_clamped_form(const Record& r, const calls::Kernel& kernel) {
  const double bound = r.convention.lower_bound;
  return kernel(with_alpha(r, [&](const GatePlace& p) {
    const double softplus = std::max(p.logit, 0.0) + std::log1p(std::exp(-std::fabs(p.logit)));
    return std::exp(std::max(bound, -p.amplitude * softplus));
  }));
}
bool unbounded_applies(const Record& r) {
  return has_gate(r) && r.convention.gate != Gate::kBounded;
}
TensorMap gate_clamped(const Record& r, const calls::Kernel& kernel) {
  const double bound = r.convention.lower_bound;
  return kernel(
      with_alpha(r, [&](const GatePlace& p) { return std::exp(std::max(bound, p.log_alpha)); }));
}

bool raw_applies(const Record& r) { return is_softplus(r) && has_amplitude(r); }
TensorMap a_log_raw(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_alpha(r, [](const GatePlace& p) {
    return std::exp(p.log_alpha / p.amplitude * std::log(p.amplitude));
  }));
}

TensorMap gate_ignored(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_alpha(r, [](const GatePlace&) { return 1.0; }));
}

// With projections: a is not read, only A_log and dt_bias. Without: every token reads the gate of
// token 0.
bool constant_applies(const Record& r) {
  return has_logit_gate(r) || (has_gate(r) && call::validate(r).tokens > 1);
}
TensorMap gate_constant(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  if (has_logit_gate(r)) {
    calls::change_input(changed, "a", [](std::int64_t, double) { return 0.0; });
    return kernel(changed);
  }
  const call::Tensor g = r.inputs.at("g");
  const std::int64_t row = g.size() / std::max<std::int64_t>(call::validate(r).tokens, 1);
  calls::change_input(changed, "g", [&](std::int64_t i, double) { return g[i % row]; });
  return kernel(changed);
}

TensorMap gate_channel_mean(const Record& r, const calls::Kernel& kernel) {
  const std::int64_t K = call::validate(r).K;
  std::vector<double> sums;
  (void)with_alpha(r, [&](const GatePlace& p) {
    if (p.channel == 0) sums.push_back(0.0);
    sums.back() += p.log_alpha;
    return p.alpha;
  });
  const std::int64_t heads = call::validate(r).HV;
  return kernel(with_alpha(r, [&](const GatePlace& p) {
    const double sum = sums[static_cast<std::size_t>(p.token * heads + p.head)];
    return std::exp(sum / static_cast<double>(K));
  }));
}

TensorMap gate_v_axis(const Record& r, const calls::Kernel&) {
  return run_lanes(r, step_variant({.gate_by_value = true}));
}

TensorMap dt_bias_ignored(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  changed.inputs.erase("dt_bias");
  return kernel(changed);
}

TensorMap a_log_ignored(const Record& r, const calls::Kernel& kernel) {
  Record changed = calls::without_outputs(r);
  calls::change_input(changed, "A_log", [](std::int64_t, double) { return 0.0; });
  return kernel(changed);
}

// Per value head: read by q/k head. Per q/k head: read by value head, modulo the heads there are.
bool wrong_head_applies(const Record& r) {
  if (!has_amplitude(r) && !has_bias(r)) return false;
  const call::Dims d = call::validate(r);
  if (d.HV == d.H) return false;
  return r.convention.gate_head == call::GateHead::kV ||
         (d.H > 1 && r.convention.head_map == call::HeadMap::kGrouped);
}
TensorMap a_log_wrong_head(const Record& r, const calls::Kernel& kernel) {
  const call::Dims d = call::validate(r);
  const bool by_value_head = r.convention.gate_head == call::GateHead::kV;
  Record changed = calls::without_outputs(r);
  changed.convention.gate_head = call::GateHead::kV;
  for (const char* name : {"A_log", "dt_bias"}) {
    const call::Tensor* given = r.find_input(name);
    if (given == nullptr) continue;
    call::Shape shape = given->shape();
    const std::int64_t width = given->size() / shape[0];
    shape[0] = d.HV;
    call::Tensor read(given->dtype(), shape);
    for (std::int64_t j = 0; j < d.HV; ++j) {
      const std::int64_t from = by_value_head ? d.qk_head(r.convention.head_map, j) : j % d.H;
      for (std::int64_t i = 0; i < width; ++i) {
        read.set(j * width + i, (*given)[from * width + i]);
      }
    }
    changed.inputs[name] = std::move(read);
  }
  return kernel(changed);
}

// exp(z) is inf in fp32 beyond 88.72. Where the threshold takes over before that, a branch-free
// select still multiplies that inf by 0; where it does not, softplus is inf and erases the state.
TensorMap softplus_overflow(const Record& r, const calls::Kernel& kernel) {
  constexpr double kLargestExponent = 88.72283905206835;
  const call::Convention& c = r.convention;
  return kernel(with_alpha(r, [&](const GatePlace& p) {
    const double z = c.softplus_beta * p.logit;
    if (!(z > kLargestExponent)) return p.alpha;
    return z > c.softplus_threshold ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  }));
}

// 1 + exp(z) in fp32 is 1 below -16.6.
TensorMap softplus_no_log1p(const Record& r, const calls::Kernel& kernel) {
  const call::Convention& c = r.convention;
  return kernel(with_alpha(r, [&](const GatePlace& p) {
    const double z = c.softplus_beta * p.logit;
    if (z > c.softplus_threshold) return p.alpha;
    const double sum = call::round_to(call::DType::kF32, 1.0 + std::exp(z));
    return std::exp(-p.amplitude * std::log(sum) / c.softplus_beta);
  }));
}

TensorMap decay_after_delta(const Record& r, const calls::Kernel&) {
  return run_lanes(r, step_variant({.order = kDecayAfterDelta}));
}

// Chunks of 64: row 62 of a full chunk, the last but one of a tail.
TensorMap decay_last_row(const Record& r, const calls::Kernel&) {
  return run_lanes(r, chunk_variant({.end_row = EndRow::kEarly}));
}

// Chunks of 64 whose cumulated gate is formed in two halves.
constexpr std::int64_t kHalfChunk = 32;
TensorMap decay_missing_carry(const Record& r, const calls::Kernel&) {
  return run_lanes(r, chunk_variant({.restart_row = kHalfChunk}));
}

// An exclusive sum for an inclusive one: token t has the gate of token t - 1, the first has none.
TensorMap gate_shifted(const Record& r, const calls::Kernel& kernel) {
  const call::Plan plan = call::make_plan(r, false);
  std::vector<bool> first(static_cast<std::size_t>(plan.dims.tokens), false);
  for (const call::Sequence& s : plan.sequences) {
    if (s.token_count > 0) first[static_cast<std::size_t>(s.first_token)] = true;
  }
  const std::vector<double> alphas = all_alphas(r);
  const std::int64_t channels = call::gate_channels(r, plan.dims.K);
  const std::int64_t heads = plan.dims.HV;
  return kernel(with_alpha(r, [&](const GatePlace& p) {
    if (first[static_cast<std::size_t>(p.token)]) return 1.0;
    const std::int64_t before = ((p.token - 1) * heads + p.head) * channels + p.channel;
    return alphas[static_cast<std::size_t>(before)];
  }));
}

// Seen only where some alpha exceeds 1.
TensorMap safe_exp_drop(const Record& r, const calls::Kernel&) {
  return run_lanes(r, chunk_variant({.drop_growth = true}));
}

// alpha itself, where its logarithm is what is handed over.
TensorMap alpha_bf16(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_alpha(
      r, [](const GatePlace& p) { return call::round_to(call::DType::kBF16, p.alpha); }));
}
bool alpha_applies(const Record& r) { return has_gate(r) && r.convention.gate != Gate::kLinear; }

// The gate as it is handed from one kernel to the next: a logarithm in the base of the call, alpha
// itself where that is given.
double rounded_gate(const Record& r, const GatePlace& p) {
  switch (r.convention.gate) {
    case Gate::kLog2:
      return std::exp2(bf16(p.input));
    case Gate::kLinear:
      return bf16(p.alpha);
    case Gate::kSoftplus:
    case Gate::kBounded:
    case Gate::kLog:
    case Gate::kNone:
      break;
  }
  return std::exp(bf16(p.log_alpha));
}
bool gate_bf16_applies(const Record& r) {
  if (!has_gate(r) || has_logit_gate(r)) return has_gate(r);
  return call::info(r.inputs.at("g").dtype()).significand_bits > 8;
}
TensorMap gate_bf16(const Record& r, const calls::Kernel& kernel) {
  return kernel(with_alpha(r, [&](const GatePlace& p) { return rounded_gate(r, p); }));
}

// Chunk kernels form decays as exp(G_i - G_j) from cumulated gates G, whose rounding the difference
// does not undo: at G = -81 half an ulp of fp32 is 4e-6, and so is the relative error of the decay.
// That is the recurrence with alpha_t = exp(G_t - G_(t-1)).
bool cumulates_gates(const Record& r) {
  return is_chunked_gate(r, 2) && r.convention.gate != Gate::kLinear;
}

struct GateSum {
  std::int64_t chunk = 64;
  call::DType type = call::DType::kF32;
  bool running = false;  // every partial sum is rounded, else the sum once
};
TensorMap with_gate_sum(const Record& r, const calls::Kernel& kernel, const GateSum& how) {
  const call::Plan plan = call::make_plan(r, false);
  std::vector<bool> starts(static_cast<std::size_t>(plan.dims.tokens));
  for (const call::Sequence& s : plan.sequences) {
    for (std::int64_t t = 0; t < s.token_count; t += how.chunk) {
      starts[static_cast<std::size_t>(s.first_token + t)] = true;
    }
  }
  const std::int64_t channels = call::gate_channels(r, plan.dims.K);
  struct Sum {
    double sum = 0.0, stored = 0.0;
  };
  std::vector<Sum> sums(static_cast<std::size_t>(plan.dims.HV * channels));
  return kernel(with_alpha(r, [&](const GatePlace& p) {
    Sum& s = sums[static_cast<std::size_t>(p.head * channels + p.channel)];
    if (starts[static_cast<std::size_t>(p.token)]) s = {};
    if (std::isinf(p.log_alpha)) return 0.0;
    const double before = s.stored;
    s.sum += p.log_alpha;
    s.stored = call::round_to(how.type, s.sum);
    if (how.running) s.sum = s.stored;
    return std::exp(s.stored - before);
  }));
}
TensorMap gate_sum_f32(const Record& r, const calls::Kernel& kernel) {
  return with_gate_sum(r, kernel, {});
}
TensorMap gate_sum_f32_running(const Record& r, const calls::Kernel& kernel) {
  return with_gate_sum(r, kernel, {.running = true});
}
TensorMap gate_sum_f32_in_32(const Record& r, const calls::Kernel& kernel) {
  return with_gate_sum(r, kernel, {.chunk = 32, .running = true});
}
TensorMap cumsum_bf16(const Record& r, const calls::Kernel& kernel) {
  return with_gate_sum(r, kernel, {.type = call::DType::kBF16});
}

std::string_view gate_sum_permitted(const contract::Contract& c) {
  if (!keeps_at_most(24, c, Point::kGateSum)) return {};
  return "cumulated gates are rounded to 24 bits before differences of them are taken";
}
// A log gate that is off by 2^-9 of itself moves a decay e^-G by at most G e^-G 2^-9 <= 2^-9 / e of
// what decays. That is rounded to 2^-9 of itself where operands carry the decays, and once more
// where the state is carried from chunk to chunk. Not a proof for numbers that have decayed far: of
// all suites and of calls without writes and with gates to -20 the worst took .68 of its budget.
std::string_view gate_bf16_permitted(const contract::Contract& c) {
  if (keeps_at_most(8, c, Activation::kGate)) return "log alpha is rounded to 8 bits";
  if (!keeps_at_most(8, c, Point::kIntra, Point::kCarriedState)) return {};
  return "operands that carry the decays, and the state of every chunk, are rounded to 8 bits";
}
// The rounded 1 + exp(x) is off by 2^-24 up to x = 0 and by 2^-24 of itself beyond, and so is its
// logarithm: 2^-24 at most.
std::string_view no_log1p_permitted(const contract::Contract& c) {
  if (c.functions.softplus < 0x1p-24) return {};
  return "softplus may be off by 2^-24 and more, which is what the rounded 1 + exp(x) costs";
}

constexpr calls::Meant kLog2Gate[] = {{"gate", "log", "log2"}};
constexpr calls::Meant kLogGate[] = {{"gate", "log2", "log"}};
constexpr calls::Meant kLinearGate[] = {{"gate", "log", "linear"}, {"gate", "linear", "log"}};
constexpr calls::Meant kOtherForm[] = {{"gate", "softplus", "bounded"},
                                       {"gate", "bounded", "softplus"}};
constexpr calls::Meant kNoGate[] = {{"gate", "", "none"}};
constexpr calls::Meant kOtherHead[] = {{"gate_head", "v", "qk"}, {"gate_head", "qk", "v"}};

constexpr std::string_view kGateGroup = "Gate and decay";
constexpr std::array kGateMistakes{
    calls::Mistake{"gate_log2", kGateGroup,
                   "a natural-log gate is raised to base 2: alpha = 2^(log alpha)", log2_applies,
                   gate_log2, kLog2Gate},
    calls::Mistake{"gate_ln2", kGateGroup,
                   "a base-2 gate is raised to base e: alpha = e^(log2 alpha), the given one or a "
                   "cumulated one that another sub-kernel keeps in base 2",
                   ln2_applies, gate_ln2, kLogGate},
    calls::Mistake{
        "gate_linear", kGateGroup,
        "a log gate is taken for alpha itself (its exp is missing), or alpha for its logarithm",
        has_gate, gate_linear, kLinearGate},
    calls::Mistake{
        "gate_other_form", kGateGroup,
        "the gate is lower_bound sigmoid(..) where the call says -exp(A_log) softplus(..), or "
        "the reverse",
        has_logit_gate, gate_other_form, kOtherForm},
    calls::Mistake{"gate_ignored", kGateGroup, "the state does not decay: alpha = 1 everywhere",
                   has_gate, gate_ignored, kNoGate},
    calls::Mistake{
        "gate_constant", kGateGroup,
        "the gate does not follow its input: a is read as 0, or every token has the gate of "
        "the first",
        constant_applies, gate_constant},
    calls::Mistake{"gate_channel_mean", kGateGroup,
                   "KDA decays all key channels of a head by their mean log gate", is_kda_gate,
                   gate_channel_mean},
    calls::Mistake{
        "gate_v_axis", kGateGroup,
        "KDA indexes the gate by value channel: column v decays by the gate of key channel v",
        is_kda_gate, gate_v_axis},
    calls::Mistake{"dt_bias_ignored", kGateGroup, "dt_bias is not added to a", has_bias,
                   dt_bias_ignored},
    calls::Mistake{"a_log_ignored", kGateGroup, "exp(A_log) is taken as 1", has_amplitude,
                   a_log_ignored},
    calls::Mistake{"a_log_raw", kGateGroup,
                   "A_log is used without its exp: log alpha = -A_log softplus(..)", raw_applies,
                   a_log_raw},
    calls::Mistake{
        "a_log_wrong_head", kGateGroup,
        "A_log and dt_bias are indexed by q/k head where they belong to value heads, or the "
        "reverse",
        wrong_head_applies, a_log_wrong_head, kOtherHead},
    calls::Mistake{"softplus_missing", kGateGroup,
                   "the softplus is missing: log alpha = -exp(A_log) (a + dt_bias)", is_softplus,
                   softplus_missing},
    calls::Mistake{"softplus_relu", kGateGroup,
                   "the softplus is a relu: log alpha = -exp(A_log) max(a + dt_bias, 0)",
                   is_softplus, softplus_relu},
    calls::Mistake{"gate_clamped", kGateGroup,
                   "the gate is max(lower_bound, -exp(A_log) softplus(..)) where the call says "
                   "lower_bound sigmoid(..)",
                   [](const Record& r) { return r.convention.gate == Gate::kBounded; },
                   gate_clamped_form},
    calls::Mistake{"gate_clamped", kGateGroup,
                   "log alpha is cut off at lower_bound (-5) where the call has no bound",
                   unbounded_applies, gate_clamped},
    calls::Mistake{
        "softplus_overflow", kGateGroup,
        "softplus overflows beyond 88.7: NaN from 0 * inf in a branch-free select, or an inf "
        "that erases the state where no threshold catches it",
        is_softplus, softplus_overflow},
    calls::Mistake{"softplus_no_log1p",
                   kGateGroup,
                   "softplus is log(1 + exp(x)) in fp32: coarse for negative x and 0 below -16.6",
                   is_softplus,
                   softplus_no_log1p,
                   {},
                   false,
                   no_log1p_permitted},
    calls::Mistake{"decay_after_delta", kGateGroup,
                   "the state decays after the delta update instead of before it", has_gate,
                   decay_after_delta},
    calls::Mistake{"decay_last_row", kGateGroup,
                   "the decay to the end of a chunk is taken from its last row but one",
                   [](const Record& r) { return is_chunked_gate(r, 2); }, decay_last_row},
    calls::Mistake{
        "decay_missing_carry", kGateGroup,
        "the cumulated gate restarts at row 32 of a chunk of 64: the first half is not carried "
        "over",
        [](const Record& r) { return is_chunked_gate(r, kHalfChunk + 1); }, decay_missing_carry},
    calls::Mistake{"gate_shifted", kGateGroup,
                   "token t decays by the gate of token t - 1, the first token not at all",
                   [](const Record& r) { return has_gate(r) && calls::longest_sequence(r) > 1; },
                   gate_shifted},
    calls::Mistake{
        "safe_exp_drop", kGateGroup,
        "a decay between two tokens of a chunk with a positive exponent is set to 0 instead of "
        "its value: growing gates lose their terms",
        [](const Record& r) { return is_chunked_gate(r, 2) && !has_logit_gate(r); }, safe_exp_drop},
    calls::Mistake{
        "gate_sum_f32",
        kGateGroup,
        "decays within a chunk of 64 are exp(G_i - G_j) of cumulated gates G in fp32, whose "
        "rounding error the difference does not cancel",
        cumulates_gates,
        gate_sum_f32,
        {},
        calls::kRounds,
        gate_sum_permitted},
    calls::Mistake{
        "gate_sum_f32",
        kGateGroup,
        "decays within a chunk of 64 are exp(G_i - G_j) of gates that are summed in fp32 one by "
        "one, with a rounding error from each sum",
        cumulates_gates,
        gate_sum_f32_running,
        {},
        calls::kRounds,
        gate_sum_permitted},
    calls::Mistake{
        "gate_sum_f32",
        kGateGroup,
        "decays within a chunk of 32 are exp(G_i - G_j) of gates that are summed in fp32 one by "
        "one, with a rounding error from each sum",
        cumulates_gates,
        gate_sum_f32_in_32,
        {},
        calls::kRounds,
        gate_sum_permitted},
    calls::Mistake{"gate_bf16",
                   kGateGroup,
                   "the finished gate (its logarithm, or alpha) is rounded to bf16",
                   gate_bf16_applies,
                   gate_bf16,
                   {},
                   calls::kRounds,
                   gate_bf16_permitted},
    calls::Mistake{"alpha_bf16",
                   kGateGroup,
                   "alpha is rounded to bf16 where its logarithm is handed over",
                   alpha_applies,
                   alpha_bf16,
                   {},
                   calls::kRounds},
    calls::Mistake{
        "cumsum_bf16",
        kGateGroup,
        "the cumulated log gate of a chunk of 64 is rounded to bf16 before differences of it "
        "are taken",
        cumulates_gates,
        cumsum_bf16,
        {},
        calls::kRounds},
};

}  // namespace

std::span<const calls::Mistake> gate_mistakes() { return kGateMistakes; }

}  // namespace goldenrule::delta
