// SPDX-License-Identifier: Apache-2.0
//
// The boundary suite against the shapes at which kernels have tails: every value must occur for
// both operations, or the suite has a hole that no one would notice.
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <string>

#include "fixtures/cases/suite.hpp"

using namespace goldenrule::call;
using namespace goldenrule::cases;

namespace {

using Predicate = std::function<bool(const Case&)>;

const Suite& boundary() {
  static const Suite suite = load_suite("boundary");
  return suite;
}

void check_both(const std::string& what, const Predicate& holds) {
  for (const Op op : {Op::kGatedDeltaRule, Op::kKda}) {
    CAPTURE(what);
    CAPTURE(name_of(op));
    CHECK(std::ranges::any_of(boundary().cases,
                              [&](const Case& c) { return c.op == op && holds(c); }));
  }
}

void check_values(const std::string& what, std::initializer_list<std::int64_t> values,
                  const std::function<bool(const Case&, std::int64_t)>& holds) {
  for (const std::int64_t value : values) {
    check_both(what + "=" + std::to_string(value), [&](const Case& c) { return holds(c, value); });
  }
}

template <class E>
void check_enum(E DeltaAttributes::*field, std::initializer_list<Mode> modes) {
  for (std::size_t i = 0; i < EnumNames<E>::kNames.size(); ++i) {
    const E value = static_cast<E>(i);
    for (const Mode mode : modes) {
      check_both(std::string(EnumNames<E>::kWhat) + "=" + std::string(name_of(value)) + " " +
                     std::string(name_of(mode)),
                 [&](const Case& c) { return c.mode == mode && c.convention.*field == value; });
    }
  }
}

constexpr std::initializer_list<Mode> kAllModes{Mode::kDecode, Mode::kMtp, Mode::kPrefill};

bool has_lengths(const Case& c, std::initializer_list<LengthRun> lens) {
  return std::ranges::equal(c.lens, lens);
}

}  // namespace

TEST_CASE("boundary: key and value dimensions in every mode") {
  for (const Mode mode : kAllModes) {
    const std::string name(name_of(mode));
    check_values(name + " K", {1, 16, 32, 60, 64, 80, 96, 100, 128, 136, 160, 192, 256},
                 [&](const Case& c, std::int64_t K) { return c.mode == mode && c.K == K; });
    check_values(name + " V",
                 {1, 3, 8, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 136, 192, 255, 256, 320},
                 [&](const Case& c, std::int64_t V) { return c.mode == mode && c.V == V; });
  }
  for (const Case& c : boundary().cases) CHECK(c.K <= 256);  // the GPU kernels' limit
}

TEST_CASE("boundary: numbers of tokens") {
  check_values("single sequence of",
               {0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257},
               [](const Case& c, std::int64_t T) {
                 return c.mode == Mode::kPrefill && has_lengths(c, {{1, T}});
               });
  check_values("MTP T", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
               [](const Case& c, std::int64_t T) { return c.mode == Mode::kMtp && c.T == T; });
  for (const std::int64_t h0 : {0, 1}) {
    const std::string with = " h0=" + std::to_string(h0);
    check_both("63,64,65,1,0,130" + with, [&](const Case& c) {
      return has_lengths(c, {{1, 63}, {1, 64}, {1, 65}, {1, 1}, {1, 0}, {1, 130}}) && c.h0 == h0;
    });
    check_both("0,0,1" + with, [&](const Case& c) {
      return has_lengths(c, {{2, 0}, {1, 1}}) && c.h0 == h0;
    });
  }
  check_both("2050x16", [](const Case& c) { return has_lengths(c, {{2050, 16}}); });
}

TEST_CASE("boundary: heads and blocks") {
  for (const HeadMap map : {HeadMap::kGrouped, HeadMap::kTiled}) {
    check_values("HV/H", {1, 2, 3, 4, 8}, [&](const Case& c, std::int64_t ratio) {
      // With one q/k head or as many as value heads, both maps are the same.
      const bool visible = (c.H > 1 && c.HV > c.H) || ratio == 1;
      return c.HV == ratio * c.H && c.convention.head_map == map && visible;
    });
  }
  for (const Mode mode : {Mode::kDecode, Mode::kMtp}) {
    check_values(std::string(name_of(mode)) + " B*HV", {127, 128, 511, 512},
                 [&](const Case& c, std::int64_t n) { return c.mode == mode && c.B * c.HV == n; });
  }
  check_both("decode B*HV > 65535",
             [](const Case& c) { return c.mode == Mode::kDecode && c.B * c.HV > 65535; });
  check_both("prefill N*HV > 65535",
             [](const Case& c) { return c.mode == Mode::kPrefill && row_count(c) * c.HV > 65535; });
}

TEST_CASE("boundary: slots") {
  for (std::size_t i = 0; i < EnumNames<SlotPattern>::kNames.size(); ++i) {
    const auto pattern = static_cast<SlotPattern>(i);
    const std::string name(name_of(pattern));
    const bool scatter = is_scatter(pattern);
    check_both(name + " mtp",
               [&](const Case& c) { return c.mode == Mode::kMtp && c.slots == pattern; });
    if (scatter) continue;
    for (const DType index : {DType::kI32, DType::kI64}) {
      check_both(name + " decode", [&](const Case& c) {
        return c.mode == Mode::kDecode && c.slots == pattern && c.index == index;
      });
    }
  }
  check_both("prefill, int32 cu_seqlens",
             [](const Case& c) { return c.mode == Mode::kPrefill && c.index == DType::kI32; });
  check_both("scatter, int32", [](const Case& c) {
    return c.slots == SlotPattern::kScatter && c.index == DType::kI32;
  });
  check_both("pad slot 0, padded rows", [](const Case& c) {
    return c.convention.pad_slot == 0 && c.slots == SlotPattern::kPadded;
  });
  check_both("pad slot 0, scatter", [](const Case& c) {
    return c.convention.pad_slot == 0 && c.slots == SlotPattern::kScatterPadded;
  });
  check_both("pad slot 0, scatter from start slots", [](const Case& c) {
    return c.convention.pad_slot == 0 && c.slots == SlotPattern::kScatterFrom;
  });
  check_both("accepted counts", [](const Case& c) {
    return c.accepted == AcceptedPattern::kMixed && c.B >= 3 && c.T >= 2;
  });
  check_both("accepted counts, separate slots", [](const Case& c) {
    return c.accepted == AcceptedPattern::kMixed && c.slots == SlotPattern::kSeparate;
  });
  check_both("disabled update", [](const Case& c) {
    return c.convention.disable_state_update == 1 && c.slots == SlotPattern::kPadded;
  });
  check_both("a pool much larger than the batch",
             [](const Case& c) { return c.P > 4 * c.B && c.slots == SlotPattern::kPermuted; });
}

TEST_CASE("boundary: pools and states on the way of a prefill") {
  for (std::size_t i = 0; i < EnumNames<SlotPattern>::kNames.size(); ++i) {
    const auto pattern = static_cast<SlotPattern>(i);
    if (is_scatter(pattern)) continue;
    check_both(std::string(name_of(pattern)) + " prefill",
               [&](const Case& c) { return c.mode == Mode::kPrefill && c.slots == pattern; });
  }
  check_both("prefill, pad slot 0", [](const Case& c) {
    return c.mode == Mode::kPrefill && c.convention.pad_slot == 0 &&
           c.slots == SlotPattern::kPadded;
  });
  check_both("prefill, pool of bf16", [](const Case& c) {
    return c.mode == Mode::kPrefill && c.state == DType::kBF16 && c.slots != SlotPattern::kNone;
  });
  for (std::size_t i = 0; i < EnumNames<CheckpointPattern>::kNames.size(); ++i) {
    const auto pattern = static_cast<CheckpointPattern>(i);
    check_both(std::string(name_of(pattern)),
               [&](const Case& c) { return c.mode == Mode::kPrefill && c.checkpoints == pattern; });
  }
  check_both("checkpoints inside of chunks", [](const Case& c) {
    return c.checkpoints == CheckpointPattern::kAfter && c.every % 64 != 0;
  });
  check_both("checkpoints of padded sequences", [](const Case& c) {
    return c.checkpoints == CheckpointPattern::kListed && c.slots == SlotPattern::kPadded;
  });
}

TEST_CASE("boundary: conventions") {
  check_enum(&Convention::state_layout, kAllModes);
  check_enum(&Convention::gate, kAllModes);
  check_enum(&Convention::beta, {Mode::kDecode, Mode::kPrefill});
  check_enum(&Convention::qk_l2norm, {Mode::kDecode, Mode::kPrefill});
  check_enum(&Convention::head_map, kAllModes);
  check_enum(&Convention::gate_head, {Mode::kDecode, Mode::kPrefill});
  for (const Gate gate : {Gate::kSoftplus, Gate::kBounded}) {
    for (const HeadMap map : {HeadMap::kGrouped, HeadMap::kTiled}) {
      check_both("gate by qk head, grouped", [&](const Case& c) {
        return c.convention.gate == gate && c.convention.gate_head == GateHead::kQK &&
               c.convention.head_map == map && c.H > 1 && c.HV > c.H;
      });
    }
  }
  for (const double scale : {0.0, 1.0}) {
    check_both("scale", [&](const Case& c) { return c.convention.scale == scale; });
  }
  check_both("softplus_beta", [](const Case& c) { return c.convention.softplus_beta != 1; });
  check_both("softplus_threshold", [](const Case& c) {
    return c.convention.softplus_threshold != 20 && c.convention.gate == Gate::kSoftplus;
  });
  check_both("lower_bound", [](const Case& c) {
    return c.convention.lower_bound != -5 && c.convention.gate == Gate::kBounded;
  });
  check_both("l2_eps", [](const Case& c) { return c.convention.l2_eps != 1e-6; });
}

TEST_CASE("boundary: every io type with every state type, in every mode") {
  for (const Mode mode : kAllModes) {
    for (const DType io : {DType::kBF16, DType::kF16, DType::kF32}) {
      for (const DType state : {DType::kBF16, DType::kF16, DType::kF32}) {
        const std::string what = std::string(name_of(mode)) + " " + std::string(info(io).name) +
                                 " " + std::string(info(state).name);
        check_both(what, [&](const Case& c) {
          const bool has_state = mode != Mode::kPrefill || c.h0 == 1;
          return c.mode == mode && c.io == io && c.state == state && has_state;
        });
      }
    }
  }
}
