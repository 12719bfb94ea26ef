# SPDX-License-Identifier: Apache-2.0
"""first_call.py MACHINE LINE: the first call of this process is the one in a capture, which then has
to load what it needs itself. Prints the verdict on what the replay computed."""

import sys

import machines
import operators

import goldenrule


def main(name, line):
    case = goldenrule.fixture(line)
    call = case.call()
    with machines.ALL[name]() as machine:
        tensors, given = machine.tensors(case), machine.tensors(case)
        machine.wait()
        replay = machine.captured(lambda: operators.run(machine.ops, call, tensors))
        for key, x in tensors.items():
            machine.fill(x, given[key])
        call.outputs = replay()
        machine.wait()
        print(call.judge(explain=False).verdict)


if __name__ == "__main__":
    main(*sys.argv[1:])
