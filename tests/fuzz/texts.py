# SPDX-License-Identifier: Apache-2.0
"""Case lines, suites and contracts that a stranger may write: right ones, made from the tables
below, and right ones with a few changes that know what a key, a value, a brace or a JSON object is.
What is only noise is refused at its first byte; what is nearly right gets further."""

import json
import random

NUMBERS = ("0", "1", "2", "-1", "-0", "+1", "007", "1.0", "1e3", "0x10", "", " ", "nan", "inf",
           "4096", "16777216", "16777217", "2147483647", "2147483648", "-2147483648",
           "9223372036854775807", "-9223372036854775808", "9223372036854775808",
           "18446744073709551615", "1" + "0" * 400, "1e-400", "1e308", "-1e308", "5e-324")
ENDS = ("-9223372036854775808", "9223372036854775807", "16777216", "0")
EXTENTS = ("1", "2", "3", "4", "6", "8")
# key: values that are right in some mode, more than once where they shall be frequent
RIGHT = {
    "op": ("gdn", "kda"),
    "mode": ("decode", "mtp", "prefill"),
    "B": EXTENTS, "T": ("1", "2", "3"), "H": ("1", "1", "2"), "HV": ("2", "4"), "K": EXTENTS,
    "V": EXTENTS,
    "lens": ("5", "0", "3,0,2", "2x3", "1,2x0,1", "17"),
    "io": ("bf16", "f16", "f32"), "state": ("f32", "bf16", "f16"), "index": ("i64", "i32"),
    "state_layout": ("vk", "kv"),
    "gate": ("softplus", "bounded", "log", "log2", "linear", "none"),
    "softplus_beta": ("1", "2.5"), "softplus_threshold": ("20", "-3"), "lower_bound": ("-5", "-.1"),
    "beta": ("sigmoid", "sigmoid2", "direct"),
    "qk_l2norm": ("none", "rsqrt_sum_eps", "max_norm_eps"),
    "l2_eps": ("0", "1e-6"), "scale": ("0.5", "0", "-2"),
    "head_map": ("grouped", "tiled"), "gate_head": ("v", "qk"),
    "pad_slot": ("-1", "0", "3", "2147483647"), "disable_state_update": ("0", "1"),
    "P": ("0", "9", "24", "100"),
    "slots": ("none", "identity", "permuted", "padded", "separate", "separate_padded", "scatter",
              "scatter_padded"),
    "accepted": ("none", "mixed"), "h0": ("0", "1"),
    "pattern": ("A", "A", "B75", "B999", "B16", "C000", "C190", "Dslow", "Dbound", "Dzero", "Dgrow",
               "Derase", "E", "F", "G", "H", "I", "J17", "J20m", "K", "production"),
    "seed": ("0", "1", "18446744073709551615"),
}
NEEDED = {"decode": ("B", "H", "HV", "K", "V"), "mtp": ("B", "T", "H", "HV", "K", "V"),
          "prefill": ("lens", "H", "HV", "K", "V")}
ONLY = {"disable_state_update": ("mtp",), "P": ("decode", "mtp"), "slots": ("decode", "mtp"),
        "accepted": ("mtp",), "h0": ("prefill",)}
NUMERIC = tuple(k for k in RIGHT if k != "lens" and RIGHT[k][0].lstrip("-")[:1].isdigit())
LENGTHS = ("", ",", "1,", ",1", "1,,2", "x", "1x", "x1", "2x", "1x2x3", "-1", "2x-1", "0x5", "1e2",
           "9223372036854775807x1", "1x9223372036854775807", "3037000500x3037000500",
           "9223372036854775807x0,9223372036854775807x0", "16777216x1", "16777216x16777216")
NOISE = ("=", "==", "{", "}", "{}", "{,}", "#", ",", "\0", "\t", "\r", "\n", "\x7f", "\u202e",
         "\ud800", "\xff", "'", "\\", "%s%n", "x" * 70_000)


def right_pairs(rng):
    mode = rng.choice(RIGHT["mode"])
    pairs = {"op": rng.choice(RIGHT["op"]), "mode": mode}
    pairs.update({key: rng.choice(RIGHT[key]) for key in NEEDED[mode]})
    others = [k for k in RIGHT if k not in pairs and mode in ONLY.get(k, RIGHT["mode"])
              and not any(k in needed for needed in NEEDED.values())]
    for key in rng.sample(others, rng.choice((0, 0, 1, 2, 3, 5))):
        pairs[key] = rng.choice(RIGHT[key])
    return pairs


def braces(rng, key):
    """A value in braces: some, many, or none that can be."""
    values = [rng.choice(RIGHT[key] + NUMBERS[:3]) for _ in range(rng.choice((1, 2, 3, 40)))]
    kind = rng.random()
    if kind < 0.1:
        return "{" + ",".join(map(str, range(rng.choice((300, 70_000))))) + "}"
    if kind < 0.2:
        return rng.choice(("{", "}", "{}", "{{1,2}}", "{1,{2,3}}", "{1}2", "2{1}", "{1,2"))
    return "{" + ",".join(values) + "}"


def change_pair(rng, pairs):
    """One change in [(key, value)]."""
    at = rng.randrange(len(pairs))
    key = pairs[at][0]
    kind = rng.randrange(9)
    if kind in (0, 8):  # in the place of the right one: a second one is refused before it is read
        key = rng.choice(NUMERIC)
        pairs[:] = [p for p in pairs if p[0] != key] + [
            (key, rng.choice(rng.choice((NUMBERS, ENDS))))]
    elif kind == 1:
        pairs[at] = (key, braces(rng, key) if key in RIGHT else "{1,2}")
    elif kind == 2 and len(pairs) > 1:
        del pairs[at]
    elif kind == 3:
        other = rng.choice(sorted(RIGHT))
        pairs.insert(at, (other, rng.choice(RIGHT[other])))
    elif kind == 4:
        pairs[at] = (key, rng.choice(RIGHT[rng.choice(sorted(RIGHT))]))
    elif kind == 5:
        pairs[at] = ("lens", rng.choice(LENGTHS + (",".join("1" * 5000),)))
    elif kind == 6:
        pairs[at] = (rng.choice(("", key.upper(), key + key, "x", "@case", "\u202e")), "1")
    else:
        pairs.extend([(rng.choice(sorted(RIGHT)), "{1}")] * rng.choice((1, 5, 20, 8000)))


def change_text(rng, text):
    at = rng.randrange(len(text) + 1)
    kind = rng.randrange(5)
    if kind == 0:
        return text[:at] + rng.choice(NOISE) + text[at:]
    if kind == 1:
        return text[:at]
    if kind == 2:
        return text[:at] + text[at + rng.randrange(1, 9):]
    if kind == 3:
        return text[:at] + chr(rng.randrange(256)) + text[at + 1:]
    return text[:at] + text[at // 2:]


def case_line(rng):
    pairs = list(right_pairs(rng).items())
    if rng.random() < 0.8:
        for _ in range(rng.choice((1, 1, 2, 3))):
            change_pair(rng, pairs)
    if rng.random() < 0.3:
        rng.shuffle(pairs)
    text = rng.choice((" ", " ", " ", "\t", "  ", "\r ")).join(f"{k}={v}" for k, v in pairs)
    return change_text(rng, text) if rng.random() < 0.15 else text


def suite(rng):
    lines = []
    for _ in range(rng.choice((0, 1, 2, 5))):
        line = case_line(rng) if rng.random() < 0.3 else " ".join(
            f"{k}={v}" for k, v in right_pairs(rng).items())
        lines.append(rng.choice(("", "", "# words\n", " ")) + line + rng.choice(("", " # words")))
    if rng.random() < 0.1 and lines:
        lines.append(lines[0])
    return rng.choice(("\n", "\n", "\n\n", "\r\n", "\r")).join(lines) + rng.choice(("", "\n"))


POINTS = ("query", "key", "beta", "gate", "inverse", "attention", "carried_state", "no point")
KINDS = {"ideal": {}, "recurrent": {"unit_roundoff": 2.0 ** -24},
         "chunked": {"unit_roundoff": 2.0 ** -24, "chunk": 64}}
BASES = ("ideal", "recurrent_f32", "recurrent_bf16_state", "chunk64_bf16", "chunk16_bf16_state")
PARTS = ("kind", "state", "chunk", "form", "unit_roundoff", "round", "functions")
FUNCTIONS = ("exp", "log", "log_alpha", "softplus", "logit", "sigmoid", "norm")
VALUES = (None, True, False, 0, 1, -1, 64, 4096, 4097, 2 ** 31, 2 ** 63 - 1, 2 ** 63, 2 ** 64 - 1,
          2 ** 64, -2 ** 63, -2 ** 63 - 1, 10 ** 400, 0.0, -0.0, 0.5, 0.49999999999999994, 5e-324,
          1e308, float("nan"), float("inf"), "", "f32", "bf16", "ideal", "x" * 5000, "\u202e\0\n",
          [], {}, [[]], {"": {}}, [None] * 1000)


def attention_contract(rng):
    contract = {"name": "mine", **rng.choice(({"base": "flash_bf16"}, {"base": "eager_bf16"},
                                              {"kind": "softmax", "unit_roundoff": 2.0 ** -24}))}
    if rng.random() < 0.6:
        contract["round"] = {p: rng.choice(("type of q", "type of q", None))
                             for p in rng.sample(("scores", "weights", "sum"), rng.randrange(4))}
    if rng.random() < 0.4:
        contract["functions"] = {f: rng.choice((0, 1e-7, 0.25)) for f in ("exp2", "tanh")}
    return contract


def right_contract(rng):
    if rng.random() < 0.2:
        return attention_contract(rng)
    contract = {"name": rng.choice(("mine", "a.b+c-d_e", "x" * 64))}
    if rng.random() < 0.5:
        contract["base"] = rng.choice(BASES)
        if rng.random() < 0.4:
            contract["inherits"] = rng.sample(PARTS, rng.randrange(len(PARTS)))
    if "base" not in contract or rng.random() < 0.3:
        contract["kind"] = rng.choice(sorted(KINDS))
        contract.update(KINDS[contract["kind"]])
    if rng.random() < 0.5:
        contract["round"] = {p: rng.choice(("f32", "tf32", "f16", "bf16", "any16", "bf16x2", None))
                             for p in rng.sample(POINTS, rng.randrange(4))}
    if rng.random() < 0.4:
        contract["functions"] = {f: rng.choice((0, 1e-7, 0.25)) for f in rng.sample(FUNCTIONS, 2)}
    for key, values in (("state", ("f32", "f16", "bf16", None)), ("form", ("wy", "direct")),
                        ("meaning", ("", "words", "\u00e9\u202e"))):
        if rng.random() < 0.3:
            contract[key] = rng.choice(values)
    return contract


def change_contract(rng, contract):
    inner = [v for v in contract.values() if isinstance(v, dict) and v]
    where = rng.choice([contract] + inner)
    key = rng.choice(sorted(where)) if where else "name"
    kind = rng.randrange(4)
    if kind == 0:
        where[key] = rng.choice(VALUES)
    elif kind == 1:
        where.pop(key, None)
    elif kind == 2:
        where[rng.choice(("", "Name", "name ", "\0", "extra") + PARTS + POINTS)] = rng.choice(VALUES)
    else:
        where[key] = where.get(rng.choice(sorted(where or {"name": 0})), 0)


def contract_json(rng):
    contract = right_contract(rng)
    if rng.random() < 0.8:
        for _ in range(rng.choice((1, 1, 2))):
            change_contract(rng, contract)
    text = json.dumps(contract, indent=rng.choice((None, 1)), ensure_ascii=rng.random() < 0.5)
    kind = rng.random()
    if kind < 0.15:
        return change_text(rng, text)
    if kind < 0.2:  # what is written twice
        return text[:-1] + "," + text[1:]
    if kind < 0.22:
        depth = rng.choice((100, 10_000, 200_000))
        return '{"name":' + rng.choice(("[", '{"a":')) * depth + rng.choice(("", "]" * depth + "}"))
    return text


# the kind's letter for the parser, its maker, how often
KINDS_OF_TEXT = (("l", case_line, 5), ("s", suite, 2), ("c", contract_json, 3))


def text_of(seed):
    """(letter, bytes) of the text with this seed."""
    rng = random.Random(seed)
    letter, make, _ = rng.choices(KINDS_OF_TEXT, [k[2] for k in KINDS_OF_TEXT])[0]
    return letter, make(rng).encode("utf-8", rng.choice(("surrogatepass", "replace")))
