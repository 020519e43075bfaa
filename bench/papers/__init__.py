"""The tables of the papers that crashcheck builds on, measured on our structures: see docs/evaluation.md."""
