// Attention in one op without matrix instructions, such as f32, through IREE's VectorDistribute pipeline: the keys are
// dealt out to lanes and warps, each has its own running maximum and sum, and what they found is put together at the end.
//
// Matches    `iree_linalg_ext.online_attention`, which is what IREE makes of `iree_linalg_ext.attention` before a
//            transform library gets to see it, with or without a mask, where `cuda/attention_vector_distribute` has no
//            candidate.
// Leaves     a lowering config and a decomposition config on the attention, a translation info on the function. The
//            other ops get no config: IREE fuses them into the attention's tiles.
// Knobs      lanes_s     lanes of a warp side by side along the keys.
//            lanes_k     lanes along what a query and a key have in common, and along the columns of the output.
//            subgroups   warps side by side along the keys.
//            rounds      keys of a lane in one step.
//            queries     queries of a workgroup; all of its lanes have a share of each.
//            vector_k    neighbouring elements of a key that a lane reads at a time.
//            vector_n    the same of a value.
//            vectors_n   vectors of columns of a lane. Where a workgroup does not cover all columns, others do the scores
//                        again.
//            no_reduce_shared_memory_bank_conflicts   whether what warps exchange through shared memory stays unpadded.
//            reorder_workgroups_strategy   which of the parallel loops the workgroups run along first.
// IREE's own choice is one of the assignments; it always has one query and one key of a lane in a step.
// Known failures, which the constraints keep out: a step that does not divide the keys; more values of a thread than
//            registers; idle lanes where keys could be dealt out to them. Of 24 assignments drawn for 8x512x128 in f32 on
//            sm_90 all compiled, and ptxas let 3 spill.
module attributes {mlsearch.fallback, transform.with_named_sequence} {
  %m = arith.constant 128 : index
  %n = arith.constant 64 : index
  %k = arith.constant 64 : index
  %s = arith.constant 128 : index
  %input_bytes = arith.constant 4 : index

  iree_codegen.smt.constraints target = <set = 0>, pipeline = #iree_gpu.pipeline<VectorDistribute>,
    knobs = {
      workgroup = {
        m = #iree_codegen.smt.int_knob<"queries">,
        n = [#iree_codegen.smt.int_knob<"lanes_k">, #iree_codegen.smt.int_knob<"vector_n">, #iree_codegen.smt.int_knob<"vectors_n">]
      },
      partial_reduction = {
        k = 0,
        s = [#iree_codegen.smt.int_knob<"lanes_s">, #iree_codegen.smt.int_knob<"subgroups">, #iree_codegen.smt.int_knob<"rounds">]
      },
      subgroup = {s = #iree_codegen.smt.int_knob<"subgroups">},
      lane = {
        s = #iree_codegen.smt.int_knob<"lanes_s">,
        k = #iree_codegen.smt.int_knob<"lanes_k">,
        n = #iree_codegen.smt.int_knob<"lanes_k">
      },
      thread = {k = #iree_codegen.smt.int_knob<"vector_k">, n = #iree_codegen.smt.int_knob<"vector_n">},
      options = {
        iree_codegen.denormal_fp_math_f32 = #iree_codegen.denormal_fp_math<"preserve-sign">,
        gpu_pipeline_options = {
          no_reduce_shared_memory_bank_conflicts = #iree_codegen.smt.one_of_knob<"no_reduce_shared_memory_bank_conflicts", [false, true]>,
          reorder_workgroups_strategy = #iree_codegen.smt.one_of_knob<"reorder_workgroups_strategy", [#iree_gpu.reorder_workgroups_strategy<None>, #iree_gpu.reorder_workgroups_strategy<Transpose>]>
        }
      }
    }
    dims(%m, %n, %k, %s, %input_bytes) attributes {
      mlsearch.dims = ["m", "n", "k", "s", "input_bytes"],
      mlsearch.domains = {
        lanes_s = [1, 2, 4, 8, 16, 32],
        lanes_k = [1, 2, 4, 8, 16, 32],
        subgroups = [1, 2, 4, 8, 16],
        rounds = [1, 2, 4],
        queries = [1, 2, 4, 8],
        vector_k = [1, 2, 4, 8],
        vector_n = [1, 2, 4, 8],
        vectors_n = [1, 2, 4, 8]
      },
      mlsearch.defaults = {
        lanes_s = 16, lanes_k = 2, subgroups = 8, rounds = 1, queries = 1, vector_k = 4, vector_n = 4, vectors_n = 2,
        no_reduce_shared_memory_bank_conflicts = false, reorder_workgroups_strategy = "#iree_gpu.reorder_workgroups_strategy<None>"
      },
      mlsearch.priors = [
        {lanes_s = 8, lanes_k = 4, subgroups = 4, queries = 4, vectors_n = 4},
        {lanes_s = 4, lanes_k = 8, subgroups = 4, queries = 4, vectors_n = 2},
        {lanes_s = 4, lanes_k = 8, subgroups = 4, queries = 8, vectors_n = 2},
        {lanes_s = 8, lanes_k = 4, subgroups = 8, queries = 1, vectors_n = 4}
      ]
    } {
  ^bb0(%size_m: !smt.int, %size_n: !smt.int, %size_k: !smt.int, %size_s: !smt.int, %bytes: !smt.int):
    %lanes_s = iree_codegen.smt.knob "lanes_s" : !smt.int
    %lanes_k = iree_codegen.smt.knob "lanes_k" : !smt.int
    %subgroups = iree_codegen.smt.knob "subgroups" : !smt.int
    %rounds = iree_codegen.smt.knob "rounds" : !smt.int
    %queries = iree_codegen.smt.knob "queries" : !smt.int
    %vector_k = iree_codegen.smt.knob "vector_k" : !smt.int
    %vector_n = iree_codegen.smt.knob "vector_n" : !smt.int
    %vectors_n = iree_codegen.smt.knob "vectors_n" : !smt.int
    %unpadded = iree_codegen.smt.knob "no_reduce_shared_memory_bank_conflicts" : !smt.int
    %zero = smt.int.constant 0
    %one = smt.int.constant 1
    %two = smt.int.constant 2
    %warp = smt.int.constant 32
    %widest = smt.int.constant 16
    %most_held = smt.int.constant 128

    // Where the number of keys has too few factors of two, IREE leaves lanes without work.
    %lanes = smt.int.mul %lanes_s, %lanes_k
    %rest_lanes = smt.int.mod %warp, %lanes
    %within = smt.eq %rest_lanes, %zero : !smt.int
    iree_codegen.smt.assert %within, "{} x {} lanes are in a warp", %lanes_s, %lanes_k : !smt.bool, !smt.int, !smt.int
    %whole = smt.eq %lanes, %warp : !smt.int
    %more = smt.int.mul %lanes_s, %two
    %rest_more = smt.int.mod %size_s, %more
    %uneven = smt.distinct %rest_more, %zero : !smt.int
    %lanes_ok = smt.or %whole, %uneven
    iree_codegen.smt.assert %lanes_ok, "{} x {} lanes are a warp, or more than {} can't share {} keys", %lanes_s, %lanes_k, %lanes_s, %size_s : !smt.bool, !smt.int, !smt.int, !smt.int, !smt.int

    %step_s = smt.int.mul %lanes_s, %subgroups, %rounds
    %step_k = smt.int.mul %lanes_k, %vector_k
    %rest_s = smt.int.mod %size_s, %step_s
    %rest_k = smt.int.mod %size_k, %step_k
    %rest_m = smt.int.mod %size_m, %queries
    %rest = smt.int.add %rest_s, %rest_k, %rest_m
    %even = smt.eq %rest, %zero : !smt.int
    iree_codegen.smt.assert %even, "{} keys, {} of their elements and {} queries divide their loops", %step_s, %step_k, %queries : !smt.bool, !smt.int, !smt.int, !smt.int
    %tile_n = smt.int.mul %lanes_k, %vector_n, %vectors_n
    %twice_n = smt.int.mul %size_n, %two
    %vector_lanes = smt.int.mul %lanes_k, %vector_n
    %rest_n = smt.int.mod %size_n, %vector_lanes
    %even_n = smt.eq %rest_n, %zero : !smt.int
    %short_n = smt.int.cmp lt %tile_n, %twice_n
    %n_ok = smt.and %even_n, %short_n
    iree_codegen.smt.assert %n_ok, "{} columns cover n ({}) less than twice, in vectors that divide it", %tile_n, %size_n : !smt.bool, !smt.int, !smt.int

    %key_bytes = smt.int.mul %vector_k, %bytes
    %value_bytes = smt.int.mul %vector_n, %bytes
    %key_ok = smt.int.cmp le %key_bytes, %widest
    %value_ok = smt.int.cmp le %value_bytes, %widest
    %loads_ok = smt.and %key_ok, %value_ok
    iree_codegen.smt.assert %loads_ok, "vectors of {} and {} bytes are loads of 16 at most", %key_bytes, %value_bytes : !smt.bool, !smt.int, !smt.int

    // Of each query a thread holds its part, its columns of the output, and its scores.
    %depth = smt.int.div %size_k, %lanes_k
    %columns = smt.int.mul %vector_n, %vectors_n
    %row = smt.int.add %depth, %columns, %rounds
    %held = smt.int.mul %row, %queries
    %held_ok = smt.int.cmp le %held, %most_held
    iree_codegen.smt.assert %held_ok, "{} values of a thread for queries, output and scores <= 128", %held : !smt.bool, !smt.int

    // One warp has nothing to exchange.
    %padded = smt.eq %unpadded, %zero : !smt.int
    %several = smt.int.cmp gt %subgroups, %one
    %exchange = smt.or %padded, %several
    iree_codegen.smt.assert %exchange, "what {} warps exchange is unpadded ({}) only if there are several", %subgroups, %unpadded : !smt.bool, !smt.int, !smt.int
  }

  transform.named_sequence @match(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    transform.match.operation_name %op ["iree_linalg_ext.online_attention"] : !transform.any_op
    transform.yield %op : !transform.any_op
  }

  transform.named_sequence @schedule(%root: !transform.any_op {transform.readonly}) {
    %config = transform.param.constant #iree_gpu.lowering_config<{
        workgroup = [1, 1, 16, 0, 0], partial_reduction = [0, 0, 0, 0, 128]}>
        {mlsearch.bind = "lowering_config"} -> !transform.any_param
    transform.annotate %root "lowering_config" = %config : !transform.any_op, !transform.any_param
    %matmuls = transform.param.constant {
        qk_attrs = {lowering_config = #iree_gpu.lowering_config<{
            lane_basis = [[1, 1, 2, 16], [0, 1, 2, 3]], subgroup_basis = [[1, 1, 1, 8], [0, 1, 2, 3]],
            thread = [0, 0, 4, 0]}>},
        pv_attrs = {lowering_config = #iree_gpu.lowering_config<{
            lane_basis = [[1, 1, 2, 16], [0, 1, 2, 3]], subgroup_basis = [[1, 1, 1, 8], [0, 1, 2, 3]],
            thread = [0, 0, 4, 0]}>}}
        {mlsearch.bind = "decomposition_config"} -> !transform.any_param
    transform.annotate %root "decomposition_config" = %matmuls : !transform.any_op, !transform.any_param
    %function = transform.get_parent_op %root <{op_name = "func.func"}> : (!transform.any_op) -> !transform.any_op
    %translation = transform.param.constant #iree_codegen.translation_info<
        pipeline = #iree_gpu.pipeline<VectorDistribute> workgroup_size = [256, 1, 1] subgroup_size = 32,
        {iree_codegen.denormal_fp_math_f32 = #iree_codegen.denormal_fp_math<"preserve-sign">,
         gpu_pipeline_options = #iree_gpu.pipeline_options<no_reduce_shared_memory_bank_conflicts = false, reorder_workgroups_strategy = <None>>}>
        {mlsearch.bind = "translation_info"} -> !transform.any_param
    transform.annotate %function "translation_info" = %translation : !transform.any_op, !transform.any_param
    transform.yield
  }

  transform.named_sequence @__kernel_config(%function: !transform.any_op {transform.consumed}) -> !transform.any_op {
    %done = transform.foreach_match in %function @match -> @schedule : (!transform.any_op) -> !transform.any_op
    transform.yield %done : !transform.any_op
  }
}
