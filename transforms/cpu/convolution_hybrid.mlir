// Convolutions, as named ops or generics, by a strategy that annotates late and then runs IREE's own lowering.
//
// Matches    any convolution with an output image, one loop of output channels and one of input channels; so neither
//            poolings nor depthwise convolutions, whose channels are neither, and would be cut to one by one here: 19 to
//            190 times slower. IREE reshapes convolutions without a batch after a lowering config would have been set,
//            and loses it; a strategy comes after that.
// Leaves     lowered code: the strategy gives each op its lowering config, runs IREE's lowering passes on the function,
//            and marks it as done.
// Knobs      tile_o     output pixels of a row side by side; with tile_n the accumulators in registers.
//            tile_n     output channels, whole vectors.
//            tile_k     input channels in one step, unrolled.
//            dist_o1    output rows in a workgroup, 0 for all.
//            dist_n     tiles of output channels in a workgroup, 0 for all.
//            peel       split off remainders, instead of masking the last tile.
// Known failures, which the constraints keep out: tiles beyond the vector registers spill; vector temporaries of 32 KiB
//            or more fail to bufferize. It works behind the transform library flag only.
module attributes {mlsearch.strategy, transform.with_named_sequence} {
  %o = arith.constant 56 : index
  %o1 = arith.constant 56 : index
  %n = arith.constant 64 : index
  %k = arith.constant 64 : index
  %lanes = arith.constant 16 : index
  %registers = arith.constant 32 : index
  %element_bytes = arith.constant 4 : index
  %wide_lanes = arith.constant 16 : index
  %vector_bytes = arith.constant 64 : index
  %threads = arith.constant 1 : index
  %vector_limit = arith.constant 32768 : index

  iree_codegen.smt.constraints target = <set = 0>, pipeline = #iree_cpu.pipeline<ConvTileAndDecomposeExpert>,
    knobs = {
      distribution = {
        o1 = #iree_codegen.smt.int_knob<"dist_o1">,
        o = 0,
        n = [#iree_codegen.smt.int_knob<"tile_n">, #iree_codegen.smt.int_knob<"dist_n">]
      },
      vector_common_parallel = {
        o1 = 1,
        o = #iree_codegen.smt.int_knob<"tile_o">,
        n = #iree_codegen.smt.int_knob<"tile_n">
      },
      vector_reduction = {k = #iree_codegen.smt.int_knob<"tile_k">},
      options = {enable_loop_peeling = #iree_codegen.smt.one_of_knob<"peel", [false, true]>}
    }
    dims(%o, %o1, %n, %k, %lanes, %registers, %element_bytes, %wide_lanes, %vector_bytes, %threads, %vector_limit) attributes {
      mlsearch.dims = ["o", "o1", "n", "k", "lanes", "registers", "element_bytes", "wide_lanes", "vector_bytes", "threads", "vector_limit"],
      mlsearch.domains = {
        tile_o = [1, 2, 4, 6, 7, 8, 14, "(registers - 8) / 2", "registers / 2", "registers - 4"],
        tile_n = [1, "4 .. vector_bytes"],
        tile_k = [1, 2, 4, 8, 16],
        dist_o1 = [0, 1, 2, 4, 7, 8, 14, 16, "(o1 + threads - 1) / threads"],
        dist_n = [0, 1, 2, 4]
      },
      mlsearch.defaults = {tile_o = 14, tile_n = 32, tile_k = 4, dist_o1 = 4, dist_n = 0, peel = false},
      mlsearch.priors = [
        {tile_o = "registers / 4", tile_n = "2 * wide_lanes", tile_k = 4, dist_o1 = 0, dist_n = 0, peel = false},
        {tile_o = "registers / 4 - 1", tile_n = "4 * wide_lanes", tile_k = 2, dist_o1 = 0, dist_n = 1, peel = false},
        {tile_o = "(registers - 4) / 2", tile_n = "2 * wide_lanes", tile_k = 1, dist_o1 = 0, dist_n = 1, peel = true},
        {tile_o = "registers / 2", tile_n = "wide_lanes", tile_k = 1, dist_o1 = 0, dist_n = 1, peel = true},
        {tile_o = "registers / 4 - 1", tile_n = "4 * wide_lanes", tile_k = 2, dist_o1 = 0, dist_n = 0, peel = false},
        {tile_o = "(registers - 4) / 2", tile_n = "2 * wide_lanes", tile_k = 1, dist_o1 = 0, dist_n = 0, peel = false}
      ]
    } {
  ^bb0(%size_o: !smt.int, %size_o1: !smt.int, %size_n: !smt.int, %size_k: !smt.int, %lane_count: !smt.int,
       %register_count: !smt.int, %bytes: !smt.int,
       %wide_lane_count: !smt.int, %vector_size: !smt.int, %thread_count: !smt.int, %limit: !smt.int):
    %tile_o = iree_codegen.smt.knob "tile_o" : !smt.int
    %tile_n = iree_codegen.smt.knob "tile_n" : !smt.int
    %tile_k = iree_codegen.smt.knob "tile_k" : !smt.int
    %dist_o1 = iree_codegen.smt.knob "dist_o1" : !smt.int
    %dist_n = iree_codegen.smt.knob "dist_n" : !smt.int
    %peel = iree_codegen.smt.knob "peel" : !smt.int
    %zero = smt.int.constant 0
    %one = smt.int.constant 1
    %two = smt.int.constant 2

    %fits_o = smt.int.cmp le %tile_o, %size_o
    iree_codegen.smt.assert %fits_o, "tile_o ({}) <= o ({})", %tile_o, %size_o : !smt.bool, !smt.int, !smt.int
    %fits_n = smt.int.cmp le %tile_n, %size_n
    iree_codegen.smt.assert %fits_n, "tile_n ({}) <= n ({})", %tile_n, %size_n : !smt.bool, !smt.int, !smt.int
    %fits_k = smt.int.cmp le %tile_k, %size_k
    iree_codegen.smt.assert %fits_k, "tile_k ({}) <= k ({})", %tile_k, %size_k : !smt.bool, !smt.int, !smt.int
    %cuts_o1 = smt.int.cmp lt %dist_o1, %size_o1
    iree_codegen.smt.assert %cuts_o1, "dist_o1 ({}) is less than o1 ({}); 0 stands for all", %dist_o1, %size_o1 : !smt.bool, !smt.int, !smt.int
    %covered_n = smt.int.mul %tile_n, %dist_n
    %cuts_n = smt.int.cmp lt %covered_n, %size_n
    iree_codegen.smt.assert %cuts_n, "a workgroup of {} channels is less than n ({}); 0 stands for all", %covered_n, %size_n : !smt.bool, !smt.int, !smt.int

    %narrow = smt.int.cmp lt %size_n, %lane_count
    %whole = smt.int.cmp ge %tile_n, %lane_count
    %vectors_ok = smt.or %narrow, %whole
    iree_codegen.smt.assert %vectors_ok, "tile_n ({}) fills a vector of {} lanes", %tile_n, %lane_count : !smt.bool, !smt.int, !smt.int

    %widened = smt.int.add %tile_n, %lane_count
    %rounded = smt.int.sub %widened, %one
    %vectors = smt.int.div %rounded, %lane_count
    %accumulators = smt.int.mul %tile_o, %vectors
    %usable = smt.int.sub %register_count, %two
    %in_registers = smt.int.cmp le %accumulators, %usable
    iree_codegen.smt.assert %in_registers, "{} accumulators leave two of {} vector registers free", %accumulators, %register_count : !smt.bool, !smt.int, !smt.int

    %tile = smt.int.mul %tile_o, %tile_n, %tile_k, %bytes
    %tile_ok = smt.int.cmp lt %tile, %limit
    iree_codegen.smt.assert %tile_ok, "vector temporaries of {} bytes < {}", %tile, %limit : !smt.bool, !smt.int, !smt.int

    %rest_o = smt.int.mod %size_o, %tile_o
    %rest_n = smt.int.mod %size_n, %tile_n
    %rest_k = smt.int.mod %size_k, %tile_k
    %rest = smt.int.add %rest_o, %rest_n, %rest_k
    %even = smt.eq %rest, %zero : !smt.int
    %no_peel = smt.eq %peel, %zero : !smt.int
    %peel_ok = smt.implies %even, %no_peel
    iree_codegen.smt.assert %peel_ok, "peel ({}) with nothing to peel", %peel : !smt.bool, !smt.int
  }

  transform.named_sequence @match(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    %matched = transform.match.structured failures(propagate) %op : (!transform.any_op) -> !transform.any_op {
    ^bb0(%convolution: !transform.any_op):
      %batch, %image, %channels, %filter, %inputs, %depth, %strides, %dilations =
        transform.match.structured.classify_convolution_dims %convolution
        : (!transform.any_op) -> (!transform.param<i64>, !transform.param<i64>, !transform.param<i64>, !transform.param<i64>,
                                  !transform.param<i64>, !transform.param<i64>, !transform.param<i64>, !transform.param<i64>)
      // Lists of loops; a comparison fails for lists of different lengths, so each of these has one loop.
      %first = transform.param.constant 0 : i64 -> !transform.param<i64>
      transform.match.param.cmpi ge %channels, %first : !transform.param<i64>
      transform.match.param.cmpi ge %inputs, %first : !transform.param<i64>
      transform.match.structured.yield %convolution : !transform.any_op
    }
    transform.yield %matched : !transform.any_op
  }

  transform.named_sequence @schedule(%root: !transform.any_op {transform.readonly}) {
    %function = transform.get_parent_op %root <{op_name = "func.func"}> : (!transform.any_op) -> !transform.any_op
    %translation = transform.param.constant #iree_codegen.translation_info<
        pipeline = #iree_codegen.transform_dialect_codegen codegen_spec = @strategy>
        {mlsearch.bind = "translation_info"} -> !transform.any_param
    transform.annotate %function "translation_info" = %translation : !transform.any_op, !transform.any_param
    transform.yield
  }

  // By then a convolution without a batch has got one, of size 1, as its outermost loop.
  transform.named_sequence @configure(%function: !transform.any_op {transform.readonly}) attributes {mlsearch.bind = "every_op"} {
    %ops = transform.structured.match interface{LinalgOp} in %function : (!transform.any_op) -> !transform.any_op
    %op:2 = transform.split_handle %ops : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %fill = transform.param.constant #iree_cpu.lowering_config<vector_common_parallel = [1, 1, 14, 32]> -> !transform.any_param
    transform.annotate %op#0 "lowering_config" = %fill : !transform.any_op, !transform.any_param
    %convolution = transform.param.constant #iree_cpu.lowering_config<
        distribution = [1, 4, 0, 0, 0, 0, 0], vector_common_parallel = [1, 1, 14, 32, 0, 0, 0],
        vector_reduction = [0, 0, 0, 0, 1, 1, 4]> -> !transform.any_param
    transform.annotate %op#1 "lowering_config" = %convolution : !transform.any_op, !transform.any_param
    transform.yield
  }

  transform.named_sequence @strategy(%module: !transform.any_op) {
    %function = transform.structured.match ops{["func.func"]} in %module : (!transform.any_op) -> !transform.any_op
    transform.include @configure failures(propagate) (%function) : (!transform.any_op) -> ()
    %pipeline = transform.param.constant #iree_codegen.translation_info<
        pipeline = #iree_cpu.pipeline<ConvTileAndDecomposeExpert>> {mlsearch.bind = "pipeline"} -> !transform.any_param
    transform.annotate %function "translation_info" = %pipeline : !transform.any_op, !transform.any_param
    %lowered = transform.apply_registered_pass "iree-llvmcpu-lower-executable-target" to %function : (!transform.any_op) -> !transform.any_op
    %done = transform.param.constant #iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline> -> !transform.any_param
    transform.annotate %lowered "translation_info" = %done : !transform.any_op, !transform.any_param
    transform.yield
  }

  transform.named_sequence @__kernel_config(%function: !transform.any_op {transform.consumed}) -> !transform.any_op {
    %done = transform.foreach_match in %function @match -> @schedule : (!transform.any_op) -> !transform.any_op
    transform.yield %done : !transform.any_op
  }
}
