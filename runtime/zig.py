"""The clang of the ziglang wheel. Imported by the compiler client on every configure probe: nothing heavy is here."""

# zig's compiler defaults to the machine's own processor, traps and a stack protector; plain clang does not.
# No -target: with one, zig takes headers and an older C library of its own, and finds no library of the machine.
_FLAGS = ("-mcpu=baseline", "-fno-sanitize=undefined", "-fno-stack-protector")
ZIG_CC = ("-m", "ziglang", "cc", *_FLAGS)  # what follows the Python that has the wheel
ZIG_CXX = ("-m", "ziglang", "c++", *_FLAGS)
