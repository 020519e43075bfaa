"""Searches the orders in which messages, time-outs, failures and crashes of several nodes may happen."""
