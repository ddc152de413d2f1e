// As data_tiling, with generated code in place of IREE's microkernels.
module attributes {mlsearch.flags = ["--iree-opt-data-tiling", "--iree-llvmcpu-enable-inner-tiled"]} {
}
