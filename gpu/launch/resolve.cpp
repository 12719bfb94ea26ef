// SPDX-License-Identifier: Apache-2.0
#include "gpu/launch/resolve.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "gpu/launch/check_tensor.hpp"

namespace goldenrule::gpu {
namespace {

using Args = goldenrule_gpu_recurrent_args;
using TensorArg = goldenrule_gpu_tensor;

constexpr std::int64_t kInt32Max = std::numeric_limits<std::int32_t>::max();

std::int32_t narrow(std::int64_t x) { return static_cast<std::int32_t>(x); }
std::uint32_t bytes(std::int64_t x) { return static_cast<std::uint32_t>(x); }

void check_choice(const char* name, std::int32_t value, std::int32_t count, Problem& problem) {
  if (value < 0 || value >= count) {
    problem.invalid(name, "0 to " + std::to_string(count - 1), value);
  }
}

void check_choices(const Args& a, Problem& problem) {
  if (a.struct_size != sizeof(Args)) {
    problem.invalid("struct_size", std::to_string(sizeof(Args)), std::to_string(a.struct_size));
    return;  // nothing behind it can be trusted
  }
  check_choice("op", a.op, 2, problem);
  check_choice("state_layout", a.state_layout, 2, problem);
  check_choice("gate_kind", a.gate_kind, 6, problem);
  check_choice("beta_kind", a.beta_kind, 3, problem);
  check_choice("qk_norm", a.qk_norm, 4, problem);
  check_choice("head_map", a.head_map, 2, problem);
  check_choice("gate_head", a.gate_head, 2, problem);
  check_choice("disable_state_update", a.disable_state_update, 2, problem);
  if ((a.flags & ~static_cast<std::uint32_t>(GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH)) != 0) {
    problem.invalid("flags", "only GOLDENRULE_GPU_FLAG_DEPENDENT_LAUNCH", a.flags);
  }
  if (a.reserved != 0) problem.invalid("reserved", "0", a.reserved);
}

void check_range(const char* name, std::int64_t value, std::int64_t low, std::int64_t high,
                 Problem& problem) {
  if (value < low || value > high) {
    problem.invalid(name, std::to_string(low) + " to " + std::to_string(high), value);
  }
}

void check_extents(const Args& a, Problem& problem) {
  check_range("B", a.B, 0, kInt32Max, problem);
  check_range("T", a.T, 0, GOLDENRULE_GPU_MAX_T, problem);
  check_range("H", a.H, 1, 1 << 20, problem);
  check_range("HV", a.HV, 1, 1 << 20, problem);
  check_range("K", a.K, 1, GOLDENRULE_GPU_MAX_K, problem);
  check_range("V", a.V, 1, 1 << 24, problem);
  check_range("slots", a.slots, 0, kInt32Max, problem);
  if (problem.ok() && a.HV % a.H != 0) {
    problem.invalid("HV", "a multiple of H=" + std::to_string(a.H), a.HV);
  }
  const bool own_slots = a.state_indices.data == nullptr && a.ssm_state_indices.data == nullptr;
  if (problem.ok() && own_slots && a.slots < a.B) {
    problem.invalid("slots", "at least B=" + std::to_string(a.B) + " (no state_indices)", a.slots);
  }
  if (a.intermediate_states.data != nullptr && a.intermediate_rows < a.T) {
    problem.invalid("intermediate_rows", "at least T=" + std::to_string(a.T), a.intermediate_rows);
  }
  // The lowest blocks have 16 rows; the grid is one-dimensional and below 2^31 blocks.
  if (problem.ok() && a.B > kInt32Max / (a.HV * ((a.V + 15) / 16))) {
    problem.invalid("B", "B * HV * ceil(V/16) below 2^31", a.B);
  }
}

void check_number(const char* name, double value, bool positive, Problem& problem) {
  if (!std::isfinite(value) || (positive && value <= 0.0)) {
    problem.invalid(name, positive ? "a finite number above 0" : "a finite number",
                    std::to_string(value));
  }
}

void check_numbers(const Args& a, Problem& problem) {
  check_number("scale", a.scale, false, problem);
  check_number("l2_eps", a.l2_eps, false, problem);
  if (a.l2_eps < 0.0) problem.invalid("l2_eps", "0 or more", std::to_string(a.l2_eps));
  if (a.gate_kind == GOLDENRULE_GPU_GATE_SOFTPLUS) {
    check_number("softplus_beta", a.softplus_beta, true, problem);
    check_number("softplus_threshold", a.softplus_threshold, false, problem);
  }
  if (a.gate_kind == GOLDENRULE_GPU_GATE_BOUNDED) {
    check_number("lower_bound", a.lower_bound, false, problem);
  }
}

class Resolver {
 public:
  Resolver(const Args& args, Params& params, Problem& problem)
      : a_(args), p_(params), problem_(problem) {}

  void run() {
    tokens();
    states();
    indices();
    p_.HV = narrow(a_.HV);
    p_.group = narrow(a_.head_map == GOLDENRULE_GPU_HEADS_TILED ? a_.H : a_.HV / a_.H);
    p_.by_heads = Divisor::of(p_.HV);
    p_.by_group = Divisor::of(p_.group);
    p_.T = narrow(a_.T);
    p_.K = narrow(a_.K);
    p_.V = narrow(a_.V);
    p_.slots = narrow(a_.slots);
    p_.pad_slot = a_.pad_slot;
    p_.disable_state_update = a_.disable_state_update != 0;
    p_.tiled_heads = a_.head_map == GOLDENRULE_GPU_HEADS_TILED;
    p_.gate_by_qk_head = a_.gate_head == GOLDENRULE_GPU_GATE_HEAD_QK;
    p_.gate_kind = static_cast<std::uint8_t>(a_.gate_kind);
    p_.beta_kind = static_cast<std::uint8_t>(a_.beta_kind);
    p_.norm_kind = static_cast<std::uint8_t>(a_.qk_norm);
    p_.channel_gate = a_.op == GOLDENRULE_GPU_KDA;
    p_.scale = static_cast<float>(a_.scale);
    p_.l2_eps = static_cast<float>(a_.l2_eps);
    p_.softplus_beta = static_cast<float>(a_.softplus_beta);
    p_.softplus_threshold = static_cast<float>(a_.softplus_threshold);
    p_.lower_bound = static_cast<float>(a_.lower_bound);
  }

 private:
  using Extents = std::initializer_list<std::int64_t>;

  Strides check(const TensorArg& tensor, const char* name, Need need, Use use, Types types,
                Extents extents, int strided, const std::string& why = "") {
    const TensorRule rule{.name = name,
                          .need = need,
                          .use = use,
                          .types = types,
                          .extents = {extents.begin(), extents.size()},
                          .strided = strided};
    Strides strides = check_tensor(tensor, rule, why, problem_);
    const bool wide_strides = types == Types::kState;
    for (std::size_t i = 0; i < static_cast<std::size_t>(strided); ++i) {
      const std::int64_t most = kInt32Max / std::max(1, dtype_size(tensor.dtype));
      if (!wide_strides && strides[i] > most) {
        problem_.report(GOLDENRULE_GPU_UNSUPPORTED,
                        std::string(name) + ".stride[" + std::to_string(i) + "]",
                        "at most " + std::to_string(most), std::to_string(strides[i]));
      }
    }
    return problem_.ok() ? strides : Strides{};  // nothing is computed from what is refused
  }

  TokenView token_view(const TensorArg& tensor, const char* name, Need need, Use use,
                       Extents extents, const std::string& why = "") {
    const Strides s = check(tensor, name, need, use, Types::kFloat, extents, 3, why);
    const std::int64_t size = dtype_size(tensor.dtype);
    return {static_cast<char*>(tensor.data), bytes(s[0] * size), bytes(s[1] * size),
            bytes(s[2] * size)};
  }

  // Bytes of an asynchronous copy that divide the start and the length of every row.
  static std::uint8_t copy_unit(const TokenView& view, std::int32_t dtype, std::int64_t row) {
    const std::int64_t size = dtype_size(dtype);
    const auto address =
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(view.data) % 16);
    for (const std::uint8_t unit : {std::uint8_t{16}, std::uint8_t{8}, std::uint8_t{4}}) {
      const bool fits = address % unit == 0 && row * size % unit == 0 && view.row % unit == 0 &&
                        view.token % unit == 0 && view.head % unit == 0;
      if (fits) return unit;
    }
    return 2;
  }

  static Element element(const TensorArg& tensor) { return static_cast<Element>(tensor.dtype); }

  void tokens() {
    const std::int64_t B = a_.B, T = a_.T, H = a_.H, HV = a_.HV, K = a_.K, V = a_.V;
    p_.q = token_view(a_.q, "q", Need::kRequired, Use::kRead, {B, T, H, K});
    p_.k = token_view(a_.k, "k", Need::kRequired, Use::kRead, {B, T, H, K});
    p_.v = token_view(a_.v, "v", Need::kRequired, Use::kRead, {B, T, HV, V});
    gates();
    p_.beta = token_view(a_.beta, "beta", Need::kRequired, Use::kRead, {B, T, HV});
    p_.o = token_view(a_.o, "o", Need::kRequired, Use::kWritten, {B, T, HV, V});
    if (problem_.ok() && a_.q.data != nullptr && a_.k.data != nullptr && a_.k.dtype != a_.q.dtype) {
      problem_.report(GOLDENRULE_GPU_UNSUPPORTED, "k.dtype",
                      "that of q, " + std::to_string(a_.q.dtype), std::to_string(a_.k.dtype));
    }
    p_.qk_type = element(a_.q);
    p_.v_type = element(a_.v);
    p_.beta_type = element(a_.beta);
    p_.o_type = element(a_.o);
    p_.q_unit = copy_unit(p_.q, a_.q.dtype, K);
    p_.k_unit = copy_unit(p_.k, a_.k.dtype, K);
    p_.v_unit = copy_unit(p_.v, a_.v.dtype, V);
    p_.o_unit = copy_unit(p_.o, a_.o.dtype, V);
  }

  void gates() {
    const std::int64_t B = a_.B, T = a_.T, HV = a_.HV, K = a_.K;
    const std::int64_t heads = a_.gate_head == GOLDENRULE_GPU_GATE_HEAD_QK ? a_.H : HV;
    const bool none = a_.gate_kind == GOLDENRULE_GPU_GATE_NONE;
    const bool raw =
        a_.gate_kind == GOLDENRULE_GPU_GATE_SOFTPLUS || a_.gate_kind == GOLDENRULE_GPU_GATE_BOUNDED;
    const bool channel = a_.op == GOLDENRULE_GPU_KDA;
    const Need need = none ? Need::kForbidden : Need::kRequired;
    const std::string kind = " (gate_kind " + std::to_string(a_.gate_kind) + ")";
    p_.gate = channel ? token_view(a_.gate, "gate", need, Use::kRead, {B, T, HV, K}, kind)
                      : token_view(a_.gate, "gate", need, Use::kRead, {B, T, HV}, kind);
    const Need rate = a_.gate_kind == GOLDENRULE_GPU_GATE_SOFTPLUS ? Need::kRequired
                      : raw                                        ? Need::kOptional
                                                                   : Need::kForbidden;
    const Need bias = raw ? Need::kOptional : Need::kForbidden;
    const Strides r = check(a_.A_log, "A_log", rate, Use::kRead, Types::kFloat, {heads}, 1, kind);
    const Strides b =
        channel ? check(a_.dt_bias, "dt_bias", bias, Use::kRead, Types::kFloat, {heads, K}, 1, kind)
                : check(a_.dt_bias, "dt_bias", bias, Use::kRead, Types::kFloat, {heads}, 1, kind);
    p_.A_log = a_.A_log.data;
    p_.dt_bias = a_.dt_bias.data;
    p_.A_log_stride = bytes(r[0] * dtype_size(a_.A_log.dtype));
    p_.dt_bias_stride = bytes(b[0] * dtype_size(a_.dt_bias.dtype));
    p_.gate_type = element(a_.gate);
    p_.A_log_type = element(a_.A_log);
    p_.dt_bias_type = element(a_.dt_bias);
    const TokenView bias_view{static_cast<char*>(a_.dt_bias.data), 0, 0, p_.dt_bias_stride};
    p_.gate_unit = copy_unit(p_.gate, a_.gate.dtype, K);
    p_.dt_bias_unit = copy_unit(bias_view, a_.dt_bias.dtype, K);
  }

  static StateView state_view(const TensorArg& tensor, std::int64_t block, std::int64_t head,
                              std::int64_t outer) {
    return {tensor.data, block, head, narrow(outer)};
  }

  void check_outer(const char* name, std::int64_t outer) {
    if (outer > kInt32Max) {
      problem_.report(GOLDENRULE_GPU_UNSUPPORTED, std::string(name) + " stride of a row of state",
                      "at most " + std::to_string(kInt32Max), std::to_string(outer));
    }
  }

  void states() {
    const bool vk = a_.state_layout == GOLDENRULE_GPU_STATE_VK;
    const std::int64_t outer = vk ? a_.V : a_.K;
    const std::int64_t inner = vk ? a_.K : a_.V;
    const Extents pool{a_.slots, a_.HV, outer, inner};
    const bool in_place = a_.final_state.data == nullptr;
    const Strides s = check(a_.state, "state", Need::kRequired,
                            in_place ? Use::kWritten : Use::kRead, Types::kState, pool, 3);
    const Strides f = check(a_.final_state, "final_state", Need::kOptional, Use::kWritten,
                            Types::kState, pool, 3);
    const Strides m =
        check(a_.intermediate_states, "intermediate_states", Need::kOptional, Use::kWritten,
              Types::kState, {a_.B, a_.intermediate_rows, a_.HV, outer, inner}, 4);
    check_outer("state", s[2]);
    check_outer("final_state", f[2]);
    check_outer("intermediate_states", m[3]);
    same_dtype(a_.final_state, "final_state");
    same_dtype(a_.intermediate_states, "intermediate_states");
    if (a_.final_state.data == a_.state.data && !in_place && f != s) {
      problem_.invalid("final_state.stride", "the strides of state (same memory)", "others");
    }
    p_.state = state_view(a_.state, s[0], s[1], s[2]);
    p_.final_state = in_place ? p_.state : state_view(a_.final_state, f[0], f[1], f[2]);
    p_.intermediate = state_view(a_.intermediate_states, m[0], m[2], m[3]);
    p_.intermediate_token = m[1];
    p_.bf16_state = a_.state.dtype == GOLDENRULE_GPU_BF16;
    p_.kv_layout = !vk;
    p_.vector_state = by_vectors(p_.state, 0) && by_vectors(p_.final_state, 0) &&
                      by_vectors(p_.intermediate, p_.intermediate_token);
    p_.dense_heads = is_dense(p_.state, inner) && is_dense(p_.final_state, inner) &&
                     is_dense(p_.intermediate, inner);
  }

  void same_dtype(const TensorArg& tensor, const char* name) {
    if (tensor.data != nullptr && tensor.dtype != a_.state.dtype) {
      problem_.invalid(std::string(name) + ".dtype",
                       "that of state, " + std::to_string(a_.state.dtype), tensor.dtype);
    }
  }

  // 16-byte alignment of every row; absent tensors do not matter.
  bool by_vectors(const StateView& view, std::int64_t token) const {
    const std::int64_t unit = 16 / std::max(1, dtype_size(a_.state.dtype));
    return view.data == nullptr ||
           (reinterpret_cast<std::uintptr_t>(view.data) % 16 == 0 && view.block % unit == 0 &&
            view.head % unit == 0 && view.outer % unit == 0 && token % unit == 0);
  }

  static bool is_dense(const StateView& view, std::int64_t inner) {
    return view.data == nullptr || view.outer == inner;
  }

  const void* index(const TensorArg& tensor, const char* name, Need need, const std::string& why,
                    std::uint8_t& wide) {
    const Strides s = check(tensor, name, need, Use::kRead, Types::kIndex, {a_.B}, 1, why);
    if (tensor.data != nullptr && a_.B > 1 && s[0] != 1) {
      problem_.report(GOLDENRULE_GPU_UNSUPPORTED, std::string(name) + ".stride[0]", "1",
                      std::to_string(s[0]));
    }
    wide = tensor.dtype == GOLDENRULE_GPU_I64;
    return tensor.data;
  }

  void indices() {
    const bool scatter = a_.ssm_state_indices.data != nullptr;
    const Need other = scatter ? Need::kForbidden : Need::kOptional;
    const std::string beside = scatter ? " (ssm_state_indices already names every slot)" : "";
    p_.state_indices = index(a_.state_indices, "state_indices", other, beside, p_.wide_start);
    p_.output_state_indices =
        index(a_.output_state_indices, "output_state_indices", other, beside, p_.wide_output);
    p_.accepted_tokens =
        index(a_.accepted_tokens, "accepted_tokens", other, beside, p_.wide_accepted);
    p_.num_accepted_tokens = index(
        a_.num_accepted_tokens, "num_accepted_tokens", scatter ? Need::kRequired : Need::kForbidden,
        scatter ? " (beside ssm_state_indices)" : " (no ssm_state_indices)", p_.wide_num_accepted);
    const Strides s = check(a_.ssm_state_indices, "ssm_state_indices", Need::kOptional, Use::kRead,
                            Types::kIndex, {a_.B, a_.T}, 2);
    if (scatter && a_.T == 0) problem_.invalid("T", "1 or more (ssm_state_indices)", a_.T);
    p_.ssm_state_indices = a_.ssm_state_indices.data;
    p_.wide_ssm = a_.ssm_state_indices.dtype == GOLDENRULE_GPU_I64;
    p_.ssm_row = narrow(s[0]);
    p_.ssm_token = narrow(s[1]);
  }

  const Args& a_;
  Params& p_;
  Problem& problem_;
};

}  // namespace

Problem resolve(const Args& args, Params& params) {
  Problem problem;
  check_choices(args, problem);
  if (problem.ok()) check_extents(args, problem);
  if (problem.ok()) check_numbers(args, problem);
  params = {};
  if (problem.ok()) Resolver(args, params, problem).run();
  return problem;
}

bool has_effect(const Args& args) {
  if (args.B == 0) return false;
  if (args.T > 0) return true;
  return args.disable_state_update == 0 &&
         (args.final_state.data != nullptr || args.output_state_indices.data != nullptr);
}

namespace {

Work work_of(const Params& p) {
  const bool fours = p.q_unit >= 8 && p.k_unit >= 8;  // of two bytes
  if (p.T == 1 && fours && p.qk_type != Element::kF32) return Work::kOneToken;
  const bool few = p.T >= 2 && p.T <= kVerifyTokens;
  return few && fours && p.qk_type == Element::kBF16 ? Work::kFewTokens : Work::kAnyTokens;
}

/// Writing is then all that counts, and it is fastest in few and long streams: whole heads, one a
/// multiprocessor (measured on an H200 for T = 2, 4 and 8, fp32). Fewer heads than eight for each
/// multiprocessor would leave some without work for long.
bool writes_only(const Params& p, std::int64_t B, const Device& device) {
  const bool every_state = p.intermediate.data != nullptr ||
                           (p.ssm_state_indices != nullptr && p.disable_state_update == 0);
  return every_state && p.T >= 4 && p.V % 128 == 0 &&
         B * p.HV * (p.V / 128) >= std::int64_t{8} * device.multiprocessors;
}

}  // namespace

Key select(const Params& p, std::int64_t B, const Device& device) {
  Key key{.bf16_state = p.bf16_state != 0, .kv = p.kv_layout != 0};
  Key exact = key;
  exact.exact = true;
  exact.channel_gate = p.channel_gate != 0;
  exact.work = work_of(p);
  if (exact.work == Work::kFewTokens && writes_only(p, B, device)) {
    exact.work = Work::kFewTokensKept;
  }
  if (p.K == kExactK && p.vector_state && p.dense_heads) {
    for (const bool large : {true, false}) {
      exact.large = large;
      const int rows = table_entry(table_index(exact)).rows;
      // Below two tall tiles a multiprocessor, low ones spread the rows over more of them.
      const bool enough = B * p.HV * (p.V / rows) >= std::int64_t{2} * device.multiprocessors;
      if (p.V % rows == 0 && (enough || !large)) return exact;
    }
  }
  while (kGeneralK[key.general] < p.K) ++key.general;
  return key;
}

}  // namespace goldenrule::gpu
