"""PyTorch models: build modules from blocks, initialize weights, decode."""

from scalesearch.nn.build import build_model
from scalesearch.nn.model import DecodingCache, EncoderMemory, Seq2SeqModel
from scalesearch.nn.module import DropoutRates, Module

__all__ = ["DecodingCache", "DropoutRates", "EncoderMemory", "Seq2SeqModel", "Module",
           "build_model"]
