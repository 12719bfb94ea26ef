// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>

#include "fixtures/call/error.hpp"
#include "fixtures/cases/case.hpp"
#include "fixtures/cases/delta_case.hpp"

using goldenrule::Error;
using goldenrule::ErrorKind;
using namespace goldenrule::cases;

namespace {

constexpr const char* kDecode = "op=gdn mode=decode B=2 H=1 HV=2 K=64 V=32";
constexpr const char* kMtp = "op=gdn mode=mtp B=2 T=4 H=1 HV=2 K=64 V=32";
constexpr const char* kPrefill = "op=kda mode=prefill lens=5,3 H=1 HV=2 K=64 V=32";

std::string with(const char* line, const char* more) { return std::string(line) + " " + more; }

struct Refusal {
  ErrorKind kind;
  std::string text;
};

Refusal refusal(const std::string& line) {
  try {
    const Case accepted = parse(line);
    FAIL("accepted: " << canonical(accepted));
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return {error.kind(), error.what()};
  }
  return {};
}

void check_refused(const std::string& line, ErrorKind kind, const char* part) {
  CAPTURE(line);
  const Refusal found = refusal(line);
  CAPTURE(found.text);
  CHECK(found.kind == kind);
  CHECK(found.text.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("the canonical line has a fixed order and no defaults") {
  CHECK(canonical(parse(kDecode)) == kDecode);
  CHECK(canonical(parse("V=32  K=64\tHV=2 H=1 B=2 mode=decode op=gdn")) == kDecode);
  CHECK(canonical(parse(with(kDecode,
                             "io=bf16 state=f32 gate=softplus scale=0.5 pattern=A seed=0 "
                             "l2_eps=1e-6 pad_slot=-1 slots=none"))) == with(kDecode, "scale=0.5"));
  CHECK(canonical(parse(with(kMtp,
                             "seed=18446744073709551615 slots=permuted accepted=mixed "
                             "disable_state_update=1 l2_eps=0.001"))) ==
        with(kMtp,
             "l2_eps=0.001 disable_state_update=1 slots=permuted accepted=mixed "
             "seed=18446744073709551615"));
}

TEST_CASE("every key reaches its field") {
  const Case c = parse(
      "op=kda mode=mtp B=3 T=5 H=2 HV=6 K=96 V=33 io=f16 state=bf16 index=i32 state_layout=kv "
      "gate=bounded softplus_beta=2 softplus_threshold=10 lower_bound=-3 beta=sigmoid2 "
      "qk_l2norm=max_norm_eps l2_eps=0.25 scale=0 head_map=tiled gate_head=qk pad_slot=0 "
      "disable_state_update=1 P=11 slots=padded accepted=mixed pattern=E seed=9");
  using namespace goldenrule::call;
  CHECK(c.op == Op::kKda);
  CHECK(c.mode == Mode::kMtp);
  CHECK((c.B == 3 && c.T == 5 && c.H == 2 && c.HV == 6 && c.K == 96 && c.V == 33));
  CHECK((c.io == DType::kF16 && c.state == DType::kBF16 && c.index == DType::kI32));
  const Convention expected{{.state_layout = StateLayout::kKV,
                             .gate = Gate::kBounded,
                             .softplus_beta = 2,
                             .softplus_threshold = 10,
                             .lower_bound = -3,
                             .beta = BetaForm::kSigmoid2,
                             .qk_l2norm = QkNorm::kMaxNormEps,
                             .l2_eps = 0.25,
                             .scale = 0.0,
                             .head_map = HeadMap::kTiled,
                             .gate_head = GateHead::kQK,
                             .pad_slot = 0,
                             .disable_state_update = 1},
                            {},
                            {}};
  CHECK(c.convention == expected);
  CHECK((c.P == 11 && c.slots == SlotPattern::kPadded && c.accepted == AcceptedPattern::kMixed));
  CHECK((c.pattern == "E" && c.seed == 9));
  CHECK(canonical(parse(canonical(c))) == canonical(c));
}

TEST_CASE("lengths have one spelling") {
  const auto line = [](const char* lens) {
    return "op=kda mode=prefill lens=" + std::string(lens) + " H=1 HV=1 K=8 V=8";
  };
  const Case c = parse(line("63,64,65,1,0,130"));
  CHECK(row_count(c) == 6);
  CHECK(token_count(c) == 323);
  CHECK(canonical(c) == line("63,64,65,1,0,130"));
  const Case many = parse(line("2050x16"));
  CHECK(row_count(many) == 2050);
  CHECK(token_count(many) == 32800);
  CHECK(canonical(parse(line("16,2x16,0,1x0,5"))) == line("3x16,2x0,5"));
}

TEST_CASE("the pool has what the slot pattern needs, and two slots more") {
  CHECK(pool_size(parse(kDecode)) == 2);
  CHECK(pool_size(parse(with(kDecode, "slots=permuted"))) == 4);
  CHECK(pool_size(parse(with(kDecode, "slots=permuted pad_slot=0"))) == 5);
  CHECK(pool_size(parse(with(kDecode, "slots=separate"))) == 6);
  CHECK(pool_size(parse(with(kMtp, "slots=scatter"))) == 10);
  CHECK(pool_size(parse(with(kDecode, "P=9"))) == 9);
  CHECK(pool_size(parse(kPrefill)) == 2);
  CHECK(canonical(parse(with(kDecode, "slots=permuted P=4"))) == with(kDecode, "slots=permuted"));
  CHECK(canonical(parse(with(kDecode, "P=2 slots=permuted"))) ==
        with(kDecode, "P=2 slots=permuted"));
}

TEST_CASE("file stems are readable and tell cases apart") {
  const std::string stem = file_stem(parse(kDecode));
  CHECK(stem.substr(0, stem.size() - 8) == "gdn_decode_B2_H1_HV2_K64_V32_A_");
  CHECK(stem.find_first_not_of("0123456789abcdef", stem.size() - 8) == std::string::npos);
  CHECK(stem != file_stem(parse(with(kDecode, "seed=1"))));
  CHECK(file_stem(parse(kPrefill)).starts_with("kda_prefill_N2_L8_H1_HV2_K64_V32_A_"));
  CHECK(file_stem(parse(kMtp)).starts_with("gdn_mtp_B2_T4_"));
}

TEST_CASE("a line that is no list of known pairs is refused") {
  check_refused("", ErrorKind::kArgument, "'op'");
  check_refused("op=gdn mode=decode H=1 HV=1 K=1 V=1", ErrorKind::kArgument, "'B'");
  check_refused("op=gdn mode=mtp B=1 H=1 HV=1 K=1 V=1", ErrorKind::kArgument, "'T'");
  check_refused("op=gdn mode=prefill H=1 HV=1 K=1 V=1", ErrorKind::kArgument, "'lens'");
  check_refused(with(kDecode, "colour=red"), ErrorKind::kArgument, "'colour'");
  check_refused(with(kDecode, "K=64"), ErrorKind::kArgument, "second 'K'");
  check_refused(with(kDecode, "seed"), ErrorKind::kArgument, "name=value");
  check_refused(with(kDecode, "=3"), ErrorKind::kArgument, "name=value");
}

TEST_CASE("a value that cannot be is refused") {
  check_refused(with(kDecode, "seed=-1"), ErrorKind::kValue, "seed");
  check_refused(with(kDecode, "seed=12x"), ErrorKind::kValue, "'12x'");
  check_refused(with(kDecode, "seed="), ErrorKind::kValue, "seed");
  check_refused(with(kDecode, "l2_eps=nan"), ErrorKind::kValue, "finite");
  check_refused(with(kDecode, "scale=inf"), ErrorKind::kValue, "finite");
  check_refused(with(kDecode, "scale="), ErrorKind::kValue, "scale");
  check_refused(with(kDecode, "l2_eps=-1"), ErrorKind::kValue, "l2_eps");
  check_refused(with(kDecode, "lower_bound=5"), ErrorKind::kValue, "lower_bound");
  check_refused(with(kDecode, "softplus_beta=0"), ErrorKind::kValue, "softplus_beta");
  check_refused(with(kDecode, "pad_slot=2147483648"), ErrorKind::kValue, "pad_slot: expected");
  check_refused(with(kDecode, "pad_slot=-9223372036854775808"), ErrorKind::kValue, "2^31-1");
  check_refused(with(kDecode, "io=f64"), ErrorKind::kValue, "io");
  check_refused(with(kDecode, "io=fp16"), ErrorKind::kValue, "'fp16'");
  check_refused(with(kDecode, "index=f32"), ErrorKind::kValue, "index");
  check_refused(with(kDecode, "gate=sigmoid"), ErrorKind::kValue, "softplus, bounded");
  check_refused(with(kDecode, "pattern=Z"), ErrorKind::kValue, "B999");
  check_refused("op=rwkv mode=decode B=2 H=1 HV=2 K=64 V=32", ErrorKind::kValue, "gdn, kda");
  check_refused("op=gdn mode=decode B=0 H=1 HV=2 K=64 V=32", ErrorKind::kValue, "B: ");
  check_refused("op=gdn mode=mtp B=1 T=0 H=1 HV=2 K=64 V=32", ErrorKind::kValue, "T: ");
  check_refused("op=gdn mode=decode B=1 H=2 HV=3 K=64 V=32", ErrorKind::kValue, "multiple of H=2");
  check_refused("op=gdn mode=decode B=1 H=0 HV=0 K=64 V=32", ErrorKind::kValue, "H: ");
  check_refused("op=gdn mode=decode B=16777216 H=1 HV=1024 K=64 V=32", ErrorKind::kValue, "2^36");
  check_refused("op=gdn mode=prefill lens=5,,3 H=1 HV=1 K=1 V=1", ErrorKind::kValue, "lens");
  check_refused("op=gdn mode=prefill lens=-5 H=1 HV=1 K=1 V=1", ErrorKind::kValue, "LENGTH >= 0");
  check_refused("op=gdn mode=prefill lens=0x5 H=1 HV=1 K=1 V=1", ErrorKind::kValue, "COUNT >= 1");
  check_refused("op=gdn mode=prefill lens=9223372036854775807x9223372036854775807 H=1 HV=1 K=1 V=1",
                ErrorKind::kValue, "lens");
}

TEST_CASE("a key that the mode cannot use is refused") {
  check_refused(with(kDecode, "T=2"), ErrorKind::kValue, "no such key in mode 'decode'");
  check_refused(with(kDecode, "lens=5"), ErrorKind::kValue, "lens");
  check_refused(with(kDecode, "accepted=mixed"), ErrorKind::kValue, "accepted");
  check_refused(with(kDecode, "disable_state_update=1"), ErrorKind::kValue, "disable");
  check_refused(with(kDecode, "h0=1"), ErrorKind::kValue, "h0");
  check_refused(with(kPrefill, "B=5"), ErrorKind::kValue, "B: ");
  check_refused(with(kPrefill, "slots=scatter"), ErrorKind::kValue, "slots");
  check_refused(with(kPrefill, "P=9"), ErrorKind::kValue, "no pool");
  check_refused(with(kPrefill, "slots=permuted h0=1"), ErrorKind::kValue, "h0");
  check_refused(with(kPrefill, "every=32"), ErrorKind::kValue, "every");
  check_refused(with(kPrefill, "checkpoints=listed every=32"), ErrorKind::kValue, "every");
  check_refused(with(kPrefill, "checkpoints=after every=0"), ErrorKind::kValue, "every");
  check_refused(with(kPrefill, "checkpoints=continued every=1"), ErrorKind::kValue, "every");
  check_refused(with(kPrefill, "checkpoints=sometimes"), ErrorKind::kValue, "after, before");
  check_refused(with(kDecode, "checkpoints=after"), ErrorKind::kValue, "checkpoints");
  check_refused(with(kPrefill, "h0=2"), ErrorKind::kValue, "0 or 1");
  check_refused(with(kMtp, "disable_state_update=2"), ErrorKind::kValue, "0 or 1");
}

TEST_CASE("slots that do not fit are refused") {
  check_refused(with(kDecode, "slots=scatter"), ErrorKind::kValue, "mtp");
  check_refused(with(kMtp, "slots=scatter accepted=mixed"), ErrorKind::kValue, "accepted");
  check_refused(with(kDecode, "P=1"), ErrorKind::kValue, "at least 2");
  check_refused(with(kDecode, "P=-3"), ErrorKind::kValue, "P: ");
  check_refused(with(kDecode, "slots=permuted P=2 pad_slot=1"), ErrorKind::kValue, "at least 3");
  check_refused(with(kMtp, "slots=scatter P=7"), ErrorKind::kValue, "at least 8");
}

TEST_CASE("a pattern that the conventions cannot express is refused") {
  check_refused(with(kDecode, "pattern=C190"), ErrorKind::kValue, "sigmoid2 or direct");
  check_refused(with(kDecode, "pattern=B95"), ErrorKind::kValue, "mtp or prefill");
  check_refused(with(kDecode, "pattern=F"), ErrorKind::kValue, "mtp or prefill");
  check_refused(with(kDecode, "pattern=Dprod gate=none"), ErrorKind::kValue, "about its decay");
  check_refused(with(kDecode, "pattern=J17 gate=none"), ErrorKind::kValue, "about its decay");
  check_refused(with(kDecode, "pattern=Derase gate=bounded"), ErrorKind::kValue, "alpha = 0");
  check_refused(with(kDecode, "pattern=I qk_l2norm=none"), ErrorKind::kValue, "eps");
  check_refused(with(kPrefill, "pattern=E"), ErrorKind::kValue, "h0=1");
  const char* exact = "gate=linear beta=direct qk_l2norm=none scale=1 pattern=K";
  CHECK_NOTHROW((void)parse(with(kDecode, exact)));
  check_refused("op=gdn mode=decode B=2 H=1 HV=2 K=63 V=32 " + std::string(exact),
                ErrorKind::kValue, "K >= 64");
  check_refused(with(kDecode, "gate=log beta=direct qk_l2norm=none scale=1 pattern=K"),
                ErrorKind::kValue, "gate=linear");
  check_refused(with(kDecode, "gate=linear qk_l2norm=none scale=1 pattern=K"), ErrorKind::kValue,
                "beta=direct");
  check_refused(with(kDecode, "gate=linear beta=direct scale=1 pattern=K"), ErrorKind::kValue,
                "qk_l2norm=none");
  check_refused(with(kDecode, "gate=linear beta=direct qk_l2norm=none pattern=K"),
                ErrorKind::kValue, "scale=1");
}

TEST_CASE("a pad slot beyond the 32 bits of a kernel's index is refused, the lowest integer too") {
  for (const char* slot : {"-9223372036854775808", "9223372036854775807", "-2147483648"}) {
    CAPTURE(slot);
    try {
      (void)parse(std::string("op=gdn mode=decode B=1 H=1 HV=1 K=4 V=4 pad_slot=") + slot);
      FAIL_CHECK("accepted");
    } catch (const goldenrule::Error& e) {
      CHECK(e.where() == "pad_slot");
      CHECK(e.expected() == "within +-(2^31-1)");
      CHECK(e.actual() == slot);
    }
  }
}
