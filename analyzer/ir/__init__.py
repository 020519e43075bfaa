"""Compiling C and C++ with hooks, and the program facts that ride in the binary."""
