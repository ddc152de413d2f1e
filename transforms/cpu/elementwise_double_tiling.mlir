// Elementwise ops, broadcasts and transposes through IREE's DoubleTilingExpert pipeline.
//
// Matches    any structured op all of whose loops are parallel, where no template for its own kind applies.
// Leaves     a lowering config on each op and a translation info on the function.
// Knobs      tile_p    elements of the innermost loop in one vector step.
//            tile_p1   iterations of the loop around it, unrolled; for a transpose the other side of the square.
//            dist_p, dist_p1  tiles in a workgroup, 0 for all of the loop.
//            peel      split off remainders, instead of masking the last tile.
// Known failures, which the constraints keep out: vector temporaries of 32 KiB or more fail to bufferize; more vectors
//            in a tile than a few times the registers compile for minutes.
module attributes {mlsearch.fallback, transform.with_named_sequence} {
  %p = arith.constant 1024 : index
  %p1 = arith.constant 1024 : index
  %lanes = arith.constant 16 : index
  %registers = arith.constant 32 : index
  %element_bytes = arith.constant 4 : index
  %wide_lanes = arith.constant 16 : index
  %vector_bytes = arith.constant 64 : index
  %threads = arith.constant 1 : index
  %vector_limit = arith.constant 32768 : index

  iree_codegen.smt.constraints target = <set = 0>, pipeline = #iree_cpu.pipeline<DoubleTilingExpert>,
    knobs = {
      distribution = {
        p1 = [#iree_codegen.smt.int_knob<"tile_p1">, #iree_codegen.smt.int_knob<"dist_p1">],
        p = [#iree_codegen.smt.int_knob<"tile_p">, #iree_codegen.smt.int_knob<"dist_p">]
      },
      vector_common_parallel = {p1 = #iree_codegen.smt.int_knob<"tile_p1">, p = #iree_codegen.smt.int_knob<"tile_p">},
      options = {enable_loop_peeling = #iree_codegen.smt.one_of_knob<"peel", [false, true]>}
    }
    dims(%p, %p1, %lanes, %registers, %element_bytes, %wide_lanes, %vector_bytes, %threads, %vector_limit) attributes {
      mlsearch.dims = ["p", "p1", "lanes", "registers", "element_bytes", "wide_lanes", "vector_bytes", "threads", "vector_limit"],
      mlsearch.domains = {
        tile_p = ["1 .. 8 * vector_bytes"],
        tile_p1 = ["1 .. registers / 2"],
        dist_p = [0, "1 .. 256", "1 .. p / (2 * wide_lanes * threads)"],
        dist_p1 = [0, "1 .. 64", "1 .. p1 / threads"]
      },
      mlsearch.defaults = {tile_p = 64, tile_p1 = 1, dist_p = 0, dist_p1 = 0, peel = false},
      mlsearch.priors = [
        {tile_p = "2 * wide_lanes", tile_p1 = 4, dist_p = 0, dist_p1 = 0},
        {tile_p = "wide_lanes", tile_p1 = "wide_lanes", dist_p = 0, dist_p1 = 0},
        {tile_p = "8 * wide_lanes", tile_p1 = 1, dist_p = 0, dist_p1 = 0},
        {tile_p = "wide_lanes", tile_p1 = 1, dist_p = 256, dist_p1 = 0}
      ]
    } {
  ^bb0(%size_p: !smt.int, %size_p1: !smt.int, %lane_count: !smt.int, %register_count: !smt.int, %bytes: !smt.int,
       %wide_lane_count: !smt.int, %vector_size: !smt.int, %thread_count: !smt.int, %limit: !smt.int):
    %tile_p = iree_codegen.smt.knob "tile_p" : !smt.int
    %tile_p1 = iree_codegen.smt.knob "tile_p1" : !smt.int
    %dist_p = iree_codegen.smt.knob "dist_p" : !smt.int
    %dist_p1 = iree_codegen.smt.knob "dist_p1" : !smt.int
    %peel = iree_codegen.smt.knob "peel" : !smt.int
    %zero = smt.int.constant 0
    %four = smt.int.constant 4

    %fits_p = smt.int.cmp le %tile_p, %size_p
    iree_codegen.smt.assert %fits_p, "tile_p ({}) <= p ({})", %tile_p, %size_p : !smt.bool, !smt.int, !smt.int
    %fits_p1 = smt.int.cmp le %tile_p1, %size_p1
    iree_codegen.smt.assert %fits_p1, "tile_p1 ({}) <= p1 ({})", %tile_p1, %size_p1 : !smt.bool, !smt.int, !smt.int

    %narrow = smt.int.cmp lt %size_p, %lane_count
    %whole = smt.int.cmp ge %tile_p, %lane_count
    %vectors_ok = smt.or %narrow, %whole
    iree_codegen.smt.assert %vectors_ok, "tile_p ({}) fills a vector of {} lanes", %tile_p, %lane_count : !smt.bool, !smt.int, !smt.int

    %tile = smt.int.mul %tile_p, %tile_p1, %bytes
    %tile_ok = smt.int.cmp lt %tile, %limit
    iree_codegen.smt.assert %tile_ok, "vector temporaries of {} bytes < {}", %tile, %limit : !smt.bool, !smt.int, !smt.int
    %most = smt.int.mul %register_count, %lane_count, %four
    %volume = smt.int.mul %tile_p, %tile_p1
    %volume_ok = smt.int.cmp le %volume, %most
    iree_codegen.smt.assert %volume_ok, "{} elements in a tile <= {}, four times the registers", %volume, %most : !smt.bool, !smt.int, !smt.int

    %covered_p = smt.int.mul %tile_p, %dist_p
    %cuts_p = smt.int.cmp lt %covered_p, %size_p
    iree_codegen.smt.assert %cuts_p, "a workgroup of {} is less than p ({}); 0 stands for all", %covered_p, %size_p : !smt.bool, !smt.int, !smt.int
    %covered_p1 = smt.int.mul %tile_p1, %dist_p1
    %cuts_p1 = smt.int.cmp lt %covered_p1, %size_p1
    iree_codegen.smt.assert %cuts_p1, "a workgroup of {} is less than p1 ({}); 0 stands for all", %covered_p1, %size_p1 : !smt.bool, !smt.int, !smt.int

    %rest_p = smt.int.mod %size_p, %tile_p
    %rest_p1 = smt.int.mod %size_p1, %tile_p1
    %rest = smt.int.add %rest_p, %rest_p1
    %even = smt.eq %rest, %zero : !smt.int
    %no_peel = smt.eq %peel, %zero : !smt.int
    %peel_ok = smt.implies %even, %no_peel
    iree_codegen.smt.assert %peel_ok, "peel ({}) with nothing to peel", %peel : !smt.bool, !smt.int
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
    %config = transform.param.constant #iree_cpu.lowering_config<
        distribution = [0, 0], vector_common_parallel = [1, 64]>
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
