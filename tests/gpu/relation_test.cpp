// SPDX-License-Identifier: Apache-2.0
//
// The relations of reference/delta/relations on the live kernels. A row's bits do not depend on
// where in the batch it stands, so what may demand the same bits does.
#include <set>

#include "tests/delta/relations/support.hpp"
#include "tests/gpu/gpu_test.hpp"
#include "tools/gpu_run/record_call.hpp"

namespace goldenrule::test {
namespace {

using relations::Outcome;

using Modes = std::vector<call::Mode>;

void check_relations(const std::string& lines,
                     const Modes& modes = {call::Mode::kDecode, call::Mode::kMtp}) {
  REQUIRE_GPU();
  const relations::Options options{.batch_invariant = true, .modes = modes};
  std::set<std::string_view> tried;
  std::int64_t compared = 0;
  for_each_case(lines, [&](const LiveCase& c, const call::Record& record) {
    const relations::Kernel kernel = [&](const call::Record& r) {
      return outputs_of(r, c.placement);
    };
    const contract::Contract& contract =
        contract::find_contract(LiveCall(record, c.placement).contract());
    for (const Outcome& outcome : relations::check_all(record, kernel, contract, options)) {
      CHECK_MESSAGE(outcome.holds(), relations::test::to_text(outcome));
      tried.insert(outcome.relation);
      compared += outcome.compared;
    }
  });
  std::printf("%zu relations, %lld elements compared\n", tried.size(),
              static_cast<long long>(compared));
  CHECK(tried.size() >= 9);
}

// On a shape of the tuned kernels and on one of the general kernel.
TEST_CASE("relations: decode") {
  check_relations(
      kFamilies + "mode=decode B=5 H=2 HV=4 K=128 V=64 slots=padded\n" + kFamilies +
      "mode=decode B=5 H=2 HV=4 K=60 V=37 slots=separate_padded head_map=tiled index=i32");
}
TEST_CASE("relations: MTP, pools and accepted counts") {
  check_relations(kFamilies + "mode=mtp B=5 T=3 H=2 HV=4 K=128 V=64 slots=padded accepted=mixed\n" +
                  kFamilies +
                  "mode=mtp B=4 T=3 H=3 HV=6 K=60 V=37 slots=separate head_map=tiled gap=3");
}
TEST_CASE("relations: MTP, many tokens, scatter, no update") {
  check_relations(kFamilies + "mode=mtp B=3 T=8 H=1 HV=2 K=128 V=64 slots=scatter_padded\n" +
                  kFamilies + "mode=mtp B=3 T=12 H=1 HV=2 K=128 V=64 io=f16 beta=direct\n" +
                  kFamilies +
                  "mode=mtp B=3 T=5 H=1 HV=2 K=96 V=32 gate=linear disable_state_update=1");
}

// Beside decode and MTP of the same tokens, and where a sequence is cut in two.
TEST_CASE("prefill relations") {
  const Modes all{call::Mode::kDecode, call::Mode::kMtp, call::Mode::kPrefill};
  check_relations(kFamilies + "mode=prefill lens=63,64,65,1,0,130 H=2 HV=4 K=128 V=64 h0=1\n" +
                      kFamilies + "mode=prefill lens=33,9,0,17 H=2 HV=4 K=60 V=37 head_map=tiled",
                  all);
}
TEST_CASE("prefill relations: pools and checkpoints") {
  const Modes all{call::Mode::kDecode, call::Mode::kMtp, call::Mode::kPrefill};
  check_relations(kFamilies +
                      "mode=prefill lens=33,9,0,17 H=2 HV=4 K={128,60} V=64 slots=padded "
                      "checkpoints=listed",
                  all);
}
TEST_CASE("prefill relations: other gates and types") {
  const Modes all{call::Mode::kDecode, call::Mode::kMtp, call::Mode::kPrefill};
  check_relations(kFamilies +
                      "mode=prefill lens=40,70 H=1 HV=2 K=128 V=128 io=f16 h0=1 "
                      "gate={bounded,linear} beta=direct\n" +
                      kFamilies + "mode=prefill lens=40,70 H=1 HV=2 K=128 V=128 h0=1 gap=3\n" +
                      kFamilies + "mode=prefill lens=9,40 H=1 HV=2 K=128 V=96 h0=1 precise=1",
                  all);
}

}  // namespace
}  // namespace goldenrule::test
