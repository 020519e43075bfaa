"""What the virtual machines of other languages load while a program is recorded, so that its calls have its lines.

Other rooms import `sitecustomize`.
"""
