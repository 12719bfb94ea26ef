// SPDX-License-Identifier: Apache-2.0
#include "tests/attention/problems.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "fixtures/call/integer_inputs.hpp"
#include "fixtures/random/philox.hpp"

namespace goldenrule::attention {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::array<const char*, kPatterns> kNames{"random", "peaked",  "near_one", "sparse",
                                                    "rising", "falling", "ties",     "huge",
                                                    "low",    "centred"};

using call::Integers;

// One choice after the other, each from the seed and its name.
class Choices {
 public:
  explicit Choices(std::uint64_t seed) : seed_(seed) {}
  /// low <= x <= high
  std::int64_t between(std::int64_t low, std::int64_t high) {
    const double u = random::Stream(seed_, "choices").uniform(next_++);
    return low + static_cast<std::int64_t>(u * static_cast<double>(high - low + 1));
  }
  bool chance(double p) { return random::Stream(seed_, "choices").uniform(next_++) < p; }
  std::int64_t one_of(std::initializer_list<std::int64_t> values) {
    return values.begin()[between(0, std::ssize(values) - 1)];
  }

 private:
  std::uint64_t seed_;
  std::int64_t next_ = 0;
};

struct Shape {
  std::int64_t N = 1, H = 1, HV = 1, K = 1, V = 1, P = 1, pages = 0;
  bool fresh = true, cache = false, csr = false;
  Integers q, k, kv, valid;
};

// k and v of the key at position t of request n, for all key heads.
class Numbers {
 public:
  Numbers(Pattern pattern, std::uint64_t seed, const Shape& shape, const Size& size)
      : pattern_(pattern), seed_(seed), shape_(shape), size_(size) {}

  [[nodiscard]] double key(std::int64_t n, std::int64_t t, std::int64_t h, std::int64_t d) const {
    const double x = normal("k", place(n, t, h, d, shape_.K));
    const double direction = normal("direction", h * shape_.K + d);
    const double along = static_cast<double>(t) / static_cast<double>(2 * size_.context);
    switch (pattern_) {
      case Pattern::kTies:
        return normal("k", place(n, t % 3, h, d, shape_.K));
      case Pattern::kRising:
        return 0.2 * x + direction * along;
      case Pattern::kFalling:
        return 0.2 * x - direction * along;
      case Pattern::kLow:
        return direction + 0.05 * x;
      default:
        return x;
    }
  }
  [[nodiscard]] double query(std::int64_t row, std::int64_t j, std::int64_t d) const {
    const double x = normal("q", (row * shape_.HV + j) * shape_.K + d);
    // The head of the keys by the grouped map; by the other one the scores are those of the random
    // pattern, which is as good.
    const std::int64_t h = j / (shape_.HV / shape_.H);
    const double direction = normal("direction", h * shape_.K + d);
    double square = 0.0;
    for (std::int64_t i = 0; i < shape_.K; ++i) {
      square += std::pow(normal("direction", h * shape_.K + i), 2);
    }
    const double unit = std::sqrt(static_cast<double>(shape_.K)) / std::max(square, 0.1);
    switch (pattern_) {
      case Pattern::kPeaked:
        return 4.0 * x;
      case Pattern::kSparse:
        return seed_ % 2 == 0 ? 0.0 : x;
      case Pattern::kRising:
      case Pattern::kFalling:
        return 0.2 * x + 60.0 * unit * direction;
      case Pattern::kLow:
        return 0.1 * x - 25.0 * unit * direction;
      case Pattern::kHuge:
        return 1e4 * x;
      default:
        return x;
    }
  }
  [[nodiscard]] double value(std::int64_t n, std::int64_t t, std::int64_t h, std::int64_t d) const {
    const double x = normal("v", place(n, t, h, d, shape_.V));
    switch (pattern_) {
      case Pattern::kNearOne:
        return 1.0 + 0.02 * x;
      case Pattern::kSparse:
        return (t + d) % (4 * shape_.V) == 0 ? 1.0 : 0.0;
      case Pattern::kCentred:
        return t / 48 % 2 == 0 ? 1.0 + 0.1 * x : -1.0 + 0.1 * x;
      default:
        return x;
    }
  }

 private:
  [[nodiscard]] std::int64_t place(std::int64_t n, std::int64_t t, std::int64_t h, std::int64_t d,
                                   std::int64_t dim) const {
    return ((n * 100003 + t) * shape_.H + h) * dim + d;
  }
  [[nodiscard]] double normal(const char* name, std::int64_t index) const {
    return random::Stream(seed_, name).normal(index);
  }

  Pattern pattern_;
  std::uint64_t seed_;
  const Shape& shape_;
  const Size& size_;
};

Shape choose_shape(Choices& choose, const Size& size, call::Convention& a) {
  Shape s;
  s.H = choose.between(1, 2);
  s.HV = s.H * choose.between(1, 3);
  s.K = choose.between(1, size.key_dim);
  s.V = choose.one_of({1, 5, 8, 11});
  if (size.plain) {
    s.q = {0, choose.between(1, size.queries)};
    s.k = {0, size.context};
    s.kv = {0};
    s.valid = {s.q[1]};
    return s;
  }
  s.N = choose.between(1, size.requests);
  s.P = choose.one_of({1, 3, 4, 16});
  s.cache = choose.chance(0.7);
  a.block_kv = s.cache && choose.chance(0.4) ? BlockKv::kInCache : BlockKv::kSeparate;
  s.fresh = a.block_kv == BlockKv::kSeparate && (!s.cache || choose.chance(0.9));
  s.csr = choose.chance(0.4);
  a.kv_layout = choose.chance(0.5) ? KvLayout::kNhd : KvLayout::kHnd;
  a.missing_page = !s.csr && choose.chance(0.3) ? MissingPage::kSkip : MissingPage::kError;
  s.q = {0};
  s.k = {0};
  for (std::int64_t n = 0; n < s.N; ++n) {
    const std::int64_t queries = choose.between(0, size.queries);
    const std::int64_t extra = choose.chance(0.2) ? choose.between(0, 3) : 0;
    s.q.push_back(s.q.back() + queries);
    s.k.push_back(s.k.back() + (s.cache ? queries + extra : choose.between(queries, size.context)));
    s.kv.push_back(choose.chance(0.1) ? 0 : choose.between(0, size.context));
    s.valid.push_back(choose.chance(0.2) ? choose.between(0, queries) : queries);
  }
  return s;
}

void choose_attributes(Choices& choose, const Size& size, std::int64_t K, call::Convention& a) {
  a.head_map = choose.chance(0.8) ? call::HeadMap::kGrouped : call::HeadMap::kTiled;
  a.lse_base = choose.chance(0.7) ? LseBase::kE : LseBase::k2;
  a.lse_layout = choose.chance(0.7) ? LseLayout::kTh : LseLayout::kHt;
  if (choose.chance(0.15)) a.soft_cap = choose.chance(0.5) ? 30.0 : 1.0;
  if (choose.chance(0.3)) a.scale = 0.6 / std::sqrt(static_cast<double>(K));
  if (size.plain) return;
  a.mask = static_cast<Mask>(choose.between(0, 2));
  a.block = choose.one_of({1, 3, 4, 8});
  a.block_base = choose.chance(0.6) ? BlockBase::kAbsolute : BlockBase::kSegment;
  if (choose.chance(0.3)) a.window_left = choose.between(0, size.context);
  if (choose.chance(0.15)) a.window_right = choose.between(0, 4);
}

call::Tensor tensor_of(call::DType type, call::Shape shape, const std::vector<double>& values) {
  return {type, std::move(shape), values};
}

// Pages in random order, some shared, some missing; the pool has one page too many.
void fill_cache(Choices& choose, const Numbers& numbers, const Shape& s, call::DType type,
                call::Record& call) {
  const call::Convention& a = call.convention;
  std::int64_t width = 0;
  std::int64_t total = 0;
  for (const std::int64_t length : s.kv) {
    width = std::max(width, (length + s.P - 1) / s.P);
    total += (length + s.P - 1) / s.P;
  }
  width += choose.between(0, 1);
  const std::int64_t pool = total + 1;
  const auto order = random::permutation(
      random::Stream(static_cast<std::uint64_t>(choose.between(0, 1 << 20)), "pages"), 0, pool);
  Integers dense(static_cast<std::size_t>(s.N * width), -1);
  Integers indices;
  Integers indptr{0};
  const auto size = static_cast<std::size_t>(pool * s.P * s.H);
  std::vector<double> k(size * static_cast<std::size_t>(s.K), kNaN);
  std::vector<double> v(size * static_cast<std::size_t>(s.V), kNaN);
  std::int64_t next = 0;
  for (std::int64_t n = 0; n < s.N; ++n) {
    const std::int64_t length = s.kv[static_cast<std::size_t>(n)];
    for (std::int64_t t = 0; t < length; ++t) {
      if (t % s.P == 0) {
        const bool hole = a.missing_page == MissingPage::kSkip && choose.chance(0.2);
        const std::int64_t page = hole ? -1 : order[static_cast<std::size_t>(next++)];
        dense[static_cast<std::size_t>(n * width + t / s.P)] = page;
        indices.push_back(page);
      }
      const std::int64_t page = indices.back();
      if (page < 0) continue;
      for (std::int64_t h = 0; h < s.H; ++h) {
        const std::int64_t slot = a.kv_layout == KvLayout::kNhd ? (page * s.P + t % s.P) * s.H + h
                                                                : (page * s.H + h) * s.P + t % s.P;
        for (std::int64_t d = 0; d < s.K; ++d) {
          k[static_cast<std::size_t>(slot * s.K + d)] = numbers.key(n, t, h, d);
        }
        for (std::int64_t d = 0; d < s.V; ++d) {
          v[static_cast<std::size_t>(slot * s.V + d)] = numbers.value(n, t, h, d);
        }
      }
    }
    indptr.push_back(std::ssize(indices));
  }
  auto& inputs = call.inputs;
  call::Shape shape{pool, s.P, s.H, s.K};
  if (a.kv_layout == KvLayout::kHnd) std::swap(shape[1], shape[2]);
  inputs["k_cache"] = tensor_of(type, shape, k);
  shape[3] = s.V;
  inputs["v_cache"] = tensor_of(type, shape, v);
  inputs["kv_lens"] = call::integer_tensor(s.kv);
  if (s.csr) {
    indices.push_back(-7);  // behind the table: engines keep room there
    inputs["page_indptr"] = call::integer_tensor(indptr);
    inputs["page_indices"] = call::integer_tensor(indices);
  } else {
    inputs["page_table"] = call::integer_tensor(dense, {s.N, width});
  }
}

void fill_fresh(const Numbers& numbers, const Shape& s, call::DType type, call::Record& call) {
  std::vector<double> k;
  std::vector<double> v;
  for (std::int64_t n = 0; n < s.N; ++n) {
    const auto at = static_cast<std::size_t>(n);
    const std::int64_t cached = s.cache ? s.kv[at] : 0;
    for (std::int64_t i = 0; i < s.k[at + 1] - s.k[at]; ++i) {
      for (std::int64_t h = 0; h < s.H; ++h) {
        for (std::int64_t d = 0; d < s.K; ++d) k.push_back(numbers.key(n, cached + i, h, d));
        for (std::int64_t d = 0; d < s.V; ++d) v.push_back(numbers.value(n, cached + i, h, d));
      }
    }
  }
  auto& inputs = call.inputs;
  inputs["k"] = tensor_of(type, {s.k.back(), s.H, s.K}, k);
  inputs["v"] = tensor_of(type, {s.k.back(), s.H, s.V}, v);
  inputs["cu_seqlens_k"] = call::integer_tensor(s.k);
}

}  // namespace

const char* name_of(Pattern pattern) { return kNames[static_cast<std::size_t>(pattern)]; }

std::string line_of(Pattern pattern, call::DType type, std::uint64_t seed) {
  return std::string("pattern=") + name_of(pattern) +
         " type=" + std::string(call::info(type).name) + " seed=" + std::to_string(seed);
}

call::Record random_problem(Pattern pattern, call::DType type, std::uint64_t seed,
                            const Size& size) {
  Choices choose(seed);
  call::Record call;
  call.op = call::Op::kAttention;
  const Shape s = choose_shape(choose, size, call.convention);
  call.mode = s.cache ? call::Mode::kDecode : call::Mode::kPrefill;
  choose_attributes(choose, size, s.K, call.convention);
  const Numbers numbers(pattern, seed, s, size);
  std::vector<double> q;
  for (std::int64_t row = 0; row < s.q.back(); ++row) {
    for (std::int64_t j = 0; j < s.HV; ++j) {
      for (std::int64_t d = 0; d < s.K; ++d) q.push_back(numbers.query(row, j, d));
    }
  }
  call.inputs["q"] = tensor_of(type, {s.q.back(), s.HV, s.K}, q);
  call.inputs["cu_seqlens_q"] = call::integer_tensor(s.q);
  if (choose.chance(0.5)) call.inputs["valid_q"] = call::integer_tensor(s.valid);
  if (s.fresh) fill_fresh(numbers, s, type, call);
  if (s.cache) fill_cache(choose, numbers, s, type, call);
  return call;
}

}  // namespace goldenrule::attention
