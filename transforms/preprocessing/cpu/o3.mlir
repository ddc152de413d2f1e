// IREE's highest optimization level: matmuls become generic ops and take in more of what stands around them, and sums
// of floats may be reassociated. The level implies the second flag only where iree-compile reads both from its command
// line, so it is given.
module attributes {mlsearch.flags = ["--iree-opt-level=O3", "--iree-llvmcpu-reassociate-fp-reductions"]} {
}
