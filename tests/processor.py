"""What this machine's processor can do, where that decides how near results are."""

from scalesearch.train.hardware import read_cpuinfo

FLAGS = set(read_cpuinfo().get("flags", "").split())  # of an x86 processor; others state none
# Without these instructions pairs of 8-bit products are added in 16 bits, where large sums are cut
# off.
WIDE_SUMS = not FLAGS or bool({"avx512_vnni", "avx_vnni", "amx_int8"} & FLAGS)
