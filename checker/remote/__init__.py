"""Crash states that are executed on other machines: what they are sent, what they run, and who has which states.

`dask_cluster` is the only module that knows dask: another kind of cluster needs a `Cluster` (remote_runs.py) of its
own.

Other rooms import `dask_cluster`, `libraries`, `remote_runs` and `shipment`.
"""
