// Convolutions on CUDA cores, as named ops or generics, through IREE's TileAndFuse pipeline.
//
// Matches    any convolution with output image, output channel and input channel loops.
// Leaves     a lowering config on the convolution and a translation info on the function. Elementwise ops fused after
//            it follow its tiles.
// Knobs      thread_o, thread_n    a thread's output pixels of a row and output channels: its accumulators.
//            threads_o, threads_n  threads of a workgroup along each.
//            threads_o1            output rows of a workgroup, one thread each.
//            step_k                input channels in one step, unrolled.
//            step_f, step_f1       of the filter's columns and rows, unrolled.
// IREE's own choice is one of the assignments.
// Known failures, which the constraints keep out: a step of input channels that leaves a rest is not vectorized.
module attributes {mlsearch.fallback, transform.with_named_sequence} {
  %o = arith.constant 56 : index
  %o1 = arith.constant 56 : index
  %n = arith.constant 64 : index
  %k = arith.constant 64 : index
  %f = arith.constant 3 : index
  %f1 = arith.constant 3 : index

  iree_codegen.smt.constraints target = <set = 0>, pipeline = #iree_gpu.pipeline<TileAndFuse>,
    knobs = {
      workgroup = {
        o1 = #iree_codegen.smt.int_knob<"threads_o1">,
        o = [#iree_codegen.smt.int_knob<"thread_o">, #iree_codegen.smt.int_knob<"threads_o">],
        n = [#iree_codegen.smt.int_knob<"thread_n">, #iree_codegen.smt.int_knob<"threads_n">]
      },
      thread = {o1 = 1, o = #iree_codegen.smt.int_knob<"thread_o">, n = #iree_codegen.smt.int_knob<"thread_n">},
      reduction = {
        k = #iree_codegen.smt.int_knob<"step_k">,
        f = #iree_codegen.smt.int_knob<"step_f">,
        f1 = #iree_codegen.smt.int_knob<"step_f1">
      }
    }
    dims(%o, %o1, %n, %k, %f, %f1) attributes {
      mlsearch.dims = ["o", "o1", "n", "k", "f", "f1"],
      mlsearch.domains = {
        thread_o = [1, 2, 4, 7, 8, 14],
        thread_n = [1, 2, 4, 8],
        threads_o = [1, 2, 4, 7, 8, 14, 16],
        threads_n = [1, 2, 4, 8, 16, 32, 64],
        threads_o1 = [1, 2, 4, 7, 8],
        step_k = [1, 2, 3, 4, 8, 16, 32],
        step_f = [1, 2, 3, 5, 7],
        step_f1 = [1, 2, 3, 5, 7]
      },
      mlsearch.defaults = {thread_o = 4, thread_n = 4, threads_o = 4, threads_n = 16, threads_o1 = 1, step_k = 4, step_f = 1, step_f1 = 1},
      mlsearch.priors = [
        {thread_o = 7, thread_n = 4, threads_o = 8, threads_n = 16, threads_o1 = 1, step_k = 4},
        {thread_o = 4, thread_n = 4, threads_o = 7, threads_n = 16, threads_o1 = 2, step_k = 8},
        {thread_o = 1, thread_n = 1, threads_o = 1, threads_n = 32, threads_o1 = 1, step_k = 32},
        {thread_o = 1, thread_n = 1, threads_o = 1, threads_n = 32, threads_o1 = 1, step_k = 4, step_f = 3}
      ]
    } {
  ^bb0(%size_o: !smt.int, %size_o1: !smt.int, %size_n: !smt.int, %size_k: !smt.int, %size_f: !smt.int,
       %size_f1: !smt.int):
    %thread_o = iree_codegen.smt.knob "thread_o" : !smt.int
    %thread_n = iree_codegen.smt.knob "thread_n" : !smt.int
    %threads_o = iree_codegen.smt.knob "threads_o" : !smt.int
    %threads_n = iree_codegen.smt.knob "threads_n" : !smt.int
    %threads_o1 = iree_codegen.smt.knob "threads_o1" : !smt.int
    %step_k = iree_codegen.smt.knob "step_k" : !smt.int
    %step_f = iree_codegen.smt.knob "step_f" : !smt.int
    %step_f1 = iree_codegen.smt.knob "step_f1" : !smt.int
    %zero = smt.int.constant 0
    %warp = smt.int.constant 32
    %most_threads = smt.int.constant 1024
    %most_accumulators = smt.int.constant 64
    %most_unrolled = smt.int.constant 512

    %tile_o = smt.int.mul %thread_o, %threads_o
    %tile_n = smt.int.mul %thread_n, %threads_n
    %two = smt.int.constant 2
    %twice_o = smt.int.mul %size_o, %two
    %fits_o = smt.int.cmp lt %tile_o, %twice_o
    iree_codegen.smt.assert %fits_o, "a workgroup's {} pixels cover o ({}) less than twice", %tile_o, %size_o : !smt.bool, !smt.int, !smt.int
    %fits_n = smt.int.cmp le %tile_n, %size_n
    iree_codegen.smt.assert %fits_n, "a workgroup's {} channels <= n ({})", %tile_n, %size_n : !smt.bool, !smt.int, !smt.int
    %fits_o1 = smt.int.cmp le %threads_o1, %size_o1
    iree_codegen.smt.assert %fits_o1, "a workgroup's {} rows <= o1 ({})", %threads_o1, %size_o1 : !smt.bool, !smt.int, !smt.int
    %rest_k = smt.int.mod %size_k, %step_k
    %even_k = smt.eq %rest_k, %zero : !smt.int
    iree_codegen.smt.assert %even_k, "step_k ({}) divides k ({})", %step_k, %size_k : !smt.bool, !smt.int, !smt.int
    %rest_f = smt.int.mod %size_f, %step_f
    %even_f = smt.eq %rest_f, %zero : !smt.int
    iree_codegen.smt.assert %even_f, "step_f ({}) divides f ({})", %step_f, %size_f : !smt.bool, !smt.int, !smt.int
    %rest_f1 = smt.int.mod %size_f1, %step_f1
    %even_f1 = smt.eq %rest_f1, %zero : !smt.int
    iree_codegen.smt.assert %even_f1, "step_f1 ({}) divides f1 ({})", %step_f1, %size_f1 : !smt.bool, !smt.int, !smt.int

    %threads = smt.int.mul %threads_o, %threads_n, %threads_o1
    %rest = smt.int.mod %threads, %warp
    %whole = smt.eq %rest, %zero : !smt.int
    iree_codegen.smt.assert %whole, "{} threads are whole warps", %threads : !smt.bool, !smt.int
    %threads_ok = smt.int.cmp le %threads, %most_threads
    iree_codegen.smt.assert %threads_ok, "{} threads <= 1024", %threads : !smt.bool, !smt.int
    %accumulators = smt.int.mul %thread_o, %thread_n
    %in_registers = smt.int.cmp le %accumulators, %most_accumulators
    iree_codegen.smt.assert %in_registers, "{} accumulators of a thread <= 64", %accumulators : !smt.bool, !smt.int
    %unrolled = smt.int.mul %accumulators, %step_k, %step_f, %step_f1
    %short = smt.int.cmp le %unrolled, %most_unrolled
    iree_codegen.smt.assert %short, "{} multiply-adds of a thread in one step <= 512", %unrolled : !smt.bool, !smt.int
  }

  transform.named_sequence @match(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    %matched = transform.match.structured failures(propagate) %op : (!transform.any_op) -> !transform.any_op {
    ^bb0(%convolution: !transform.any_op):
      %batch, %image, %channels, %filter, %inputs, %depth, %strides, %dilations =
        transform.match.structured.classify_convolution_dims %convolution
        : (!transform.any_op) -> (!transform.param<i64>, !transform.param<i64>, !transform.param<i64>, !transform.param<i64>,
                                  !transform.param<i64>, !transform.param<i64>, !transform.param<i64>, !transform.param<i64>)
      transform.match.structured.yield %convolution : !transform.any_op
    }
    transform.yield %matched : !transform.any_op
  }

  transform.named_sequence @schedule(%root: !transform.any_op {transform.readonly}) {
    %config = transform.param.constant #iree_gpu.lowering_config<{
        workgroup = [1, 1, 16, 64, 0, 0, 0], thread = [1, 1, 4, 4, 0, 0, 0], reduction = [0, 0, 0, 0, 1, 1, 4]}>
        {mlsearch.bind = "lowering_config"} -> !transform.any_param
    transform.annotate %root "lowering_config" = %config : !transform.any_op, !transform.any_param
    %function = transform.get_parent_op %root <{op_name = "func.func"}> : (!transform.any_op) -> !transform.any_op
    %translation = transform.param.constant #iree_codegen.translation_info<
        pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [64, 1, 1] subgroup_size = 32>
        {mlsearch.bind = "translation_info"} -> !transform.any_param
    transform.annotate %function "translation_info" = %translation : !transform.any_op, !transform.any_param
    transform.yield
  }

  transform.named_sequence @__kernel_config(%function: !transform.any_op {transform.consumed}) -> !transform.any_op {
    %done = transform.foreach_match in %function @match -> @schedule : (!transform.any_op) -> !transform.any_op
    transform.yield %done : !transform.any_op
  }
}
