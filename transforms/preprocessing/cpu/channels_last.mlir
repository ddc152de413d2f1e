// Convolutions with the channels innermost, where vectors run along the output channels; transposes around them.
module attributes {mlsearch.flags = [
  "--iree-preprocessing-pass-pipeline=builtin.module(util.func(iree-preprocessing-convert-conv-to-channels-last))"]} {
}
