"""Crash states and runs that are executed on other machines: what these are sent, what they do, and who has which.

`dask_cluster` is the only module that knows dask: another kind of cluster needs a `Cluster` (remote_machines.py) of
its own.

Other rooms import `dask_cluster`, `host`, `libraries`, `packing`, `remote_machines`, `remote_runs`, `shipment` and
`shipped_files`.
"""
