#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/validated over a copy of the sources: what is recorded holds for them and for no others, and
# a log of a failure, of a skipped test, of other sources or of nothing is refused; what is pending is
# pending for these sources, since the first time. And tools/validate_device with stand-ins for the
# programs, the device and the sanitizer: what fails, is skipped or finds nothing to run is not counted
# among what passed, and gpu/VALIDATED is written where all passed.
set -euo pipefail
root=$(cd "$1" && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/tools"
cp "$root/tools/validated" "$root/tools/validate_device" "$root/tools/sanitize" "$copy/tools/"
cp -r "$root/gpu" "$copy/"
cd "$copy"
rm -f gpu/VALIDATED

expect() {  # expect CODE PATTERN COMMAND...
  local code=$1 pattern=$2 said status=0
  shift 2
  said=$("$@" 2>&1) || status=$?
  [[ $said =~ $pattern && $status == "$code" ]] ||
    { echo "expected $code, $pattern, actual $status, $said"; exit 1; }
}
expect 1 '^NOT VALIDATED: no run' tools/validated
sources=$({ tools/validated || true; } | sed 's/.*sources \([0-9a-f]*\).*/\1/')
log() {  # log SOURCES SUMMARY
  printf 'gpu/ sources %s\ngpu/ device NVIDIA H200, 1.2\n%s\n' "$1" "$2"
}
passed='100% tests passed, 0 tests failed out of 7'
log "$sources" "$passed" > good
log "$sources" '86% tests passed, 1 tests failed out of 7' > failed
log "$sources" 'memcheck: FAILED: Invalid read' > finding
log "$sources" '[doctest] test cases: 10 | 9 passed | 1 failed | 0 skipped' > doctest
log "$sources" "$passed
  1 - gpu: exact worlds (Skipped)" > skipped
log "$sources" "$passed
racecheck sanitizer matrix: FAILED" > stopped
log "$sources" '0 of 0 tests of test_gpu passed, 0 failed' > none
log 0000 "$passed" > other
log "$sources" 'nothing' > empty
expect 2 'validates nothing' tools/validated --record failed
expect 2 'validates nothing' tools/validated --record finding
expect 2 'validates nothing' tools/validated --record doctest
expect 2 'validates nothing' tools/validated --record stopped
expect 2 'no test validates nothing' tools/validated --record none
expect 2 'skipped was not run' tools/validated --record skipped
expect 2 'expected a run of' tools/validated --record other
expect 2 'no summary' tools/validated --record empty
expect 1 '^NOT VALIDATED: no run' tools/validated
expect 0 '^VALIDATED on NVIDIA H200, 1.2: 100% tests passed' tools/validated --record good
echo 'a word' >> gpu/README.md
expect 0 '^VALIDATED on' tools/validated
echo '// another' >> gpu/delta/shared/step.cuh
expect 1 '^NOT VALIDATED: gpu/ differs' tools/validated

expect 0 '^PENDING since [0-9-]+: no device' tools/validated --pending 'no device'
sed -i 's/ since [0-9-]*:/ since 2026-01-02:/' gpu/VALIDATED
echo '// a third' >> gpu/delta/shared/step.cuh
expect 1 '^NOT VALIDATED: gpu/ differs' tools/validated
expect 0 '^PENDING since 2026-01-02: still none' tools/validated --pending 'still none'
[[ $(grep -c pending gpu/VALIDATED) == 1 ]] || { cat gpu/VALIDATED; exit 1; }
expect 2 'usage' tools/validated --pending

mkdir -p bin build/bin build/tests tests/gpu
cat > bin/nvidia-smi << 'END'
#!/bin/sh
case $* in
  *query*) echo 'NVIDIA H100, 3.4' ;;
  *) echo 'GPU 0: one'
     echo 'GPU 1: two' ;;
esac
END
cat > bin/compute-sanitizer << 'END'
#!/bin/sh
echo "$2" >> tools_run
[ "$2" != "$FINDING" ] || exit 9
echo '9 cases, run in bare memory'
END
cat > build/tests/test_gpu << 'END'
#!/bin/sh
echo "$CUDA_VISIBLE_DEVICES" >> devices_seen
case $* in
  *-ltc*) [ -z "$NONE" ] || exit 1
         printf '[doctest] listing\n=====\none\ntwo, three\ntwo devices of one\nsanitizer matrix\n1,000 steps: no allocation\n' ;;
  *'two devices'*) echo "[doctest] test cases: 1 | 1 passed | 0 failed | 4 skipped" ;;
  *one*) [ -z "$SKIP" ] || echo 'SKIPPED: no room'
         echo "[doctest] test cases: 1 | 1 passed | 0 failed | 3 skipped" ;;
  *'two? three'*) [ -z "$FAIL" ] || exit 1
         echo "[doctest] test cases: 1 | 1 passed | 0 failed | 3 skipped" ;;
  *steps*) echo "[doctest] test cases: ${COUNT-1} | ${COUNT-1} passed | 0 failed | 3 skipped" ;;
esac
END
printf '#!/bin/sh\nexit $PLANTED\n' > tests/gpu/planted_test.py
printf '#!/bin/sh\n[ -z "$NO_CAPTURES" ] || echo SKIPPED: no device\n' > tests/gpu/round_trip_test.sh
touch build/tests/test_gpu_planted build/bin/goldenrule build/bin/goldenrule_gpu_run
chmod +x bin/* build/*/* tests/gpu/*
export PATH=$PWD/bin:$PATH
validate() { tools/validate_device build; }
before=$(cat gpu/VALIDATED)
SKIP=1 expect 1 '13 of 14 tests of kernels passed, 1 failed$' validate
FAIL=1 expect 1 '13 of 14 tests of kernels passed, 1 failed$' validate
COUNT=0 expect 1 '13 of 14 tests of kernels passed, 1 failed$' validate
PLANTED=1 expect 1 '13 of 14 tests of kernels passed, 1 failed$' validate
NO_CAPTURES=1 expect 1 '13 of 14 tests of kernels passed, 1 failed$' validate
FINDING=racecheck expect 1 'racecheck sanitizer matrix: FAILED' validate
NONE=1 expect 2 '^tools/validate_device: expected a program with tests' validate
[[ $(cat gpu/VALIDATED) == "$before" ]] || { echo 'written after a failure'; exit 1; }
rm tools_run devices_seen
expect 0 $'memcheck: 9 cases.*\n14 of 14 tests of kernels passed, 0 failed\nVALIDATED on NVIDIA H100, 3.4: ' validate
[[ $(sort -u tools_run | wc -l) == 4 && $(wc -l < tools_run) == 8 ]] || { echo 'tools'; exit 1; }
[[ $(sort -u devices_seen | paste -sd ' ') == *'0,1 1,0' ]] || { sort -u devices_seen; exit 1; }
expect 0 '^VALIDATED on NVIDIA H100' tools/validated
CUDA_VISIBLE_DEVICES=1 expect 0 $'\n13 of 13 tests of kernels passed, 0 failed\n' validate
tools/validate_device build results > said || { cat said; exit 1; }
expect 2 '^tools/validate_device: expected a new or empty folder' tools/validate_device build results
rm build/bin/goldenrule
expect 2 'no executable at build/bin/goldenrule' validate
