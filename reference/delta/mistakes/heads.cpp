// SPDX-License-Identifier: Apache-2.0
//
// Mistakes in what belongs to which value head or key channel, and in views of packed inputs.
#include <array>
#include <cmath>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "fixtures/call/plan.hpp"
#include "reference/delta/calls/inputs.hpp"
#include "reference/delta/calls/outputs.hpp"
#include "reference/delta/calls/segments.hpp"
#include "reference/delta/mistakes/gates.hpp"
#include "reference/delta/mistakes/tables.hpp"

namespace goldenrule::delta {
namespace {

using call::Record;
using call::TensorMap;

// The head whose gate or beta value head j gets.
using HeadMap = std::int64_t (*)(const call::Dims& d, std::int64_t j);
std::int64_t next_head(const call::Dims& d, std::int64_t j) { return (j + 1) % d.HV; }
std::int64_t group_of(const call::Dims& d, std::int64_t j) { return j / (d.HV / d.H); }
std::int64_t first_head(const call::Dims&, std::int64_t) { return 0; }

template <HeadMap map>
bool moves_head(const Record& r) {
  const call::Dims d = call::validate(r);
  for (std::int64_t j = 0; j < d.HV; ++j) {
    if (map(d, j) != j) return true;
  }
  return false;
}
template <HeadMap map>
bool moves_gate(const Record& r) {
  return has_gate(r) && moves_head<map>(r);
}
// With one q/k head this is first_head.
bool has_groups(const Record& r) {
  const call::Dims d = call::validate(r);
  return d.H > 1 && d.HV > d.H;
}
bool has_gate_groups(const Record& r) { return has_gate(r) && has_groups(r); }

template <HeadMap map>
TensorMap gate_wrong_head(const Record& r, const calls::Kernel& kernel) {
  const call::Dims d = call::validate(r);
  const std::int64_t channels = call::gate_channels(r, d.K);
  const std::vector<double> alphas = all_alphas(r);
  return kernel(with_alpha(r, [&](const GatePlace& p) {
    return alphas[static_cast<std::size_t>((p.token * d.HV + map(d, p.head)) * channels +
                                           p.channel)];
  }));
}

template <HeadMap map>
TensorMap beta_wrong_head(const Record& r, const calls::Kernel& kernel) {
  const call::Dims d = call::validate(r);
  Record changed = calls::without_outputs(r);
  const char* name = r.convention.beta == call::BetaForm::kDirect ? "beta" : "b";
  const call::Tensor given = r.inputs.at(name);
  calls::change_input(changed, name, [&](std::int64_t i, double) {
    return given[i / d.HV * d.HV + map(d, i % d.HV)];
  });
  return kernel(changed);
}

// One of q and k by the other map of heads.
TensorMap one_by_other_map(const Record& r, const calls::Kernel& kernel, const char* name) {
  const call::Dims d = call::validate(r);
  const auto own = r.convention.head_map;
  const auto other =
      own == call::HeadMap::kGrouped ? call::HeadMap::kTiled : call::HeadMap::kGrouped;
  Record changed = calls::with_qk_heads(r, [&](std::int64_t j) { return d.qk_head(own, j); });
  changed.inputs[name] =
      calls::with_qk_heads(r, [&](std::int64_t j) { return d.qk_head(other, j); }).inputs.at(name);
  return kernel(changed);
}

bool has_channel_bias(const Record& r) {
  const call::Tensor* bias = r.find_input("dt_bias");
  return has_logit_gate(r) && bias != nullptr && bias->shape().size() == 2 && bias->shape()[1] > 1;
}
// [H,K], read as if it had one number per head.
TensorMap dt_bias_flat(const Record& r, const calls::Kernel& kernel) {
  const call::Tensor given = r.inputs.at("dt_bias");
  const std::int64_t K = given.shape()[1];
  Record changed = calls::without_outputs(r);
  calls::change_input(changed, "dt_bias", [&](std::int64_t i, double) { return given[i / K]; });
  return kernel(changed);
}

bool has_several_rates(const Record& r) {
  const call::Tensor* rates = r.find_input("A_log");
  return has_logit_gate(r) && rates != nullptr && rates->size() > 1;
}
TensorMap a_log_reversed(const Record& r, const calls::Kernel& kernel) {
  const call::Tensor given = r.inputs.at("A_log");
  Record changed = calls::without_outputs(r);
  calls::change_input(changed, "A_log",
                      [&](std::int64_t i, double) { return given[given.size() - 1 - i]; });
  return kernel(changed);
}

// a and b are halves of one row [2 HV] for each token, and are read as if each had its own rows.
bool has_packed_logits(const Record& r) {
  const call::Dims d = call::validate(r);
  return has_logit_gate(r) && call::gate_channels(r, d.K) == 1 &&
         r.convention.beta != call::BetaForm::kDirect && d.tokens > 1;
}
TensorMap interleaved(const Record& r, const calls::Kernel& kernel, const char* first,
                      const char* second) {
  const std::int64_t heads = call::validate(r).HV;
  const call::Tensor& x = r.inputs.at(first);
  const call::Tensor& y = r.inputs.at(second);
  const auto packed = [&](std::int64_t i) {
    const std::int64_t token = i / (2 * heads);
    const std::int64_t head = i % (2 * heads);
    return head < heads ? x[token * heads + head] : y[token * heads + head - heads];
  };
  Record changed = calls::without_outputs(r);
  calls::change_input(changed, first, [&](std::int64_t i, double) { return packed(i); });
  calls::change_input(changed, second, [&](std::int64_t i, double) { return packed(heads + i); });
  return kernel(changed);
}

// The first `to` of every `from` numbers at stride `to`: memory of rows of `from` numbers, read as
// rows of `to`.
call::Tensor read_narrow(const call::Tensor& given, std::size_t axis, std::int64_t to) {
  call::Shape shape = given.shape();
  shape[axis] = to;
  call::Tensor read(given.dtype(), shape);
  for (std::int64_t i = 0; i < read.size(); ++i) read.set(i, given[i]);
  return read;
}

// Rows are shorter than they should be, so that nothing is read behind a tensor. What such a kernel
// does to rings is not told.
bool has_fewer_values(const Record& r) {
  const call::Dims d = call::validate(r);
  return d.V < d.K && !call::has_ring(r);
}
TensorMap k_is_v(const Record& r, const calls::Kernel& kernel) {
  const call::Dims d = call::validate(r);
  Record changed = calls::without_outputs(r);
  changed.convention.scale = call::resolved_scale(r.convention, d.K);
  call::for_each_input(changed, d, [&](const auto&, const auto& axes, call::Tensor& tensor) {
    if (const auto at = call::find_axis(axes, call::axis::kKey)) {
      tensor = read_narrow(tensor, *at, d.V);
    }
  });
  const call::Plan plan = call::make_plan(r, true);
  const TensorMap narrow = kernel(changed);
  TensorMap outputs = calls::nothing_written(r, plan);
  outputs["o"] = narrow.at("o");
  // The states lie at the stride of [V,V]: a slot that is written reaches into those before it.
  const std::int64_t block = d.HV * d.V * d.V;
  for (const call::Sequence& s : plan.sequences) {
    for (const call::Snapshot& snapshot : s.snapshots) {
      const std::string name(call::name_of(snapshot.target));
      for (std::int64_t i = snapshot.block * block; i < (snapshot.block + 1) * block; ++i) {
        outputs.at(name).set(i, narrow.at(name)[i]);
      }
    }
  }
  return outputs;
}

constexpr std::string_view kHeadsGroup = "Heads and views";
constexpr std::array kHeadsMistakes{
    calls::Mistake{"gate_wrong_head", kHeadsGroup, "value head j decays by the gate of head j + 1",
                   moves_gate<next_head>, gate_wrong_head<next_head>},
    calls::Mistake{"gate_wrong_head", kHeadsGroup,
                   "value head j decays by the gate at the place of its q/k head, j // (HV/H)",
                   has_gate_groups, gate_wrong_head<group_of>},
    calls::Mistake{"gate_wrong_head", kHeadsGroup, "every value head decays by the gate of head 0",
                   moves_gate<first_head>, gate_wrong_head<first_head>},
    calls::Mistake{"beta_wrong_head", kHeadsGroup, "value head j has the beta of head j + 1",
                   moves_head<next_head>, beta_wrong_head<next_head>},
    calls::Mistake{"beta_wrong_head", kHeadsGroup,
                   "value head j has the beta at the place of its q/k head, j // (HV/H)",
                   has_groups, beta_wrong_head<group_of>},
    calls::Mistake{"beta_wrong_head", kHeadsGroup, "every value head has the beta of head 0",
                   moves_head<first_head>, beta_wrong_head<first_head>},
    calls::Mistake{"head_map_mixed", kHeadsGroup,
                   "k is read by the other map of heads, j % H for j // (HV/H); q is right",
                   has_groups,
                   [](const Record& r, const calls::Kernel& kernel) {
                     return one_by_other_map(r, kernel, "k");
                   }},
    calls::Mistake{"head_map_mixed", kHeadsGroup,
                   "q is read by the other map of heads, j % H for j // (HV/H); k is right",
                   has_groups,
                   [](const Record& r, const calls::Kernel& kernel) {
                     return one_by_other_map(r, kernel, "q");
                   }},
    calls::Mistake{"a_log_reversed", kHeadsGroup, "A_log is read with its heads in reverse order",
                   has_several_rates, a_log_reversed},
    calls::Mistake{
        "dt_bias_flat", kHeadsGroup,
        "dt_bias [H,K] is read as if it had one number per head: flat[h] for all channels",
        has_channel_bias, dt_bias_flat},
    calls::Mistake{
        "ab_interleaved", kHeadsGroup,
        "a and b are views of one tensor with a row [a, b] for each token and are read as "
        "if they were dense: every other row is the other's",
        has_packed_logits,
        [](const Record& r, const calls::Kernel& kernel) {
          return interleaved(r, kernel, "a", "b");
        }},
    calls::Mistake{
        "ab_interleaved", kHeadsGroup,
        "b and a are views of one tensor with a row [b, a] for each token and are read as "
        "if they were dense: every other row is the other's",
        has_packed_logits,
        [](const Record& r, const calls::Kernel& kernel) {
          return interleaved(r, kernel, "b", "a");
        }},
    calls::Mistake{
        "k_is_v", kHeadsGroup,
        "the kernel was built with K = V: rows of q, k, the gate and the state have V key "
        "channels at stride V",
        has_fewer_values, k_is_v},
};

}  // namespace

std::span<const calls::Mistake> head_mistakes() { return kHeadsMistakes; }

}  // namespace goldenrule::delta
