"""Where candidates are trained: in this process, or by Ray workers."""
