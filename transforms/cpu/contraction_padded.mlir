// Contractions whose columns the register tile does not divide, by a strategy that pads the last tile.
//
// Matches    a contraction of three loops in the order m, n, k: multiply and add, of floats or integers, with casts of
//            the operands if there are any. Elementwise ops fused before or after it follow its tiles.
// Leaves     lowered code: the strategy cuts the loops as `cpu/contraction_double_tiling` does, splits off what tiles do
//            not divide, and pads the columns that are left to a whole register tile: its accumulators start from zero
//            and never come from memory, the right operand is read under a mask, and only the store leaves the padding
//            out. IREE's own choice either masks every tile or computes what is left in short pieces.
// Knobs      tile_m, tile_n   register tile: tile_m x tile_n accumulators stay in registers over the k loop.
//            step_k           iterations of k in one vector step, unrolled.
//            cache_k          k iterations after which the accumulators go back to memory, 0 for never.
//            dist_m           register tiles along m in a workgroup, 0 for all rows.
//            panel            1: tile_n columns of the right operand are copied to the stack first, where they lie side
//                             by side, so that rows a power of two apart do not drive each other out of the cache.
// Known failures, which the constraints keep out: with one iteration of k in a step, the padded tile is computed column
//            by column; workgroups of different sizes are not vectorized; a register tile of 512 vector registers or
//            more is refused; panels and cache tiles of more than 32 KiB do not fit on IREE's stack. It works behind the
//            transform library flag only.
module attributes {mlsearch.strategy, transform.with_named_sequence} {
  %m = arith.constant 731 : index
  %n = arith.constant 1023 : index
  %k = arith.constant 137 : index
  %lanes = arith.constant 16 : index
  %registers = arith.constant 32 : index
  %element_bytes = arith.constant 4 : index
  %input_bytes = arith.constant 4 : index
  %wide_lanes = arith.constant 16 : index
  %vector_bytes = arith.constant 64 : index
  %l1_bytes = arith.constant 49152 : index
  %threads = arith.constant 1 : index
  %vector_limit = arith.constant 32768 : index
  %consumers = arith.constant 0 : index

  iree_codegen.smt.constraints target = <set = 0>, pipeline = #iree_cpu.pipeline<DoubleTilingExpert>,
    knobs = {
      distribution = {
        m = [#iree_codegen.smt.int_knob<"tile_m">, #iree_codegen.smt.int_knob<"dist_m">],
        n = 0
      },
      cache_parallel = {m = 0, n = #iree_codegen.smt.int_knob<"tile_n">},
      cache_reduction = {k = #iree_codegen.smt.int_knob<"cache_k">},
      vector_common_parallel = {m = #iree_codegen.smt.int_knob<"tile_m">, n = #iree_codegen.smt.int_knob<"tile_n">},
      vector_reduction = {k = #iree_codegen.smt.int_knob<"step_k">},
      buffers = {copies = #iree_codegen.smt.int_knob<"panel">}
    }
    dims(%m, %n, %k, %lanes, %registers, %element_bytes, %input_bytes, %wide_lanes, %vector_bytes, %l1_bytes, %threads, %vector_limit, %consumers) attributes {
      mlsearch.dims = ["m", "n", "k", "lanes", "registers", "element_bytes", "input_bytes", "wide_lanes", "vector_bytes", "l1_bytes", "threads", "vector_limit", "consumers"],
      mlsearch.domains = {
        tile_m = [1, 2, 3, 4, 5, 6, 7, 8, "registers / 4 + 2", "(registers - 8) / 2", "(registers - 4) / 2", "registers / 2"],
        tile_n = ["4 .. registers * wide_lanes / 2"],
        step_k = [2, 4, 8, 16],
        cache_k = [0, "64 .. l1_bytes / vector_bytes"],
        dist_m = [0, "1 .. m / (2 * threads)"],
        panel = [0, 1]
      },
      mlsearch.defaults = {tile_m = 12, tile_n = 32, step_k = 4, cache_k = 0, dist_m = 0, panel = 0},
      mlsearch.priors = [
        {tile_m = "(registers - 8) / 2", tile_n = "2 * wide_lanes", step_k = 4, cache_k = 0, dist_m = 0, panel = 1},
        {tile_m = "(registers - 8) / 2", tile_n = "2 * wide_lanes", step_k = 4, cache_k = 0, dist_m = 0, panel = 0},
        {tile_m = "(registers - 8) / 2", tile_n = "2 * wide_lanes", step_k = 2, cache_k = "l1_bytes / (4 * vector_bytes)", dist_m = 0, panel = 1},
        {tile_m = "registers / 4", tile_n = "2 * wide_lanes", step_k = 4, cache_k = 0, dist_m = 0, panel = 0}
      ]
    } {
  ^bb0(%size_m: !smt.int, %size_n: !smt.int, %size_k: !smt.int, %lane_count: !smt.int, %register_count: !smt.int,
       %bytes: !smt.int, %operand_bytes: !smt.int, %wide_lane_count: !smt.int, %vector_size: !smt.int, %l1_size: !smt.int,
       %thread_count: !smt.int, %limit: !smt.int, %consumer_count: !smt.int):
    %tile_m = iree_codegen.smt.knob "tile_m" : !smt.int
    %tile_n = iree_codegen.smt.knob "tile_n" : !smt.int
    %step_k = iree_codegen.smt.knob "step_k" : !smt.int
    %cache_k = iree_codegen.smt.knob "cache_k" : !smt.int
    %dist_m = iree_codegen.smt.knob "dist_m" : !smt.int
    %panel = iree_codegen.smt.knob "panel" : !smt.int
    %zero = smt.int.constant 0
    %one = smt.int.constant 1
    %two = smt.int.constant 2
    %stack = smt.int.constant 32768

    // Where tiles divide the columns there is nothing to pad.
    %fits_m = smt.int.cmp le %tile_m, %size_m
    iree_codegen.smt.assert %fits_m, "tile_m ({}) <= m ({})", %tile_m, %size_m : !smt.bool, !smt.int, !smt.int
    %fits_n = smt.int.cmp lt %tile_n, %size_n
    iree_codegen.smt.assert %fits_n, "tile_n ({}) < n ({})", %tile_n, %size_n : !smt.bool, !smt.int, !smt.int
    %rest_n = smt.int.mod %size_n, %tile_n
    %ragged = smt.int.cmp gt %rest_n, %zero
    iree_codegen.smt.assert %ragged, "tile_n ({}) does not divide n ({})", %tile_n, %size_n : !smt.bool, !smt.int, !smt.int
    %fits_k = smt.int.cmp le %step_k, %size_k
    iree_codegen.smt.assert %fits_k, "step_k ({}) <= k ({})", %step_k, %size_k : !smt.bool, !smt.int, !smt.int
    %fits_cache_k = smt.int.cmp lt %cache_k, %size_k
    iree_codegen.smt.assert %fits_cache_k, "cache_k ({}) < k ({})", %cache_k, %size_k : !smt.bool, !smt.int, !smt.int
    %whole = smt.int.cmp ge %tile_n, %lane_count
    iree_codegen.smt.assert %whole, "tile_n ({}) fills a vector of {} lanes", %tile_n, %lane_count : !smt.bool, !smt.int, !smt.int

    // Accumulators, one row of the right operand and a broadcast element share the registers.
    %vectors = smt.int.div %tile_n, %lane_count
    %accumulators = smt.int.mul %tile_m, %vectors
    %usable = smt.int.sub %register_count, %two
    %in_registers = smt.int.cmp le %accumulators, %usable
    iree_codegen.smt.assert %in_registers, "{} accumulators leave two of {} vector registers free", %accumulators, %register_count : !smt.bool, !smt.int, !smt.int

    %tile = smt.int.mul %tile_m, %tile_n, %step_k, %bytes
    %tile_ok = smt.int.cmp lt %tile, %limit
    iree_codegen.smt.assert %tile_ok, "vector temporaries of {} bytes < {}", %tile, %limit : !smt.bool, !smt.int, !smt.int

    // A workgroup of all rows is spelled 0.
    %group_m = smt.int.mul %tile_m, %dist_m
    %cuts_m = smt.int.cmp lt %group_m, %size_m
    iree_codegen.smt.assert %cuts_m, "a workgroup of {} rows is less than m ({}); 0 stands for all", %group_m, %size_m : !smt.bool, !smt.int, !smt.int
    %uncut_m = smt.eq %dist_m, %zero : !smt.int
    %extent_m = smt.ite %uncut_m, %size_m, %group_m : !smt.int
    %left_m = smt.int.mod %size_m, %extent_m
    %same_groups = smt.eq %left_m, %zero : !smt.int
    iree_codegen.smt.assert %same_groups, "a workgroup of {} rows divides m ({})", %extent_m, %size_m : !smt.bool, !smt.int, !smt.int

    // With a single tile along m or n there is no loop. Then k can't be cut in two levels, and a panel is used only once.
    %two_m = smt.int.mul %two, %tile_m
    %several_m = smt.int.cmp le %two_m, %extent_m
    %two_n = smt.int.mul %two, %tile_n
    %several_n = smt.int.cmp le %two_n, %size_n
    %several = smt.and %several_m, %several_n
    %cuts_k = smt.int.cmp gt %cache_k, %zero
    %cuts_k_ok = smt.implies %cuts_k, %several
    iree_codegen.smt.assert %cuts_k_ok, "cache_k ({}) with less than two whole tiles along m or n", %cache_k : !smt.bool, !smt.int
    %copies = smt.eq %panel, %one : !smt.int
    %copies_ok = smt.implies %copies, %several
    iree_codegen.smt.assert %copies_ok, "panel ({}) with less than two whole tiles along m or n", %panel : !smt.bool, !smt.int

    // On the stack: the panel, padded accumulators, and, where another op is fused behind and waits for all of k, the
    // cache tiles in between. What is left of k, or of the columns, has buffers of its own.
    %depth = smt.ite %cuts_k, %cache_k, %size_k : !smt.int
    %two_depths = smt.int.mul %two, %depth
    %left_k = smt.int.mod %size_k, %depth
    %even_k = smt.eq %left_k, %zero : !smt.int
    %depths = smt.ite %even_k, %depth, %two_depths : !smt.int
    %panel_bytes = smt.int.mul %panel, %depths, %tile_n, %operand_bytes
    %tile_bytes = smt.int.mul %two, %tile_m, %tile_n, %bytes
    %three = smt.int.constant 3
    %cache_bytes = smt.int.mul %three, %extent_m, %tile_n, %bytes
    %waits = smt.int.cmp gt %consumer_count, %zero
    %buffered = smt.and %waits, %cuts_k
    %waiting_bytes = smt.ite %buffered, %cache_bytes, %zero : !smt.int
    %stack_bytes = smt.int.add %panel_bytes, %tile_bytes, %waiting_bytes
    %stack_ok = smt.int.cmp le %stack_bytes, %stack
    iree_codegen.smt.assert %stack_ok, "{} bytes of panels and tiles <= 32768 of stack", %stack_bytes : !smt.bool, !smt.int
  }

  transform.named_sequence @match_floats(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    %matched = transform.match.structured failures(propagate) %op : (!transform.any_op) -> !transform.any_op {
    ^bb0(%contraction: !transform.any_op):
      // Convolutions multiply and add as well, but read their input at a sum of two loops.
      "transform.match.structured.input"(%contraction) <{raw_position_list = array<i64>, is_all, projected_permutation}> : (!transform.any_op) -> ()
      "transform.match.structured.body"(%contraction) <{contraction = ["arith.mulf", "arith.addf"]}> : (!transform.any_op) -> ()
      %batch, %rows, %columns, %depth = transform.match.structured.classify_contraction_dims %contraction
        : (!transform.any_op) -> (!transform.param<i64>, !transform.param<i64>, !transform.param<i64>, !transform.param<i64>)
      // Lists of loops; a comparison fails for lists of different lengths, so there is one loop of each kind.
      %first = transform.param.constant 0 : i64 -> !transform.param<i64>
      %second = transform.param.constant 1 : i64 -> !transform.param<i64>
      %third = transform.param.constant 2 : i64 -> !transform.param<i64>
      transform.match.param.cmpi eq %rows, %first : !transform.param<i64>
      transform.match.param.cmpi eq %columns, %second : !transform.param<i64>
      transform.match.param.cmpi eq %depth, %third : !transform.param<i64>
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
      %batch, %rows, %columns, %depth = transform.match.structured.classify_contraction_dims %contraction
        : (!transform.any_op) -> (!transform.param<i64>, !transform.param<i64>, !transform.param<i64>, !transform.param<i64>)
      // Lists of loops; a comparison fails for lists of different lengths, so there is one loop of each kind.
      %first = transform.param.constant 0 : i64 -> !transform.param<i64>
      %second = transform.param.constant 1 : i64 -> !transform.param<i64>
      %third = transform.param.constant 2 : i64 -> !transform.param<i64>
      transform.match.param.cmpi eq %rows, %first : !transform.param<i64>
      transform.match.param.cmpi eq %columns, %second : !transform.param<i64>
      transform.match.param.cmpi eq %depth, %third : !transform.param<i64>
      transform.match.structured.yield %contraction : !transform.any_op
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

  transform.named_sequence @configure(%function: !transform.any_op {transform.readonly}) attributes {mlsearch.bind = "every_op"} {
    %ops = transform.structured.match interface{LinalgOp} in %function : (!transform.any_op) -> !transform.any_op
    %op:2 = transform.split_handle %ops : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %fill = transform.param.constant #iree_cpu.lowering_config<vector_common_parallel = [12, 32]> -> !transform.any_param
    transform.annotate %op#0 "lowering_config" = %fill : !transform.any_op, !transform.any_param
    %contraction = transform.param.constant #iree_cpu.lowering_config<
        distribution = [0, 0, 0], cache_parallel = [0, 32, 0], vector_common_parallel = [12, 32, 0],
        vector_reduction = [0, 0, 4]> -> !transform.any_param
    transform.annotate %op#1 "lowering_config" = %contraction : !transform.any_op, !transform.any_param
    transform.yield
  }

  // What is left of the contraction, once it has been cut.
  transform.named_sequence @is_product(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    %matched = transform.match.structured failures(propagate) %op : (!transform.any_op) -> !transform.any_op {
    ^bb0(%contraction: !transform.any_op):
      %batch, %left, %right, %reduced = transform.match.structured.classify_contraction_dims %contraction
        : (!transform.any_op) -> (!transform.param<i64>, !transform.param<i64>, !transform.param<i64>, !transform.param<i64>)
      %depth = transform.param.constant 2 : i64 -> !transform.param<i64>
      transform.match.param.cmpi eq %reduced, %depth : !transform.param<i64>
      transform.match.structured.yield %contraction : !transform.any_op
    }
    transform.yield %matched : !transform.any_op
  }

  // A contraction of a whole panel, where panels are copied.
  transform.named_sequence @is_panel(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    %matched = transform.match.structured failures(propagate) %op : (!transform.any_op) -> !transform.any_op {
    ^bb0(%contraction: !transform.any_op):
      %batch, %left, %right, %reduced = transform.match.structured.classify_contraction_dims %contraction
        : (!transform.any_op) -> (!transform.param<i64>, !transform.param<i64>, !transform.param<i64>, !transform.param<i64>)
      %depth = transform.param.constant 2 : i64 -> !transform.param<i64>
      transform.match.param.cmpi eq %reduced, %depth : !transform.param<i64>
      %columns = transform.match.structured.dim %contraction[1] : (!transform.any_op) -> !transform.param<i64>
      %whole = transform.param.constant 32 : i64 {mlsearch.knob = "tile_n"} -> !transform.param<i64>
      transform.match.param.cmpi eq %columns, %whole : !transform.param<i64>
      %panel = transform.param.constant 0 : i64 {mlsearch.knob = "panel"} -> !transform.param<i64>
      %copied = transform.param.constant 1 : i64 -> !transform.param<i64>
      transform.match.param.cmpi eq %panel, %copied : !transform.param<i64>
      transform.match.structured.yield %contraction : !transform.any_op
    }
    transform.yield %matched : !transform.any_op
  }

  transform.named_sequence @is_rest(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    %matched = transform.match.structured failures(propagate) %op : (!transform.any_op) -> !transform.any_op {
    ^bb0(%contraction: !transform.any_op):
      %batch, %left, %right, %reduced = transform.match.structured.classify_contraction_dims %contraction
        : (!transform.any_op) -> (!transform.param<i64>, !transform.param<i64>, !transform.param<i64>, !transform.param<i64>)
      %depth = transform.param.constant 2 : i64 -> !transform.param<i64>
      transform.match.param.cmpi eq %reduced, %depth : !transform.param<i64>
      %columns = transform.match.structured.dim %contraction[1] : (!transform.any_op) -> !transform.param<i64>
      %whole = transform.param.constant 32 : i64 {mlsearch.knob = "tile_n"} -> !transform.param<i64>
      transform.match.param.cmpi lt %columns, %whole : !transform.param<i64>
      transform.match.structured.yield %contraction : !transform.any_op
    }
    transform.yield %matched : !transform.any_op
  }

  transform.named_sequence @strategy(%module: !transform.any_op) {
    %function = transform.structured.match ops{["func.func"]} in %module : (!transform.any_op) -> !transform.any_op
    transform.include @configure failures(propagate) (%function) : (!transform.any_op) -> ()
    %distributed = transform.apply_registered_pass "iree-codegen-tile-and-distribute-to-workgroups-using-forall-op"
        to %function : (!transform.any_op) -> !transform.any_op
    %loaded = transform.apply_registered_pass "iree-codegen-bufferize-dispatch-tensor-load-store"
        to %distributed : (!transform.any_op) -> !transform.any_op
    %panels = transform.apply_registered_pass "iree-llvmcpu-tile-and-fuse-producer-consumer"
        with options = {"tiling-level" = "cache_parallel"} to %loaded : (!transform.any_op) -> !transform.any_op
    %parts = transform.apply_registered_pass "iree-llvmcpu-tile-and-fuse-producer-consumer"
        with options = {"tiling-level" = "cache_reduction", "anchor-on-root-op" = true, "only-fuse-producer-input-operands" = true}
        to %panels : (!transform.any_op) -> !transform.any_op
    %tiles = transform.apply_registered_pass "iree-llvmcpu-tile-and-fuse-producer-consumer"
        with options = {"tiling-level" = "vector_common_parallel"} to %parts : (!transform.any_op) -> !transform.any_op
    %loops = transform.apply_registered_pass "iree-codegen-forall-to-for" to %tiles : (!transform.any_op) -> !transform.any_op
    %once = transform.apply_registered_pass "iree-llvmcpu-peel" to %loops : (!transform.any_op) -> !transform.any_op
    %split = transform.apply_registered_pass "iree-llvmcpu-peel" to %once : (!transform.any_op) -> !transform.any_op

    %whole = transform.collect_matching @is_panel in %split : (!transform.any_op) -> !transform.any_op
    %rest = transform.collect_matching @is_rest in %split : (!transform.any_op) -> !transform.any_op
    transform.foreach %whole : !transform.any_op {
    ^bb0(%tile: !transform.any_op):
      %rows = transform.get_parent_op %tile <{op_name = "scf.for"}> : (!transform.any_op) -> !transform.any_op
      %columns = transform.param.constant 32 : i64 {mlsearch.knob = "tile_n"} -> !transform.param<i64>
      %copied, %panel, %none = transform.structured.pad %tile pad_to_multiple_of [%columns] <{
          padding_values = [0.0 : f32, 0.0 : f32, 0.0 : f32], padding_dimensions = [1], nofold_flags = [0, 1, 0],
          copy_back_op = "none"}> {mlsearch.bind = "zeros"}
          : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op, !transform.any_op)
      transform.apply_licm to %rows : !transform.any_op
      %row, %loop = transform.structured.tile_using_for %panel tile_sizes [1, 0] : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    }
    transform.foreach %rest : !transform.any_op {
    ^bb0(%tile: !transform.any_op):
      %columns = transform.param.constant 32 : i64 {mlsearch.knob = "tile_n"} -> !transform.param<i64>
      %padded, %pads, %none = transform.structured.pad %tile pad_to_multiple_of [%columns] <{
          padding_values = [0.0 : f32, 0.0 : f32, 0.0 : f32], padding_dimensions = [1], nofold_flags = [0, 0, 0],
          copy_back_op = "none"}> {mlsearch.bind = "zeros"}
          : (!transform.any_op, !transform.param<i64>) -> (!transform.any_op, !transform.any_op, !transform.any_op)
      %operand = transform.get_producer_of_operand %padded[1] : (!transform.any_op) -> !transform.any_op
      %step, %loop = transform.structured.tile_using_for %padded tile_sizes [0, 0, 4] {mlsearch.sizes = ["", "", "step_k"]} : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
      %fused, %outer = transform.structured.fuse_into_containing_op %operand into %loop : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
    }
    %shared = transform.apply_registered_pass "cse" to %split : (!transform.any_op) -> !transform.any_op
    %around = transform.apply_registered_pass "iree-llvmcpu-tile"
        with options = {"tiling-level" = "vector_common_parallel"} to %shared : (!transform.any_op) -> !transform.any_op
    %steps = transform.apply_registered_pass "iree-llvmcpu-tile"
        with options = {"tiling-level" = "vector_reduction"} to %around : (!transform.any_op) -> !transform.any_op
    %even = transform.apply_registered_pass "iree-llvmcpu-peel" to %steps : (!transform.any_op) -> !transform.any_op
    %plain = transform.apply_registered_pass "canonicalize" to %even : (!transform.any_op) -> !transform.any_op

    // All is cut by now; IREE's lowering, which asks for a config, is to cut nothing again.
    %products = transform.collect_matching @is_product in %plain : (!transform.any_op) -> !transform.any_op
    %uncut = transform.param.constant #iree_cpu.lowering_config<distribution = [0, 0, 0]> -> !transform.any_param
    transform.annotate %products "lowering_config" = %uncut : !transform.any_op, !transform.any_param
    %pipeline = transform.param.constant #iree_codegen.translation_info<
        pipeline = #iree_cpu.pipeline<DoubleTilingExpert>> {mlsearch.bind = "pipeline"} -> !transform.any_param
    transform.annotate %plain "translation_info" = %pipeline : !transform.any_op, !transform.any_param
    %lowered = transform.apply_registered_pass "iree-llvmcpu-lower-executable-target" to %plain : (!transform.any_op) -> !transform.any_op
    %done = transform.param.constant #iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline> -> !transform.any_param
    transform.annotate %lowered "translation_info" = %done : !transform.any_op, !transform.any_param
    transform.yield
  }

  transform.named_sequence @__kernel_config(%function: !transform.any_op {transform.consumed}) -> !transform.any_op {
    %done = transform.foreach_match in %function
        @match_floats -> @schedule, @match_integers -> @schedule : (!transform.any_op) -> !transform.any_op
    transform.yield %done : !transform.any_op
  }
}
