"""The compiler commands `crashcheck-cc` and `crashcheck-c++`: they read the command line and run clang for the rest.

`client.main` is what the commands run; `wrapper.run` does the same in the calling process. Nothing is imported here:
the client must stay light.

Other rooms import `client` and `toolchain`.
"""
