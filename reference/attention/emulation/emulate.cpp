// SPDX-License-Identifier: Apache-2.0
#include "reference/attention/emulation/emulate.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include "fixtures/call/text.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "fixtures/random/philox.hpp"
#include "reference/attention/emulation/tensor_core.hpp"
#include "reference/attention/rule/visible_keys.hpp"

namespace goldenrule::attention {
namespace {

constexpr float kNegative = -std::numeric_limits<float>::infinity();

// (m, l, acc) of a split; after finish() (o, lse).
struct State {
  float m = kNegative, l = 0.0F;
  std::vector<float> acc;
};

class Kernel {
 public:
  Kernel(const call::Record& record, const Plan& plan, const Softmax& rounding,
         const KernelChoices& choices)
      : tensors_(record),
        plan_(plan),
        rounding_(rounding),
        choices_(choices),
        format_(operand_format(tensors_.q->dtype())) {
    const bool capped = plan.soft_cap > 0.0;
    before_ =
        static_cast<float>(capped ? plan.scale / plan.soft_cap : std::copysign(1.0, plan.scale));
    const double after = capped ? 1.0 : std::fabs(plan.scale);
    c_ = static_cast<float>(after * std::numbers::log2e);
    natural_ = static_cast<float>(after);
  }

  // o [V] and, at its end, lse.
  std::vector<float> run(const Request& request, const RowPlace& row) {
    std::vector<KeyPlace> keys = visible_keys(request, row.query);
    if (keys.empty()) return {};
    head_ = key_head_of(plan_, row);
    q_ = query_of(tensors_, plan_, request, row);
    if (choices_.backward) std::ranges::reverse(keys);
    return rounding_.at(SoftmaxPoint::kScores) ? eager(keys) : flash(keys);
  }

 private:
  [[nodiscard]] double rounded(double x) const {
    return format_ ? contract::round_to(*format_, x) : static_cast<double>(static_cast<float>(x));
  }

  // An error within `bound`, always the same for one argument.
  static double erring(double exact, double argument, double bound, int sign) {
    double part = sign;
    if (sign == 0) {
      const auto bits = random::philox4x32(
          {static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(argument)),
           static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(argument) >> 32), 0, 0},
          {7, 7});
      part = static_cast<double>(bits[0]) * 0x1p-31 - 1.0;
    }
    return exact * (1.0 + 0.7 * bound * part);  // and the rounding to fp32
  }
  [[nodiscard]] float exp2(float x) const {
    const auto argument = static_cast<double>(x);
    return static_cast<float>(
        erring(std::exp2(argument), argument, rounding_.exp2_error, choices_.exp2_sign));
  }

  [[nodiscard]] float dot(const KeyPlace& key) {
    k_.resize(q_.size());
    tensors_.read_key(plan_, key.source, key.row, head_, k_.data());
    float sum = 0.0F;
    for (std::size_t d = 0; d < q_.size(); d += kTensorCoreStep) {
      const std::size_t count = std::min(kTensorCoreStep, q_.size() - d);
      double terms[kTensorCoreStep];
      for (std::size_t i = 0; i < count; ++i) {
        terms[i] = q_[d + i] * k_[d + i];
        if (!choices_.tensor_cores) {
          sum = std::fmaf(static_cast<float>(q_[d + i]), static_cast<float>(k_[d + i]), sum);
        }
      }
      if (choices_.tensor_cores) sum = tensor_core_sum(sum, terms, count);
    }
    return sum;
  }

  // What c multiplies: the product, or the capped score.
  [[nodiscard]] float score(const KeyPlace& key) {
    const float x = dot(key) * before_;
    return plan_.soft_cap > 0.0 ? capped(x) : x;
  }
  [[nodiscard]] float capped(float x) const {
    const auto argument = static_cast<double>(x);
    return static_cast<float>(plan_.soft_cap) *
           static_cast<float>(
               erring(std::tanh(argument), argument, rounding_.tanh_error, choices_.tanh_sign));
  }

  // sum += p times the rows of `keys`; without keys, times 1.
  void accumulate(const std::vector<double>& p, const KeyPlace* keys, bool tensor_cores,
                  std::vector<float>& sum) {
    const std::size_t V = sum.size();
    v_.resize(kTensorCoreStep * V);
    for (std::size_t i = 0; i < p.size(); i += kTensorCoreStep) {
      const std::size_t count = std::min(kTensorCoreStep, p.size() - i);
      std::fill(v_.begin(), v_.end(), 1.0);
      for (std::size_t j = 0; keys != nullptr && j < count; ++j) {
        tensors_.read_value(plan_, keys[i + j].source, keys[i + j].row, head_, v_.data() + j * V);
      }
      for (std::size_t x = 0; x < V; ++x) {
        double terms[kTensorCoreStep];
        for (std::size_t j = 0; j < count; ++j) {
          terms[j] = p[i + j] * v_[j * V + x];
          if (tensor_cores) continue;
          sum[x] =
              std::fmaf(static_cast<float>(p[i + j]), static_cast<float>(v_[j * V + x]), sum[x]);
        }
        if (tensor_cores) sum[x] = tensor_core_sum(sum[x], terms, count);
      }
    }
  }

  void add_tile(const KeyPlace* keys, std::size_t count, State& state) {
    std::vector<float> s(count);
    float m = state.m;
    for (std::size_t i = 0; i < count; ++i) {
      s[i] = score(keys[i]);
      m = std::max(m, s[i]);
    }
    const float rescale = state.m == kNegative ? 0.0F : exp2((state.m - m) * c_);
    state.l *= rescale;
    for (float& a : state.acc) a *= rescale;
    state.m = m;
    const float mc = m * c_;
    std::vector<double> exact(count);
    std::vector<double> p(count);
    for (std::size_t i = 0; i < count; ++i) {
      exact[i] = static_cast<double>(exp2(std::fmaf(s[i], c_, -mc)));
      p[i] = rounding_.at(SoftmaxPoint::kWeights) ? rounded(exact[i]) : exact[i];
    }
    std::vector<float> l{state.l};
    accumulate(rounding_.at(SoftmaxPoint::kSum) ? p : exact, nullptr,
               choices_.tensor_cores && rounding_.at(SoftmaxPoint::kSum), l);
    state.l = l[0];
    accumulate(p, keys, choices_.tensor_cores, state.acc);
  }

  [[nodiscard]] std::vector<float> flash(const std::vector<KeyPlace>& keys) {
    const auto tile = static_cast<std::size_t>(choices_.tile);
    const std::size_t tiles = (keys.size() + tile - 1) / tile;
    const std::size_t splits = std::min(tiles, static_cast<std::size_t>(choices_.splits));
    const std::size_t length = (tiles + splits - 1) / splits * tile;
    const auto V = static_cast<std::size_t>(plan_.dims.V);
    std::vector<State> parts;
    for (std::size_t first = 0; first < keys.size(); first += length) {
      State state{.acc = std::vector<float>(V, 0.0F)};
      const std::size_t last = std::min(keys.size(), first + length);
      for (std::size_t i = first; i < last; i += tile) {
        add_tile(keys.data() + i, std::min(tile, last - i), state);
      }
      const float inverse = 1.0F / state.l;
      for (float& a : state.acc) a *= inverse;
      // lse. Where scores are so large that all exponentials of a split round to 0, fp32 has none.
      state.m = state.l == 0.0F ? std::numeric_limits<float>::quiet_NaN()
                                : std::fmaf(state.m, natural_, std::log(state.l));
      parts.push_back(std::move(state));
    }
    return merged(parts);
  }

  [[nodiscard]] std::vector<float> merged(std::vector<State>& parts) const {
    std::vector<float> result = parts[0].acc;
    float lse = parts[0].m;
    if (parts.size() > 1) {
      float top = kNegative;
      for (const State& part : parts) top = std::max(top, part.m);
      std::fill(result.begin(), result.end(), 0.0F);
      float sum = 0.0F;
      for (const State& part : parts) {
        const float w = exp2((part.m - top) * static_cast<float>(std::numbers::log2e));
        sum += w;
        for (std::size_t x = 0; x < result.size(); ++x) result[x] += w * part.acc[x];
      }
      for (float& x : result) x /= sum;
      lse = top + std::log(sum);
    }
    result.push_back(lse);
    return result;
  }
  // Products, scaled scores and normalised weights are stored.
  [[nodiscard]] std::vector<float> eager(const std::vector<KeyPlace>& keys) {
    const float scale = static_cast<float>(plan_.scale);
    std::vector<float> s;
    s.reserve(keys.size());
    float m = kNegative;
    for (const KeyPlace& key : keys) {
      const auto product = static_cast<float>(rounded(static_cast<double>(dot(key))));
      float x = static_cast<float>(rounded(static_cast<double>(product * scale)));
      if (plan_.soft_cap > 0.0) x = capped(x / static_cast<float>(plan_.soft_cap));
      s.push_back(x);
      m = std::max(m, x);
    }
    std::vector<double> p;
    p.reserve(s.size());
    std::vector<float> l{0.0F};
    for (const float x : s) {
      p.push_back(static_cast<double>(exp2((x - m) * static_cast<float>(std::numbers::log2e))));
    }
    accumulate(p, nullptr, false, l);
    for (double& x : p) x = rounded(static_cast<double>(static_cast<float>(x) / l[0]));
    std::vector<float> result(static_cast<std::size_t>(plan_.dims.V), 0.0F);
    accumulate(p, keys.data(), choices_.tensor_cores, result);
    result.push_back(m + std::log(l[0]));
    return result;
  }

  Tensors tensors_;
  const Plan& plan_;
  const Softmax& rounding_;
  const KernelChoices& choices_;
  std::optional<contract::Format> format_;
  float before_, c_, natural_;
  std::int64_t head_ = 0;
  std::vector<double> q_, k_, v_;
};

}  // namespace

KernelChoices::KernelChoices(std::uint64_t seed) {
  const random::Stream stream(seed, "kernel");
  const auto choose = [&](std::int64_t index, std::int64_t count) {
    return static_cast<std::int64_t>(stream.uniform(index) * static_cast<double>(count));
  };
  tile = std::int64_t{16} << choose(0, 4);
  splits = 1 + std::max(std::int64_t{0}, choose(1, 8) - 3);
  backward = choose(2, 2) == 1;
  tensor_cores = choose(3, 2) == 1;
  exp2_sign = static_cast<int>(choose(4, 3)) - 1;
  tanh_sign = static_cast<int>(choose(5, 3)) - 1;
}

std::string KernelChoices::words() const {
  return "tile " + std::to_string(tile) + ", " + call::numbered(splits, "split") +
         (backward ? ", backward" : "") + (tensor_cores ? ", tensor cores" : "");
}

call::TensorMap emulate(const call::Record& record, const Plan& plan, const Softmax& rounding,
                        std::uint64_t seed) {
  const KernelChoices choices(seed);
  const Dims& d = plan.dims;
  call::TensorMap outputs;
  call::Tensor& o = outputs["o"] = call::Tensor(call::DType::kF64, {d.tokens, d.HV, d.V});
  call::Tensor& lse = outputs["lse"] = call::Tensor(call::DType::kF64, lse_shape(plan));
  for (std::int64_t i = 0; i < lse.size(); ++i)
    lse.set(i, -std::numeric_limits<double>::infinity());
  const double base = plan.lse_base == LseBase::kE ? 1.0 : std::numbers::log2e;
  const std::vector<RowJob> jobs = row_jobs(plan);
  parallel::for_each_index(std::ssize(jobs), [&](std::int64_t i) {
    const RowJob& job = jobs[static_cast<std::size_t>(i)];
    Kernel kernel(record, plan, rounding, choices);
    for (const RowPlace& row : job.rows) {
      const std::vector<float> result = kernel.run(*job.request, row);
      if (result.empty()) continue;
      const std::int64_t first = o_index(plan, *job.request, row);
      for (std::int64_t x = 0; x < d.V; ++x) {
        o.set(first + x, static_cast<double>(result[static_cast<std::size_t>(x)]));
      }
      const std::size_t at = lse_index(plan, job.request->first_query + row.query, row.head);
      lse.set(static_cast<std::int64_t>(at),
              static_cast<double>(static_cast<float>(static_cast<double>(result.back()) * base)));
    }
  });
  return outputs;
}

}  // namespace goldenrule::attention
