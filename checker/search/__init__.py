"""The search: takes states from a strategy, has them checked, and gathers the failures into findings."""
