"""The four token ids that every vocabulary starts with."""

PAD, UNK, BOS, EOS = 0, 1, 2, 3
