// Reductions and chains of them (sums and maxima over rows, softmax, layer and RMS normalization, matrix times vector)
// through IREE's VectorDistribute pipeline: a workgroup for each row, its threads side by side along it.
//
// Matches    any structured op whose innermost loop is a reduction. The other ops of the dispatch get the same split of
//            the row, each as far as its loops move together with those of the root op: IREE makes no choice for them
//            any more once one op has a config.
// Leaves     a lowering config on each op and a translation info on the function.
// Knobs      vector      neighbouring elements that a thread reads at a time.
//            subgroups   warps that share a row.
//            rounds      vectors of a thread in one step along the row.
//            no_reduce_shared_memory_bank_conflicts   whether what warps exchange through shared memory stays unpadded.
//            reorder_workgroups_strategy   which of several parallel loops the workgroups run along first.
// IREE's own choice is one of the assignments, for rows that a warp can share evenly.
// Known failures, which the constraints keep out: a step that does not divide the row is not vectorized; more than one
//            row in a workgroup does not distribute. A contraction with many rows and columns is better served by
//            another template, so those are left out.
module attributes {mlsearch.fallback, transform.with_named_sequence} {
  %m = arith.constant 1 : index
  %n = arith.constant 1 : index
  %r = arith.constant 1024 : index
  %k = arith.constant 1 : index
  %element_bytes = arith.constant 4 : index
  %p1 = arith.constant 1 : index
  %b = arith.constant 1 : index

  iree_codegen.smt.constraints target = <set = 0>, pipeline = #iree_gpu.pipeline<VectorDistribute>,
    knobs = {
      workgroup = {p = 1},
      partial_reduction = {
        r = [32, #iree_codegen.smt.int_knob<"vector">, #iree_codegen.smt.int_knob<"subgroups">, #iree_codegen.smt.int_knob<"rounds">],
        k = [32, #iree_codegen.smt.int_knob<"vector">, #iree_codegen.smt.int_knob<"subgroups">, #iree_codegen.smt.int_knob<"rounds">]
      },
      subgroup = {r = #iree_codegen.smt.int_knob<"subgroups">, k = #iree_codegen.smt.int_knob<"subgroups">},
      lane = {r = 32, k = 32},
      thread = {r = #iree_codegen.smt.int_knob<"vector">, k = #iree_codegen.smt.int_knob<"vector">},
      options = {
        gpu_pipeline_options = {
          no_reduce_shared_memory_bank_conflicts = #iree_codegen.smt.one_of_knob<"no_reduce_shared_memory_bank_conflicts", [false, true]>,
          reorder_workgroups_strategy = #iree_codegen.smt.one_of_knob<"reorder_workgroups_strategy", [#iree_gpu.reorder_workgroups_strategy<None>, #iree_gpu.reorder_workgroups_strategy<Transpose>]>
        }
      }
    }
    dims(%m, %n, %r, %k, %element_bytes, %p1, %b) attributes {
      mlsearch.dims = ["m", "n", "r", "k", "input_bytes", "p1", "b"],
      mlsearch.domains = {
        vector = [1, 2, 4, 8, 16],
        subgroups = [1, 2, 3, 4, 6, 8, 12, 16, 32],
        rounds = [1, 2, 3, 4, 8, 16]
      },
      mlsearch.defaults = {
        vector = 4, subgroups = 2, rounds = 1, no_reduce_shared_memory_bank_conflicts = false,
        reorder_workgroups_strategy = "#iree_gpu.reorder_workgroups_strategy<None>"
      },
      mlsearch.priors = [
        {vector = 4, subgroups = 8, rounds = 1},
        {vector = 4, subgroups = 4, rounds = 2},
        {vector = 4, subgroups = 1, rounds = 4},
        {vector = 8, subgroups = 4, rounds = 1}
      ]
    } {
  ^bb0(%size_m: !smt.int, %size_n: !smt.int, %size_r: !smt.int, %size_k: !smt.int, %bytes: !smt.int,
       %size_p1: !smt.int, %size_b: !smt.int):
    %vector = iree_codegen.smt.knob "vector" : !smt.int
    %subgroups = iree_codegen.smt.knob "subgroups" : !smt.int
    %rounds = iree_codegen.smt.knob "rounds" : !smt.int
    %unpadded = iree_codegen.smt.knob "no_reduce_shared_memory_bank_conflicts" : !smt.int
    %order = iree_codegen.smt.knob "reorder_workgroups_strategy" : !smt.int
    %one = smt.int.constant 1
    %zero = smt.int.constant 0
    %warp = smt.int.constant 32
    %widest = smt.int.constant 32
    %most_elements = smt.int.constant 128
    %narrow = smt.int.constant 8

    // One of the two is 1: a contraction calls its reduction k, any other op r.
    %row = smt.int.mul %size_r, %size_k
    %step = smt.int.mul %vector, %subgroups, %rounds, %warp
    %rest = smt.int.mod %row, %step
    %even = smt.eq %rest, %zero : !smt.int
    iree_codegen.smt.assert %even, "a step of {} elements divides the row of {}", %step, %row : !smt.bool, !smt.int, !smt.int

    %width = smt.int.mul %vector, %bytes
    %width_ok = smt.int.cmp le %width, %widest
    iree_codegen.smt.assert %width_ok, "{} bytes of a thread's vector <= 32, two loads", %width : !smt.bool, !smt.int
    %held = smt.int.mul %vector, %rounds
    %held_ok = smt.int.cmp le %held, %most_elements
    iree_codegen.smt.assert %held_ok, "{} elements of a thread <= 128", %held : !smt.bool, !smt.int

    %few_rows = smt.int.cmp le %size_m, %narrow
    %few_columns = smt.int.cmp le %size_n, %narrow
    %is_row_like = smt.or %few_rows, %few_columns
    iree_codegen.smt.assert %is_row_like, "m ({}) or n ({}) is at most 8", %size_m, %size_n : !smt.bool, !smt.int, !smt.int

    // One warp has nothing to exchange.
    %padded = smt.eq %unpadded, %zero : !smt.int
    %several = smt.int.cmp gt %subgroups, %one
    %exchange = smt.or %padded, %several
    iree_codegen.smt.assert %exchange, "what {} warps exchange is unpadded ({}) only if there are several", %subgroups, %unpadded : !smt.bool, !smt.int, !smt.int
    %plain = smt.eq %order, %zero : !smt.int
    %has_p1 = smt.int.cmp gt %size_p1, %one
    %has_b = smt.int.cmp gt %size_b, %one
    %has_m = smt.int.cmp gt %size_m, %one
    %has_n = smt.int.cmp gt %size_n, %one
    %m_and_n = smt.and %has_m, %has_n
    %is_grid = smt.or %has_p1, %has_b, %m_and_n
    %order_ok = smt.or %plain, %is_grid
    iree_codegen.smt.assert %order_ok, "workgroups have another order ({}) only along several loops", %order : !smt.bool, !smt.int
  }

  transform.named_sequence @match(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    %matched = transform.match.structured failures(propagate) %op : (!transform.any_op) -> !transform.any_op {
    ^bb0(%reduction: !transform.any_op):
      "transform.match.structured.input"(%reduction) <{raw_position_list = array<i64>, is_all, projected_permutation}> : (!transform.any_op) -> ()
      "transform.match.structured.dim"(%reduction) <{raw_dim_list = array<i64: -1>, reduction}> : (!transform.any_op) -> ()
      transform.match.structured.yield %reduction : !transform.any_op
    }
    transform.yield %matched : !transform.any_op
  }

  transform.named_sequence @schedule(%root: !transform.any_op {transform.readonly}) {
    %config = transform.param.constant #iree_gpu.lowering_config<{
        lane_basis = [[1, 32], [0, 1]], partial_reduction = [0, 256], subgroup_basis = [[1, 2], [0, 1]],
        thread = [0, 4], workgroup = [1, 0]}>
        {mlsearch.bind = "lowering_config"} -> !transform.any_param
    transform.annotate %root "lowering_config" = %config : !transform.any_op, !transform.any_param
    %function = transform.get_parent_op %root <{op_name = "func.func"}> : (!transform.any_op) -> !transform.any_op
    %translation = transform.param.constant #iree_codegen.translation_info<
        pipeline = #iree_gpu.pipeline<VectorDistribute> workgroup_size = [64, 1, 1] subgroup_size = 32,
        {gpu_pipeline_options = #iree_gpu.pipeline_options<no_reduce_shared_memory_bank_conflicts = false, reorder_workgroups_strategy = <None>>}>
        {mlsearch.bind = "translation_info"} -> !transform.any_param
    transform.annotate %function "translation_info" = %translation : !transform.any_op, !transform.any_param
    transform.yield
  }

  transform.named_sequence @__kernel_config(%function: !transform.any_op {transform.consumed}) -> !transform.any_op {
    %done = transform.foreach_match in %function @match -> @schedule : (!transform.any_op) -> !transform.any_op
    transform.yield %done : !transform.any_op
  }
}
