"""Verdicts kept between runs: what passed is not run again while nothing that its run used has changed.

And runs of one search that other machines have executed, its shards.

Other rooms import `base`, `dependencies`, `shards`, `store` and `verdicts`.
"""
