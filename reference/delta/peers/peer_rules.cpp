// SPDX-License-Identifier: Apache-2.0
#include "reference/delta/peers/peer_rules.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

namespace goldenrule::peers::peer {
namespace {

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

}  // namespace

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

}  // namespace goldenrule::peers::peer
