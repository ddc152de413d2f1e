"""Parts of tools/bench_cpu.py: programs that compute the same, measured in turns."""
