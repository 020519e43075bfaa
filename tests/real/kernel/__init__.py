"""The models of ext4 compared with a real kernel: Debian's, in QEMU, without root.

`schedules` makes a script of litmus programs and of what drives write-back, `machine` runs it and logs the disk's
writes, `disk_log` cuts the log, `ext4_image` reads what a cut leaves, and `comparison` holds it to the model.
"""
