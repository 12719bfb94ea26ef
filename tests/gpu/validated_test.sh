#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/validated over a copy of the sources: what is recorded holds for them and for no others, and
# a log of a failure, of a skipped test, of other sources or of nothing is refused. And tools/validate
# with stand-ins for the program, the device and the sanitizer: what fails, is skipped or finds nothing
# to run is not counted among what passed.
set -euo pipefail
root=$(cd "$1" && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/tools"
cp "$root/tools/validated" "$root/tools/validate" "$root/tools/sanitize" "$copy/tools/"
cp -r "$root/gpu" "$copy/"
cd "$copy"
rm -f gpu/VALIDATED

expect() {  # expect PATTERN COMMAND...
  local pattern=$1 said
  shift
  said=$("$@" 2>&1) || true
  [[ $said =~ $pattern ]] || { echo "expected $pattern, actual $said"; exit 1; }
}
expect '^NOT VALIDATED: no run' tools/validated
sources=$(tools/validated | sed 's/.*sources \([0-9a-f]*\).*/\1/')
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
expect 'validates nothing' tools/validated --record failed
expect 'validates nothing' tools/validated --record finding
expect 'validates nothing' tools/validated --record doctest
expect 'validates nothing' tools/validated --record stopped
expect 'no test validates nothing' tools/validated --record none
expect 'skipped was not run' tools/validated --record skipped
expect 'expected a run of' tools/validated --record other
expect 'no summary' tools/validated --record empty
expect '^NOT VALIDATED: no run' tools/validated
expect '^VALIDATED on NVIDIA H200, 1.2: 100% tests passed' tools/validated --record good
echo 'a word' >> gpu/README.md
expect '^VALIDATED on' tools/validated
echo '// another' >> gpu/recurrent/step.cuh
expect '^NOT VALIDATED: gpu/ differs' tools/validated

mkdir bin
cat > bin/nvidia-smi << 'END'
#!/bin/sh
echo 'GPU 0: one'
echo 'GPU 1: two'
END
cat > bin/compute-sanitizer << 'END'
#!/bin/sh
echo "$2" >> tools_run
[ "$2" != "$FINDING" ] || exit 9
echo '9 cases, run in bare memory'
END
cat > bin/program << 'END'
#!/bin/sh
echo "$CUDA_VISIBLE_DEVICES" >> devices_seen
case $* in
  *-ltc*) [ -z "$NONE" ] || exit 1
         printf '[doctest] listing\n=====\none\ntwo, three\nsanitizer matrix\n1,000 steps: no allocation\n' ;;
  *one*) [ -z "$SKIP" ] || echo 'SKIPPED: no room'
         echo "[doctest] test cases: 1 | 1 passed | 0 failed | 3 skipped" ;;
  *'two? three'*) [ -z "$FAIL" ] || exit 1
         echo "[doctest] test cases: 1 | 1 passed | 0 failed | 3 skipped" ;;
  *steps*) echo "[doctest] test cases: ${COUNT-1} | ${COUNT-1} passed | 0 failed | 3 skipped" ;;
esac
END
chmod +x bin/*
export PATH=$PWD/bin:$PATH
expect $'memcheck: 9 cases.*\n3 of 3 tests of program passed, 0 failed$' tools/validate bin/program
[[ $(sort -u tools_run | wc -l) == 4 && $(wc -l < tools_run) == 8 ]] || { echo 'tools'; exit 1; }
[[ $(sort -u devices_seen | paste -sd ' ') == *'0,1 1,0' ]] || { sort -u devices_seen; exit 1; }
SKIP=1 expect '2 of 3 tests of program passed, 1 failed$' tools/validate bin/program
FAIL=1 expect '2 of 3 tests of program passed, 1 failed$' tools/validate bin/program
COUNT=0 expect '2 of 3 tests of program passed, 1 failed$' tools/validate bin/program
if FINDING=racecheck tools/validate bin/program > said; then cat said; exit 1; fi
grep -q 'racecheck sanitizer matrix: FAILED' said || { cat said; exit 1; }
NONE=1 expect '^tools/validate: expected a program with tests' tools/validate bin/program
tools/validate bin/program results > said || { cat said; exit 1; }
expect '^tools/validate: expected a new or empty folder' tools/validate bin/program results
