// Packs the right operand of each matmul into panels of `n` columns, so that a register tile reads it in order. Pays
// off where the rows of the operand are a large power of two apart; free for weights that are constants, which are
// packed at compile time. The result has the panels as well and is put together by a pass of its own.
module attributes {transform.with_named_sequence, mlsearch.domains = {n = [32, 64]}} {
  transform.named_sequence @__transform_main(%payload: !transform.any_op) {
    %matmuls = transform.structured.match ops{["linalg.matmul"]} in %payload : (!transform.any_op) -> !transform.any_op
    transform.foreach %matmuls : !transform.any_op {
    ^bb0(%matmul: !transform.any_op):
      %packed = transform.structured.pack %matmul packed_sizes = [0, 32, 0] {mlsearch.knobs = ["", "n", ""]}
        : (!transform.any_op) -> !transform.op<"linalg.generic">
      %right = transform.get_producer_of_operand %packed[1]
        : (!transform.op<"linalg.generic">) -> !transform.op<"linalg.pack">
      %compute, %pack, %unpack = transform.structured.pack_transpose %right with_compute_op(%packed) outer_perm = [1, 0]
        : (!transform.op<"linalg.pack">, !transform.op<"linalg.generic">)
        -> (!transform.op<"linalg.generic">, !transform.op<"linalg.pack">, !transform.any_op)
      transform.yield
    }
    transform.yield
  }
}
