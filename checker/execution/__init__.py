"""Running the check on crash images: worker processes, each run bounded in time, memory and output.

Hands on how each run ended (`Run`), whatever that means for its crash state.
"""
