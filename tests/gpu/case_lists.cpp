// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/case_lists.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "fixtures/call/error.hpp"

namespace goldenrule::test {
namespace {

constexpr std::array kLists{
    CaseList{"every K", R"(
op={gdn,kda} mode=mtp B=2 T={1,3} H=1 HV=2 K={1,16,32,60,64,80,96,100,128,136,160,192,255,256} V={128,33} state_layout={vk,kv} state={f32,bf16} index=i32 keeps=0
)"},
    CaseList{"every V", R"(
op={gdn,kda} mode=mtp B=2 T=1 H=1 HV=2 K={128,60} V={8,32,64,100,128,136,192,256,320} state_layout={vk,kv} state={f32,bf16} keeps=0
op={gdn,kda} mode=mtp B=2 T=2 H=1 HV=2 K={128,60} V={1,3,17,31,33,63,65,127,129,255} state_layout={vk,kv} state={f32,bf16} keeps=0
)"},
    CaseList{"every T and head group", R"(
op={gdn,kda} mode=mtp B=2 T=1 H=2 HV=4 K=128 V=64 state_layout={vk,kv} state={f32,bf16} keeps=0 change=no_tokens
op={gdn,kda} mode=mtp B=2 T={1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16} H=2 HV=4 K=128 V=64 state_layout={vk,kv} state={f32,bf16} keeps=0
op={gdn,kda} mode=mtp B=2 T=2 H=3 HV={3,6,9,12,24} K=128 V=32 state_layout={vk,kv} state={f32,bf16} head_map={grouped,tiled} gate_head={v,qk} keeps=0
)"},
    CaseList{"every gate, beta and norm", R"(
op={gdn,kda} mode=mtp B=2 T=2 H=2 HV=4 K={128,100} V=64 state_layout={vk,kv} state={f32,bf16} gate={softplus,bounded,log,log2,linear,none} beta={sigmoid,sigmoid2,direct} keeps=0
# Keys and queries so small that the eps of the norm shows.
op={gdn,kda} mode=mtp B=2 T=2 H=2 HV=4 K={128,100} V=64 state_layout={vk,kv} state={f32,bf16} gate={softplus,bounded,log,log2,linear,none} beta={sigmoid,sigmoid2,direct} keeps=0 pattern=I change=extreme_gates
op={gdn,kda} mode=mtp B=2 T=2 H=2 HV=4 K={128,100} V=64 state_layout={vk,kv} state={f32,bf16} qk_l2norm={max_norm_eps,norm_plus_eps} l2_eps={1e-06,0.01} keeps=0 pattern={A,I}
op={gdn,kda} mode=mtp B=2 T=2 H=2 HV=4 K={128,100} V=64 state_layout={vk,kv} state={f32,bf16} gate={softplus,bounded} softplus_beta=2 softplus_threshold=3 lower_bound=-2.5 keeps=0
op={gdn,kda} mode=mtp B=2 T=2 H=2 HV=4 K={128,100} V=64 state_layout={vk,kv} state={f32,bf16} qk_l2norm=none scale=0.25 keeps=0
)"},
    CaseList{"exact worlds", R"(
op={gdn,kda} mode=mtp B=2 T={1,2,8} H=2 HV=4 K={64,96,100,128,256} V=128 state_layout={vk,kv} state={f32,bf16} gate={linear,none} beta=direct qk_l2norm=none scale=1 pattern=K
)"},
    CaseList{"every type of q, k, v, o and gates", R"(
op={gdn,kda} mode=mtp B=2 T={1,4} H=2 HV=4 K={128,64,60} V=128 io={f32,f16,bf16} state_layout={vk,kv} state={f32,bf16} keeps=0 change={gates_f32,gates_f16,gates_bf16}
)"},
    CaseList{"strides with gaps and misaligned data", R"(
op={gdn,kda} mode=mtp B=2 T=3 H=2 HV=4 K={128,100} V=128 state_layout={vk,kv} state={f32,bf16} slots=permuted index=i32 gap={1,2,4,8,24} shift={0,1,2,4}
)"},
    CaseList{"correlated keys, batches on both sides of the choice of the kernel", R"(
op={gdn,kda} mode=mtp B={1,15,17,33,67} T={1,5} H=2 HV=4 K=128 V=128 state_layout={vk,kv} state={f32,bf16} slots=permuted index=i32 pattern=B999 keeps=0
)"},
    CaseList{"slots of one token", R"(
op=gdn mode=mtp B=5 T=1 H=1 HV=2 K={128,96} V=64 state_layout={vk,kv} state={f32,bf16} index={i32,i64} slots={none,identity,permuted,padded,separate,separate_padded,scatter,scatter_padded,scatter_from} pad_slot={-1,0} keeps=0
op=gdn mode=mtp B=5 T=1 H=1 HV=2 K={128,96} V=64 state_layout={vk,kv} state={f32,bf16} index={i32,i64} slots={padded,separate_padded,scatter_padded,scatter_from} pad_slot={-1,0} stray=1 keeps=0
# Two tiles and more for each block of the streaming kernel.
op={gdn,kda} mode=mtp B=600 T=1 H=1 HV=1 K=128 V=64 state_layout={vk,kv} state={f32,bf16} index=i32 slots={none,padded,separate_padded} keeps=0
op={gdn,kda} mode=mtp B=600 T=1 H=1 HV=1 K=128 V=64 state_layout={vk,kv} state={f32,bf16} index=i32 slots={permuted,padded,separate} accepted=mixed separate=1 keeps=0
op={gdn,kda} mode=mtp B=600 T=1 H=1 HV=1 K=128 V=64 state_layout={vk,kv} state={f32,bf16} index=i32 slots=scatter_padded separate={0,1} stray=1 pad_slot=0 keeps=0
)"},
    CaseList{"slots of several tokens", R"(
op=gdn mode=mtp B=5 T={4,9} H=1 HV=2 K={128,96} V=64 state_layout={vk,kv} state={f32,bf16} index={i32,i64} slots={none,permuted,padded,separate,separate_padded,scatter,scatter_padded,scatter_from} pad_slot={-1,0} keeps=0
op=gdn mode=mtp B=5 T={4,9} H=1 HV=2 K={128,96} V=64 state_layout={vk,kv} state={f32,bf16} index=i32 slots={padded,separate_padded,scatter_padded,scatter_from} pad_slot={-1,0} stray=1 keeps={0,1}
op=gdn mode=mtp B=5 T=1 H=1 HV=2 K={128,96} V=64 state_layout={vk,kv} state={f32,bf16} index=i32 slots={none,permuted,padded,separate,separate_padded} pad_slot={-1,0} keeps={0,1} change=no_tokens
# A column of a block table; and no o: tokens are committed to states.
op=gdn mode=mtp B=5 T={1,4,9} H=1 HV=2 K={128,96} V=64 state_layout={vk,kv} state={f32,bf16} index={i32,i64} slots={padded,separate_padded,scatter_padded,scatter_from} columns={2,7} stray={0,1} keeps=0
op={gdn,kda} mode=mtp B=5 T={1,4,9} H=1 HV=2 K={128,96} V=64 state_layout={vk,kv} state={f32,bf16} index=i32 slots={padded,separate_padded} accepted=mixed separate=1 columns={1,3} output={0,1} keeps=0
op={gdn,kda} mode=mtp B=5 T={1,4,9} H=1 HV=2 K={128,96} V=64 state_layout={vk,kv} state={f32,bf16} index=i32 slots={padded,scatter_padded,scatter_from} output=0 keeps={0,1}
)"},
    CaseList{"intermediate states, accepted counts, disabled updates", R"(
op=gdn mode=mtp B=5 T={1,4,9} H=1 HV=2 K={128,96} V=64 state_layout={vk,kv} state={f32,bf16} index=i32 slots={none,permuted,padded,separate,separate_padded,scatter,scatter_padded,scatter_from} pad_slot={-1,0}
op=gdn mode=mtp B=5 T={1,4,9} H=1 HV=2 K={128,96} V=64 state_layout={vk,kv} state={f32,bf16} index=i32 slots={none,permuted,padded,separate,separate_padded} pad_slot={-1,0} accepted=mixed separate=1 keeps=0
op=gdn mode=mtp B=5 T={1,4,9} H=1 HV=2 K={128,96} V=64 state_layout={vk,kv} state={f32,bf16} index=i32 slots={scatter,scatter_padded} separate=1 keeps=0
op=gdn mode=mtp B=5 T={1,4,9} H=1 HV=2 K={128,96} V=64 state_layout={vk,kv} state={f32,bf16} index=i32 slots={none,padded,separate_padded,scatter_padded} pad_slot={-1,0} disable_state_update=1 keeps=0
op=gdn mode=mtp B=5 T={1,4,9} H=1 HV=2 K={128,96} V=64 state_layout={vk,kv} state={f32,bf16} index=i32 slots={none,padded,separate_padded,scatter_padded} pad_slot={-1,0} disable_state_update=1 spare=2
op=gdn mode=mtp B=5 T=1 H=1 HV=2 K={128,96} V=64 state_layout={vk,kv} state={f32,bf16} index=i32 slots={none,padded,separate_padded} accepted=mixed separate=1 keeps={0,1} change=no_tokens
op=gdn mode=mtp B=5 T=1 H=1 HV=2 K={128,96} V=64 state_layout={vk,kv} state={f32,bf16} index=i32 slots={none,padded,separate_padded} disable_state_update=1 spare=2 change=no_tokens
)"},
    // The suites keep to small shapes; these are what the tuned kernels take: K = 128, whole tiles
    // of V, bf16 tokens. Every pattern of values, every T of the matrix kernel, every way to keep a
    // state.
    CaseList{"tuned shapes", R"(
op={gdn,kda} mode=mtp B=3 T=8 H=1 HV=2 K=128 V=64 state_layout={vk,kv} slots=permuted pattern={A,B75,B95,B999,B16,B64,C000,C050,C0999,C100,Dslow,Dprod,Dbound,Dzero,Dmixed,Derase,E,F,G,H,I,J17,J20p,J20m,J100,production}
op={gdn,kda} mode=mtp B=3 T=5 H=1 HV=2 K=128 V=64 state_layout={vk,kv} state=bf16 slots=permuted pattern={A,B95,C050,C100,Dslow,Dzero,Derase,E,G,I,J17,J20p,J100,production}
op={gdn,kda} mode=mtp B=2 T={2,3,4,5,6,7,8,9,16} H=1 HV=2 K=128 V={32,64} state_layout={vk,kv} state={f32,bf16} slots=permuted
op={gdn,kda} mode=mtp B=4 T={2,4,8} H=1 HV=2 K=128 V=64 state_layout={vk,kv} slots=scatter
op={gdn,kda} mode=mtp B=5 T=4 H=1 HV=2 K=128 V=64 slots=scatter_padded pad_slot={-1,0}
op={gdn,kda} mode=mtp B=5 T={2,8} H=1 HV=2 K=128 V=64 state_layout={vk,kv} state={f32,bf16} slots={none,padded} accepted=mixed
op={gdn,kda} mode=mtp B=4 T=4 H=1 HV=2 K=128 V=64 slots={identity,separate,separate_padded} accepted={none,mixed}
op={gdn,kda} mode=mtp B=3 T=4 H=1 HV=2 K=128 V=64 slots={none,permuted,padded} disable_state_update=1
op={gdn,kda} mode=mtp B=2 T=4 H=1 HV=2 K=128 V=64 gate={softplus,bounded,log,log2,linear,none} seed=2
op={gdn,kda} mode=mtp B=2 T=4 H=2 HV=8 K=128 V=128 head_map={grouped,tiled} seed=3
op={gdn,kda} mode=decode B=3 H=1 HV=2 K=128 V={32,64} state_layout={vk,kv} state={f32,bf16} slots=permuted pattern={A,E,I,J17,J20p,J100,production}
# A gate per channel: all states kept of many heads, and without o.
op=kda mode=mtp B=33 T=4 H=2 HV=4 K=128 V=128 state_layout={vk,kv} state={f32,bf16}
op=kda mode=mtp B=3 T={2,5} H=1 HV=2 K=128 V=128 state_layout={vk,kv} state={f32,bf16} slots={padded,scatter_from} output=0 keeps={0,1}
op=kda mode=mtp B=2 T={2,8} H=2 HV=4 K=128 V=64 qk_l2norm={none,max_norm_eps} scale=0.25 pattern={A,C050} keeps=0
)"},
    CaseList{"replay", R"(
op={gdn,kda} mode=mtp B=4 T={1,2,3,5,8} H=1 HV=2 K=128 V=64 ring=io window={8,16,24} state_layout={vk,kv} state={f32,bf16} slots=permuted
op={gdn,kda} mode=mtp B=4 T={9,16} H=1 HV=2 K=128 V=64 ring=io window={16,40} state_layout={vk,kv} state={f32,bf16} slots=padded index=i32
op={gdn,kda} mode=mtp B=3 T=3 H=1 HV=2 K={1,16,32,60,64,96,100,136,192,255,256} V={33,64} ring={io,f32} window=9 state_layout={vk,kv} state={f32,bf16} slots=separate_padded
op={gdn,kda} mode=mtp B=3 T=2 H=1 HV=2 K={128,60} V={1,3,17,31,33,63,65,127,128,129,192} ring=io window=7 state={f32,bf16}
op={gdn,kda} mode=mtp B=5 T=4 H=1 HV=2 K={128,96} V=64 state_layout={vk,kv} state={f32,bf16} index={i32,i64} slots={none,identity,permuted,padded,separate,separate_padded} pad_slot={-1,0} ring=io stray={0,1}
op={gdn,kda} mode=mtp B=5 T=4 H=1 HV=2 K={128,96} V=64 state_layout={vk,kv} slots={padded,separate_padded} ring=io columns={2,7} separate=1 output={0,1} index=i32
op={gdn,kda} mode=mtp B=5 T=4 H=1 HV=2 K={128,96} V=64 state_layout={vk,kv} state={f32,bf16} slots=permuted ring=io change=no_tokens separate={0,1}
op={gdn,kda} mode=mtp B=5 T=4 H=1 HV=2 K={128,96} V=64 slots={none,padded} ring=io disable_state_update=1
op={gdn,kda} mode=mtp B=3 T=2 H=2 HV=4 K={128,100} V=64 ring=io gate={softplus,bounded,log,log2,linear,none} beta={sigmoid,sigmoid2,direct} state={f32,bf16}
op={gdn,kda} mode=mtp B=3 T=2 H=2 HV=4 K={128,100} V=64 ring=io qk_l2norm={none,max_norm_eps,norm_plus_eps} scale=0.25 pattern={A,C050}
op={gdn,kda} mode=mtp B=3 T=2 H=3 HV={3,6,24} K=128 V=64 ring=io head_map={grouped,tiled} gate_head={v,qk}
op={gdn,kda} mode=mtp B=3 T=4 H=2 HV=4 K={128,64,60} V=128 io={f32,f16,bf16} ring={io,f32} state_layout={vk,kv} state={f32,bf16} change={gates_f32,gates_f16,gates_bf16}
op={gdn,kda} mode=mtp B=3 T=4 H=1 HV=2 K={128,100} V=64 ring={io,f32} state_layout={vk,kv} gap={1,2,4,8,24} shift={0,1,2,4} index=i32
op={gdn,kda} mode=mtp B=70 T=4 H=1 HV=2 K=128 V=128 ring=io state_layout={vk,kv} state={f32,bf16} slots=padded
)"},
    CaseList{"drafts", R"(
op={gdn,kda} mode=mtp lens=3,0,1,8,5 H=1 HV=2 K={1,16,60,64,100,128,136,255,256} V={64,33} state_layout={vk,kv} state={f32,bf16} slots=padded index=i32 accepted=mixed
op={gdn,kda} mode=mtp B=3 T=7 H=1 HV=2 K={60,128,200} V={33,128} state_layout={vk,kv} state={f32,bf16} slots=separate_padded tree=mixed accepted=mixed
op={gdn,kda} mode=mtp lens=16,1,9,0,12 H=2 HV=4 K={128,60} V=64 state_layout={vk,kv} state={f32,bf16} slots=permuted tree=mixed kept={buffer,buffer_bf16} track=mixed index={i32,i64}
op={gdn,kda} mode=mtp B=5 T=4 H=1 HV=2 K={128,60} V=64 state_layout={vk,kv} state={f32,bf16} slots={none,padded} kept={buffer,buffer_bf16} disable_state_update=1 columns={1,3}
op={gdn,kda} mode=mtp lens=3,0,1,8,5 H=1 HV=2 K={128,60} V=64 state_layout={vk,kv} state={f32,bf16} slots={scatter,scatter_padded,scatter_from} index={i32,i64} pad_slot={-1,0} stray={0,1}
op={gdn,kda} mode=mtp lens=2,5,0,8 H=1 HV=2 K={128,60} V=64 state_layout={vk,kv} slots=scatter_padded tree=mixed stray=1
op={gdn,kda} mode=decode B=5 H=1 HV=2 K={128,60} V=64 state_layout={vk,kv} state={f32,bf16} slots={none,permuted,padded,separate} track=mixed columns={1,2} stray={0,1}
op={gdn,kda} mode=mtp lens=3,0,1,8,5 H=1 HV=2 K={128,60} V=64 slots=separate accepted=mixed separate=1 output={0,1}
op={gdn,kda} mode=mtp lens=3,1,8 H=2 HV=4 K={128,100} V=64 gate={softplus,bounded,log,log2,linear,none} beta={sigmoid,sigmoid2,direct} slots=permuted
op={gdn,kda} mode=mtp lens=3,1,8 H=2 HV=4 K={128,100} V=64 tree=mixed qk_l2norm={none,max_norm_eps,norm_plus_eps} scale=0.25 slots=permuted pattern={A,C050}
op={gdn,kda} mode=mtp lens=2,3 H=3 HV={3,6,24} K=128 V=64 head_map={grouped,tiled} gate_head={v,qk} slots=permuted
op={gdn,kda} mode=mtp lens=4,2,7 H=2 HV=4 K={128,64,60} V=64 io={f32,f16,bf16} slots=permuted tree=mixed change={gates_f32,gates_f16,gates_bf16}
op={gdn,kda} mode=mtp lens=4,2,7 H=1 HV=2 K={128,100} V=64 state_layout={vk,kv} slots=permuted tree=mixed kept={rows,buffer} gap={1,2,4,8,24} shift={0,1,2,4} index=i32
op={gdn,kda} mode=mtp lens=3,0,1,8,5 H=2 HV=4 K={128,60} V=48 slots={permuted,padded} ring={io,f32} window=11 state_layout={vk,kv} state={f32,bf16} index=i32 columns={1,2}
# Rows of tokens and of kept states by the kernels for few tokens.
op={gdn,kda} mode=mtp lens=3,0,1,8,5 H=1 HV=2 K=128 V={64,128} state_layout={vk,kv} state={f32,bf16} slots={padded,separate} kept={rows,buffer} accepted=mixed index={i32,i64}
op={gdn,kda} mode=mtp lens=3,0,1,8,5 H=1 HV=2 K=128 V={64,128} state_layout={vk,kv} state={f32,bf16} slots={padded,permuted} ring=io window={11,16,17,24} index=i32 columns={1,2}
op={gdn,kda} mode=mtp B=70 T=4 H=1 HV=2 K=128 V=128 state_layout={vk,kv} state={f32,bf16} slots=permuted kept=buffer
op={gdn,kda} mode=mtp lens=3,1,2 H=1 HV=2 K=128 V=64 slots=permuted kept={rows,buffer} gap={1,2,4,8} shift={0,1,4} index=i32
)"},
    CaseList{"drafts, patterns", R"(
op={gdn,kda} mode=mtp lens=3,8,1,6 H=1 HV=2 K=128 V=64 slots=permuted kept=rows pattern={A,B75,B95,B999,B16,B64,C000,C050,C0999,C100,Dslow,Dprod,Dbound,Dzero,Dmixed,E,F,G,H,I,J17,J20p,J20m,J100,L,production}
op={gdn,kda} mode=mtp lens=3,16,1,8 H=1 HV=2 K={128,60} V=64 slots=permuted tree=mixed pattern={A,B75,B95,B999,B16,B64,C000,C050,C0999,C100,Dslow,Dprod,Dbound,Dzero,Dmixed,E,F,G,H,I,J17,J20p,J20m,J100,L,production}
op={gdn,kda} mode=mtp lens=3,16,1,8 H=1 HV=2 K={128,64} V=64 slots=permuted tree=mixed pattern=K gate={linear,none} beta=direct qk_l2norm=none scale=1
)"},
    CaseList{"replay, tuned shapes", R"(
op={gdn,kda} mode=mtp B=4 T=8 H=1 HV=2 K=128 V=64 ring=io window=24 state_layout={vk,kv} slots=permuted pattern={A,B75,B95,B999,B16,B64,C000,C050,C0999,C100,Dslow,Dprod,Dbound,Dzero,Dmixed,E,F,G,H,I,J17,J20p,J20m,J100,L,production}
op={gdn,kda} mode=mtp B=4 T=5 H=1 HV=2 K=128 V=64 ring={io,f32} window=12 state_layout={vk,kv} state=bf16 slots=permuted pattern={A,B95,C050,C100,Dslow,Dzero,E,G,I,J17,J20p,J100,production}
op={gdn,kda} mode=mtp B=4 T={2,8} H=1 HV=2 K=128 V=64 ring=io window={18,24} state_layout={vk,kv} state={f32,bf16} change={corrections_f32,corrections_f16} pattern={A,B999,C050,Dslow,H,J100,production}
op={gdn,kda} mode=mtp B=4 T={2,8} H=1 HV=2 K=128 V=64 ring=io window={18,24} state_layout={vk,kv} state={f32,bf16} change=corrections_f32 pattern=L
op={gdn,kda} mode=mtp B=4 T=2 H=1 HV=2 K=128 V=64 ring=io window=18 gate={softplus,bounded,log,log2,linear,none} seed=2
op={gdn,kda} mode=mtp B=4 T=4 H=2 HV=8 K=128 V=128 ring=io window=16 head_map={grouped,tiled} seed=3
op={gdn,kda} mode=mtp B=6 T={1,2,3,4,5,6,7,8} H=1 HV=2 K=128 V={64,128} ring=io window=16 state_layout={vk,kv} state={f32,bf16} seed=4
# A gate per channel: rings of gates in each type, and whole heads of many rows.
op=kda mode=mtp B=4 T={3,8} H=1 HV=2 K=128 V=64 ring={io,f32} window={19,24} io={bf16,f16,f32} change={gates_f32,gates_f16,gates_bf16} state_layout={vk,kv}
op=kda mode=mtp B=70 T={2,8} H=1 HV=2 K=128 V=128 ring=io window=24 state_layout={vk,kv} state={f32,bf16} slots=padded index=i32 pattern={A,Dmixed,production}
)"},
    // Every kernel of the dispatch table, tails of K and V, slots of every kind; small, because a
    // sanitized kernel is a hundred times slower.
    CaseList{"sanitizer", R"(
op={gdn,kda} mode=mtp B=3 T=1 H=1 HV=2 K=128 V=128 state_layout={vk,kv} state={f32,bf16} index=i32 slots=padded keeps=0
op={gdn,kda} mode=mtp B=3 T=1 H=1 HV=2 K={60,136} V=37 state_layout={vk,kv} state={f32,bf16} index=i32 slots=padded keeps=0
op={gdn,kda} mode=mtp B=3 T=1 H=1 HV=2 K=100 V=37 state_layout={vk,kv} state={f32,bf16} slots=padded keeps=0 gap=3
op={gdn,kda} mode=mtp B=3 T=3 H=1 HV=2 K=128 V=128 state_layout={vk,kv} state={f32,bf16} index=i32 slots=scatter_padded keeps=0
op={gdn,kda} mode=mtp B=3 T=3 H=1 HV=2 K={60,136} V=37 state_layout={vk,kv} state={f32,bf16} index=i32 slots=scatter_padded keeps=0
op={gdn,kda} mode=mtp B=3 T=3 H=1 HV=2 K=100 V=37 state_layout={vk,kv} state={f32,bf16} slots=scatter_padded keeps=0 gap=3
op={gdn,kda} mode=mtp B=3 T=10 H=1 HV=2 K=128 V=128 state_layout={vk,kv} state={f32,bf16} index=i32 slots=padded
op={gdn,kda} mode=mtp B=3 T=10 H=1 HV=2 K={60,136} V=37 state_layout={vk,kv} state={f32,bf16} index=i32 slots=padded
op={gdn,kda} mode=mtp B=3 T=10 H=1 HV=2 K=100 V=37 state_layout={vk,kv} state={f32,bf16} slots=padded gap=3
# Tall tiles.
op={gdn,kda} mode=mtp B=70 T={1,2} H=1 HV=2 K=128 V=128 state_layout={vk,kv} state={f32,bf16} index=i32 slots=separate_padded keeps=0
op={gdn,kda} mode=mtp B=3 T=8 H=1 HV=2 K=128 V=128 state_layout={vk,kv} state={f32,bf16} index=i32 slots=padded
# Replay.
op={gdn,kda} mode=mtp B=4 T=3 H=1 HV=2 K=128 V=128 ring=io window=12 state_layout={vk,kv} state={f32,bf16} slots=padded
op=kda mode=mtp B=70 T=3 H=1 HV=2 K=128 V=128 ring=io window=19 state_layout={vk,kv} state={f32,bf16} slots=padded index=i32
op={gdn,kda} mode=mtp B=4 T=10 H=1 HV=2 K={60,136} V=37 ring=f32 window=21 state_layout={vk,kv} state={f32,bf16} index=i32 slots=separate_padded
op={gdn,kda} mode=mtp B=4 T=3 H=1 HV=2 K=100 V=37 ring=io window=12 state_layout={vk,kv} state={f32,bf16} gap=3
# Drafts.
op={gdn,kda} mode=mtp lens=3,0,1,8 H=1 HV=2 K=128 V=128 state_layout={vk,kv} state={f32,bf16} slots=separate_padded kept=buffer index=i32
op={gdn,kda} mode=mtp lens=3,0,1,8 H=1 HV=2 K=128 V=128 ring=io window=12 state_layout={vk,kv} state={f32,bf16} slots=padded
op={gdn,kda} mode=mtp lens=3,0,1,9 H=1 HV=2 K={60,136} V=37 state_layout={vk,kv} state={f32,bf16} slots=separate_padded tree=mixed kept=buffer_bf16 track=mixed index=i32
op={gdn,kda} mode=mtp lens=3,0,1,9 H=1 HV=2 K=100 V=37 state_layout={vk,kv} state={f32,bf16} slots=scatter_padded gap=3
# Prefill.
op={gdn,kda} mode=prefill lens=9,0,1,20 H=1 HV=2 K=128 V=128 state_layout={vk,kv} state={f32,bf16} index=i32 h0={0,1}
op={gdn,kda} mode=prefill lens=70,0,129 H=1 HV=2 K=128 V=128 state_layout={vk,kv} state={f32,bf16} checkpoints={none,listed}
op=kda mode=prefill lens=70,0,129 H=1 HV=2 K=128 V=128 gate=bounded
op={gdn,kda} mode=prefill lens=20,0,70,1 H=1 HV=2 K=128 V=64 precise=1 state_layout={vk,kv} state={f32,bf16} checkpoints={none,listed}
op={gdn,kda} mode=prefill lens=40x3,66 H=2 HV=2 K=128 V=128 index=i32 h0=1
op={gdn,kda} mode=prefill lens=9,0,1,20 H=1 HV=2 K={60,136} V=37 state_layout={vk,kv} state={f32,bf16} h0=1
op={gdn,kda} mode=prefill lens=9,0,1,20 H=1 HV=2 K=100 V=37 state_layout={vk,kv} state={f32,bf16} slots=separate_padded checkpoints=listed gap=3
)"},
    CaseList{"prefill: every K and V", R"(
op={gdn,kda} mode=prefill lens=19,0,1,70 H=1 HV=2 K={1,16,32,60,64,80,96,100,127,128,129,136,160,192,255,256} V={128,33} state_layout={vk,kv} state={f32,bf16} h0=1 index=i32
op={gdn,kda} mode=prefill lens=9,66 H=1 HV=2 K={128,60,200} V={1,3,8,17,31,32,33,63,64,65,100,127,128,129,136,192,255,256,320} state_layout={vk,kv} h0=1
)"},
    CaseList{"prefill: every length, heads", R"(
op={gdn,kda} mode=prefill lens={0,1,2,7,8,9,15,16,17,31,32,33,63,64,65,127,128,129} H=1 HV=2 K=128 V=64 state_layout={vk,kv} state={f32,bf16} h0={0,1}
op={gdn,kda} mode=prefill lens=63,64,65,1,0,130 H=2 HV=4 K={128,60} V=64 state_layout={vk,kv} state={f32,bf16} h0={0,1} index={i32,i64}
op={gdn,kda} mode=prefill lens=17,33 H=3 HV={3,6,9,12,24} K=128 V=32 state_layout={vk,kv} head_map={grouped,tiled} gate_head={v,qk} h0=1
op={gdn,kda} mode=prefill lens=17x65 H=2 HV=4 K=128 V=128 state_layout={vk,kv} state={f32,bf16} h0=1
op={gdn,kda} mode=prefill lens=200,3x64,100x1 H=1 HV=2 K=128 V=256 h0=1
op={gdn,kda} mode=prefill lens=130 H=1 HV=2 K=128 V=128 h0=1 pattern={B95,B999,Dslow,Dmixed,Derase,J100,production} precise={0,1} never_split={0,1}
op={gdn,kda} mode=prefill lens=20,0,70,1,8,129 H=1 HV=2 K=128 V={32,96,128} precise=1 state_layout={vk,kv} state={f32,bf16} slots={none,separate_padded} index={i32,i64}
op={gdn,kda} mode=prefill lens=20,0,70,9 H=2 HV=4 K=128 V=64 precise=1 state_layout={vk,kv} state={f32,bf16} checkpoints={after,before,continued} every=3 head_map={grouped,tiled}
op={gdn,kda} mode=prefill lens=20,0,70,9 H=1 HV=2 K=128 V=64 precise=1 state_layout={vk,kv} checkpoints=listed
op={gdn,kda} mode=prefill lens=70,9 H=1 HV=2 K=128 V=64 precise=1 gate={softplus,bounded,log,log2,linear,none} beta={sigmoid,direct} qk_l2norm={none,max_norm_eps} h0=1
op=kda mode=prefill lens=20,0,70,9 H=1 HV=2 K=128 V={16,48,80,208} precise=1 io={bf16,f16,f32} gap={3,8} shift={0,1} state_layout={vk,kv}
)"},
    CaseList{"prefill: every gate, beta and norm", R"(
op={gdn,kda} mode=prefill lens=9,40 H=1 HV=2 K={128,100} V=64 state_layout={vk,kv} gate={softplus,bounded,log,log2,linear,none} beta={sigmoid,sigmoid2,direct} h0=1
op={gdn,kda} mode=prefill lens=9,40 H=1 HV=2 K={128,100} V=64 gate={softplus,bounded,log,log2,linear} h0=1 pattern={A,I} change=extreme_gates
op={gdn,kda} mode=prefill lens=9,40 H=1 HV=2 K={128,100} V=64 qk_l2norm={max_norm_eps,norm_plus_eps} l2_eps={1e-06,0.01} h0=1 pattern={A,I}
op={gdn,kda} mode=prefill lens=9,40 H=1 HV=2 K={128,100} V=64 gate={softplus,bounded} softplus_beta=2 softplus_threshold=3 lower_bound=-2.5
op={gdn,kda} mode=prefill lens=9,40 H=1 HV=2 K={128,100} V=64 qk_l2norm=none scale={0,0.25} h0=1 pattern=C050
# Every way to say what a decay is, with decays of every kind, over more than two chunks.
op={gdn,kda} mode=prefill lens=70,130 H=1 HV=2 K=128 V=64 h0=1 gate={softplus,bounded,log,log2,linear} pattern={A,Dslow,Dprod,Dbound,Dmixed,B999}
op={gdn,kda} mode=prefill lens=70,130 H=1 HV=2 K=128 V=64 h0=1 gate={softplus,log,log2,linear} pattern=Derase
op={gdn,kda} mode=prefill lens=70,130 H=1 HV=2 K=128 V=64 h0=1 gate=bounded lower_bound={-5,-0.5,-8} pattern={Dbound,Dmixed,B95,I,J17,J100}
op=kda mode=prefill lens=70 H=1 HV=2 K=128 V=64 h0=1 gate=bounded qk_l2norm=none pattern={A,Dbound}
)"},
    CaseList{"prefill: slots and checkpoints", R"(
op={gdn,kda} mode=prefill lens=9,5,0,1,33 H=1 HV=2 K={128,60} V=32 state_layout={vk,kv} state={f32,bf16} index={i32,i64} slots={identity,permuted,padded,separate,separate_padded} pad_slot={-1,0}
op=gdn mode=prefill lens=9,5,0,1,33 H=1 HV=2 K={128,60} V=32 state={f32,bf16} slots={padded,separate_padded} separate={0,1} stray=1
op={gdn,kda} mode=prefill lens=9,5,0,1,70 H=1 HV=2 K={128,60} V=32 state_layout={vk,kv} state={f32,bf16} index=i32 slots={none,padded} checkpoints={after,before,continued} every=16
op={gdn,kda} mode=prefill lens=9,5,0,1,70 H=1 HV=2 K={128,60} V=32 state_layout={vk,kv} state={f32,bf16} index=i32 slots={none,padded} checkpoints=listed
op={gdn,kda} mode=prefill lens=20,0,70 H=1 HV=2 K=128 V=64 h0={0,1} checkpoints={after,before,continued} every={2,8,31,63} gap={0,3}
op={gdn,kda} mode=prefill lens=20,0,70 H=1 HV=2 K=128 V=64 slots=separate_padded checkpoints=listed separate={0,1}
op={gdn,kda} mode=prefill lens=9,5,0,1,33 H=1 HV=2 K={128,60} V=64 index={i32,i64} slots={padded,separate_padded} columns=3 stray={0,1}
)"},
    CaseList{"prefill: types, strides and alignment", R"(
op={gdn,kda} mode=prefill lens=9,66 H=1 HV=2 K={128,64,60} V=64 io={f32,f16,bf16} state_layout={vk,kv} state={f32,bf16} h0=1 change={gates_f32,gates_f16,gates_bf16}
op={gdn,kda} mode=prefill lens=9,66 H=1 HV=2 K={128,100} V=64 state_layout={vk,kv} state={f32,bf16} h0=1 index=i32 gap={1,2,4,8,24} shift={0,1,2,4}
)"},
    CaseList{"attention tuned", R"(
op=attention mode=decode lens=16,16 ctx=1000,257 H=2 HV=8 K=128 V=128 io={bf16,f16} splits={1,2,4,8,9,16} pattern={A,B,C,K,L,N,S,D,X,Y,T,P}
op=attention mode=decode lens=4,4 ctx=1000,257 H=2 HV=8 K=64 V=64 io={bf16,f16} splits={1,2,4,8,9,16} pattern={A,B,C,K,L,N,S,D,X,Y,T,P}
op=attention mode=decode lens=16 ctx={4096,16384} H=2 HV=8 K=128 V=128 pattern={A,C,L}
op=attention mode=decode lens=9x16 ctx=9x300 H=2 HV={2,8,14,48} K=128 V=128 page=16
)"},
    CaseList{"attention calls", R"(
op=attention mode=decode lens=1,16,4,33,0,65 ctx=300,0,1,64,200,127 H=2 HV=8 K={64,128} V=128 page={1,3,16,64,256} table={permuted,shared,csr} kv_layout={nhd,hnd} pattern={L,P}
op=attention mode=decode lens=32,9 ctx=161,140 H=2 HV=4 K={128,100} V=64 mask=block_causal block={1,4,16,32} block_base={absolute,segment} block_kv={separate,in_cache} pattern={K,P}
op=attention mode=decode lens=32,9 ctx=161,140 H=2 HV=4 K={128,100} V=64 mask={full,causal} window_left={-1,0,1,63,64,65,500} window_right={-1,0,5} pattern={K,P}
op=attention mode=decode lens=16,16 ctx=170,64 H=2 HV=6 K=128 V=128 missing_page=skip table=holes page={1,16,64} head_map={grouped,tiled} pattern={K,P}
op=attention mode=decode lens=6,6,6 ctx=140,7,116 H=2 HV=4 K={128,100} V=128 valid=mixed block_kv={separate,in_cache} mask={full,causal} lse_base={e,2} lse_layout={th,ht} pattern={K,P}
op=attention mode=prefill lens=70,1,0,330 H=2 HV=4 K={128,100} V=128 mask={full,causal,block_causal} block=32 pattern={K,P}
)"},
    CaseList{"attention strides", R"(
op=attention mode=decode lens=4,2,7 ctx=150,33,0 H=2 HV=6 K={16,64,128,192} V={32,128,256} io={bf16,f16} kv_layout={nhd,hnd} gap={0,8,3} shift={0,1,8} index={i32,i64} columns={1,3}
op=attention mode=decode lens=4,2 ctx=50,33 H=2 HV=4 K={1,7,37,255} V={1,19,256} pattern={A,P}
)"},
    CaseList{"attention sanitizer", R"(
op=attention mode=decode lens=4,16,0 ctx=130,70,9 H=2 HV=8 K={64,128,100} V=64 io={bf16,f16} splits={1,9,16} table={permuted,csr,shared} kv_layout={nhd,hnd}
op=attention mode=decode lens=20,5 ctx=100,150 H=1 HV=2 K={128,37} V=64 mask={causal,block_causal} block=8 window_left={-1,20} valid=mixed block_kv={separate,in_cache}
op=attention mode=decode lens=4,4 ctx=100,64 H=2 HV=4 K={64,30} V=32 page=4 missing_page=skip table=holes
op=attention mode=prefill lens=70,1,0,130 H=2 HV=4 K={64,33} V=64 mask=causal gap={0,3}
)"},
    // What the kernels with a planted mistake serve (planted/kernels.hpp); with this seed no row of
    // a permutation owns slot 0.
    CaseList{"planted", R"(
op=gdn mode=decode B=5 H=1 HV=2 K={128,60} V={128,100,20} P=13 index=i32 slots={none,permuted,padded} change=gates_f32 seed=4
)"},
};

}  // namespace

std::span<const CaseList> case_lists() { return kLists; }

const CaseList& case_list(std::string_view name) {
  const auto* it = std::ranges::find(kLists, name, &CaseList::name);
  if (it != kLists.end()) return *it;
  throw Error(ErrorKind::kArgument, "case list", "the name of one", std::string(name));
}

}  // namespace goldenrule::test
