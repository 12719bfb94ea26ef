// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <type_traits>

#include "tests/call/support.hpp"

using namespace goldenrule;
using namespace goldenrule::call;

namespace {

template <class E>
void check_names(const std::string& legal) {
  using Names = EnumNames<E>;
  for (std::size_t i = 0; i < Names::kNames.size(); ++i) {
    CHECK(parse_name<E>(Names::kNames[i]) == static_cast<E>(i));
    CHECK(name_of(static_cast<E>(i)) == Names::kNames[i]);
  }
  test::check_refused(
      [] { (void)parse_name<E>("no such"); },
      {ErrorKind::kValue, std::string(Names::kWhat), "one of " + legal, "'no such'"});
}

std::string quoted(std::string_view name) { return std::string("`").append(name).append("`"); }

template <class T>
Convention with(T DeltaAttributes::*field, std::type_identity_t<T> value) {
  Convention c;
  c.*field = value;
  return c;
}

}  // namespace

TEST_CASE("convention: names, and the refusal of others") {
  check_names<StateLayout>("vk, kv");
  check_names<Gate>("softplus, bounded, log, log2, linear, none");
  check_names<BetaForm>("sigmoid, sigmoid2, direct");
  check_names<QkNorm>("none, rsqrt_sum_eps, max_norm_eps, norm_plus_eps");
  check_names<HeadMap>("grouped, tiled");
  check_names<GateHead>("v, qk");
  check_names<Op>(
      "gated_delta_rule, kda, gated_delta_rule_backward, kda_backward, attention, "
      "draft_acceptance");
  check_names<Mode>("decode, mtp, prefill, greedy, rejection");
  check_names<Mask>("full, causal, block_causal");
  check_names<BlockBase>("absolute, segment");
  check_names<BlockKv>("separate, in_cache");
  check_names<KvLayout>("nhd, hnd");
  check_names<MissingPage>("error, skip");
  check_names<LseBase>("e, 2");
  check_names<LseLayout>("th, ht");
  check_names<DraftKind>("sampled, one_hot");
  check_names<AcceptRule>("le, lt");
  check_names<ZeroDraft>("reject, accept");
  check_names<DraftCrop>("start, new_start");
}

TEST_CASE("convention: names belong to their values") {
  // Written out: a permuted table would still pass the round trip above.
  CHECK(parse_name<StateLayout>("kv") == StateLayout::kKV);
  CHECK(parse_name<Gate>("bounded") == Gate::kBounded);
  CHECK(parse_name<Gate>("log2") == Gate::kLog2);
  CHECK(parse_name<Gate>("linear") == Gate::kLinear);
  CHECK(parse_name<BetaForm>("sigmoid2") == BetaForm::kSigmoid2);
  CHECK(parse_name<BetaForm>("direct") == BetaForm::kDirect);
  CHECK(parse_name<QkNorm>("max_norm_eps") == QkNorm::kMaxNormEps);
  CHECK(parse_name<QkNorm>("norm_plus_eps") == QkNorm::kNormPlusEps);
  CHECK(parse_name<HeadMap>("tiled") == HeadMap::kTiled);
  CHECK(parse_name<GateHead>("qk") == GateHead::kQK);
  CHECK(parse_name<Op>("kda") == Op::kKda);
  CHECK(parse_name<Op>("attention") == Op::kAttention);
  CHECK(parse_name<Mask>("block_causal") == Mask::kBlockCausal);
  CHECK(parse_name<BlockKv>("in_cache") == BlockKv::kInCache);
  CHECK(parse_name<LseBase>("2") == LseBase::k2);
  CHECK(parse_name<Op>("draft_acceptance") == Op::kDraftAcceptance);
  CHECK(parse_name<DraftKind>("one_hot") == DraftKind::kOneHot);
  CHECK(parse_name<AcceptRule>("lt") == AcceptRule::kLt);
  CHECK(parse_name<ZeroDraft>("accept") == ZeroDraft::kAccept);
  CHECK(parse_name<DraftCrop>("new_start") == DraftCrop::kNewStart);
  CHECK(parse_name<Mode>("rejection") == Mode::kRejection);
  CHECK(parse_name<Mode>("mtp") == Mode::kMtp);
}

TEST_CASE("convention: a row begins with the default and has every value") {
  const Convention defaults;
  for_each_field(defaults, [&](const char* name, const auto& value) {
    CAPTURE(name);
    const AttributeRow& told = *find_attribute(name);
    CHECK(!told.meaning.empty());
    using Field = std::decay_t<decltype(value)>;
    if constexpr (std::is_enum_v<Field>) {
      CHECK(told.meaning.starts_with(quoted(name_of(value))));
      for (const std::string_view legal : EnumNames<Field>::kNames) {
        CHECK(told.meaning.find(quoted(legal)) != std::string_view::npos);
      }
      CHECK(told.range.words.empty());
    } else if constexpr (!std::is_same_v<Field, std::optional<double>>) {
      CHECK(told.range.contains(static_cast<double>(value)));
    }
  });
}

TEST_CASE("convention: every field is visited once, and the visit can change it") {
  Convention c;
  std::vector<std::string> names;
  for_each_field(c, [&](const char* name, auto& field) {
    names.emplace_back(name);
    using F = std::remove_reference_t<decltype(field)>;
    if constexpr (std::is_enum_v<F>) {
      field = static_cast<F>(1);
    } else {
      field = 3;
    }
  });
  CHECK(names == std::vector<std::string>{"state_layout",
                                          "gate",
                                          "softplus_beta",
                                          "softplus_threshold",
                                          "lower_bound",
                                          "beta",
                                          "qk_l2norm",
                                          "l2_eps",
                                          "scale",
                                          "head_map",
                                          "gate_head",
                                          "pad_slot",
                                          "disable_state_update",
                                          "mask",
                                          "block",
                                          "block_base",
                                          "window_left",
                                          "window_right",
                                          "block_kv",
                                          "kv_layout",
                                          "missing_page",
                                          "soft_cap",
                                          "lse_base",
                                          "lse_layout",
                                          "draft_kind",
                                          "accept_rule",
                                          "zero_draft",
                                          "draft_crop",
                                          "pad_token",
                                          "page_size"});
  CHECK(c.state_layout == StateLayout::kKV);
  CHECK(c.softplus_threshold == 3.0);
  CHECK(c.scale == 3.0);
  CHECK(c.pad_slot == 3);
  CHECK_FALSE(c == Convention{});
}

TEST_CASE("convention: a family reads its own fields and the common ones") {
  const Convention c;
  std::map<Family, std::set<std::string>> read;
  for (const auto& [family, attributes, borrowed] : kFamilyRows) {
    std::set<std::string>& names = read[family];
    for_each_field_of(family, c, [&](const char* name, const auto&) { names.insert(name); });
  }
  CHECK(read[Family::kDelta].size() == 13);
  CHECK(read[Family::kAttention].size() == 13);
  CHECK(read[Family::kDrafts].size() == 6);
  std::vector<std::string> common;
  std::ranges::set_intersection(read[Family::kDelta], read[Family::kAttention],
                                std::back_inserter(common));
  CHECK(common == std::vector<std::string>{"head_map", "scale"});
  for (const std::string& name : read[Family::kDrafts]) {
    CHECK_FALSE(read[Family::kDelta].contains(name));
    CHECK_FALSE(read[Family::kAttention].contains(name));
  }
}

TEST_CASE("convention: numbers without a meaning are refused, wherever they come from") {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
  CHECK_NOTHROW(validate(Convention{}));
  Convention odd;
  odd.softplus_beta = 1e-300;
  odd.softplus_threshold = -1;
  odd.lower_bound = -1e-300;
  odd.l2_eps = 0;
  odd.scale = -2.0;
  odd.pad_slot = -kMaxPadSlot;
  odd.disable_state_update = 1;
  CHECK_NOTHROW(validate(odd));
  const auto refused = [](const Convention& c, const std::string& name, const std::string& expected,
                          const std::string& actual) {
    test::check_refused([&] { validate(c); },
                        {ErrorKind::kValue, "/convention@" + name, expected, actual});
    test::check_refused([&] { validate(c, ""); }, {ErrorKind::kValue, name, expected, actual});
    Record record = test::mtp();
    record.convention = c;
    test::check_refused([&] { (void)validate(record); },
                        {ErrorKind::kValue, "/convention@" + name, expected, actual});
  };
  refused(with(&Convention::softplus_beta, 0), "softplus_beta", "above 0", "0");
  refused(with(&Convention::softplus_beta, -1.5), "softplus_beta", "above 0", "-1.5");
  refused(with(&Convention::softplus_threshold, -kInfinity), "softplus_threshold",
          "a finite number", "-inf");
  refused(with(&Convention::lower_bound, 0), "lower_bound", "below 0", "0");
  refused(with(&Convention::lower_bound, -kInfinity), "lower_bound", "a finite number", "-inf");
  refused(with(&Convention::l2_eps, -1e-30), "l2_eps", "at least 0", "-1e-30");
  refused(with(&Convention::l2_eps, std::nan("")), "l2_eps", "a finite number", "nan");
  refused(with(&Convention::scale, kInfinity), "scale", "a finite number", "inf");
  refused(with(&Convention::pad_slot, kMaxPadSlot + 1), "pad_slot", "within +-(2^31-1)",
          "2147483648");
  refused(with(&Convention::pad_slot, kLowest), "pad_slot", "within +-(2^31-1)",
          "-9223372036854775808");
  refused(with(&Convention::disable_state_update, 2), "disable_state_update", "0 or 1", "2");
  refused(with(&Convention::disable_state_update, kLowest), "disable_state_update", "0 or 1",
          "-9223372036854775808");
}

TEST_CASE("convention: head maps") {
  Dims d;
  d.H = 3;
  d.HV = 6;
  for (std::int64_t j = 0; j < 6; ++j) {
    CHECK(d.qk_head(HeadMap::kGrouped, j) ==
          std::vector<std::int64_t>{0, 0, 1, 1, 2, 2}[static_cast<std::size_t>(j)]);
    CHECK(d.qk_head(HeadMap::kTiled, j) ==
          std::vector<std::int64_t>{0, 1, 2, 0, 1, 2}[static_cast<std::size_t>(j)]);
  }
}

TEST_CASE("convention: the scale, where none is named and where it is zero") {
  CHECK(resolved_scale({}, 64) == 0.125);
  CHECK(resolved_scale({}, 80) == 1.0 / std::sqrt(80.0));
  Convention zero;
  zero.scale = 0.0;
  CHECK(resolved_scale(zero, 64) == 0.0);
}

TEST_CASE("error: names the file once it is known") {
  const Error error(ErrorKind::kShape, "/inputs/k", "[2]", "[3]");
  CHECK(std::string(error.what()) == "/inputs/k: expected [2], actual [3]");
  const Error named = error.in_file("x.h5");
  CHECK(std::string(named.what()) == "x.h5: /inputs/k: expected [2], actual [3]");
  CHECK(named.kind() == ErrorKind::kShape);
  CHECK(named.in_file("y.h5").file() == "x.h5");
}
