"""Records with strace where our own recorder cannot run: converts what strace printed into the same trace.

strace prints paths and no inodes, so names, descriptors and positions are followed here as the calls change them. It
shows no stores through mappings, and call stacks are not asked for: they cost a millisecond a call.

Other rooms import `convert`.
"""
