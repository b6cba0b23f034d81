"""Evaluation of models: metrics, speed, memory, proxies, distillation."""
