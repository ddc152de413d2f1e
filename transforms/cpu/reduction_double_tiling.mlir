// Reductions and chains of them (sums and maxima over rows or columns, softmax, layer and RMS normalization) through
// IREE's DoubleTilingExpert pipeline.
//
// Matches    any structured op whose innermost loop is a reduction, where no template for its own kind applies; not
//            windows such as poolings, whose loops have other roles and would all be cut to one. The other ops of the
//            dispatch get the same tiles, each as far as its loops move together with those of the root op: IREE makes no choice for them any more once one op has a config.
// Leaves     a lowering config on each op and a translation info on the function.
// Knobs      tile_p    rows (or columns) reduced side by side.
//            tile_r    elements of a row in one step of the reduction.
//            tile_in   the same for ops that run along the reduced loop in parallel, e.g. the last op of a softmax.
//            dist_p    tiles in a workgroup, 0 for all of the loop.
//            peel      split off remainders, instead of masking the last tile.
// Known failures, which the constraints keep out: vector temporaries of 32 KiB or more fail to bufferize; more vectors
//            in a tile than a few times the registers compile for minutes.
module attributes {mlsearch.fallback, transform.with_named_sequence} {
  %p = arith.constant 1024 : index
  %r = arith.constant 1024 : index
  %inner = arith.constant 1 : index
  %lanes = arith.constant 16 : index
  %registers = arith.constant 32 : index
  %element_bytes = arith.constant 4 : index
  %wide_lanes = arith.constant 16 : index
  %vector_bytes = arith.constant 64 : index
  %threads = arith.constant 1 : index
  %vector_limit = arith.constant 32768 : index

  iree_codegen.smt.constraints target = <set = 0>, pipeline = #iree_cpu.pipeline<DoubleTilingExpert>,
    knobs = {
      distribution = {p = [#iree_codegen.smt.int_knob<"tile_p">, #iree_codegen.smt.int_knob<"dist_p">]},
      vector_common_parallel = {p = #iree_codegen.smt.int_knob<"tile_p">},
      vector_reduction = {r = #iree_codegen.smt.int_knob<"tile_r">},
      vector_inner_parallel = {r = #iree_codegen.smt.int_knob<"tile_in">},
      options = {enable_loop_peeling = #iree_codegen.smt.one_of_knob<"peel", [false, true]>}
    }
    dims(%p, %r, %inner, %lanes, %registers, %element_bytes, %wide_lanes, %vector_bytes, %threads, %vector_limit) attributes {
      mlsearch.dims = ["p", "r", "inner", "lanes", "registers", "element_bytes", "wide_lanes", "vector_bytes", "threads", "vector_limit"],
      mlsearch.domains = {
        tile_p = ["1 .. 4 * vector_bytes"],
        tile_r = ["1 .. 16 * vector_bytes"],
        tile_in = [1, "4 .. 16 * vector_bytes"],
        dist_p = [0, "1 .. 64", "1 .. p / (8 * threads)"]
      },
      mlsearch.defaults = {tile_p = 8, tile_r = 16, tile_in = 1, dist_p = 4, peel = false},
      mlsearch.priors = [
        {tile_p = 4, tile_r = "4 * wide_lanes", tile_in = "4 * wide_lanes", dist_p = 0},
        {tile_p = 8, tile_r = "2 * wide_lanes", tile_in = "2 * wide_lanes", dist_p = 0},
        {tile_p = 1, tile_r = "registers * wide_lanes / 2", tile_in = "registers * wide_lanes / 2", dist_p = 0},
        {tile_p = "4 * wide_lanes", tile_r = 1, tile_in = 1, dist_p = 0},
        {tile_p = "8 * wide_lanes", tile_r = 4, tile_in = 1, dist_p = 1}
      ]
    } {
  ^bb0(%size_p: !smt.int, %size_r: !smt.int, %size_inner: !smt.int, %lane_count: !smt.int, %register_count: !smt.int,
       %bytes: !smt.int,
       %wide_lane_count: !smt.int, %vector_size: !smt.int, %thread_count: !smt.int, %limit: !smt.int):
    %tile_p = iree_codegen.smt.knob "tile_p" : !smt.int
    %tile_r = iree_codegen.smt.knob "tile_r" : !smt.int
    %tile_in = iree_codegen.smt.knob "tile_in" : !smt.int
    %dist_p = iree_codegen.smt.knob "dist_p" : !smt.int
    %peel = iree_codegen.smt.knob "peel" : !smt.int
    %zero = smt.int.constant 0
    %four = smt.int.constant 4

    %fits_p = smt.int.cmp le %tile_p, %size_p
    iree_codegen.smt.assert %fits_p, "tile_p ({}) <= p ({})", %tile_p, %size_p : !smt.bool, !smt.int, !smt.int
    %fits_r = smt.int.cmp le %tile_r, %size_r
    iree_codegen.smt.assert %fits_r, "tile_r ({}) <= r ({})", %tile_r, %size_r : !smt.bool, !smt.int, !smt.int
    %fits_in = smt.int.cmp le %tile_in, %size_inner
    iree_codegen.smt.assert %fits_in, "tile_in ({}) <= {}, the parallel loop along r", %tile_in, %size_inner : !smt.bool, !smt.int, !smt.int

    %tile = smt.int.mul %tile_p, %tile_r, %bytes
    %tile_ok = smt.int.cmp lt %tile, %limit
    iree_codegen.smt.assert %tile_ok, "vector temporaries of {} bytes < {}", %tile, %limit : !smt.bool, !smt.int, !smt.int
    %inner_tile = smt.int.mul %tile_p, %tile_in, %bytes
    %inner_ok = smt.int.cmp lt %inner_tile, %limit
    iree_codegen.smt.assert %inner_ok, "vector temporaries of {} bytes < {} in the parallel ops", %inner_tile, %limit : !smt.bool, !smt.int, !smt.int

    // Unrolled code grows with the vectors in a tile.
    %most = smt.int.mul %register_count, %lane_count, %four
    %volume = smt.int.mul %tile_p, %tile_r
    %volume_ok = smt.int.cmp le %volume, %most
    iree_codegen.smt.assert %volume_ok, "{} elements in a tile <= {}, four times the registers", %volume, %most : !smt.bool, !smt.int, !smt.int
    %inner_volume = smt.int.mul %tile_p, %tile_in
    %inner_volume_ok = smt.int.cmp le %inner_volume, %most
    iree_codegen.smt.assert %inner_volume_ok, "{} elements in a tile of the parallel ops <= {}", %inner_volume, %most : !smt.bool, !smt.int, !smt.int

    %covered = smt.int.mul %tile_p, %dist_p
    %cuts = smt.int.cmp lt %covered, %size_p
    iree_codegen.smt.assert %cuts, "a workgroup of {} is less than p ({}); 0 stands for all", %covered, %size_p : !smt.bool, !smt.int, !smt.int

    %rest_p = smt.int.mod %size_p, %tile_p
    %rest_r = smt.int.mod %size_r, %tile_r
    %rest_in = smt.int.mod %size_inner, %tile_in
    %rest = smt.int.add %rest_p, %rest_r, %rest_in
    %even = smt.eq %rest, %zero : !smt.int
    %no_peel = smt.eq %peel, %zero : !smt.int
    %peel_ok = smt.implies %even, %no_peel
    iree_codegen.smt.assert %peel_ok, "peel ({}) with nothing to peel", %peel : !smt.bool, !smt.int
  }

  transform.named_sequence @match(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    %matched = transform.match.structured failures(propagate) %op : (!transform.any_op) -> !transform.any_op {
    ^bb0(%reduction: !transform.any_op):
      "transform.match.structured.dim"(%reduction) <{raw_dim_list = array<i64: -1>, reduction}> : (!transform.any_op) -> ()
      // A window reads its input at a sum of two loops.
      "transform.match.structured.input"(%reduction) <{raw_position_list = array<i64>, is_all, projected_permutation}> : (!transform.any_op) -> ()
      transform.match.structured.yield %reduction : !transform.any_op
    }
    transform.yield %matched : !transform.any_op
  }

  transform.named_sequence @schedule(%root: !transform.any_op {transform.readonly}) {
    %config = transform.param.constant #iree_cpu.lowering_config<
        distribution = [32, 0], vector_common_parallel = [8, 0], vector_reduction = [0, 16],
        vector_inner_parallel = [0, 1]>
        {mlsearch.bind = "lowering_config"} -> !transform.any_param
    transform.annotate %root "lowering_config" = %config : !transform.any_op, !transform.any_param
    %function = transform.get_parent_op %root <{op_name = "func.func"}> : (!transform.any_op) -> !transform.any_op
    %translation = transform.param.constant #iree_codegen.translation_info<
        pipeline = #iree_cpu.pipeline<DoubleTilingExpert>>
        {mlsearch.bind = "translation_info"} -> !transform.any_param
    transform.annotate %function "translation_info" = %translation : !transform.any_op, !transform.any_param
    transform.yield
  }

  transform.named_sequence @__kernel_config(%function: !transform.any_op {transform.consumed}) -> !transform.any_op {
    %done = transform.foreach_match in %function @match -> @schedule : (!transform.any_op) -> !transform.any_op
    transform.yield %done : !transform.any_op
  }
}
