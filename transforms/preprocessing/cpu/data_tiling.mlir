// IREE's own packing of matmul operands into tiles, with its microkernels: the way to VNNI and bf16 dot products.
// Weights that are constants are packed at compile time. The packed dispatches can't run alone, so nothing is tuned in
// them; in those of data_tiling_early it is.
module attributes {mlsearch.flags = ["--iree-opt-data-tiling"]} {
}
