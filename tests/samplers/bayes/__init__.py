"""Surrogates, forecasts and gains."""
