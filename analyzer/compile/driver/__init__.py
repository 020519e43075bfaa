"""The compiler commands `crashcheck-cc` and `crashcheck-c++`: the command line, clang, the resident process."""
