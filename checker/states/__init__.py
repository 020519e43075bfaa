"""Crash states: at which instants a crash is considered, and what may have persisted at each."""
