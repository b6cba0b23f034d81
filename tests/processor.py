"""Instructions of this machine's processor, on which the accuracy of int8 products depends."""

import os

from scalesearch.training.hardware import read_cpuinfo

FLAGS = set(read_cpuinfo().get("flags", "").split())  # of an x86 processor; others have none
# Without these instructions, pairs of 8-bit products are added in 16 bits, which saturate.
WIDE_SUMS = not FLAGS or bool({"avx512_vnni", "avx_vnni", "amx_int8"} & FLAGS)
# CTranslate2 calls oneDNN, whose instructions --fast limits
ONEDNN_WIDE_SUMS = WIDE_SUMS and os.environ.get("ONEDNN_MAX_CPU_ISA") != "AVX2"
