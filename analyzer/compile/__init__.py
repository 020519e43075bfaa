"""Compiling C and C++ with hooks, and the program facts that are stored in the binary."""
