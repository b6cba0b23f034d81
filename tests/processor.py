"""What this machine's processor can do, where that decides how near results are."""

from scalesearch.train.hardware import cpu_facts

FLAGS = set(cpu_facts().get("flags", "").split())  # of an x86 processor; others state none
# Without these instructions pairs of 8-bit products are added in 16 bits, where large sums are cut off.
WIDE_SUMS = not FLAGS or bool({"avx512_vnni", "avx_vnni", "amx_int8"} & FLAGS)
