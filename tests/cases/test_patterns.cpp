// SPDX-License-Identifier: Apache-2.0
//
// Length: one test per pattern, all over the same helpers.
//
// Each pattern has, in the filled tensors, the property that it is named after.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "fixtures/cases/delta_patterns.hpp"
#include "tests/cases/measure.hpp"

namespace call = goldenrule::call;
using namespace goldenrule::cases;
using namespace goldenrule::cases::test;

namespace {

std::string prefill(const std::string& more) {
  return "op=gdn mode=prefill lens=137,63 H=1 HV=2 K=128 V=16 " + more;
}

// Half an ulp of bf16, relative: what rounding does to one entry.
constexpr double kBf16 = 0x1p-8;

}  // namespace

TEST_CASE("pattern A: raw keys have lengths around sqrt(K) and no common direction") {
  const auto k = rows(record_of(prefill("pattern=A")).inputs.at("k"));
  double mean = 0;
  for (const auto& x : k) {
    const double length = std::sqrt(dot(x, x) / 128);
    REQUIRE(length > 0.5 * (1 - kBf16));
    REQUIRE(length < 2.0 * (1 + kBf16));
    for (const auto& y : k) mean += cosine(x, y);
  }
  const double n = static_cast<double>(k.size());
  // The sum over pairs of cosines has variance 2 n^2 / K around the n of the diagonal.
  CHECK(std::fabs(mean - n) < 5 * std::sqrt(2.0 / 128) * n);
}

TEST_CASE("without a norm in the call, q and k are stored with length 1") {
  for (const char* io : {"bf16", "f16", "f32"}) {
    for (const char* pattern : {"A", "B95", "B64", "G", "H", "F"}) {
      const call::Record record = record_of(
          prefill("qk_l2norm=none io=" + std::string(io) + " pattern=" + std::string(pattern)));
      for (const char* name : {"q", "k"}) {
        for (const auto& x : rows(record.inputs.at(name))) {
          REQUIRE(std::fabs(dot(x, x) - 1) < 2 * kBf16);
        }
      }
    }
  }
}

TEST_CASE("patterns B75, B95, B999: mutual cosines") {
  const std::pair<const char*, double> patterns[] = {{"B75", .75}, {"B95", .95}, {"B999", .999}};
  for (const auto& [name, c] : patterns) {
    for (const char* norm : {"none", "rsqrt_sum_eps"}) {
      CAPTURE(name);
      const call::Record record =
          record_of(prefill("pattern=" + std::string(name) + " qk_l2norm=" + std::string(norm)));
      const auto k = rows(record.inputs.at("k"));
      // A pair is off by (1 - c) <noise, noise'>, of deviation 1/sqrt(K); 6 for 2e4 pairs. Two
      // roundings of relative size 2^-9 take less than their squares from a cosine near 1.
      const double pair = 6 * (1 - c) / std::sqrt(128.0) + kBf16 * std::sqrt(1 - c * c) + 1e-5;
      double mean = 0, pairs = 0;
      for (std::size_t i = 0; i < k.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j, ++pairs) {
          const double cosine_of_pair = cosine(k[i], k[j]);
          REQUIRE(std::fabs(cosine_of_pair - c) < pair);
          mean += cosine_of_pair;
        }
      }
      CHECK(std::fabs(mean / pairs - c) < 0.01 * (1 - c) + 1e-5);
      const auto q = rows(record.inputs.at("q"));
      CHECK(std::fabs(cosine(q[3], k[3]) - c) < pair);
      CHECK(q[3] != k[3]);
    }
    for (const double beta : betas(record_of(prefill("pattern=" + std::string(name))))) {
      REQUIRE(beta > 0.95 * (1 - kBf16));
      REQUIRE(beta < 1);
    }
  }
}

TEST_CASE("patterns B16, B64: runs of identical keys begin anew with every sequence") {
  const std::pair<const char*, int> patterns[] = {{"B16", 16}, {"B64", 64}};
  for (const auto& [name, run] : patterns) {
    const call::Record record = record_of(prefill("qk_l2norm=none pattern=" + std::string(name)));
    const auto k = rows(record.inputs.at("k"));
    const auto v = rows(record.inputs.at("v"));
    for (std::size_t t = 1; t < k.size(); ++t) {
      const std::size_t position = t < 137 ? t : t - 137;
      const bool starts = position % static_cast<std::size_t>(run) == 0;
      REQUIRE((k[t] == k[t - 1]) == !starts);
      const bool repeats = position / static_cast<std::size_t>(run) % 2 == 0;
      REQUIRE((v[2 * t] == v[2 * t - 2]) == (!starts && repeats));
    }
  }
}

TEST_CASE("patterns C: beta") {
  const std::pair<const char*, double> patterns[] = {
      {"C000", 0}, {"C050", .5}, {"C0999", .999}, {"C100", 1}, {"C190", 1.9}};
  for (const auto& [name, beta] : patterns) {
    for (const char* form : {"sigmoid", "sigmoid2", "direct"}) {
      if (beta > 1 && std::string(form) == "sigmoid") continue;
      const call::Record record =
          record_of(prefill("io=f16 beta=" + std::string(form) + " pattern=" + std::string(name)));
      // d beta = beta (1 - beta / range) db with b below 31 in f16: 2^-7 is its half ulp.
      const double range = std::string(form) == "sigmoid2" ? 2 : 1;
      const double bound =
          std::string(form) == "direct" ? beta * 0x1p-24 : beta * (1 - beta / range) * 0x1p-7;
      for (const double found : betas(record)) {
        CAPTURE(name);
        CAPTURE(form);
        REQUIRE(std::fabs(found - beta) <= bound + 1e-12);
      }
    }
  }
}

TEST_CASE("beta of the other patterns covers the range of its form") {
  for (const char* form : {"sigmoid", "sigmoid2", "direct"}) {
    const auto values = betas(record_of(prefill("beta=" + std::string(form))));
    const double range = std::string(form) == "sigmoid2" ? 2 : 1;
    const auto [low, high] = std::ranges::minmax(values);
    CHECK(low > 0);
    CHECK(low < 0.05 * range);
    CHECK(high > 0.95 * range);
    CHECK(high <= range);
  }
}

TEST_CASE("pattern E: a unit-variance initial state, the same in both layouts") {
  const std::string line = "op=gdn mode=decode B=2 H=1 HV=2 K=32 V=48 pattern=E";
  const auto vk = input(record_of(line), "initial_state");
  double square = 0;
  for (const double x : vk) square += x * x / static_cast<double>(vk.size());
  CHECK(std::fabs(square - 1) < 5 * std::sqrt(2 / static_cast<double>(vk.size())));
  const auto kv = input(record_of(line + " state_layout=kv"), "initial_state");
  for (std::size_t block = 0; block < 4; ++block) {
    for (std::size_t k = 0; k < 32; ++k) {
      for (std::size_t v = 0; v < 48; ++v) {
        REQUIRE(vk[block * 1536 + v * 32 + k] == kv[block * 1536 + k * 48 + v]);
      }
    }
  }
}

TEST_CASE("pattern F: one large write, silence, and a read at the end") {
  const call::Record record = record_of(prefill("h0=1 pattern=F"));
  const auto k = rows(record.inputs.at("k"));
  const auto q = rows(record.inputs.at("q"));
  const auto v = rows(record.inputs.at("v"));
  const auto beta = betas(record);
  const std::size_t firsts[] = {0, 137};
  const std::size_t lasts[] = {136, 199};
  for (int row = 0; row < 2; ++row) {
    CHECK(cosine(q[lasts[row]], k[firsts[row]]) > 0.999);
    CHECK(std::sqrt(dot(v[2 * firsts[row]], v[2 * firsts[row]])) > 64);
    for (std::size_t t = firsts[row] + 1; t <= lasts[row]; ++t) {
      REQUIRE(std::sqrt(dot(v[2 * t], v[2 * t])) < 0.01);
      REQUIRE(beta[2 * t] == doctest::Approx(1e-3).epsilon(0.04));
    }
    CHECK(beta[2 * firsts[row]] > 0.999);
  }
  for (const double x : input(record, "initial_state")) REQUIRE(x == 0);
}

TEST_CASE("pattern G: the key flips its sign at every token") {
  const auto k = rows(record_of(prefill("pattern=G")).inputs.at("k"));
  for (std::size_t t = 1; t < k.size(); ++t) {
    if (t == 137) continue;  // a new sequence begins with the plain sign
    REQUIRE(std::fabs(cosine(k[t], k[t - 1]) + 0.9) < 6 * 0.1 / std::sqrt(128.0) + kBf16);
  }
  CHECK(cosine(k[136], k[137]) > 0.8);
}

// With orthonormal keys, beta = 1 and no decay, what the state holds for a key is the last v
// written to it: no recurrence is needed to see how nearly v - S^T k cancels.
TEST_CASE("pattern H: v is what the state holds, to one per cent") {
  for (const char* shape : {"H=1 HV=2 K=128 V=16", "H=2 HV=4 K=5 V=3", "H=1 HV=1 K=1 V=8"}) {
    const call::Record record =
        record_of("op=gdn mode=prefill lens=137,63 io=f32 pattern=H " + std::string(shape));
    const call::Dims dims = call::validate(record);
    const auto k = rows(record.inputs.at("k"));
    const auto v = rows(record.inputs.at("v"));
    std::map<std::pair<std::int64_t, std::size_t>, std::vector<double>> stored;
    int revisits = 0;
    for (std::int64_t t = 0; t < dims.tokens; ++t) {
      if (t == 137) {
        CHECK(v[static_cast<std::size_t>(t * dims.HV)] != v[0]);  // sequences differ
        stored.clear();
      }
      for (std::int64_t j = 0; j < dims.HV; ++j) {
        const auto& key = k[static_cast<std::size_t>(t * dims.H + j / (dims.HV / dims.H))];
        const auto largest = std::ranges::max_element(key);
        REQUIRE(std::ranges::count(key, 0.0) == dims.K - 1);
        const auto& value = v[static_cast<std::size_t>(t * dims.HV + j)];
        auto& held = stored[{j, static_cast<std::size_t>(largest - key.begin())}];
        for (std::size_t e = 0; e < held.size(); ++e) {
          const double part = std::fabs(value[e] - held[e]) / std::fabs(held[e]);
          REQUIRE(part < 0.0203);  // two different steps of 1 % meet where K < 4
          if (dims.K >= 8) REQUIRE(part == doctest::Approx(0.01).epsilon(0.02));
          ++revisits;
        }
        held = value;
      }
    }
    CHECK(revisits > 100);
  }
  for (const double beta : betas(record_of(prefill("pattern=H")))) REQUIRE(beta > 1 - 1e-12);
}

TEST_CASE("pattern I: q and k of length near 1e-3, in every io type") {
  for (const char* io : {"bf16", "f16", "f32"}) {
    const call::Record record = record_of(prefill("pattern=I io=" + std::string(io)));
    for (const char* name : {"q", "k"}) {
      for (const auto& x : rows(record.inputs.at(name))) {
        const double length = std::sqrt(dot(x, x));
        REQUIRE(length > 3e-4 * (1 - 2 * kBf16));
        REQUIRE(length < 3e-3 * (1 + 2 * kBf16));
      }
    }
  }
}

namespace {

// The recurrence of an exact world in arithmetic `Real`, with every sum over K taken upwards or
// downwards: state[k][v] of one (sequence, value head), and all outputs.
template <class Real>
std::vector<double> run_exact_world(const call::Record& record, bool upwards) {
  const call::Dims dims = call::validate(record);
  const auto q = input(record, "q"), k = input(record, "k"), v = input(record, "v");
  const auto beta = input(record, "beta"), g = input(record, "g"),
             h0 = input(record, "initial_state");  // kv
  const auto K = static_cast<std::size_t>(dims.K), V = static_cast<std::size_t>(dims.V);
  const auto HV = static_cast<std::size_t>(dims.HV), H = static_cast<std::size_t>(dims.H);
  const std::size_t channels = record.op == call::Op::kKda ? K : 1;
  std::vector<double> result;
  for (std::size_t j = 0; j < HV; ++j) {
    std::vector<Real> state(h0.begin() + static_cast<std::ptrdiff_t>(j * K * V),
                            h0.begin() + static_cast<std::ptrdiff_t>((j + 1) * K * V));
    for (std::size_t t = 0; t < static_cast<std::size_t>(dims.tokens); ++t) {
      const std::size_t qk = (t * H + j / (HV / H)) * K;
      const auto product = [&](const std::vector<double>& x, std::size_t e) {
        Real sum = 0;
        for (std::size_t n = 0; n < K; ++n) {
          const std::size_t c = upwards ? n : K - 1 - n;
          sum += static_cast<Real>(x[qk + c]) * state[c * V + e];
        }
        return sum;
      };
      for (std::size_t c = 0; c < K * V; ++c) {
        const std::size_t gate = (t * HV + j) * channels + (channels > 1 ? c / V : 0);
        state[c] *= static_cast<Real>(g[gate]);
      }
      for (std::size_t e = 0; e < V; ++e) {
        const Real delta = static_cast<Real>(beta[t * HV + j]) *
                           (static_cast<Real>(v[(t * HV + j) * V + e]) - product(k, e));
        for (std::size_t c = 0; c < K; ++c) {
          state[c * V + e] += static_cast<Real>(k[qk + c]) * delta;
        }
        result.push_back(static_cast<double>(product(q, e)));
      }
    }
    for (const Real x : state) result.push_back(static_cast<double>(x));
  }
  return result;
}

}  // namespace

TEST_CASE("pattern K: entries of the exact world") {
  for (const char* K : {"64", "96", "128", "256"}) {
    CAPTURE(K);
    const call::Record record = record_of(
        "op=kda mode=prefill lens=200 H=2 HV=2 V=8 gate=linear beta=direct "
        "qk_l2norm=none scale=1 h0=1 pattern=K K=" +
        std::string(K));
    std::vector<int> used(static_cast<std::size_t>(std::stoi(K)), 0);
    const auto k = rows(record.inputs.at("k"));
    for (std::size_t i = 0; i < k.size(); ++i) {
      int nonzero = 0;
      for (std::size_t c = 0; c < k[i].size(); ++c) {
        REQUIRE((k[i][c] == 0 || std::fabs(k[i][c]) == 0.125));
        nonzero += k[i][c] != 0;
        used[c] += k[i][c] != 0;
      }
      REQUIRE(nonzero == 64);
      if (i >= 2) {  // keys of one head are equal or orthogonal
        const double product = dot(k[i], k[i - 2]);
        REQUIRE((product == 0 || product == 1));
      }
    }
    if (std::stoi(K) % 64 == 0) CHECK(std::ranges::count(used, 0) == 0);
    for (const double x : input(record, "beta")) REQUIRE(x == 1);
    // Few keys, so that they come again and are overwritten.
    const std::set<std::vector<double>> distinct(k.begin(), k.end());
    CHECK(std::ssize(distinct) <= 2 * 16 * (std::stoi(K) / 64));
    // Channels of a block live or die together; blocks decide for themselves.
    const auto alphas = rows(record.inputs.at("g"));
    const auto is_partial = [](const std::vector<double>& alpha) {
      return std::ranges::count(alpha, 0.0) % std::ssize(alpha) != 0;
    };
    CHECK(std::ranges::any_of(alphas, is_partial) == (std::stoi(K) > 64));
    const auto g = input(record, "g");
    const auto zeros = std::ranges::count(g, 0.0);
    CHECK(zeros > 0);
    CHECK(zeros + std::ranges::count(g, 1.0) == std::ssize(g));
    for (const char* name : {"v", "initial_state"}) {
      const auto x = input(record, name);
      CHECK(std::ranges::min(x) == -8);
      CHECK(std::ranges::max(x) == 8);
      CHECK(std::ranges::all_of(x, [](double y) { return y == std::trunc(y); }));
    }
  }
}

TEST_CASE("pattern K: bit-exact in f32, in either order of summation") {
  for (const char* op : {"gdn", "kda"}) {
    for (const char* K : {"64", "96", "128"}) {
      const call::Record record =
          record_of("op=" + std::string(op) +
                    " mode=prefill lens=200 H=1 HV=2 V=8 gate=linear beta=direct qk_l2norm=none "
                    "scale=1 h0=1 state_layout=kv pattern=K K=" +
                    std::string(K));
      const std::vector<double> exact = run_exact_world<double>(record, true);
      CHECK(run_exact_world<float>(record, true) == exact);
      CHECK(run_exact_world<float>(record, false) == exact);
      CHECK(std::ranges::any_of(exact, [](double x) { return x != std::trunc(x); }));
    }
  }
}

TEST_CASE("every pattern fills every operation and mode that may have it with finite numbers") {
  for (const goldenrule::cases::DeltaPattern& f : goldenrule::cases::delta_patterns()) {
    for (const char* op : {"gdn", "kda"}) {
      for (const char* mode :
           {"mode=decode B=2", "mode=mtp B=2 T=3", "mode=prefill lens=5,0 h0=1"}) {
        const std::string name(f.name);
        std::string line =
            "op=" + std::string(op) + " " + mode + " H=1 HV=2 K=64 V=8 io=f16" + " pattern=" + name;
        if (name == "K") line += " gate=linear beta=direct qk_l2norm=none scale=1";
        if (name == "C190") line += " beta=sigmoid2";
        if (name == "Dgrow") line += " gate=log";
        const bool relates_tokens = name[0] == 'B' || name == "F" || name == "G" || name == "H";
        if (relates_tokens && std::string(mode).starts_with("mode=decode")) continue;
        CAPTURE(line);
        const call::Record record = record_of(line);
        for (const auto& [input_name, tensor] : record.inputs) {
          CAPTURE(input_name);
          for (std::int64_t i = 0; i < tensor.size(); ++i) REQUIRE(std::isfinite(tensor[i]));
        }
      }
    }
  }
}
