"""The instrumentation pass: which instruction of a unit gets which call into the recorder."""
