"""A space that is small enough to be counted, and to train a member of in a second."""

SMALL = """
space: small
width: 16 | 24 | 32
norm: pre
encoder: { depth: 1 | 2, heads: 2, ffn: { relu: { hidden: 16 } } }
decoder: { depth: 1, heads: 2, ffn: { relu: { hidden: 16 } } }
cost:
  protocol: { source: 8, target: 8, vocab: 60 }
  budgets: { tiny: params.total <= 12k }
"""
