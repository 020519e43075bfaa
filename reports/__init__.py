"""Reports: one view of a run, rendered for a terminal, a browser and other programs."""
