// Attention in one op, by a strategy that takes it apart and tiles the two matmuls inside of it for themselves.
//
// Matches    `iree_linalg_ext.online_attention`, which is what IREE's CPU backend makes of `iree_linalg_ext.attention`,
//            with or without a mask.
// Leaves     lowered code: the strategy tiles the op over queries and over keys, decomposes it, tiles its matmuls, runs
//            IREE's own lowering passes on the function, and marks it as done. IREE's own choice tiles the op as a whole
//            and turns each matmul of a tile into one unrolled piece; so tiles have to be small, maxima and sums over
//            keys are taken in short vectors, and every key is transposed again for a handful of queries.
// Knobs      tile_m     queries whose keys are walked through together: each tile of keys is transposed once for them.
//            tile_s     keys between two corrections of the running maximum.
//            dist_m     tiles of queries in a workgroup, 0 for all of them.
//            score_m, score_s, score_k   the register tile of queries times keys, and its step along the reduction.
//            value_m, value_n, value_s   the same for weights times values.
// Known failures, which the constraints keep out: a tile that does not divide its loop does not bufferize; a vector of
//            32 KiB or more, or one such product of a matmul's tile, is refused; buffers of more than 32 KiB do not fit
//            on IREE's stack. It works behind the transform library flag only.
module attributes {mlsearch.strategy, transform.with_named_sequence} {
  %m = arith.constant 128 : index
  %n = arith.constant 64 : index
  %k = arith.constant 64 : index
  %s = arith.constant 128 : index
  %lanes = arith.constant 16 : index
  %registers = arith.constant 32 : index
  %element_bytes = arith.constant 4 : index
  %wide_lanes = arith.constant 16 : index
  %vector_bytes = arith.constant 64 : index
  %threads = arith.constant 1 : index
  %vector_limit = arith.constant 32768 : index

  iree_codegen.smt.constraints target = <set = 0>, pipeline = #iree_cpu.pipeline<LinalgExtTileAndVectorize>,
    knobs = {
      distribution = {
        m = [#iree_codegen.smt.int_knob<"tile_m">, #iree_codegen.smt.int_knob<"dist_m">],
        n = 0
      },
      vector_common_parallel = {m = #iree_codegen.smt.int_knob<"tile_m">, n = 0},
      vector_reduction = {k = 0, s = #iree_codegen.smt.int_knob<"tile_s">},
      scores = {
        m = #iree_codegen.smt.int_knob<"score_m">,
        s = #iree_codegen.smt.int_knob<"score_s">,
        k = #iree_codegen.smt.int_knob<"score_k">
      },
      values = {
        m = #iree_codegen.smt.int_knob<"value_m">,
        n = #iree_codegen.smt.int_knob<"value_n">,
        s = #iree_codegen.smt.int_knob<"value_s">
      }
    }
    dims(%m, %n, %k, %s, %lanes, %registers, %element_bytes, %wide_lanes, %vector_bytes, %threads, %vector_limit) attributes {
      mlsearch.dims = ["m", "n", "k", "s", "lanes", "registers", "element_bytes", "wide_lanes", "vector_bytes", "threads", "vector_limit"],
      mlsearch.domains = {
        tile_m = [1, 2, 4, 6, 7, 8, 11, 12, 14, 16, 20, 24, 28, 32, 48, 64],
        tile_s = [1, 4, 7, 8, 11, 16, 20, 25, 32, 40, 49, 50, 64, 77, 96, 100, 128, 192, 197, 200, 256, 512],
        dist_m = [0, "1 .. 16", "1 .. m / (8 * threads)"],
        score_m = [1, 2, 4, 6, 7, 8, 10, 11, 12, 14, "registers / 2"],
        score_s = [1, 7, 11, "4 .. vector_bytes"],
        score_k = [1, 2, 4, 8, 16, 32, 64],
        value_m = [1, 2, 4, 6, 7, 8, 10, 11, 12, 14, "registers / 2"],
        value_n = ["1 .. 2 * vector_bytes"],
        value_s = [1, 2, 4, 7, 8, 11, 16]
      },
      mlsearch.defaults = {
        tile_m = 16, tile_s = 128, dist_m = 0, score_m = 16, score_s = 16, score_k = 16,
        value_m = 8, value_n = 32, value_s = 4
      },
      mlsearch.priors = [
        {tile_m = 16, tile_s = 128, score_m = "registers / 2", score_s = "wide_lanes", score_k = 16, value_m = "registers / 8", value_n = "4 * wide_lanes", value_s = 4},
        {tile_m = 8, tile_s = 64, score_m = "registers / 4", score_s = "wide_lanes", score_k = 16, value_m = "registers / 8", value_n = "4 * wide_lanes", value_s = 4},
        {tile_m = 16, tile_s = "vector_limit / 256", dist_m = 1, score_m = "registers / 4", score_s = "wide_lanes", score_k = 16, value_m = "registers / 4", value_n = "2 * wide_lanes", value_s = 4},
        {tile_m = 16, tile_s = 64, score_m = "registers / 4", score_s = 8, score_k = 16, value_m = "registers / 8", value_n = "wide_lanes", value_s = 4},
        {tile_m = 11, tile_s = 77, score_m = 11, score_s = 11, score_k = 16, value_m = 11, value_n = "2 * wide_lanes", value_s = 7},
        {tile_m = 20, tile_s = 40, score_m = 10, score_s = 8, score_k = 16, value_m = 10, value_n = "2 * wide_lanes", value_s = 4}
      ]
    } {
  ^bb0(%size_m: !smt.int, %size_n: !smt.int, %size_k: !smt.int, %size_s: !smt.int, %lane_count: !smt.int,
       %register_count: !smt.int, %bytes: !smt.int,
       %wide_lane_count: !smt.int, %vector_size: !smt.int, %thread_count: !smt.int, %limit: !smt.int):
    %tile_m = iree_codegen.smt.knob "tile_m" : !smt.int
    %tile_s = iree_codegen.smt.knob "tile_s" : !smt.int
    %dist_m = iree_codegen.smt.knob "dist_m" : !smt.int
    %score_m = iree_codegen.smt.knob "score_m" : !smt.int
    %score_s = iree_codegen.smt.knob "score_s" : !smt.int
    %score_k = iree_codegen.smt.knob "score_k" : !smt.int
    %value_m = iree_codegen.smt.knob "value_m" : !smt.int
    %value_n = iree_codegen.smt.knob "value_n" : !smt.int
    %value_s = iree_codegen.smt.knob "value_s" : !smt.int
    %zero = smt.int.constant 0
    %one = smt.int.constant 1
    %two = smt.int.constant 2
    %stack = smt.int.constant 32768

    %rest_m = smt.int.mod %size_m, %tile_m
    %even_m = smt.eq %rest_m, %zero : !smt.int
    iree_codegen.smt.assert %even_m, "tile_m ({}) divides m ({})", %tile_m, %size_m : !smt.bool, !smt.int, !smt.int
    %rest_s = smt.int.mod %size_s, %tile_s
    %even_s = smt.eq %rest_s, %zero : !smt.int
    iree_codegen.smt.assert %even_s, "tile_s ({}) divides s ({})", %tile_s, %size_s : !smt.bool, !smt.int, !smt.int
    %rest_score_k = smt.int.mod %size_k, %score_k
    %even_score_k = smt.eq %rest_score_k, %zero : !smt.int
    iree_codegen.smt.assert %even_score_k, "score_k ({}) divides k ({})", %score_k, %size_k : !smt.bool, !smt.int, !smt.int
    %rest_value_n = smt.int.mod %size_n, %value_n
    %even_value_n = smt.eq %rest_value_n, %zero : !smt.int
    iree_codegen.smt.assert %even_value_n, "value_n ({}) divides n ({})", %value_n, %size_n : !smt.bool, !smt.int, !smt.int

    %rest_score_m = smt.int.mod %tile_m, %score_m
    %even_score_m = smt.eq %rest_score_m, %zero : !smt.int
    iree_codegen.smt.assert %even_score_m, "score_m ({}) divides tile_m ({})", %score_m, %tile_m : !smt.bool, !smt.int, !smt.int
    %rest_value_m = smt.int.mod %tile_m, %value_m
    %even_value_m = smt.eq %rest_value_m, %zero : !smt.int
    iree_codegen.smt.assert %even_value_m, "value_m ({}) divides tile_m ({})", %value_m, %tile_m : !smt.bool, !smt.int, !smt.int
    %rest_score_s = smt.int.mod %tile_s, %score_s
    %even_score_s = smt.eq %rest_score_s, %zero : !smt.int
    iree_codegen.smt.assert %even_score_s, "score_s ({}) divides tile_s ({})", %score_s, %tile_s : !smt.bool, !smt.int, !smt.int
    %rest_value_s = smt.int.mod %tile_s, %value_s
    %even_value_s = smt.eq %rest_value_s, %zero : !smt.int
    iree_codegen.smt.assert %even_value_s, "value_s ({}) divides tile_s ({})", %value_s, %tile_s : !smt.bool, !smt.int, !smt.int

    %covered = smt.int.mul %tile_m, %dist_m
    %cuts = smt.int.cmp lt %covered, %size_m
    iree_codegen.smt.assert %cuts, "a workgroup of {} queries is less than m ({}); 0 stands for all", %covered, %size_m : !smt.bool, !smt.int, !smt.int
    // A ragged workgroup makes ragged tiles.
    %whole = smt.eq %dist_m, %zero : !smt.int
    %group = smt.ite %whole, %size_m, %covered : !smt.int
    %rest_group = smt.int.mod %size_m, %group
    %even_group = smt.eq %rest_group, %zero : !smt.int
    iree_codegen.smt.assert %even_group, "a workgroup of {} queries divides m ({})", %group, %size_m : !smt.bool, !smt.int, !smt.int

    // Accumulators, with two registers left for what is multiplied; narrow vectors count as whole ones.
    %usable = smt.int.sub %register_count, %two
    %filled = smt.int.sub %lane_count, %one
    %wide_score = smt.int.add %score_s, %filled
    %score_vectors = smt.int.div %wide_score, %lane_count
    %score_accumulators = smt.int.mul %score_m, %score_vectors
    %score_fits = smt.int.cmp le %score_accumulators, %usable
    iree_codegen.smt.assert %score_fits, "{} accumulators of scores leave two of {} vector registers free", %score_accumulators, %register_count : !smt.bool, !smt.int, !smt.int
    %wide_value = smt.int.add %value_n, %filled
    %value_vectors = smt.int.div %wide_value, %lane_count
    %value_accumulators = smt.int.mul %value_m, %value_vectors
    %value_fits = smt.int.cmp le %value_accumulators, %usable
    iree_codegen.smt.assert %value_fits, "{} accumulators of values leave two of {} vector registers free", %value_accumulators, %register_count : !smt.bool, !smt.int, !smt.int

    // IREE's check of vector sizes takes a matmul's tile as one vector, and what is not tiled further as it is.
    %score_bytes = smt.int.mul %score_m, %score_s, %score_k, %bytes
    %score_ok = smt.int.cmp lt %score_bytes, %limit
    iree_codegen.smt.assert %score_ok, "{} bytes of products of a tile of scores < {}", %score_bytes, %limit : !smt.bool, !smt.int, !smt.int
    %value_bytes = smt.int.mul %value_m, %value_n, %value_s, %bytes
    %value_ok = smt.int.cmp lt %value_bytes, %limit
    iree_codegen.smt.assert %value_ok, "{} bytes of products of a tile of values < {}", %value_bytes, %limit : !smt.bool, !smt.int, !smt.int
    %scores = smt.int.mul %tile_m, %tile_s, %bytes
    %scores_ok = smt.int.cmp lt %scores, %limit
    iree_codegen.smt.assert %scores_ok, "{} bytes of scores < {}", %scores, %limit : !smt.bool, !smt.int, !smt.int

    // On the stack: scores and weights, scaled queries, the output's tile.
    %query_bytes = smt.int.mul %tile_m, %size_k, %bytes
    %output_bytes = smt.int.mul %tile_m, %size_n, %bytes
    // Tiles of keys that are no whole vectors, or shorter than a query, need the queries twice. Measured on 132
    // assignments: right up to what buffers are padded by, and too much for five.
    %is_short = smt.int.cmp lt %tile_s, %size_k
    %part_vector = smt.int.mod %tile_s, %lane_count
    %has_part = smt.int.cmp gt %part_vector, %zero
    %twice = smt.or %is_short, %has_part
    %copied_bytes = smt.ite %twice, %query_bytes, %zero : !smt.int
    %buffers = smt.int.add %scores, %scores, %query_bytes, %output_bytes, %copied_bytes
    %buffers_ok = smt.int.cmp le %buffers, %stack
    iree_codegen.smt.assert %buffers_ok, "buffers of {} bytes <= 32768 of stack", %buffers : !smt.bool, !smt.int
  }

  transform.named_sequence @match(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    transform.match.operation_name %op ["iree_linalg_ext.online_attention"] : !transform.any_op
    transform.yield %op : !transform.any_op
  }

  transform.named_sequence @schedule(%root: !transform.any_op {transform.readonly}) {
    %function = transform.get_parent_op %root <{op_name = "func.func"}> : (!transform.any_op) -> !transform.any_op
    %translation = transform.param.constant #iree_codegen.translation_info<
        pipeline = #iree_codegen.transform_dialect_codegen codegen_spec = @strategy>
        {mlsearch.bind = "translation_info"} -> !transform.any_param
    transform.annotate %function "translation_info" = %translation : !transform.any_op, !transform.any_param
    transform.yield
  }

  // The fills of output, maximum and sum; the attention; the division by the sum.
  transform.named_sequence @configure(%function: !transform.any_op {transform.readonly}) attributes {mlsearch.bind = "every_op"} {
    %ops = transform.structured.match ops{["linalg.fill", "iree_linalg_ext.online_attention", "linalg.generic"]} in %function
        : (!transform.any_op) -> !transform.any_op
    %op:5 = transform.split_handle %ops
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
    %whole = transform.param.constant #iree_cpu.lowering_config<vector_common_parallel = [1, 16, 0]> -> !transform.any_param
    %row = transform.param.constant #iree_cpu.lowering_config<vector_common_parallel = [1, 16]> -> !transform.any_param
    %attention = transform.param.constant #iree_cpu.lowering_config<
        distribution = [1, 0, 0, 0, 0], vector_common_parallel = [1, 16, 0, 0, 0], vector_reduction = [0, 0, 0, 0, 128]>
        -> !transform.any_param
    transform.annotate %op#0 "lowering_config" = %whole : !transform.any_op, !transform.any_param
    transform.annotate %op#1 "lowering_config" = %row : !transform.any_op, !transform.any_param
    transform.annotate %op#2 "lowering_config" = %row : !transform.any_op, !transform.any_param
    transform.annotate %op#3 "lowering_config" = %attention : !transform.any_op, !transform.any_param
    transform.annotate %op#4 "lowering_config" = %whole : !transform.any_op, !transform.any_param
    transform.yield
  }

  transform.named_sequence @strategy(%module: !transform.any_op) {
    %function = transform.structured.match ops{["func.func"]} in %module : (!transform.any_op) -> !transform.any_op
    transform.include @configure failures(propagate) (%function) : (!transform.any_op) -> ()
    %attention = transform.structured.match ops{["iree_linalg_ext.online_attention"]} in %function
        : (!transform.any_op) -> !transform.any_op
    %matmuls = transform.param.constant {
        qk_attrs = {lowering_config = #iree_cpu.lowering_config<vector_common_parallel = [1, 16, 0, 16], vector_reduction = [0, 0, 16, 0]>},
        pv_attrs = {lowering_config = #iree_cpu.lowering_config<vector_common_parallel = [1, 8, 32, 0], vector_reduction = [0, 0, 0, 4]>}}
        {mlsearch.bind = "decomposition_config"} -> !transform.any_param
    transform.annotate %attention "decomposition_config" = %matmuls : !transform.any_op, !transform.any_param

    // Heads and queries to workgroups, then tiles of queries with all that comes before and after, then tiles of keys.
    %distributed = transform.apply_registered_pass "iree-codegen-tile-and-distribute-to-workgroups-using-forall-op"
        to %function : (!transform.any_op) -> !transform.any_op
    %loaded = transform.apply_registered_pass "iree-codegen-bufferize-dispatch-tensor-load-store"
        to %distributed : (!transform.any_op) -> !transform.any_op
    %queries = transform.apply_registered_pass "iree-llvmcpu-tile-and-fuse-producer-consumer"
        with options = {"tiling-level" = "vector_common_parallel"} to %loaded : (!transform.any_op) -> !transform.any_op
    %keys = transform.apply_registered_pass "iree-llvmcpu-tile-and-fuse-producer-consumer"
        with options = {"tiling-level" = "vector_reduction", "anchor-on-root-op" = true, "only-fuse-producer-input-operands" = true}
        to %queries : (!transform.any_op) -> !transform.any_op

    // Powers of two, as IREE does it: the scale takes the factor, and exp2 is cheaper than exp.
    %parts = transform.apply_registered_pass "iree-linalg-ext-decompose-attention"
        with options = {"use-exp2" = true} to %keys : (!transform.any_op) -> !transform.any_op
    %loops = transform.apply_registered_pass "iree-codegen-forall-to-for" to %parts : (!transform.any_op) -> !transform.any_op
    // The scaled queries are the same for all tiles of keys.
    %hoisted = transform.apply_registered_pass "loop-invariant-code-motion" to %loops : (!transform.any_op) -> !transform.any_op
    %unique = transform.apply_registered_pass "cse" to %hoisted : (!transform.any_op) -> !transform.any_op

    %tiles = transform.apply_registered_pass "iree-llvmcpu-tile"
        with options = {"tiling-level" = "vector_common_parallel"} to %unique : (!transform.any_op) -> !transform.any_op
    %steps = transform.apply_registered_pass "iree-llvmcpu-tile"
        with options = {"tiling-level" = "vector_reduction"} to %tiles : (!transform.any_op) -> !transform.any_op

    // What is left of the pipeline finds everything tiled; it vectorizes, bufferizes and lowers.
    %pipeline = transform.param.constant #iree_codegen.translation_info<
        pipeline = #iree_cpu.pipeline<LinalgExtTileAndVectorize>> {mlsearch.bind = "pipeline"} -> !transform.any_param
    transform.annotate %steps "translation_info" = %pipeline : !transform.any_op, !transform.any_param
    %lowered = transform.apply_registered_pass "iree-llvmcpu-lower-executable-target" to %steps : (!transform.any_op) -> !transform.any_op
    %done = transform.param.constant #iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline> -> !transform.any_param
    transform.annotate %lowered "translation_info" = %done : !transform.any_op, !transform.any_param
    transform.yield
  }

  transform.named_sequence @__kernel_config(%function: !transform.any_op {transform.consumed}) -> !transform.any_op {
    %done = transform.foreach_match in %function @match -> @schedule : (!transform.any_op) -> !transform.any_op
    transform.yield %done : !transform.any_op
  }
}
