"""LLVM IR as text: its tokens, types and debug metadata, and the spellings that differ between versions."""
