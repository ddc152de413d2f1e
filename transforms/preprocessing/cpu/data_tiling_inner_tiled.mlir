// As data_tiling_early, with generated code in place of IREE's microkernels: on AVX-512 a register tile of 29 rows and
// one vector. Packing rows into tiles of 29 is slow as IREE does it, and fast once it is tuned.
module attributes {mlsearch.flags = [
  "--iree-global-opt-data-tiling", "--iree-global-opt-enable-early-materialization",
  "--iree-llvmcpu-enable-inner-tiled"]} {
}
