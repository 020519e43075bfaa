"""Runs unmodified processes, the nodes, one action at a time: what may happen next is asked, and chosen elsewhere.

Other rooms import `actions`, `machines`, `network` and `world`.
"""
