// Reductions along rows and chains of them (sums, maxima, softmax, layer and RMS normalization), by a strategy that
// keeps many partial results of a row in vector registers and combines them once, at the row's end.
//
// IREE's own lowering adds the elements of each vector to a scalar, one after the other, since it must keep the order
// of the additions: 16 dependent scalar additions for each vector of 16 elements. Here element i of a tile is added to
// partial result i, so that an addition is one vector instruction and several of them are in flight. Sums are then
// added in another order; maxima and the like are the same.
//
// Matches    any structured op whose innermost loop is a reduction and that has one result, where no template for
//            its own kind applies, and whose inputs lie in memory along that loop. The other ops of the dispatch run on
//            the same rows, which so stay in the first-level cache from one pass to the next.
// Leaves     lowered code: the strategy cuts the dispatch into rows, the reductions into partial ones and the other ops
//            into vectors, runs IREE's passes from vectorization on, and marks the function as done.
// Knobs      tile_p    rows reduced side by side; each has its own partial results.
//            tile_r    partial results of a row, also the elements of one step.
//            tile_in   elements of a row in one step of the ops that run along the reduced loop in parallel.
//            dist_p    tiles of rows in a workgroup, 0 for all.
//            stored    1: exponentials that a sum and a later op both need, as in a softmax, are computed once and kept in
//                      first-level cache; 0: each op computes its own.
// Known failures, which the constraints keep out: partial results beyond the registers are loaded and stored in each
//            step, and far beyond them compile for minutes. It works behind the transform library flag only.
//            A reduction of several results, of 16-bit elements, or by anything but one associative operation of
//            `arith` (sums, products, maxima, bitwise ones), can't be cut this way. What is stored takes 32 KiB
//            at most, IREE's limit for the stack, and its tiles divide their loops.
module attributes {mlsearch.fallback, mlsearch.strategy, transform.with_named_sequence} {
  %p = arith.constant 1024 : index
  %r = arith.constant 1024 : index
  %inner = arith.constant 1024 : index
  %rows_contiguous = arith.constant 1 : index
  %lanes = arith.constant 16 : index
  %registers = arith.constant 32 : index
  %element_bytes = arith.constant 4 : index
  %wide_lanes = arith.constant 16 : index
  %exponentials = arith.constant 2 : index
  %vector_bytes = arith.constant 64 : index
  %threads = arith.constant 1 : index
  %partial_results = arith.constant 1 : index

  iree_codegen.smt.constraints target = <set = 0>, pipeline = #iree_cpu.pipeline<DoubleTilingExpert>,
    knobs = {
      distribution = {p = [#iree_codegen.smt.int_knob<"tile_p">, #iree_codegen.smt.int_knob<"dist_p">]},
      vector_common_parallel = {p = #iree_codegen.smt.int_knob<"tile_p">},
      vector_reduction = {r = #iree_codegen.smt.int_knob<"tile_r">},
      vector_inner_parallel = {r = #iree_codegen.smt.int_knob<"tile_in">},
      exponentials = {stored = #iree_codegen.smt.int_knob<"stored">}
    }
    dims(%p, %r, %inner, %rows_contiguous, %lanes, %registers, %element_bytes, %wide_lanes, %exponentials, %vector_bytes, %threads, %partial_results) attributes {
      mlsearch.dims = ["p", "r", "inner", "rows_contiguous", "lanes", "registers", "element_bytes", "wide_lanes",
                       "exponentials", "vector_bytes", "threads", "partial_results"],
      mlsearch.domains = {
        tile_p = ["1 .. registers / 2"],
        tile_r = ["4 .. 16 * vector_bytes"],
        tile_in = [1, "4 .. 16 * vector_bytes"],
        dist_p = [0, "1 .. 128", "1 .. p / (8 * threads)"],
        stored = [0, 1]
      },
      mlsearch.defaults = {tile_p = 4, tile_r = 32, tile_in = 32, dist_p = 16, stored = 0},
      mlsearch.priors = [
        {tile_p = 4, tile_r = "4 * wide_lanes", tile_in = "2 * wide_lanes", dist_p = 16, stored = 1},
        {tile_p = 2, tile_r = "registers * wide_lanes / 4", tile_in = "4 * wide_lanes", dist_p = 0, stored = 1},
        {tile_p = 4, tile_r = "2 * wide_lanes", tile_in = "2 * wide_lanes", dist_p = 0},
        {tile_p = 2, tile_r = "registers * wide_lanes / 4", tile_in = "4 * wide_lanes", dist_p = 16},
        {tile_p = 1, tile_r = "4 * wide_lanes", tile_in = "4 * wide_lanes", dist_p = 0},
        {tile_p = 1, tile_r = "registers * wide_lanes / 2", tile_in = "8 * wide_lanes", dist_p = 64},
        {tile_p = 2, tile_r = "4 * wide_lanes", tile_in = "4 * wide_lanes", dist_p = 0},
        {tile_p = 2, tile_r = "registers * wide_lanes / 4", tile_in = "4 * wide_lanes", dist_p = 0}
      ]
    } {
  ^bb0(%size_p: !smt.int, %size_r: !smt.int, %size_inner: !smt.int, %contiguous: !smt.int, %lane_count: !smt.int,
       %register_count: !smt.int, %bytes: !smt.int,
       %wide_lane_count: !smt.int, %exponential_count: !smt.int, %vector_size: !smt.int, %thread_count: !smt.int, %mergeable: !smt.int):
    %tile_p = iree_codegen.smt.knob "tile_p" : !smt.int
    %tile_r = iree_codegen.smt.knob "tile_r" : !smt.int
    %tile_in = iree_codegen.smt.knob "tile_in" : !smt.int
    %dist_p = iree_codegen.smt.knob "dist_p" : !smt.int
    %stored = iree_codegen.smt.knob "stored" : !smt.int
    %zero = smt.int.constant 0
    %one = smt.int.constant 1
    %two = smt.int.constant 2

    %rows = smt.eq %contiguous, %one : !smt.int
    iree_codegen.smt.assert %rows, "the reduced loop runs along an input's rows ({})", %contiguous : !smt.bool, !smt.int

    // Each reduction of the dispatch is cut, by an operation that MLIR knows a value to start from for.
    %merges = smt.eq %mergeable, %one : !smt.int
    iree_codegen.smt.assert %merges, "reductions combine by one associative operation ({})", %mergeable : !smt.bool, !smt.int

    // Elements of 16 bits are widened for each addition and narrowed again, which is more than one operation.
    %four = smt.int.constant 4
    %wide = smt.int.cmp ge %bytes, %four
    iree_codegen.smt.assert %wide, "results of {} bytes are combined by a single operation", %bytes : !smt.bool, !smt.int

    %fits_p = smt.int.cmp le %tile_p, %size_p
    iree_codegen.smt.assert %fits_p, "tile_p ({}) <= p ({})", %tile_p, %size_p : !smt.bool, !smt.int, !smt.int
    %fits_r = smt.int.cmp le %tile_r, %size_r
    iree_codegen.smt.assert %fits_r, "tile_r ({}) <= r ({})", %tile_r, %size_r : !smt.bool, !smt.int, !smt.int
    %fits_in = smt.int.cmp le %tile_in, %size_inner
    iree_codegen.smt.assert %fits_in, "tile_in ({}) <= {}, the parallel loop along r", %tile_in, %size_inner : !smt.bool, !smt.int, !smt.int

    // Partial results stay in registers for a whole row. Up to twice as many still paid off where a row is one tile.
    %partial = smt.int.mul %tile_p, %tile_r
    %most = smt.int.mul %register_count, %lane_count, %two
    %partial_ok = smt.int.cmp le %partial, %most
    iree_codegen.smt.assert %partial_ok, "{} partial results <= {}, twice the registers", %partial, %most : !smt.bool, !smt.int, !smt.int
    %volume = smt.int.mul %tile_p, %tile_in
    %volume_ok = smt.int.cmp le %volume, %most
    iree_codegen.smt.assert %volume_ok, "{} elements in a tile of the parallel ops <= {}", %volume, %most : !smt.bool, !smt.int, !smt.int

    // Of what is not a whole vector, most lanes would be idle.
    %narrow_r = smt.int.cmp lt %size_r, %lane_count
    %whole_r = smt.int.cmp ge %tile_r, %lane_count
    %vector_r = smt.or %narrow_r, %whole_r
    iree_codegen.smt.assert %vector_r, "tile_r ({}) fills a vector of {} lanes", %tile_r, %lane_count : !smt.bool, !smt.int, !smt.int
    %narrow_in = smt.int.cmp lt %size_inner, %lane_count
    %whole_in = smt.int.cmp ge %tile_in, %lane_count
    %vector_in = smt.or %narrow_in, %whole_in
    iree_codegen.smt.assert %vector_in, "tile_in ({}) fills a vector of {} lanes", %tile_in, %lane_count : !smt.bool, !smt.int, !smt.int

    %covered = smt.int.mul %tile_p, %dist_p
    %cuts = smt.int.cmp lt %covered, %size_p
    iree_codegen.smt.assert %cuts, "a workgroup of {} is less than p ({}); 0 stands for all", %covered, %size_p : !smt.bool, !smt.int, !smt.int

    // Each needs the same exponentials, one sums them up.
    %recomputes = smt.eq %stored, %zero : !smt.int
    %twice = smt.int.cmp ge %exponential_count, %two
    %shares = smt.or %recomputes, %twice
    iree_codegen.smt.assert %shares, "stored ({}) where {} ops compute exponentials", %stored, %exponential_count : !smt.bool, !smt.int, !smt.int
    // A loop of one row would be folded away, and the ops with it be of a rank that @store does not know.
    %rows_ok = smt.int.cmp ge %tile_p, %two
    %has_rows = smt.or %recomputes, %rows_ok
    iree_codegen.smt.assert %has_rows, "stored ({}) with tile_p ({}) of two rows or more", %stored, %tile_p : !smt.bool, !smt.int, !smt.int
    %rest_p = smt.int.mod %size_p, %tile_p
    %rest_r = smt.int.mod %size_r, %tile_r
    %rest_in = smt.int.mod %size_r, %tile_in
    %whole_group = smt.eq %dist_p, %zero : !smt.int
    %group = smt.ite %whole_group, %tile_p, %covered : !smt.int
    %rest_group = smt.int.mod %size_p, %group
    %rest = smt.int.add %rest_p, %rest_r, %rest_in, %rest_group
    %even = smt.eq %rest, %zero : !smt.int
    %stored_even = smt.or %recomputes, %even
    iree_codegen.smt.assert %stored_even, "stored ({}) with tiles and workgroups that divide p ({}) and r ({})", %stored, %size_p, %size_r : !smt.bool, !smt.int, !smt.int, !smt.int
    %stack = smt.int.constant 32768
    %kept = smt.int.mul %tile_p, %size_r, %bytes
    %kept_ok = smt.int.cmp lt %kept, %stack
    %stored_ok = smt.or %recomputes, %kept_ok
    iree_codegen.smt.assert %stored_ok, "stored ({}) exponentials of {} bytes < 32768", %stored, %kept : !smt.bool, !smt.int, !smt.int

    // Where two ops need the same exponentials, what lies between them is on the stack, stored or not: the rows of a
    // tile, and where tiles differ in size, up to four of that less two rows, each of them a tile longer. Measured on
    // 106 assignments: exact where tiles are of one size, never too little elsewhere.
    %fours = smt.int.mul %four, %tile_p
    %rows_kept = smt.int.sub %fours, %two
    %length = smt.int.add %size_r, %lane_count, %tile_r
    %ragged_bytes = smt.int.mul %rows_kept, %length, %bytes
    %partial_bytes = smt.int.mul %two, %partial, %bytes
    %more_bytes = smt.ite %whole_group, %partial_bytes, %zero : !smt.int
    %most_bytes = smt.int.add %ragged_bytes, %more_bytes
    %between = smt.ite %even, %kept, %most_bytes : !smt.int
    %between_fits = smt.int.cmp le %between, %stack
    %one_row = smt.int.cmp lt %tile_p, %two
    %apart = smt.int.cmp lt %exponential_count, %two
    %between_ok = smt.or %between_fits, %one_row, %apart
    iree_codegen.smt.assert %between_ok, "{} bytes between ops that need the same exponentials <= 32768 of stack", %between : !smt.bool, !smt.int
  }

  transform.named_sequence @match(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    %matched = transform.match.structured failures(propagate) %op : (!transform.any_op) -> !transform.any_op {
    ^bb0(%reduction: !transform.any_op):
      "transform.match.structured.dim"(%reduction) <{raw_dim_list = array<i64: -1>, reduction}> : (!transform.any_op) -> ()
      // An argument of the maximum has two results.
      %inits = transform.match.structured.num_inits %reduction : (!transform.any_op) -> !transform.param<i64>
      %one = transform.param.constant 1 : i64 -> !transform.param<i64>
      transform.match.param.cmpi eq %inits, %one : !transform.param<i64>
      "transform.match.structured.input"(%reduction) <{raw_position_list = array<i64>, is_all, projected_permutation}> : (!transform.any_op) -> ()
      transform.match.structured.yield %reduction : !transform.any_op
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

  // The example of the default: a softmax.
  transform.named_sequence @configure(%function: !transform.any_op {transform.readonly}) attributes {mlsearch.bind = "every_op"} {
    %ops = transform.structured.match interface{LinalgOp} in %function : (!transform.any_op) -> !transform.any_op
    %op:5 = transform.split_handle %ops : (!transform.any_op)
        -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
    %fill = transform.param.constant #iree_cpu.lowering_config<vector_common_parallel = [4]> -> !transform.any_param
    transform.annotate %op#0 "lowering_config" = %fill : !transform.any_op, !transform.any_param
    transform.annotate %op#2 "lowering_config" = %fill : !transform.any_op, !transform.any_param
    %maximum = transform.param.constant #iree_cpu.lowering_config<
        vector_common_parallel = [4, 0], vector_reduction = [0, 32]> -> !transform.any_param
    transform.annotate %op#1 "lowering_config" = %maximum : !transform.any_op, !transform.any_param
    %sum = transform.param.constant #iree_cpu.lowering_config<
        distribution = [64, 0], vector_common_parallel = [4, 0], vector_reduction = [0, 32]> -> !transform.any_param
    transform.annotate %op#3 "lowering_config" = %sum : !transform.any_op, !transform.any_param
    %quotient = transform.param.constant #iree_cpu.lowering_config<
        vector_common_parallel = [4, 0], vector_inner_parallel = [0, 32]> -> !transform.any_param
    transform.annotate %op#4 "lowering_config" = %quotient : !transform.any_op, !transform.any_param
    transform.yield
  }

  transform.named_sequence @cut_reductions(%function: !transform.any_op {transform.readonly}) attributes {mlsearch.bind = "every_reduction"} {
    %ops = transform.structured.match attributes {iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>]}
        in %function : (!transform.any_op) -> !transform.any_op
    transform.foreach %ops : !transform.any_op {
    ^bb0(%op: !transform.any_op):
      %parts:4 = transform.structured.tile_reduction_using_for %op by tile_sizes = [0, 32]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
    }
    transform.yield
  }

  transform.named_sequence @clean(%function: !transform.any_op {transform.readonly}) {
    transform.apply_patterns to %function {
      transform.apply_patterns.tensor.merge_consecutive_insert_extract_slice
      transform.apply_patterns.linalg.tiling_canonicalization
      transform.apply_patterns.scf.for_loop_canonicalization
      transform.apply_patterns.canonicalization
    } : !transform.any_op
    transform.apply_cse to %function : !transform.any_op
    transform.yield
  }

  // Makes the exponentials of a tile of rows an op of their own. A sum of exponentials becomes one op that adds them to
  // zeros, over whole rows, and one that sums that up; the first of them and the last op of the dispatch are then taken
  // apart into single operations, of which equal ones are one. What has one use is put together again.
  transform.named_sequence @store(%function: !transform.any_op {transform.consumed}, %stored: !transform.param<i64> {transform.readonly}) {
    %yes = transform.param.constant 1 : i64 -> !transform.param<i64>
    transform.match.param.cmpi eq %stored, %yes : !transform.param<i64>

    // Outer loops have one iteration here, and go.
    %ranked = transform.apply_registered_pass "linalg-fold-unit-extent-dims" with options = {"use-rank-reducing-slices" = true}
        to %function : (!transform.any_op) -> !transform.any_op
    transform.include @clean failures(propagate) (%ranked) : (!transform.any_op) -> ()
    %exps = transform.structured.match ops{["math.exp"]} in %ranked : (!transform.any_op) -> !transform.any_op
    %users = transform.get_parent_op %exps <{op_name = "linalg.generic", deduplicate}> : (!transform.any_op) -> !transform.any_op
    transform.foreach %users : !transform.any_op {
    ^bb0(%user: !transform.any_op):
      %sums = transform.structured.match attributes {iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>]}
          in %user : (!transform.any_op) -> !transform.any_op
      transform.foreach %sums : !transform.any_op {
      ^bb0(%sum: !transform.any_op):
        %parts:4 = transform.structured.tile_reduction_using_for %sum by tile_sizes = [0, 1024] {mlsearch.sizes = ["", "r"]}
          : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
      }
    }
    transform.include @clean failures(propagate) (%ranked) : (!transform.any_op) -> ()
    %named = transform.structured.match ops{["linalg.reduce"]} in %ranked : (!transform.any_op) -> !transform.any_op
    %generic = transform.structured.generalize %named : (!transform.any_op) -> !transform.any_op

    // The same pass makes inputs of the zeros: what reads its output is taken apart wrongly.
    %inputs = transform.apply_registered_pass "linalg-fold-unit-extent-dims" with options = {"use-rank-reducing-slices" = true}
        to %ranked : (!transform.any_op) -> !transform.any_op
    %single = transform.apply_registered_pass "iree-codegen-decompose-linalg-generic" to %inputs : (!transform.any_op) -> !transform.any_op
    transform.include @clean failures(propagate) (%single) : (!transform.any_op) -> ()
    %fused = transform.apply_registered_pass "linalg-fuse-elementwise-ops" to %single : (!transform.any_op) -> !transform.any_op
    transform.include @clean failures(propagate) (%fused) : (!transform.any_op) -> ()

    %parallel = transform.structured.match attributes {iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>]}
        in %fused : (!transform.any_op) -> !transform.any_op
    transform.foreach %parallel : !transform.any_op {
    ^bb0(%op: !transform.any_op):
      %tile, %loop = transform.structured.tile_using_for %op tile_sizes [0, 32] {mlsearch.sizes = ["", "tile_in"]}
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    }
    %reductions = transform.structured.match attributes {iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<reduction>]}
        in %fused : (!transform.any_op) -> !transform.any_op
    transform.foreach %reductions : !transform.any_op {
    ^bb0(%op: !transform.any_op):
      %parts:4 = transform.structured.tile_reduction_using_for %op by tile_sizes = [0, 32] {mlsearch.sizes = ["", "tile_r"]}
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
    }
    transform.yield
  }

  transform.named_sequence @strategy(%module: !transform.any_op) {
    %function = transform.structured.match ops{["func.func"]} in %module : (!transform.any_op) -> !transform.any_op
    transform.include @configure failures(propagate) (%function) : (!transform.any_op) -> ()

    // Workgroups, then rows. What two ops need of an earlier one is fused twice; once the slices that it is computed
    // on look the same, one of them goes.
    %grid = transform.apply_registered_pass "iree-codegen-tile-and-distribute-to-workgroups-using-forall-op" to %function : (!transform.any_op) -> !transform.any_op
    %buffers = transform.apply_registered_pass "iree-codegen-bufferize-dispatch-tensor-load-store" to %grid : (!transform.any_op) -> !transform.any_op
    %tidy = transform.apply_registered_pass "iree-codegen-config-tracking-canonicalize" to %buffers : (!transform.any_op) -> !transform.any_op
    %rows = transform.apply_registered_pass "iree-llvmcpu-tile-and-fuse-producer-consumer"
        with options = {"tiling-level" = "vector_common_parallel"} to %tidy : (!transform.any_op) -> !transform.any_op
    %loops = transform.apply_registered_pass "iree-codegen-forall-to-for" to %rows : (!transform.any_op) -> !transform.any_op
    transform.include @clean failures(propagate) (%loops) : (!transform.any_op) -> ()

    // Where nothing is to be stored, it fails at its first step, and leaves the function alone.
    %stored = transform.param.constant 0 : i64 {mlsearch.knob = "stored"} -> !transform.param<i64>
    transform.include @store failures(suppress) (%loops, %stored) : (!transform.any_op, !transform.param<i64>) -> ()

    // What was stored is cut by now, and has no configs any more.
    %tiled = transform.structured.match ops{["func.func"]} in %module : (!transform.any_op) -> !transform.any_op
    transform.include @cut_reductions failures(propagate) (%tiled) : (!transform.any_op) -> ()
    %vectors = transform.apply_registered_pass "iree-llvmcpu-tile" with options = {"tiling-level" = "vector_inner_parallel"}
        to %tiled : (!transform.any_op) -> !transform.any_op
    %peeled = transform.apply_registered_pass "iree-llvmcpu-peel" to %vectors : (!transform.any_op) -> !transform.any_op
    transform.include @clean failures(propagate) (%peeled) : (!transform.any_op) -> ()

    %vectorized = transform.apply_registered_pass "iree-codegen-generic-vectorization"
        with options = {"enable-vector-masking" = true} to %peeled : (!transform.any_op) -> !transform.any_op
    %hoisted = transform.apply_registered_pass "iree-codegen-optimize-tensor-insert-extract-slices" to %vectorized : (!transform.any_op) -> !transform.any_op
    %canonical = transform.apply_registered_pass "canonicalize" to %hoisted : (!transform.any_op) -> !transform.any_op
    %unique = transform.apply_registered_pass "cse" to %canonical : (!transform.any_op) -> !transform.any_op
    %bufferized = transform.apply_registered_pass "iree-codegen-llvmcpu-bufferization-pipeline" to %unique : (!transform.any_op) -> !transform.any_op
    %bounded = transform.apply_registered_pass "iree-codegen-propagate-dispatch-size-bounds" to %bufferized : (!transform.any_op) -> !transform.any_op
    %unrolled = transform.apply_registered_pass "iree-codegen-remove-single-iteration-loop" to %bounded : (!transform.any_op) -> !transform.any_op
    %lowered = transform.apply_registered_pass "iree-codegen-llvmcpu-vector-lowering-pipeline" to %unrolled : (!transform.any_op) -> !transform.any_op

    // The partial results of a row are combined pairwise, not one after the other.
    %combinations = transform.structured.match ops{["vector.reduction"]} in %lowered : (!transform.any_op) -> !transform.any_op
    %any_order = transform.param.constant #arith.fastmath<reassoc> -> !transform.any_param
    transform.annotate %combinations "fastmath" = %any_order : !transform.any_op, !transform.any_param

    // Several elements are divided by the same sum: one division, and as many products.
    %quotients = transform.structured.match ops{["arith.divf"]} in %lowered : (!transform.any_op) -> !transform.any_op
    %by_reciprocal = transform.param.constant #arith.fastmath<arcp> -> !transform.any_param
    transform.annotate %quotients "fastmath" = %by_reciprocal : !transform.any_op, !transform.any_param

    %done = transform.param.constant #iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline>
        {mlsearch.bind = "done"} -> !transform.any_param
    transform.annotate %lowered "translation_info" = %done : !transform.any_op, !transform.any_param
    transform.yield
  }

  transform.named_sequence @__kernel_config(%function: !transform.any_op {transform.consumed}) -> !transform.any_op {
    %done = transform.foreach_match in %function @match -> @schedule : (!transform.any_op) -> !transform.any_op
    transform.yield %done : !transform.any_op
  }
}
