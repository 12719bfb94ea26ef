// SPDX-License-Identifier: Apache-2.0
//
// A small matrix over every kernel of the dispatch table, judged against the oracle, and the same
// shapes in bare memory, where AddressSanitizer sees an access beyond a tensor. The device has two
// multiprocessors (simt/grid.hpp), so a few rows already fill it and reach the kernels for large
// grids.
#include "tests/gpu/check_cases.hpp"

namespace goldenrule::test {
namespace {

constexpr const char* kRecurrent = R"(
op={gdn,kda} mode=mtp B={1,5} T={1,3,9} H=1 HV=2 K=128 V=128 state_layout={vk,kv} state={f32,bf16} index=i32 slots=padded keeps=0
op={gdn,kda} mode=mtp B=1 T={1,3,9} H=1 HV=1 K=128 V=128 state_layout={vk,kv} state={f32,bf16} keeps=0
op={gdn,kda} mode=mtp B=9 T=4 H=1 HV=2 K=128 V=128 state_layout={vk,kv} state={f32,bf16}
op={gdn,kda} mode=mtp B=3 T=8 H=1 HV=2 K=128 V=64 state_layout={vk,kv} state={f32,bf16} slots=scatter_padded
op=kda mode=mtp B={1,5} T=3 H=1 HV=1 K=128 V={32,128} state_layout={vk,kv} state={f32,bf16} io=f16 kept=0
op={gdn,kda} mode=mtp B=2 T={1,3} H=1 HV=2 K={60,100,136} V=37 state_layout={vk,kv} state={f32,bf16} slots=separate_padded
op={gdn,kda} mode=mtp B=3 T=2 H=1 HV=2 K=100 V=37 state_layout={vk,kv} state={f32,bf16} gap=3 shift=1 accepted=mixed
op={gdn,kda} mode=mtp B=2 T=2 H=1 HV=2 K={128,60} V=64 gate={softplus,bounded,log,log2,linear,none} beta={sigmoid,direct} io={bf16,f32} keeps=0 seed=2
op={gdn,kda} mode=mtp B=4 T={1,3,8} H=1 HV=2 K=128 V=64 ring=io state_layout={vk,kv} state={f32,bf16} index=i32 slots=padded
op=gdn mode=mtp B=3 T={3,8} H=1 HV=2 K=128 V=128 ring=io window={9,24,40} state_layout={vk,kv}
op=gdn mode=mtp B=4 T={3,8} H=1 HV=2 K=128 V=64 ring=io window=22 change={corrections_f32,corrections_f16}
op={gdn,kda} mode=mtp B=3 T={2,10} H=1 HV=2 K={60,100,136} V=37 ring=f32 window=19 state_layout={vk,kv} state={f32,bf16} slots=separate_padded
op={gdn,kda} mode=mtp B=3 T=2 H=2 HV=4 K={128,60} V=64 ring=io gate={softplus,bounded,log,log2,linear,none} head_map=tiled gap=8 keeps=0
op={gdn,kda} mode=mtp B=3 T=2 H=1 HV=2 K={128,60} V=64 ring=io gap=3 shift=1 io=f16 change=no_tokens
op={gdn,kda} mode=mtp lens=3,0,1,9 H=1 HV=2 K={100,136} V=37 state_layout={vk,kv} state={f32,bf16} slots=separate_padded tree=mixed kept=buffer_bf16 track=mixed index=i32
op={gdn,kda} mode=mtp lens=16,2 H=1 HV=2 K=128 V=64 state_layout={vk,kv} slots=scatter_padded gap=3 shift=1 tree=mixed
)";

constexpr const char* kPrefill = R"(
op=gdn mode=prefill lens=70,0,129,1 H=1 HV=2 K=128 V=128 state_layout={vk,kv} state={f32,bf16} h0=1
op=gdn mode=prefill lens=9,64,63,65 H=2 HV=4 K=128 V={64,192} slots=separate_padded index=i32
op=gdn mode=prefill lens=70,0,129 H=1 HV=2 K=128 V=128 state={f32,bf16} checkpoints={after,before,continued} every=48
op=gdn mode=prefill lens=130 H=1 HV=2 K=128 V=64 h0=1 family={B999,Dmixed,Derase,J100,I,production}
op=gdn mode=prefill lens=9,70 H=1 HV=2 K=128 V=64 gate={softplus,bounded,log,log2,linear,none} h0=1
op=gdn mode=prefill lens=9,70 H=1 HV=2 K=128 V=64 qk_l2norm={none,max_norm_eps,norm_plus_eps} scale=0.25 h0=1 gap=8
op=kda mode=prefill lens=70,0,129,1 H=1 HV=2 K=128 V=128 state_layout={vk,kv} state={f32,bf16} h0=1
op=kda mode=prefill lens=9,64,63,65 H=2 HV=4 K=128 V={64,192} slots=separate_padded gate={softplus,bounded}
op=kda mode=prefill lens=70,0,40 H=1 HV=2 K=128 V=64 gate={softplus,bounded} checkpoints={after,before} every=48
op=kda mode=prefill lens=70 H=1 HV=2 K=128 V=64 h0=1 family={B95,Dmixed,Derase} gate=softplus
op={gdn,kda} mode=prefill lens=300 H=1 HV=1 K=128 V=128 state_layout={vk,kv} state={f32,bf16} h0=1
op=gdn mode=prefill lens=70,258,0,400,5 H=1 HV=2 K=128 V=128 slots=separate_padded index=i32
op=kda mode=prefill lens=258,9,300 H=1 HV=1 K=128 V=256 h0=0 gate={softplus,bounded}
op={gdn,kda} mode=prefill lens=600 H=1 HV=1 K=128 V=128 h0=1 gate=none family=C000
op=gdn mode=prefill lens=520 H=1 HV=9 K=128 V=128 h0=1
op={gdn,kda} mode=prefill lens=9,0,1,20 H=1 HV=2 K={128,60,136} V=37 state_layout={vk,kv} state={f32,bf16} h0=1
op={gdn,kda} mode=prefill lens=20,0,9 H=1 HV=2 K=100 V=37 slots=separate_padded checkpoints=listed gap=3 shift=1
op={gdn,kda} mode=prefill lens=9,20 H=1 HV=2 K=128 V=32 gate={softplus,bounded,log,linear,none} io={bf16,f32} precise=1
)";

void run_bare(const char* lines) {
  for (const LiveCase& c : parse_list(lines)) {
    CAPTURE(canonical(c));
    LiveCall live(make_record(c), c.placement, Memory::kBare);
    live.launch();
    live.synchronize();
  }
}

/// Kernels of the table whose name begins with `prefix`, or all others if `others`, and that no
/// call has reached.
std::string unreached(const std::string& prefix, bool others) {
  std::string names;
  for (const auto& [name, hits] : hits_by_name()) {
    if (hits == 0 && name.starts_with(prefix) != others) names += name + " ";
  }
  return names;
}

TEST_CASE("on the host: every kernel of decode and MTP, judged") {
  check_cases("decode and MTP", parse_list(kRecurrent));
  CHECK(unreached("prefill_", true) == "");
}
TEST_CASE("on the host: every kernel of prefill, judged") {
  check_cases("prefill", parse_list(kPrefill));
  // The segments of one head are more than two multiprocessors take as halves.
  CHECK(unreached("prefill_", false) ==
        "prefill_gdn_scan_v64_segments prefill_kda_scan_v64_segments ");
}
TEST_CASE("on the host: decode and MTP in bare memory") { run_bare(kRecurrent); }
TEST_CASE("on the host: prefill in bare memory") { run_bare(kPrefill); }

}  // namespace
}  // namespace goldenrule::test
