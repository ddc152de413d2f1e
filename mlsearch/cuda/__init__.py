"""What is particular to NVIDIA GPUs: the chips, what IREE is told about them, and what compiled code says of itself.

- `chips`: architectures, product names and their limits.
- `device`: the GPU of this machine.
- `executable`, `ptx`, `ptxas`: read an artifact, its PTX, and what NVIDIA's assembler makes of it.
- `occupancy`, `statics`, `cost`: what all that means on a chip, and a ranking without measuring.
"""
