# SPDX-License-Identifier: Apache-2.0
"""Names that are right and not of this repository, each with its reason."""

FILES = {
    "OUT/mutant.hpp": "made by tests/gpu_host/mutate_sources.py",
    "_capture.py": "made by the installation: goldenrule_capture.py",
    "unpack.sh": "made by tools/bench_gpu/pack_peers.py",
    "goldenrule/[0-9]": "the name of the schema",
    "hdf5.h": "HDF5",
    "H5?pkg.h": "HDF5",
    "naive.py": "FLA",
    "fla/ops/*": "FLA",
    "flash_attn_interface.py": "FlashAttention",
    "flashinfer/*": "FlashInfer",
    "test_suite.py": "the reader's own, in an example",
    "test_kernel.py": "the reader's own, in an example",
    "first_bad_stage.py": "the reader's own, in an example",
    "recorded.py": "the reader's own, in an example",
    "port.py": "the reader's own, in an example",
    "check.sh": "the reader's own, in an example",
}
OPTIONS = {
    "-tc": "doctest, short for --test-case",
    "--test-dir": "ctest",
    "--array": "Slurm",
    "--cpus-per-task": "Slurm",
    "--my-option": "of the reader's own program",
}
WORDS = {
    "cuGetExportTable": "CUDA",
    "gated_delta_rule_mtp_ucache_flush": "FlashInfer",
    "snake_case": "how names are written",
    "CamelCase": "how names are written",
}
