"""Running the check on crash images: worker processes, limits, time-outs."""
