"""Measure what this very device reaches, and keep it. Only the process that measures has torch."""
