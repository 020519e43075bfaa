"""Verdicts kept between runs: what passed is not run again while nothing that its run used has changed.

Other rooms import `base`, `dependencies`, `store` and `verdicts`.
"""
