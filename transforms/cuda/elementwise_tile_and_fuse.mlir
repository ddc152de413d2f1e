// Elementwise ops, broadcasts and transposes through IREE's TileAndFuse pipeline.
//
// Matches    any structured op all of whose loops are parallel, where no template for its own kind applies.
// Leaves     a lowering config on the root op and a translation info on the function.
// Knobs      vector      neighbouring elements of the innermost loop that a thread takes.
//            threads     threads of a workgroup along the innermost loop.
//            rows        iterations of the loop around it in a workgroup, one thread each.
//            rounds      of them to a thread.
//            promote     the operand that goes through shared memory: the first one that lies across the innermost loop,
//                        as in a transpose, and only where tiles divide both loops.
//            no_reduce_shared_memory_bank_conflicts   whether the rows of that copy stay unpadded.
//            counted     roles whose threads are counted along x and y of the workgroup; all along x if empty.
// IREE's own choice is one of the assignments.
// Known failures: none seen. Workgroups that are no whole warps, and vectors wider than two accesses, are kept out.
module attributes {mlsearch.fallback, transform.with_named_sequence} {
  %p = arith.constant 1024 : index
  %p1 = arith.constant 1024 : index
  %element_bytes = arith.constant 4 : index
  %transposed = arith.constant 0 : index

  iree_codegen.smt.constraints target = <set = 0>, pipeline = #iree_gpu.pipeline<TileAndFuse>,
    knobs = {
      workgroup = {
        p1 = [#iree_codegen.smt.int_knob<"rows">, #iree_codegen.smt.int_knob<"rounds">],
        p = [#iree_codegen.smt.int_knob<"vector">, #iree_codegen.smt.int_knob<"threads">]
      },
      thread = {p1 = #iree_codegen.smt.int_knob<"rounds">, p = #iree_codegen.smt.int_knob<"vector">},
      config = {promote_operands = #iree_codegen.smt.one_of_knob<"promote", [[], [0], [1], [2]]>},
      options = {
        gpu_pipeline_options = {
          no_reduce_shared_memory_bank_conflicts = #iree_codegen.smt.one_of_knob<"no_reduce_shared_memory_bank_conflicts", [false, true]>
        },
        workgroup_size = #iree_codegen.smt.one_of_knob<"counted", [[], ["p", "p1"]]>
      }
    }
    dims(%p, %p1, %element_bytes, %transposed) attributes {
      mlsearch.dims = ["p", "p1", "element_bytes", "transposed"],
      mlsearch.domains = {
        vector = [1, 2, 4, 8, 16],
        threads = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512],
        rows = [1, 2, 4, 8, 16, 32],
        rounds = [1, 2, 4, 8]
      },
      mlsearch.defaults = {
        vector = 4, threads = 64, rows = 1, rounds = 1, promote = [], no_reduce_shared_memory_bank_conflicts = false, counted = []
      },
      mlsearch.priors = [
        {vector = 4, threads = 128, rows = 1, rounds = 1},
        {vector = 4, threads = 32, rows = 4, rounds = 1},
        {vector = 4, threads = 32, rows = 8, rounds = 4},
        {vector = 4, threads = 8, rows = 32, rounds = 1, promote = [0], counted = ["p", "p1"]},
        {vector = 4, threads = 8, rows = 32, rounds = 1, promote = [1], counted = ["p", "p1"]}
      ]
    } {
  ^bb0(%size_p: !smt.int, %size_p1: !smt.int, %bytes: !smt.int, %across: !smt.int):
    %vector = iree_codegen.smt.knob "vector" : !smt.int
    %threads = iree_codegen.smt.knob "threads" : !smt.int
    %rows = iree_codegen.smt.knob "rows" : !smt.int
    %rounds = iree_codegen.smt.knob "rounds" : !smt.int
    %promote = iree_codegen.smt.knob "promote" : !smt.int
    %unpadded = iree_codegen.smt.knob "no_reduce_shared_memory_bank_conflicts" : !smt.int
    %counted = iree_codegen.smt.knob "counted" : !smt.int
    %zero = smt.int.constant 0
    %two = smt.int.constant 2
    %warp = smt.int.constant 32
    %most_threads = smt.int.constant 1024
    %widest = smt.int.constant 32

    %tile_p = smt.int.mul %vector, %threads
    %tile_p1 = smt.int.mul %rows, %rounds
    %twice_p = smt.int.mul %size_p, %two
    %short_p = smt.int.cmp lt %tile_p, %twice_p
    %least_p = smt.eq %tile_p, %warp : !smt.int
    %fits_p = smt.or %short_p, %least_p
    iree_codegen.smt.assert %fits_p, "a workgroup's {} elements cover p ({}) less than twice, or are 32", %tile_p, %size_p : !smt.bool, !smt.int, !smt.int
    %fits_p1 = smt.int.cmp le %tile_p1, %size_p1
    iree_codegen.smt.assert %fits_p1, "a workgroup's {} rows <= p1 ({})", %tile_p1, %size_p1 : !smt.bool, !smt.int, !smt.int

    %count = smt.int.mul %threads, %rows
    %rest = smt.int.mod %count, %warp
    %whole = smt.eq %rest, %zero : !smt.int
    iree_codegen.smt.assert %whole, "{} threads are whole warps", %count : !smt.bool, !smt.int
    %count_ok = smt.int.cmp le %count, %most_threads
    iree_codegen.smt.assert %count_ok, "{} threads <= 1024", %count : !smt.bool, !smt.int
    %width = smt.int.mul %vector, %bytes
    %width_ok = smt.int.cmp le %width, %widest
    iree_codegen.smt.assert %width_ok, "{} bytes of a thread's vector <= 32, two accesses", %width : !smt.bool, !smt.int

    // The choices of operands are in their order, so the number of one is its position, counted from 1.
    %direct = smt.eq %promote, %zero : !smt.int
    %is_across = smt.eq %promote, %across : !smt.int
    %rest_p = smt.int.mod %size_p, %tile_p
    %rest_p1 = smt.int.mod %size_p1, %tile_p1
    %rests = smt.int.add %rest_p, %rest_p1
    %even = smt.eq %rests, %zero : !smt.int
    %copied = smt.and %is_across, %even
    %copy_ok = smt.or %direct, %copied
    iree_codegen.smt.assert %copy_ok, "the operand that is copied ({}) is the transposed one ({}), in tiles of {} x {} that divide", %promote, %across, %tile_p1, %tile_p : !smt.bool, !smt.int, !smt.int, !smt.int, !smt.int
    %padded = smt.eq %unpadded, %zero : !smt.int
    %in_a_row = smt.eq %counted, %zero : !smt.int
    %neither = smt.and %padded, %in_a_row
    %copying = smt.distinct %promote, %zero : !smt.int
    %shared_ok = smt.or %neither, %copying
    iree_codegen.smt.assert %shared_ok, "unpadded rows ({}) and two axes ({}) only with a copy ({})", %unpadded, %counted, %promote : !smt.bool, !smt.int, !smt.int, !smt.int
  }

  transform.named_sequence @match(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    %matched = transform.match.structured failures(propagate) %op : (!transform.any_op) -> !transform.any_op {
    ^bb0(%elementwise: !transform.any_op):
      "transform.match.structured.dim"(%elementwise) <{raw_dim_list = array<i64>, is_all, parallel}> : (!transform.any_op) -> ()
      transform.match.structured.yield %elementwise : !transform.any_op
    }
    transform.yield %matched : !transform.any_op
  }

  transform.named_sequence @schedule(%root: !transform.any_op {transform.readonly}) {
    %config = transform.param.constant #iree_gpu.lowering_config<{workgroup = [1, 256], thread = [1, 4]}>
        {mlsearch.bind = "lowering_config"} -> !transform.any_param
    transform.annotate %root "lowering_config" = %config : !transform.any_op, !transform.any_param
    %function = transform.get_parent_op %root <{op_name = "func.func"}> : (!transform.any_op) -> !transform.any_op
    %translation = transform.param.constant #iree_codegen.translation_info<
        pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [64, 1, 1] subgroup_size = 32,
        {gpu_pipeline_options = #iree_gpu.pipeline_options<no_reduce_shared_memory_bank_conflicts = false>}>
        {mlsearch.bind = "translation_info"} -> !transform.any_param
    transform.annotate %function "translation_info" = %translation : !transform.any_op, !transform.any_param
    transform.yield
  }

  transform.named_sequence @__kernel_config(%function: !transform.any_op {transform.consumed}) -> !transform.any_op {
    %done = transform.foreach_match in %function @match -> @schedule : (!transform.any_op) -> !transform.any_op
    transform.yield %done : !transform.any_op
  }
}
