# SPDX-License-Identifier: Apache-2.0
"""A kernel that forgets to decay the state before it is corrected and read."""

import my_decode
import numpy as np


def decode(q, k, v, a, b, A_log, dt_bias, state):
    return my_decode.decode(q, k, v, a, b, np.full_like(A_log, -np.inf), dt_bias, state)
