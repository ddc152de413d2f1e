// Convolutions as matmuls on gathered patches.
module attributes {mlsearch.flags = ["--iree-global-opt-use-im2col-for-convs"]} {
}
