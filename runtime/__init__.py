"""The recorder inside the program under test, and how a workload is run under it."""
