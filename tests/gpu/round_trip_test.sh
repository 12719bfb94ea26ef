#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# round_trip_test.sh PROGRAM GPU_PROGRAM: fixtures through the kernels into captures that
# `check` and `diff` pass, and the exit codes of what cannot be run.
set -eu
goldenrule=$1
gpu_run=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

expect() {  # expect CODE COMMAND...
  expected=$1
  shift
  code=0
  "$@" > "$dir/out" 2>&1 || code=$?
  cat "$dir/out"
  [ "$code" -eq "$expected" ] || { echo "FAILED: exit code $code instead of $expected: $*"; exit 1; }
}

"$goldenrule" generate 'op={gdn,kda} mode=decode B=3 H=2 HV=4 K=128 V=128 slots=padded state={f32,bf16}' -o "$dir/fixtures"
"$goldenrule" generate 'op={gdn,kda} mode=mtp B=4 T=4 H=1 HV=2 K=60 V=33 slots=scatter_padded index=i32' -o "$dir/fixtures"
"$goldenrule" generate 'op=gdn mode=decode B=2 H=1 HV=1 K=8 V=8 state=f16' -o "$dir/f16"
"$goldenrule" generate 'op={gdn,kda} mode=prefill lens=63,64,65,1,0,130 H=2 HV=4 K=128 V=128 h0={0,1}' -o "$dir/fixtures"
"$goldenrule" generate 'op=attention mode=decode lens=16,4 ctx=300,33 H=2 HV=8 K={64,100} V=64' -o "$dir/attention"
if "$gpu_run" "$dir"/fixtures/*.h5 -o "$dir/captures" | grep SKIPPED; then exit 0; fi
expect 0 "$goldenrule" check "$dir"/captures/*.h5
expect 0 "$gpu_run" "$dir"/attention/*.h5 -o "$dir/attention_captures"
expect 0 "$goldenrule" check "$dir"/attention_captures/*.h5
for capture in "$dir"/captures/*.h5; do
  expect 0 "$goldenrule" diff "$dir/fixtures/$(basename "$capture")" "$capture"
done
[ "$(ls "$dir/captures" | wc -l)" -eq 10 ] || { echo "FAILED: captures are missing"; exit 1; }
expect 1 "$gpu_run" "$dir"/f16/*.h5 -o "$dir/none"
grep -q 'unsupported: state.dtype: expected f32 or bf16, actual f16' "$dir/out"
expect 2 "$gpu_run" "$dir/nothing.h5" -o "$dir/none"
[ "$(wc -l < "$dir/out")" -eq 1 ]
expect 2 "$gpu_run" "$dir"/f16/*.h5 -o "$dir/out/below_a_file"
[ -z "$(ls "$dir/none")" ] || { echo "FAILED: something was written"; exit 1; }
