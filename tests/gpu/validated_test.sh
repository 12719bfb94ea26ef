#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/validated over a copy of the sources: what is recorded holds for them and for no others, and
# a log of a failure, of a skipped test, of other sources or of nothing is refused.
set -euo pipefail
root=$(cd "$1" && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/tools"
cp "$root/tools/validated" "$copy/tools/"
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
log 0000 "$passed" > other
log "$sources" 'nothing' > empty
expect 'validates nothing' tools/validated --record failed
expect 'validates nothing' tools/validated --record finding
expect 'validates nothing' tools/validated --record doctest
expect 'skipped was not run' tools/validated --record skipped
expect 'expected a run of' tools/validated --record other
expect 'no summary' tools/validated --record empty
expect '^NOT VALIDATED: no run' tools/validated
expect '^VALIDATED on NVIDIA H200, 1.2: 100% tests passed' tools/validated --record good
echo 'a word' >> gpu/README.md
expect '^VALIDATED on' tools/validated
echo '// another' >> gpu/recurrent/step.cuh
expect '^NOT VALIDATED: gpu/ differs' tools/validated
