"""crashcheck shows which store may survive a power failure without which other store."""

__version__ = "0.1.0"
