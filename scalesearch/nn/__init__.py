"""Run what the blocks describe: build modules, initialise them, decode."""

from scalesearch.nn.build import build
from scalesearch.nn.model import Cache, Memory, Model
from scalesearch.nn.module import Dropout, Module

__all__ = ["Cache", "Dropout", "Memory", "Model", "Module", "build"]
