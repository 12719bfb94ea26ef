# SPDX-License-Identifier: Apache-2.0
"""Exact gradients of the delta rule without an adjoint: the forward rule and a complex step.

The loss L = sum(o do) + sum(final_state dfinal_state) is evaluated by the recurrence of
exact_rule.py, on complex numbers:

    dL/dx = Im L(x + i h) / h,   h = 2^-133 = 1e-40, 60 digits: it errs by 1e-60 or so.

Every function of the rule is analytic but for branches, which the real part decides. One evaluation
gives one derivative, so nothing here sums over heads, tokens or channels as an adjoint does. A
perturbed token leaves the tokens before it as they were: their states are kept, and so is what
every other token gets from q, k, gate and beta.
"""

import h5py
import numpy as np
from mpmath import exp, fdot, isfinite, ln2, log1p, mp, mpc, mpf, sqrt

mp.dps = 60
STEP = mpf(2) ** -133  # a power of two: h itself rounds nothing
DEFAULTS = dict(state_layout="vk", gate="softplus", softplus_beta=1.0, softplus_threshold=20.0,
                lower_bound=-5.0, beta="sigmoid", qk_l2norm="rsqrt_sum_eps", l2_eps=1e-6,
                head_map="grouped", gate_head="v")
PARAMETERS = ("A_log", "dt_bias")


def sigmoid(x):
    return 1 / (1 + exp(-x))


class Call:
    """A fixture of a backward pass: convention, inputs as mpf, golden values in f64."""

    def __init__(self, path):
        with h5py.File(path) as file:
            self.case, self.per_channel = file.attrs["case"], file.attrs["op"] == "kda_backward"
            self.convention = {**DEFAULTS, **dict(file["convention"].attrs)}
            arrays = {name: d[()] for name, d in file["inputs"].items()}
            self.golden = {name: (d[()], float(d.attrs["radius"]))
                           for name, d in file["golden"].items()}
        self.bounds = [int(x) for x in arrays.pop("cu_seqlens")]
        self.inputs = {name: to_numbers(array) for name, array in arrays.items()}
        (_, self.H, self.K), (_, self.HV, self.V) = (self.inputs[x].shape for x in "qv")
        if "initial_state" not in self.inputs:  # its gradient is that by zeros
            self.inputs["initial_state"] = to_numbers(np.zeros(self.golden["dinitial_state"][0].shape))
        given = self.convention.get("scale")
        self.scale = mpf(float(1 / sqrt(mpf(self.K)) if given is None else given))
        self.lanes = [(n, j) for n in range(len(self.bounds) - 1) for j in range(self.HV)]
        self.branches = set()
        self.rows = {(t, j): self.row(t, j) for t in range(self.bounds[-1]) for j in range(self.HV)}
        self.states = {}  # before each token of the call as it is given
        for n, j in self.lanes:
            self.loss(n, j, keep=True)

    def branch(self, what, taken):
        """`taken`, which is noted: a test wants to have seen both."""
        self.branches.add((what, bool(taken)))
        return taken

    def normalize(self, x):
        form, eps = self.convention["qk_l2norm"], mpf(float(self.convention["l2_eps"]))
        if form == "none":
            return x
        total = sum((a * a for a in x), mpf(0))
        if form == "rsqrt_sum_eps":
            divisor = sqrt(total + eps)
        else:
            length = sqrt(total) if total else mpf(0)
            if form == "norm_plus_eps":
                divisor = length + eps
            else:
                divisor = length if self.branch("norm above eps", length.real > eps) else eps
        return [a / divisor for a in x]

    def qk_head(self, j):
        return j % self.H if self.convention["head_map"] == "tiled" else j // (self.HV // self.H)

    def gate_head(self, j):
        return j if self.convention["gate_head"] == "v" else self.qk_head(j)

    def softplus(self, x):
        b, threshold = (mpf(self.convention[name]) for name in ("softplus_beta", "softplus_threshold"))
        if self.branch("softplus beyond its threshold", (b * x).real > threshold):
            return x
        return log1p(exp(b * x)) / b

    def alpha(self, t, j):
        """The decay of each key channel."""
        c, x = self.convention, self.inputs
        if c["gate"] == "none":
            return [mpf(1)] * self.K
        given = np.atleast_1d(x["g" if "g" in x else "a"][t, j])
        if c["gate"] in ("softplus", "bounded"):
            head = self.gate_head(j)
            if "dt_bias" in x:
                given = given + np.atleast_1d(x["dt_bias"][head])
            rate = exp(x["A_log"][head]) if "A_log" in x else mpf(1)
            if c["gate"] == "bounded":
                gates = [mpf(c["lower_bound"]) * sigmoid(rate * u) for u in given]
            else:
                gates = [-rate * self.softplus(u) for u in given]
            alpha = [exp(g) for g in gates]
        elif c["gate"] == "linear":
            alpha = list(given)
        else:
            base = ln2 if c["gate"] == "log2" else mpf(1)
            alpha = [exp(g * base) if isfinite(g) else mpf(0) for g in given]  # e^-inf: flat
        return alpha if self.per_channel else alpha * self.K

    def row(self, t, j):
        """q, k, alpha and beta of a token as the recurrence takes them."""
        c, x, h = self.convention, self.inputs, self.qk_head(j)
        q = [self.scale * y for y in self.normalize(list(x["q"][t, h]))]
        k = self.normalize(list(x["k"][t, h]))
        if c["beta"] == "direct":
            beta = x["beta"][t, j]
        else:
            beta = sigmoid(x["b"][t, j]) * (2 if c["beta"] == "sigmoid2" else 1)
        return q, k, self.alpha(t, j), beta

    def columns(self, name, n, j):
        block = self.inputs[name][n, j]
        return [list(x) for x in (block if self.convention["state_layout"] == "vk" else block.T)]

    def loss(self, n, j, begin=None, changed=(), keep=False):
        """L of sequence n, value head j, from token `begin` on; the rows of `changed` anew."""
        first, last = self.bounds[n], self.bounds[n + 1]
        S = self.columns("initial_state", n, j) if begin is None else self.states[n, j, begin]
        total = mpf(0)
        for t in range(first if begin is None else begin, last):
            if keep:
                self.states[n, j, t] = S
            q, k, alpha, beta = self.row(t, j) if t in changed else self.rows[t, j]
            after = []
            for column, v, do in zip(S, self.inputs["v"][t, j], self.inputs["do"][t, j]):
                column = [a * s for a, s in zip(alpha, column)]
                d = beta * (v - fdot(column, k))
                column = [s + d * y for s, y in zip(column, k)]
                if do:
                    total += do * fdot(column, q)
                after.append(column)
            S = after
        if "dfinal_state" in self.inputs:
            for column, dS in zip(S, self.columns("dfinal_state", n, j)):
                total += fdot(column, dS)
        return total

    def derivative(self, name, index):
        """dL by one element of an input."""
        array = self.inputs[name]
        value = array[index]
        array[index] = mpc(value, STEP)
        total = mpf(0)
        for n, j in self.lanes:
            begin, changed = None, ()
            head = j
            if name in PARAMETERS:
                head, changed = self.gate_head(j), range(self.bounds[n], self.bounds[n + 1])
            elif name == "initial_state":
                head = j if n == index[0] else None
            else:
                head = self.qk_head(j) if name in "qk" else j
                if not self.bounds[n] <= index[0] < self.bounds[n + 1]:
                    continue
                begin, changed = index[0], index[:1]
            if head == index[0 if name in PARAMETERS else 1]:
                total += mpc(self.loss(n, j, begin, changed)).imag
        array[index] = value
        return total / STEP


def to_numbers(array):
    numbers = np.empty(array.shape, object)
    for index, x in np.ndenumerate(array):
        numbers[index] = mpf(float(x))
    return numbers

