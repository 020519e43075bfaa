"""Crash images: the bytes that a crash state leaves in the files, and the folders that hold them for a check.

Returns patches from one image to the next, and fingerprints that are equal exactly where images are.

Other rooms import `folder_content`, `image_folder`, `inotify`, `issued_folder`, `piecewise`, `real_files`,
`sparse_bytes` and `transition`.
"""
