"""Rungs and promotion: which trial a free worker trains next."""
