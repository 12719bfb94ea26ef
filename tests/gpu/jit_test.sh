#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# jit_test.sh TEST_GPU VARIABLE: tests of dependent launch and of kernels that only 9.0 has, with the
# driver told which code to take.
#   CUDA_FORCE_PTX_JIT    it compiles the newest PTX, as a device newer than the library does; the first
#                         run takes minutes, later ones find it in the driver's cache
#   CUDA_DISABLE_PTX_JIT  it takes machine code alone; the tests have that for 9.0
set -euo pipefail
test_gpu=$1 variable=$2
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -1) || true
if [[ -z $capability ]]; then
  echo 'SKIPPED: no CUDA device'
  exit 0
fi
if [[ $variable == CUDA_FORCE_PTX_JIT ]]; then
  tests='dependent launch*,old code*,the sanitizer matrix*'
else
  tests='dependent launch*,old code: what only*' # what the other one launches has no machine code
fi
if [[ $variable == CUDA_DISABLE_PTX_JIT && $capability != 9.0 ]]; then
  echo "SKIPPED: no machine code of the tests for $capability"
  exit 0
fi
log=$(env "$variable=1" "$test_gpu" --no-version --test-case="$tests" 2>&1) || { echo "$log"; exit 1; }
echo "$log"
grep -q 'SKIPPED' <<< "$log" && exit 1 # a device is there, so nothing is to be skipped
grep -qE 'test cases: +[1-9][0-9]* ' <<< "$log"
