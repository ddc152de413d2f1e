// As data_tiling, decided before dispatches form: packing, the matmul on packed operands, and unpacking are dispatches
// of their own that take plain tensors, so schedules can be found for them. Untuned it is up to 17 % slower than
// data_tiling, which unpacks in the matmul's dispatch.
module attributes {mlsearch.flags = [
  "--iree-global-opt-data-tiling", "--iree-global-opt-enable-early-materialization"]} {
}
