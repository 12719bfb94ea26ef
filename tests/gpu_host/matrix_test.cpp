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
op={gdn,kda} mode=mtp B=3 T=1 H=1 HV=2 K=128 V=128 state_layout={vk,kv} keeps=0
op={gdn,kda} mode=mtp B=9 T=4 H=1 HV=2 K=128 V=128 state_layout={vk,kv} state={f32,bf16}
op={gdn,kda} mode=mtp B=3 T=8 H=1 HV=2 K=128 V=64 state_layout={vk,kv} state={f32,bf16} slots=scatter_padded
op=kda mode=mtp B={1,5} T=3 H=1 HV=1 K=128 V={32,128} state_layout={vk,kv} state={f32,bf16} io=f16 keeps=0
op={gdn,kda} mode=mtp B=2 T={1,3} H=1 HV=2 K={60,100,136} V=37 state_layout={vk,kv} state={f32,bf16} slots=separate_padded
op={gdn,kda} mode=mtp B=3 T=2 H=1 HV=2 K=100 V=37 state_layout={vk,kv} state={f32,bf16} gap=3 shift=1 accepted=mixed
op={gdn,kda} mode=mtp B=2 T=2 H=1 HV=2 K={128,60} V=64 gate={softplus,bounded,log,log2,linear,none} beta={sigmoid,direct} io={bf16,f32} keeps=0 seed=2
op={gdn,kda} mode=mtp B=4 T={1,3,8} H=1 HV=2 K=128 V=64 ring=io state_layout={vk,kv} state={f32,bf16} index=i32 slots=padded
op={gdn,kda} mode=mtp B=3 T={3,8} H=1 HV=2 K=128 V={128,192} ring=io window={9,24,40} state_layout={vk,kv}
op=kda mode=mtp B=3 T=8 H=1 HV=2 K=128 V=128 ring=io window=24 state=bf16 state_layout={vk,kv}
op={gdn,kda} mode=mtp B=3 T=4 H=1 HV=2 K=128 V={64,128} ring=io window={16,17} state_layout={vk,kv} state={f32,bf16} change=no_tokens
op={gdn,kda} mode=mtp B=4 T={3,8} H=1 HV=2 K=128 V=64 ring=io window=22 change={corrections_f32,corrections_f16}
op={gdn,kda} mode=mtp B=3 T={2,10} H=1 HV=2 K={60,100,136} V=37 ring=f32 window=19 state_layout={vk,kv} state={f32,bf16} slots=separate_padded
op={gdn,kda} mode=mtp B=3 T=2 H=2 HV=4 K={128,60} V=64 ring=io gate={softplus,bounded,log,log2,linear,none} head_map=tiled gap=8 keeps=0
op={gdn,kda} mode=mtp B=3 T=2 H=1 HV=2 K={128,60} V=64 ring=io gap=3 shift=1 io=f16 change=no_tokens
op={gdn,kda} mode=mtp lens=3,0,1,9 H=1 HV=2 K={100,136} V=37 state_layout={vk,kv} state={f32,bf16} slots=separate_padded tree=mixed kept=buffer_bf16 track=mixed index=i32
op={gdn,kda} mode=mtp lens=3,0,1,8 H=1 HV=2 K=128 V={64,128} state_layout={vk,kv} state={f32,bf16} slots=padded kept={rows,buffer} index=i32
op={gdn,kda} mode=mtp lens=3,0,1,8 H=1 HV=2 K=128 V=64 ring=io window={16,17} state_layout={vk,kv} state={f32,bf16} slots=padded index=i32
op={gdn,kda} mode=mtp lens=16,2 H=1 HV=2 K=128 V=64 state_layout={vk,kv} slots=scatter_padded gap=3 shift=1 tree=mixed
)";

constexpr const char* kPrefill = R"(
op=gdn mode=prefill lens=70,0,129,1 H=1 HV=2 K=128 V=128 state_layout={vk,kv} state={f32,bf16} h0=1
op=gdn mode=prefill lens=9,64,63,65 H=2 HV=4 K=128 V={64,192} slots=separate_padded index=i32
op=gdn mode=prefill lens=70,0,129 H=1 HV=2 K=128 V=128 state={f32,bf16} checkpoints={after,before,continued} every=48
op=gdn mode=prefill lens=130 H=1 HV=2 K=128 V=64 h0=1 pattern={B999,Dmixed,Derase,J100,I,production}
op=gdn mode=prefill lens=9,70 H=1 HV=2 K=128 V=64 gate={softplus,bounded,log,log2,linear,none} h0=1
op=gdn mode=prefill lens=9,70 H=1 HV=2 K=128 V=64 qk_l2norm={none,max_norm_eps,norm_plus_eps} scale=0.25 h0=1 gap=8
op=kda mode=prefill lens=70,0,129,1 H=1 HV=2 K=128 V=128 state_layout={vk,kv} state={f32,bf16} h0=1
op=kda mode=prefill lens=9,64,63,65 H=2 HV=4 K=128 V={64,192} slots=separate_padded gate={softplus,bounded}
op=kda mode=prefill lens=70,0,40 H=1 HV=2 K=128 V=64 gate={softplus,bounded} checkpoints={after,before} every=48
op=kda mode=prefill lens=70 H=1 HV=2 K=128 V=64 h0=1 pattern={B95,Dmixed,Derase} gate=softplus
op={gdn,kda} mode=prefill lens=300 H=1 HV=1 K=128 V=128 state_layout={vk,kv} state={f32,bf16} h0=1
op=gdn mode=prefill lens=70,258,0,400,5 H=1 HV=2 K=128 V=128 slots=separate_padded index=i32
op=kda mode=prefill lens=258,9,300 H=1 HV=1 K=128 V=256 h0=0 gate={softplus,bounded}
op={gdn,kda} mode=prefill lens=600 H=1 HV=1 K=128 V=128 h0=1 gate=none pattern=C000
op=gdn mode=prefill lens=520 H=1 HV=9 K=128 V=128 h0=1
op={gdn,kda} mode=prefill lens=9,0,1,20 H=1 HV=2 K={128,60,136} V=37 state_layout={vk,kv} state={f32,bf16} h0=1
op={gdn,kda} mode=prefill lens=20,0,9 H=1 HV=2 K=100 V=37 slots=separate_padded checkpoints=listed gap=3 shift=1
op={gdn,kda} mode=prefill lens=9,20 H=1 HV=2 K=128 V=32 gate={softplus,bounded,log,linear,none} io={bf16,f32} precise=1
op={gdn,kda} mode=prefill lens=20,0,70,1,8 H=1 HV=2 K=128 V=64 precise=1 h0=1 state_layout={vk,kv} state={f32,bf16}
op={gdn,kda} mode=prefill lens=20,0,70,1,8 H=1 HV=2 K=128 V=64 precise=1 state_layout={vk,kv} state={f32,bf16} slots=separate_padded index=i32
op={gdn,kda} mode=prefill lens=20,0,70 H=2 HV=4 K=128 V=64 precise=1 checkpoints=listed head_map={grouped,tiled}
op={gdn,kda} mode=prefill lens=20,0,70 H=2 HV=4 K=128 V=64 precise=1 checkpoints={after,before} every=3
op={gdn,kda} mode=prefill lens=130 H=1 HV=1 K=128 V=32 h0=1 precise=1 pattern={B95,B999,C050,C100,Dslow,Dmixed,Derase,J17,J100,I,production}
op=kda mode=prefill lens=9,20 H=1 HV=2 K=128 V={16,80,208} precise=1 io={bf16,f16} gap={3,8} shift=1 state_layout={vk,kv}
)";

constexpr const char* kAttention = R"(
op=attention mode=decode lens=4,3,0 ctx=70,0,300 H=2 HV=4 K=64 V=64 io={bf16,f16} splits={1,2,4,8,9,16} pattern={A,K}
op=attention mode=decode lens=16,9 ctx=200,33 H=1 HV=4 K=128 V=128 io={bf16,f16} splits={1,2,4,8,9,16} pattern={A,L} index=i32
op=attention mode=decode lens=4,1 ctx=130,64 H=1 HV=4 K=128 V=96 io={bf16,f16} splits={1,2,4,8,9,16} table=csr kv_layout=hnd
op=attention mode=decode lens=20,16 ctx=65,300 H=1 HV=4 K=64 V=64 io={bf16,f16} splits={1,2,4,8,9,16} lse_base=2 lse_layout=ht
op=attention mode=decode lens=20,9 ctx=61,140 H=1 HV=2 K={32,128} V=64 mask=block_causal block=8 block_base={absolute,segment} pattern={K,L}
op=attention mode=decode lens=20,5 ctx=100,150 H=1 HV=2 K=64 V=64 mask={full,causal} window_left={0,63,64,65} pattern={K,P}
op=attention mode=decode lens=9 ctx=100 H=1 HV=3 K=64 V=64 window_left=16 window_right={0,3} pattern=L
op=attention mode=decode lens=6,6,6 ctx=40,7,16 H=2 HV=4 K=64 V=64 valid=mixed block_kv={separate,in_cache} pattern={K,P}
op=attention mode=decode lens=16,4,5 ctx=64,4,32 H=2 HV=4 K=64 V=64 block_kv=in_cache mask={full,causal} pattern={K,P}
op=attention mode=decode lens=4,4 ctx=100,64 H=2 HV=4 K=64 V=64 page={1,3,16,128} missing_page=skip table=holes pattern={K,A} columns=3
op=attention mode=decode lens=4,2 ctx=50,33 H=2 HV={4,14} K={16,80,96} V=32 head_map={grouped,tiled} gap=8
op=attention mode=decode lens=4,2 ctx=150,33 H=2 HV=6 K={37,192,256} V={19,256} head_map={grouped,tiled} gap=3 shift=1 pattern={A,P}
op=attention mode=decode lens=3,3 ctx=200,130 H=1 HV=2 K=32 V=32 window_left=16 shift={0,1} pattern={A,P,Y,S}
op=attention mode=decode lens=4,4 keys=0,0 ctx=40,0 H=1 HV=2 K=64 V=64 shift={0,1}
op=attention mode=prefill lens=70,1,0,40 H=1 HV=2 K=64 V=64 mask={full,causal,block_causal} block=16 pattern={K,P} shift={0,1}
)";

void run_bare(const char* lines) {
  for (const LiveCase& c : parse_list(lines)) {
    CAPTURE(canonical(c));
    LiveCall live(make_record(c), c.placement, Memory::kBare);
    live.launch();
    live.synchronize();
  }
}

/// Kernels of the table that no call has reached, and whose name begins with `prefix`; "": those of
/// decode and MTP, whose names begin otherwise than all others.
std::string unreached(const std::string& prefix) {
  std::string names;
  for (const auto& [name, hits] : hits_by_name()) {
    const bool recurrent = !name.starts_with("prefill_") && !name.starts_with("attention_");
    if (hits == 0 && (prefix.empty() ? recurrent : name.starts_with(prefix))) names += name + " ";
  }
  return names;
}

TEST_CASE("on the host: every kernel of decode and MTP, judged") {
  check_cases("decode and MTP", parse_list(kRecurrent));
  CHECK(unreached("") == "");
}
TEST_CASE("on the host: every kernel of prefill, judged") {
  check_cases("prefill", parse_list(kPrefill));
  // The segments of one head are more than two multiprocessors take as halves.
  CHECK(unreached("prefill_") == "prefill_gdn_scan_v64_segments prefill_kda_scan_v64_segments ");
}
TEST_CASE("on the host: every kernel of attention, judged") {
  check_cases("attention", parse_list(kAttention));
  CHECK(unreached("attention_") == "");
}
TEST_CASE("on the host: attention in bare memory") { run_bare(kAttention); }
TEST_CASE("on the host: decode and MTP in bare memory") { run_bare(kRecurrent); }
TEST_CASE("on the host: prefill in bare memory") { run_bare(kPrefill); }

}  // namespace
}  // namespace goldenrule::test
