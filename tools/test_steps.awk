# SPDX-License-Identifier: Apache-2.0
#
# The table of what the steps of a test took. First file: step, minutes and CPU minutes of a recorded
# run, CPU minutes allowed. Second file: step and the seconds, user and system seconds of this run.
# Exit code 1: a step that is not in the first file, or one that took more than it is allowed.
FNR == NR {
  if ($1 !~ /^#/ && NF == 4) {
    minutes[$1] = $2
    cpu[$1] = $3
    allowed[$1] = $4
  }
  next
}
FNR == 1 {
  printf "%-25s %8s %10s %8s %10s %8s\n", "step", "minutes", "(recorded)", "CPU min", "(recorded)", "allowed"
}
{
  used = ($3 + $4) / 60
  total += $2 / 60
  note = ""
  if (!($1 in allowed)) {
    note = "  not in tools/test_steps.txt"
    status = 1
  } else if (used > allowed[$1]) {
    note = "  MORE THAN ALLOWED"
    status = 1
  }
  printf "%-25s %8.1f %10s %8.1f %10s %8s%s\n", $1, $2 / 60, minutes[$1], used, cpu[$1], allowed[$1], note
}
END {
  printf "%-25s %8.1f\n", "all", total
  exit status
}
