// Contractions (matmul, batch matmul, matvec, vecmat, transposed operands, as named ops or generics) on CUDA cores,
// through IREE's TileAndFuse pipeline.
//
// Matches    any contraction with an `m`, an `n` or a `k` loop: multiply and add, of floats or integers. Elementwise ops
//            fused before or after it follow its tiles. f32 has no matrix instruction here, and small or ragged f16
//            need not have the best of it with one.
// Leaves     a lowering config on the contraction and a translation info on the function. IREE does the rest. On CUDA
//            named ops are generalized before a library runs; the matchers do not ask for a name.
// Knobs      thread_m, thread_n   a thread's tile: its accumulators stay in registers over the k loop.
//            threads_m, threads_n threads of a workgroup along each loop.
//            step_k               iterations of k in one step, unrolled.
//            promote              operands that a workgroup copies to shared memory first.
//            no_reduce_shared_memory_bank_conflicts   whether the rows of these copies stay unpadded.
//            counted              roles whose threads are counted along x and y of the workgroup; all along x if empty.
// IREE's own choice is one of the assignments where it has a tile for each thread, and whole warps. Its tiles of 16 x 256,
// 8 x 128 and 1 x 128 go to more threads than that; those are in `derived/own_choice`.
// Known failures, which the constraints keep out: more than 64 accumulators a thread and long unrolled steps spill;
//            copies of both operands that do not fit into a block's shared memory do not launch.
module attributes {mlsearch.fallback, transform.with_named_sequence} {
  %m = arith.constant 512 : index
  %n = arith.constant 512 : index
  %k = arith.constant 512 : index
  %input_bytes = arith.constant 4 : index
  %shared = arith.constant 101376 : index

  iree_codegen.smt.constraints target = <set = 0>, pipeline = #iree_gpu.pipeline<TileAndFuse>,
    knobs = {
      workgroup = {
        m = [#iree_codegen.smt.int_knob<"thread_m">, #iree_codegen.smt.int_knob<"threads_m">],
        n = [#iree_codegen.smt.int_knob<"thread_n">, #iree_codegen.smt.int_knob<"threads_n">]
      },
      thread = {m = #iree_codegen.smt.int_knob<"thread_m">, n = #iree_codegen.smt.int_knob<"thread_n">},
      reduction = {k = #iree_codegen.smt.int_knob<"step_k">},
      config = {promote_operands = #iree_codegen.smt.one_of_knob<"promote", [[], [0, 1]]>},
      options = {
        gpu_pipeline_options = {
          no_reduce_shared_memory_bank_conflicts = #iree_codegen.smt.one_of_knob<"no_reduce_shared_memory_bank_conflicts", [false, true]>
        },
        workgroup_size = #iree_codegen.smt.one_of_knob<"counted", [[], ["m", "n"]]>
      }
    }
    dims(%m, %n, %k, %input_bytes, %shared) attributes {
      mlsearch.dims = ["m", "n", "k", "input_bytes", "l1_bytes"],
      mlsearch.domains = {
        thread_m = [1, 2, 4, 8, 16],
        thread_n = [1, 2, 4, 8, 16, 32],
        threads_m = [1, 2, 4, 8, 16, 32],
        threads_n = [1, 2, 4, 8, 16, 32, 64, 128],
        step_k = [1, 2, 4, 8, 16, 32, 64]
      },
      mlsearch.defaults = {thread_m = 4, thread_n = 4, threads_m = 8, threads_n = 16, step_k = 8, promote = [], no_reduce_shared_memory_bank_conflicts = false, counted = []},
      mlsearch.priors = [
        {thread_m = 8, thread_n = 8, threads_m = 16, threads_n = 16, step_k = 8, promote = [0, 1]},
        {thread_m = 8, thread_n = 4, threads_m = 8, threads_n = 32, step_k = 16, promote = [0, 1]},
        {thread_m = 4, thread_n = 4, threads_m = 8, threads_n = 16, step_k = 16, promote = [0, 1]},
        {thread_m = 1, thread_n = 16, threads_m = 32, threads_n = 8, step_k = 32, promote = [], counted = ["m", "n"]},
        {thread_m = 1, thread_n = 4, threads_m = 1, threads_n = 64, step_k = 16, promote = []}
      ]
    } {
  ^bb0(%size_m: !smt.int, %size_n: !smt.int, %size_k: !smt.int, %bytes: !smt.int, %shared_bytes: !smt.int):
    %thread_m = iree_codegen.smt.knob "thread_m" : !smt.int
    %thread_n = iree_codegen.smt.knob "thread_n" : !smt.int
    %threads_m = iree_codegen.smt.knob "threads_m" : !smt.int
    %threads_n = iree_codegen.smt.knob "threads_n" : !smt.int
    %step_k = iree_codegen.smt.knob "step_k" : !smt.int
    %promote = iree_codegen.smt.knob "promote" : !smt.int
    %unpadded = iree_codegen.smt.knob "no_reduce_shared_memory_bank_conflicts" : !smt.int
    %counted = iree_codegen.smt.knob "counted" : !smt.int
    %zero = smt.int.constant 0
    %two = smt.int.constant 2
    %warp = smt.int.constant 32
    %most_threads = smt.int.constant 1024
    %most_accumulators = smt.int.constant 64
    %most_unrolled = smt.int.constant 1024

    // A tile reaches beyond its loop by less than a loop's length, or is IREE's own where it finds none that divides.
    %tile_m = smt.int.mul %thread_m, %threads_m
    %tile_n = smt.int.mul %thread_n, %threads_n
    %twice_m = smt.int.mul %size_m, %two
    %twice_n = smt.int.mul %size_n, %two
    %own_m = smt.int.constant 32
    %own_n = smt.int.constant 128
    %short_m = smt.int.cmp lt %tile_m, %twice_m
    %is_own_m = smt.eq %tile_m, %own_m : !smt.int
    %fits_m = smt.or %short_m, %is_own_m
    iree_codegen.smt.assert %fits_m, "a workgroup's {} rows cover m ({}) less than twice, or are 32", %tile_m, %size_m : !smt.bool, !smt.int, !smt.int
    %short_n = smt.int.cmp lt %tile_n, %twice_n
    %is_own_n = smt.eq %tile_n, %own_n : !smt.int
    %fits_n = smt.or %short_n, %is_own_n
    iree_codegen.smt.assert %fits_n, "a workgroup's {} columns cover n ({}) less than twice, or are 128", %tile_n, %size_n : !smt.bool, !smt.int, !smt.int
    %fits_k = smt.int.cmp le %step_k, %size_k
    iree_codegen.smt.assert %fits_k, "step_k ({}) <= k ({})", %step_k, %size_k : !smt.bool, !smt.int, !smt.int

    // Whole warps.
    %threads = smt.int.mul %threads_m, %threads_n
    %rest = smt.int.mod %threads, %warp
    %whole = smt.eq %rest, %zero : !smt.int
    iree_codegen.smt.assert %whole, "{} threads are whole warps", %threads : !smt.bool, !smt.int
    %threads_ok = smt.int.cmp le %threads, %most_threads
    iree_codegen.smt.assert %threads_ok, "{} threads <= 1024", %threads : !smt.bool, !smt.int

    %accumulators = smt.int.mul %thread_m, %thread_n
    %in_registers = smt.int.cmp le %accumulators, %most_accumulators
    iree_codegen.smt.assert %in_registers, "{} accumulators of a thread <= 64", %accumulators : !smt.bool, !smt.int
    %unrolled = smt.int.mul %accumulators, %step_k
    %short = smt.int.cmp le %unrolled, %most_unrolled
    iree_codegen.smt.assert %short, "{} multiply-adds of a thread in one step <= 1024", %unrolled : !smt.bool, !smt.int

    // Both operands' tiles, once.
    %rows = smt.int.add %tile_m, %tile_n
    %copied = smt.int.mul %rows, %step_k, %bytes
    %copies = smt.int.cmp le %copied, %shared_bytes
    %none = smt.eq %promote, %zero : !smt.int
    %copies_ok = smt.or %none, %copies
    iree_codegen.smt.assert %copies_ok, "{} bytes of operands <= {} of shared memory", %copied, %shared_bytes : !smt.bool, !smt.int, !smt.int

    // Without copies there is nothing to pad. Where threads are counted changes next to nothing, so it is left as IREE
    // has it with its own tiles, which have no copies, and as this file has it otherwise.
    %padded = smt.eq %unpadded, %zero : !smt.int
    %copying = smt.distinct %promote, %zero : !smt.int
    %padding_ok = smt.or %padded, %copying
    iree_codegen.smt.assert %padding_ok, "rows of copies stay unpadded ({}) only where operands are copied ({})", %unpadded, %promote : !smt.bool, !smt.int, !smt.int
    %in_a_row = smt.eq %counted, %zero : !smt.int
    %counted_ok = smt.or %in_a_row, %none
    iree_codegen.smt.assert %counted_ok, "threads are counted along two axes ({}) only where nothing is copied ({})", %counted, %promote : !smt.bool, !smt.int, !smt.int

    // A ragged step of k is masked, which IREE does not do for copies to shared memory.
    %rest_k = smt.int.mod %size_k, %step_k
    %even_k = smt.eq %rest_k, %zero : !smt.int
    iree_codegen.smt.assert %even_k, "step_k ({}) divides k ({})", %step_k, %size_k : !smt.bool, !smt.int, !smt.int
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
      "transform.match.structured.input"(%contraction) <{raw_position_list = array<i64>, is_all, projected_permutation}> : (!transform.any_op) -> ()
      "transform.match.structured.body"(%contraction) <{contraction = ["arith.muli", "arith.addi"]}> : (!transform.any_op) -> ()
      transform.match.structured.yield %contraction : !transform.any_op
    }
    transform.yield %matched : !transform.any_op
  }

  transform.named_sequence @schedule(%root: !transform.any_op {transform.readonly}) {
    %config = transform.param.constant #iree_gpu.lowering_config<{
        workgroup = [32, 64, 0], thread = [4, 4, 0], reduction = [0, 0, 8]}>
        {mlsearch.bind = "lowering_config"} -> !transform.any_param
    transform.annotate %root "lowering_config" = %config : !transform.any_op, !transform.any_param
    %function = transform.get_parent_op %root <{op_name = "func.func"}> : (!transform.any_op) -> !transform.any_op
    %translation = transform.param.constant #iree_codegen.translation_info<
        pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [128, 1, 1] subgroup_size = 32,
        {gpu_pipeline_options = #iree_gpu.pipeline_options<no_reduce_shared_memory_bank_conflicts = false>}>
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
