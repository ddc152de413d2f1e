// Contractions (matmul, batch matmul, matvec, vecmat, transposed operands, as named ops or generics) through IREE's
// DoubleTilingExpert pipeline.
//
// Matches    any contraction with an `m`, an `n` or a `k` loop: multiply and add, of floats or integers, with casts
//            of the operands if there are any. Elementwise ops fused before or after it follow its tiles.
// Leaves     a lowering config on the contraction and a translation info on the function. IREE does the rest.
// Knobs      tile_m, tile_n   register tile: tile_m x tile_n accumulators stay in registers over the k loop.
//            step_k           iterations of k in one vector step, unrolled.
//            cache_m, cache_n register tiles in a cache tile, 0 for no cache level; cache_order which loop is outside.
//            cache_k          k iterations after which the accumulators go back to memory, 0 for never.
//            dist_m, dist_n   cache tiles in a workgroup, 0 for all of the loop.
//            after_m          rows of the register tile that what is fused behind the contraction takes at a time, 0 for
//                             all. A long computation such as GELU needs the registers for itself: 24 vectors of 16 at
//                             once go through the stack, 4 hardly do.
//            peel             split off remainders, instead of masking the last tile at every step of k.
// Known failures, which the constraints keep out: a register tile, or the tile around it, of 512 vector registers or
//            more is refused, and so are more than 32 KiB of cache tiles on the stack, where another op is fused behind
//            it and k is cut (docs/templates.md, "When a build fails"); register tiles that do not fit into the vector
//            registers spill in the innermost loop; a width that is no power of two is shuffled together.
module attributes {transform.with_named_sequence} {
  %m = arith.constant 512 : index
  %n = arith.constant 512 : index
  %k = arith.constant 512 : index
  %lanes = arith.constant 16 : index
  %registers = arith.constant 32 : index
  %element_bytes = arith.constant 4 : index
  %wide_lanes = arith.constant 16 : index
  %vector_bytes = arith.constant 64 : index
  %l1_bytes = arith.constant 49152 : index
  %l2_bytes = arith.constant 1048576 : index
  %threads = arith.constant 1 : index
  %vector_limit = arith.constant 32768 : index
  %consumers = arith.constant 0 : index

  iree_codegen.smt.constraints target = <set = 0>, pipeline = #iree_cpu.pipeline<DoubleTilingExpert>,
    knobs = {
      distribution = {
        m = [#iree_codegen.smt.int_knob<"tile_m">, #iree_codegen.smt.int_knob<"cache_m">, #iree_codegen.smt.int_knob<"dist_m">],
        n = [#iree_codegen.smt.int_knob<"tile_n">, #iree_codegen.smt.int_knob<"cache_n">, #iree_codegen.smt.int_knob<"dist_n">]
      },
      cache_parallel = {
        m = [#iree_codegen.smt.int_knob<"tile_m">, #iree_codegen.smt.int_knob<"cache_m">],
        n = [#iree_codegen.smt.int_knob<"tile_n">, #iree_codegen.smt.int_knob<"cache_n">],
        order = #iree_codegen.smt.one_of_knob<"cache_order", [["m", "n"], ["n", "m"]]>
      },
      cache_reduction = {k = #iree_codegen.smt.int_knob<"cache_k">},
      vector_common_parallel = {m = #iree_codegen.smt.int_knob<"tile_m">, n = #iree_codegen.smt.int_knob<"tile_n">},
      vector_reduction = {k = #iree_codegen.smt.int_knob<"step_k">},
      consumers = {m = #iree_codegen.smt.int_knob<"after_m">},
      options = {enable_loop_peeling = #iree_codegen.smt.one_of_knob<"peel", [false, true]>}
    }
    dims(%m, %n, %k, %lanes, %registers, %element_bytes, %wide_lanes, %vector_bytes, %l1_bytes, %l2_bytes, %threads, %vector_limit, %consumers) attributes {
      mlsearch.dims = ["m", "n", "k", "lanes", "registers", "element_bytes", "wide_lanes", "vector_bytes", "l1_bytes", "l2_bytes", "threads", "vector_limit", "consumers"],
      mlsearch.domains = {
        tile_m = [1, 2, 3, 4, 5, 6, 7, 8, "registers / 4 + 2", "(registers - 8) / 2", "(registers - 4) / 2", "registers / 2"],
        tile_n = [1, "4 .. registers * wide_lanes"],
        step_k = [1, 2, 4, 8, 16],
        cache_m = [0, 1, 2, 4, 8, 16],
        cache_n = [0, 1, 2, 4, 8, 16],
        cache_k = [0, "64 .. l1_bytes / vector_bytes", "64 .. l2_bytes / (32 * vector_bytes)"],
        after_m = [0, 1, 2],
        dist_m = [0, 1, 4, 16, "64 .. m / (2 * registers * threads)"],
        dist_n = [0, 1, 4, 16, "64 .. n / (2 * wide_lanes * threads)"]
      },
      mlsearch.defaults = {
        tile_m = 8, tile_n = 32, step_k = 4, cache_m = 8, cache_n = 1, cache_k = 256,
        cache_order = ["m", "n"], dist_m = 0, dist_n = 0, after_m = 0, peel = false
      },
      mlsearch.priors = [
        {tile_m = "(registers - 8) / 2", tile_n = "2 * wide_lanes", step_k = 8, cache_m = 8, cache_n = 2, cache_k = 0, dist_m = 4, dist_n = 1, peel = true},
        {tile_m = "(registers - 8) / 2", tile_n = "2 * wide_lanes", step_k = 1, cache_m = 4, cache_n = 2, cache_k = "l1_bytes / (2 * vector_bytes)", dist_m = 0, dist_n = 1, after_m = "registers / 16", peel = true},
        {tile_m = "(registers - 8) / 2", tile_n = "2 * wide_lanes", step_k = 1, cache_m = 2, cache_n = 4, cache_k = "l1_bytes / (2 * vector_bytes)", dist_m = 0, dist_n = 0, after_m = "registers / 16", peel = true},
        {tile_m = "(registers - 8) / 4", tile_n = "4 * wide_lanes", step_k = 1, cache_m = 0, cache_n = 1, cache_k = 0, dist_m = 0, dist_n = 1, after_m = 1, peel = true},
        {tile_m = "(registers - 8) / 4", tile_n = "4 * wide_lanes", step_k = 2, cache_m = 16, cache_n = 1, cache_k = "l2_bytes / (32 * vector_bytes)", dist_m = 0, dist_n = 0, peel = true},
        {tile_m = "registers / 4 - 1", tile_n = "2 * wide_lanes", step_k = 1, cache_m = 8, cache_n = 1, cache_k = "l1_bytes / (2 * vector_bytes)", dist_m = 0, dist_n = 1, peel = true},
        {tile_m = "registers / 4", tile_n = "2 * wide_lanes", step_k = 4, cache_m = 8, cache_n = 2, cache_k = "l1_bytes / (2 * vector_bytes)", dist_m = 4, dist_n = 1, after_m = "registers / 16", peel = false},
        {tile_m = "(registers - 4) / 2", tile_n = "2 * wide_lanes", step_k = 1, cache_m = 4, cache_n = 2, cache_k = "l1_bytes / (2 * vector_bytes)", dist_m = 0, dist_n = 1, peel = true},
        {tile_m = 6, tile_n = "2 * wide_lanes", step_k = 8, cache_m = 16, cache_n = 1, cache_k = "l1_bytes / (8 * vector_bytes)", dist_m = 16, dist_n = 1, peel = true},
        {tile_m = 6, tile_n = "wide_lanes", step_k = 1, cache_m = 8, cache_n = 2, cache_k = "l1_bytes / (2 * vector_bytes)", dist_m = 0, dist_n = 1, peel = true},
        {tile_m = 1, tile_n = "registers * wide_lanes / 2", step_k = 2, cache_m = 1, cache_n = 4, cache_k = 64, dist_m = 0, dist_n = 0, peel = false},
        {tile_m = 1, tile_n = "registers * wide_lanes / 2", step_k = 1, cache_m = 1, cache_n = 1, cache_k = 0, dist_m = 0, dist_n = 1, peel = false}
      ]
    } {
  ^bb0(%size_m: !smt.int, %size_n: !smt.int, %size_k: !smt.int, %lane_count: !smt.int,
       %register_count: !smt.int, %bytes: !smt.int,
       %wide_lane_count: !smt.int, %vector_size: !smt.int, %l1_size: !smt.int, %l2_size: !smt.int, %thread_count: !smt.int, %limit: !smt.int, %consumer_count: !smt.int):
    %tile_m = iree_codegen.smt.knob "tile_m" : !smt.int
    %tile_n = iree_codegen.smt.knob "tile_n" : !smt.int
    %step_k = iree_codegen.smt.knob "step_k" : !smt.int
    %cache_m = iree_codegen.smt.knob "cache_m" : !smt.int
    %cache_n = iree_codegen.smt.knob "cache_n" : !smt.int
    %cache_k = iree_codegen.smt.knob "cache_k" : !smt.int
    %cache_order = iree_codegen.smt.knob "cache_order" : !smt.int
    %dist_m = iree_codegen.smt.knob "dist_m" : !smt.int
    %dist_n = iree_codegen.smt.knob "dist_n" : !smt.int
    %after_m = iree_codegen.smt.knob "after_m" : !smt.int
    %peel = iree_codegen.smt.knob "peel" : !smt.int
    %zero = smt.int.constant 0
    %one = smt.int.constant 1
    %two = smt.int.constant 2
    %four = smt.int.constant 4
    %stack = smt.int.constant 32768

    // A tile never reaches beyond its loop, but for the one that covers it all.
    %twice_m = smt.int.mul %size_m, %two
    %fits_m = smt.int.cmp lt %tile_m, %twice_m
    iree_codegen.smt.assert %fits_m, "tile_m ({}) covers the m loop ({}) less than twice", %tile_m, %size_m : !smt.bool, !smt.int, !smt.int
    %fits_n = smt.int.cmp le %tile_n, %size_n
    iree_codegen.smt.assert %fits_n, "tile_n ({}) <= n ({})", %tile_n, %size_n : !smt.bool, !smt.int, !smt.int
    %fits_k = smt.int.cmp le %step_k, %size_k
    iree_codegen.smt.assert %fits_k, "step_k ({}) <= k ({})", %step_k, %size_k : !smt.bool, !smt.int, !smt.int
    %fits_cache_k = smt.int.cmp lt %cache_k, %size_k
    iree_codegen.smt.assert %fits_cache_k, "cache_k ({}) < k ({})", %cache_k, %size_k : !smt.bool, !smt.int, !smt.int

    // Whole vectors, unless the loop is narrower than one.
    %narrow = smt.int.cmp lt %size_n, %lane_count
    %whole = smt.int.cmp ge %tile_n, %lane_count
    %vectors_ok = smt.or %narrow, %whole
    iree_codegen.smt.assert %vectors_ok, "tile_n ({}) fills a vector of {} lanes", %tile_n, %lane_count : !smt.bool, !smt.int, !smt.int

    // Accumulators, one row of the right operand and a broadcast element share the registers.
    %widened = smt.int.add %tile_n, %lane_count
    %rounded = smt.int.sub %widened, %one
    %vectors = smt.int.div %rounded, %lane_count
    %accumulators = smt.int.mul %tile_m, %vectors
    %usable = smt.int.sub %register_count, %two
    %in_registers = smt.int.cmp le %accumulators, %usable
    iree_codegen.smt.assert %in_registers, "{} accumulators leave two of {} vector registers free", %accumulators, %register_count : !smt.bool, !smt.int, !smt.int

    // IREE refuses a vector of that size. The products of a register tile are one; so is the cache tile that sums start
    // from, if they go back to memory between parts of k. Found exact on 640 assignments.
    %tile = smt.int.mul %tile_m, %tile_n, %step_k, %bytes
    %tile_ok = smt.int.cmp lt %tile, %limit
    iree_codegen.smt.assert %tile_ok, "vector temporaries of {} bytes < {}", %tile, %limit : !smt.bool, !smt.int, !smt.int
    %across_m = smt.int.mul %tile_m, %cache_m
    %across_n = smt.int.mul %tile_n, %cache_n
    %has_m = smt.int.cmp gt %cache_m, %zero
    %has_n = smt.int.cmp gt %cache_n, %zero
    %cut_m = smt.int.cmp lt %across_m, %size_m
    %cut_n = smt.int.cmp lt %across_n, %size_n
    %is_cut_m = smt.and %has_m, %cut_m
    %is_cut_n = smt.and %has_n, %cut_n
    %extent_m = smt.ite %is_cut_m, %across_m, %size_m : !smt.int
    %extent_n = smt.ite %is_cut_n, %across_n, %size_n : !smt.int
    %cache_tile = smt.int.mul %extent_m, %extent_n, %bytes
    %cuts_k = smt.int.cmp gt %cache_k, %zero
    %small_tile = smt.int.cmp lt %cache_tile, %limit
    %cache_ok = smt.implies %cuts_k, %small_tile
    iree_codegen.smt.assert %cache_ok, "a cache tile of {} bytes < {}", %cache_tile, %limit : !smt.bool, !smt.int, !smt.int

    // Where the k loop is cut at the cache level, what is fused behind the contraction waits for it, and cache tiles are
    // kept on the stack: two where all are of one size, three where the last one along m is smaller; with peeling the
    // smaller ones have buffers of their own. Measured on 305 assignments of nine such dispatches; where tiles along n
    // differ and are peeled, four are more than enough.
    %waits = smt.int.cmp gt %consumer_count, %zero
    %buffered = smt.and %waits, %cuts_k
    %three = smt.int.constant 3
    %five = smt.int.constant 5
    %spread_m = smt.int.mul %extent_m, %dist_m
    %spread_n = smt.int.mul %extent_n, %dist_n
    %shares_m = smt.int.cmp gt %spread_m, %zero
    %shares_n = smt.int.cmp gt %spread_n, %zero
    %inside_m = smt.int.cmp lt %spread_m, %size_m
    %inside_n = smt.int.cmp lt %spread_n, %size_n
    %in_groups_m = smt.and %shares_m, %inside_m
    %in_groups_n = smt.and %shares_n, %inside_n
    %group_m = smt.ite %in_groups_m, %spread_m, %size_m : !smt.int
    %group_n = smt.ite %in_groups_n, %spread_n, %size_n : !smt.int
    %steps_m = smt.int.cmp lt %extent_m, %group_m
    %steps_n = smt.int.cmp lt %extent_n, %group_n
    %left_m = smt.int.mod %size_m, %extent_m
    %left_n = smt.int.mod %size_n, %extent_n
    %left_groups = smt.int.mod %size_m, %group_m
    %lefts_m = smt.int.add %left_m, %left_groups
    %even_m = smt.eq %lefts_m, %zero : !smt.int
    %even_n = smt.eq %left_n, %zero : !smt.int
    %steps = smt.or %steps_m, %steps_n
    %even_tiles = smt.ite %steps, %two, %one : !smt.int
    %ragged_tiles = smt.ite %steps_n, %three, %one : !smt.int
    %tiles_m = smt.ite %even_m, %even_tiles, %ragged_tiles : !smt.int
    %tiles = smt.ite %even_n, %tiles_m, %one : !smt.int
    %masked_bytes = smt.int.mul %tiles, %cache_tile
    %row = smt.int.mul %extent_n, %bytes
    %left = smt.int.mul %left_m, %row
    %lefts = smt.ite %steps_n, %two, %one : !smt.int
    %left_bytes = smt.int.mul %lefts, %left
    %two_tiles = smt.int.mul %two, %cache_tile
    %known_bytes = smt.int.add %two_tiles, %left_bytes
    %three_rows = smt.int.mul %three, %row
    %five_tiles = smt.int.mul %five, %cache_tile
    %many_bytes = smt.int.sub %five_tiles, %three_rows
    %few_bytes = smt.int.sub %two_tiles, %row
    %unknown_bytes = smt.ite %steps_n, %many_bytes, %few_bytes : !smt.int
    %undivided_m = smt.eq %group_m, %size_m : !smt.int
    %is_known = smt.or %undivided_m, %even_m
    %even_n_bytes = smt.ite %is_known, %known_bytes, %unknown_bytes : !smt.int
    %four_tiles = smt.int.mul %four, %cache_tile
    %peeled_bytes = smt.ite %even_n, %even_n_bytes, %four_tiles : !smt.int
    %peels = smt.eq %peel, %one : !smt.int
    %buffers = smt.ite %peels, %peeled_bytes, %masked_bytes : !smt.int
    %buffers_fit = smt.int.cmp le %buffers, %stack
    %buffers_ok = smt.implies %buffered, %buffers_fit
    iree_codegen.smt.assert %buffers_ok, "{} bytes of cache tiles between the k loop and what is fused behind it <= 32768 of stack", %buffers : !smt.bool, !smt.int

    // A loop that the cache tile covers has nothing left to order or to distribute.
    %covers_m = smt.int.cmp ge %across_m, %size_m
    %covers_n = smt.int.cmp ge %across_n, %size_n
    %no_dist_m = smt.eq %dist_m, %zero : !smt.int
    %no_dist_n = smt.eq %dist_n, %zero : !smt.int
    %uncut_m = smt.eq %cache_m, %zero : !smt.int
    %uncut_n = smt.eq %cache_n, %zero : !smt.int
    %whole_m = smt.or %covers_m, %uncut_m
    %whole_n = smt.or %covers_n, %uncut_n
    %dist_m_ok = smt.implies %whole_m, %no_dist_m
    iree_codegen.smt.assert %dist_m_ok, "dist_m ({}) cuts an m loop that is whole in a cache tile", %dist_m : !smt.bool, !smt.int
    %dist_n_ok = smt.implies %whole_n, %no_dist_n
    iree_codegen.smt.assert %dist_n_ok, "dist_n ({}) cuts an n loop that is whole in a cache tile", %dist_n : !smt.bool, !smt.int
    %plain_order = smt.eq %cache_order, %zero : !smt.int
    %one_tile = smt.or %whole_m, %whole_n
    %order_ok = smt.implies %one_tile, %plain_order
    iree_codegen.smt.assert %order_ok, "cache_order ({}) with a single cache tile along m or n", %cache_order : !smt.bool, !smt.int

    // What comes after the contraction takes whole parts of its register tile, if there is anything.
    %splits = smt.int.cmp gt %after_m, %zero
    %has_consumers = smt.int.cmp gt %consumer_count, %zero
    %after_ok = smt.implies %splits, %has_consumers
    iree_codegen.smt.assert %after_ok, "after_m ({}) with nothing after the contraction", %after_m : !smt.bool, !smt.int
    %part = smt.ite %splits, %after_m, %one : !smt.int
    %parts_left = smt.int.mod %tile_m, %part
    %parts_even = smt.eq %parts_left, %zero : !smt.int
    %is_part = smt.int.cmp lt %after_m, %tile_m
    %part_ok = smt.and %parts_even, %is_part
    iree_codegen.smt.assert %part_ok, "after_m ({}) is a part of tile_m ({})", %after_m, %tile_m : !smt.bool, !smt.int, !smt.int

    // Nothing to peel when all tiles divide their loops.
    %rest_m = smt.int.mod %size_m, %tile_m
    %rest_n = smt.int.mod %size_n, %tile_n
    %rest_k = smt.int.mod %size_k, %step_k
    %rest = smt.int.add %rest_m, %rest_n, %rest_k
    %even = smt.eq %rest, %zero : !smt.int
    %no_peel = smt.eq %peel, %zero : !smt.int
    %peel_ok = smt.implies %even, %no_peel
    iree_codegen.smt.assert %peel_ok, "peel ({}) with nothing to peel", %peel : !smt.bool, !smt.int
  }

  transform.named_sequence @match_floats(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    %matched = transform.match.structured failures(propagate) %op : (!transform.any_op) -> !transform.any_op {
    ^bb0(%contraction: !transform.any_op):
      // Convolutions multiply and add as well, but read their input at a sum of two loops.
      "transform.match.structured.input"(%contraction) <{raw_position_list = array<i64>, is_all, projected_permutation}> : (!transform.any_op) -> ()
      "transform.match.structured.body"(%contraction) <{contraction = ["arith.mulf", "arith.addf"]}> : (!transform.any_op) -> ()
      transform.match.structured.yield %contraction : !transform.any_op
    }
    transform.yield %matched : !transform.any_op
  }

  transform.named_sequence @match_integers(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    %matched = transform.match.structured failures(propagate) %op : (!transform.any_op) -> !transform.any_op {
    ^bb0(%contraction: !transform.any_op):
      // Convolutions multiply and add as well, but read their input at a sum of two loops.
      "transform.match.structured.input"(%contraction) <{raw_position_list = array<i64>, is_all, projected_permutation}> : (!transform.any_op) -> ()
      "transform.match.structured.body"(%contraction) <{contraction = ["arith.muli", "arith.addi"]}> : (!transform.any_op) -> ()
      transform.match.structured.yield %contraction : !transform.any_op
    }
    transform.yield %matched : !transform.any_op
  }

  transform.named_sequence @schedule(%root: !transform.any_op {transform.readonly}) {
    %config = transform.param.constant #iree_cpu.lowering_config<
        distribution = [0, 0, 0], cache_parallel = [64, 32, 0], cache_reduction = [0, 0, 256],
        vector_common_parallel = [8, 32, 0], vector_reduction = [0, 0, 4]>
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
    %done = transform.foreach_match in %function
        @match_floats -> @schedule, @match_integers -> @schedule : (!transform.any_op) -> !transform.any_op
    transform.yield %done : !transform.any_op
  }
}
