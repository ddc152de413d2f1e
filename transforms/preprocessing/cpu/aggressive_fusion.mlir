// Puts more into one dispatch, e.g. both reductions of a LayerNorm and what follows them. Slower untuned (0.75x for
// LayerNorm 512x768), and faster once the dispatch has a schedule that keeps a row in the first-level cache.
module attributes {mlsearch.flags = ["--iree-dispatch-creation-enable-aggressive-fusion"]} {
}
