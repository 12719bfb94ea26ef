// SPDX-License-Identifier: Apache-2.0
#include "reference/drafts/emulation/emulate.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "fixtures/call/operation.hpp"
#include "fixtures/parallel/for_each_index.hpp"
#include "fixtures/random/philox.hpp"

namespace goldenrule::drafts {
namespace {

enum class Form : std::uint8_t { kProduct, kQuotient, kReciprocal };

// What a kernel chose when it was written.
struct Design {
  Form accept = Form::kProduct;
  bool multiplies_noise = false;  // by its reciprocal
  std::size_t tile = 1024;

  explicit Design(std::uint64_t seed) {
    const random::Stream stream(seed, "verify kernel");
    accept = static_cast<Form>(stream.bits(0) % 3);
    multiplies_noise = stream.bits(1) % 2 == 1;
    tile = std::size_t{1024} << (stream.bits(2) % 3);
  }
};

// The sum of a power of two of lanes: neighbours first.
float tree_sum(std::vector<float> lanes) {
  for (std::size_t width = lanes.size(); width > 1; width /= 2) {
    for (std::size_t i = 0; i < width / 2; ++i) lanes[i] = lanes[2 * i] + lanes[2 * i + 1];
  }
  return lanes.front();
}

// Inclusive sums of all lanes at once, doubling the distance.
void scan(std::vector<float>& lanes) {
  for (std::size_t step = 1; step < lanes.size(); step *= 2) {
    for (std::size_t i = lanes.size(); i-- > step;) lanes[i] += lanes[i - step];
  }
}

class Kernel {
 public:
  Kernel(const call::Record& record, std::uint64_t seed)
      : record_(record),
        rule_(record.convention),
        design_(seed),
        dims_(call::validate(record)),
        width_(dims_.drafts + 1) {
    for (const call::TensorRow& row : call::operation(record.op).tensors) {
      if (row.group != call::Group::kOutput) continue;
      outputs_[std::string(row.name)] =
          call::Tensor(call::DType::kF64, call::shape_of(record, dims_, row));
    }
  }

  call::TensorMap run() {
    parallel::for_each_index(dims_.rows, [&](std::int64_t n) { row(n); });
    return std::move(outputs_);
  }

 private:
  // One block of threads.
  void row(std::int64_t n) {
    const auto start = integer("start", n);
    const std::int64_t drafts = start < 0                               ? -1
                                : record_.inputs.contains("draft_lens") ? integer("draft_lens", n)
                                                                        : dims_.drafts;
    std::vector<bool> refused(static_cast<std::size_t>(std::max<std::int64_t>(drafts, 0)));
    for (std::int64_t i = 0; i < drafts; ++i) {
      refused[static_cast<std::size_t>(i)] = !is_accepted(n, i);
    }
    const std::int64_t a = std::ranges::find(refused, true) - refused.begin();
    std::vector<std::int64_t> emitted;
    for (std::int64_t i = 0; drafts >= 0 && i <= a; ++i) {
      emitted.push_back(i < a ? integer("draft_tokens", n * dims_.drafts + i)
                              : last(n, a, a == drafts));
    }
    std::int64_t count = std::ssize(emitted);
    for (std::int64_t i = std::ssize(emitted) - 1; i >= 0; --i) {
      if (is_stop(emitted[static_cast<std::size_t>(i)])) count = i + 1;
    }
    write(n, start, drafts < 0 ? 0 : a, count, emitted);
  }

  void write(std::int64_t n, std::int64_t start, std::int64_t accepted, std::int64_t count,
             const std::vector<std::int64_t>& emitted) {
    const bool padded = count == 0;
    for (std::int64_t i = 0; i < width_; ++i) {
      const std::int64_t token = i < count ? emitted[static_cast<std::size_t>(i)] : rule_.pad_token;
      set("tokens", n * width_ + i, token);
      set("keep", n * width_ + i, i < count ? 1 : 0);
    }
    set("accepted", n, accepted);
    set("committed", n, count);
    set("target_len", n, start + count);
    set("draft_len", n, rule_.draft_crop == call::DraftCrop::kNewStart ? start + count : start);
    set("next_anchor", n, padded ? rule_.pad_token : emitted[static_cast<std::size_t>(count) - 1]);
    // The page of the last token, and the one behind it.
    set("release_from", n,
        padded               ? -1
        : start + count == 0 ? 0
                             : (start + count - 1) / rule_.page_size + 1);
  }

  [[nodiscard]] bool is_accepted(std::int64_t n, std::int64_t i) const {
    const std::int64_t d = integer("draft_tokens", n * dims_.drafts + i);
    if (record_.mode == call::Mode::kGreedy) return integer("target_tokens", n * width_ + i) == d;
    const float p = number("target_probs", (n * dims_.target_rows + i) * dims_.vocabulary + d);
    const float q =
        is_one_hot() ? 1.0F : number("draft_probs", (n * dims_.drafts + i) * dims_.vocabulary + d);
    const float u = number("uniforms", n * dims_.drafts + i);
    if (q == 0.0F) return rule_.zero_draft == call::ZeroDraft::kAccept;
    const bool strict = rule_.accept_rule == call::AcceptRule::kLt;
    if (design_.accept == Form::kProduct) return strict ? u * q < p : u * q <= p;
    // A reciprocal is exact enough for u = 1 where its product with q is 1: kernels that use it
    // compare after one correction.
    const float ratio = design_.accept == Form::kQuotient ? p / q : corrected(p, q);
    return strict ? u < ratio : u <= ratio;
  }

  static float corrected(float p, float q) {
    const float guess = p * (1.0F / q);
    return std::fma(-guess, q, p) * (1.0F / q) + guess;
  }

  // The token behind the accepted drafts.
  [[nodiscard]] std::int64_t last(std::int64_t n, std::int64_t a, bool all) const {
    if (record_.mode == call::Mode::kGreedy) return integer("target_tokens", n * width_ + a);
    if (all && record_.inputs.contains("bonus_tokens")) return integer("bonus_tokens", n);
    const auto Z = static_cast<std::size_t>(dims_.vocabulary);
    const std::size_t tiles = (Z + design_.tile - 1) / design_.tile;
    std::vector<float> r(tiles * design_.tile);  // zeros behind the vocabulary
    for (std::size_t x = 0; x < Z; ++x) {
      const auto id = static_cast<std::int64_t>(x);
      const float p = number("target_probs", (n * dims_.target_rows + a) * dims_.vocabulary + id);
      float q = 0.0F;
      if (!all && is_one_hot()) {
        q = id == integer("draft_tokens", n * dims_.drafts + a) ? 1.0F : 0.0F;
      } else if (!all) {
        q = number("draft_probs", (n * dims_.drafts + a) * dims_.vocabulary + id);
      }
      r[x] = std::max(p - q, 0.0F);
    }
    if (record_.inputs.contains("recover_noise")) return leader(n, r);
    return chosen(r, number("recover_uniforms", n));
  }

  // By the sums of tiles, then inside of one.
  [[nodiscard]] std::int64_t chosen(const std::vector<float>& r, float u) const {
    const auto lanes = [&](std::size_t t) {
      const auto first = r.begin() + static_cast<std::ptrdiff_t>(t * design_.tile);
      return std::vector<float>(first, first + static_cast<std::ptrdiff_t>(design_.tile));
    };
    const std::size_t tiles = r.size() / design_.tile;
    std::vector<float> before{0.0F};
    for (std::size_t t = 0; t < tiles; ++t) before.push_back(before.back() + tree_sum(lanes(t)));
    const float threshold = u * before.back();
    std::size_t t = 0;
    while (t + 1 < tiles && !(before[t + 1] > threshold)) ++t;
    std::vector<float> sums = lanes(t);
    const std::vector<float> own = sums;
    scan(sums);
    std::size_t last = 0;  // that can be chosen: where roundings leave no sum above the threshold
    for (std::size_t x = 0; x < sums.size(); ++x) {
      if (own[x] > 0.0F) last = x;
      if (own[x] > 0.0F && before[t] + sums[x] > threshold) {
        last = x;
        break;
      }
    }
    return static_cast<std::int64_t>(t * design_.tile + last);
  }

  // The best of every tile, then of those.
  [[nodiscard]] std::int64_t leader(std::int64_t n, const std::vector<float>& r) const {
    float best = -1.0F;
    std::int64_t token = 0;
    for (std::size_t first = 0; first < r.size(); first += design_.tile) {
      float tile_best = -1.0F;
      std::size_t tile_token = first;
      for (std::size_t x = first; x < first + design_.tile; ++x) {
        const auto id = static_cast<std::int64_t>(x);
        if (id >= dims_.vocabulary) break;
        const float noise = number("recover_noise", n * dims_.vocabulary + id);
        const float score = design_.multiplies_noise ? r[x] * (1.0F / noise) : r[x] / noise;
        if (score > tile_best) {
          tile_best = score;
          tile_token = x;
        }
      }
      if (tile_best > best) {
        best = tile_best;
        token = static_cast<std::int64_t>(tile_token);
      }
    }
    return token;
  }

  [[nodiscard]] bool is_stop(std::int64_t token) const {
    bool found = false;
    for (std::int64_t i = 0; i < dims_.stops; ++i) found |= integer("stop_tokens", i) == token;
    return found;
  }
  [[nodiscard]] bool is_one_hot() const { return rule_.draft_kind == call::DraftKind::kOneHot; }
  [[nodiscard]] std::int64_t integer(const char* name, std::int64_t i) const {
    return static_cast<std::int64_t>(record_.inputs.at(name)[i]);
  }
  [[nodiscard]] float number(const char* name, std::int64_t i) const {
    return static_cast<float>(record_.inputs.at(name)[i]);
  }
  void set(const char* name, std::int64_t i, std::int64_t value) {
    outputs_.at(name).set(i, static_cast<double>(value));
  }

  const call::Record& record_;
  const call::Convention& rule_;
  const Design design_;
  const call::Dims dims_;
  const std::int64_t width_;
  call::TensorMap outputs_;
};

}  // namespace

call::TensorMap emulate(const call::Record& record, std::uint64_t seed) {
  return Kernel(record, seed).run();
}

}  // namespace goldenrule::drafts
