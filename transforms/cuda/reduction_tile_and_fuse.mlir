// Reductions and chains of them through IREE's TileAndFuse pipeline: a thread for each output, which runs along the
// reduction alone.
//
// Matches    any op whose innermost or outermost loop is a reduction, whose inputs are read at plain loops (no windows),
//            and that is no contraction: sums and maxima over rows or columns, softmax, normalization. IREE lowers those
//            like this whose rows do not divide among the lanes of a warp, and sums of columns.
// Leaves     a lowering config on the root op and a translation info on the function. IREE fuses the other ops into the
//            root op's tiles.
// Knobs      thread     neighbouring outputs of a thread.
//            threads    threads of a workgroup.
//            step       iterations of the innermost reduction loop in one step, unrolled.
// IREE's own choice is one of the assignments where there is one reduction loop: it steps by 4 or by the loop's smallest
// prime factor, and by 1 where that is above 32.
// Known failures, which the constraints keep out: a step that does not divide the reduction is not vectorized; long
//            unrolled steps compile for long.
module attributes {mlsearch.fallback, transform.with_named_sequence} {
  %p = arith.constant 1024 : index
  %r = arith.constant 1024 : index

  iree_codegen.smt.constraints target = <set = 0>, pipeline = #iree_gpu.pipeline<TileAndFuse>,
    knobs = {
      workgroup = {p = [#iree_codegen.smt.int_knob<"thread">, #iree_codegen.smt.int_knob<"threads">]},
      thread = {p = #iree_codegen.smt.int_knob<"thread">},
      reduction = {r = #iree_codegen.smt.int_knob<"step">}
    }
    dims(%p, %r) attributes {
      mlsearch.dims = ["p", "r"],
      mlsearch.domains = {
        thread = [1, 2, 4, 8],
        threads = [32, 64, 128, 256, 512],
        step = [1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 19, 23, 29, 31, 32, 64]
      },
      mlsearch.defaults = {thread = 4, threads = 32, step = 4},
      mlsearch.priors = [
        {thread = 1, threads = 32, step = 4},
        {thread = 1, threads = 128, step = 8},
        {thread = 1, threads = 32, step = 32}
      ]
    } {
  ^bb0(%size_p: !smt.int, %size_r: !smt.int):
    %thread = iree_codegen.smt.knob "thread" : !smt.int
    %threads = iree_codegen.smt.knob "threads" : !smt.int
    %step = iree_codegen.smt.knob "step" : !smt.int
    %zero = smt.int.constant 0
    %one = smt.int.constant 1
    %two = smt.int.constant 2
    %warp = smt.int.constant 32
    %most_unrolled = smt.int.constant 256

    // A contraction calls its reduction k.
    %reduces = smt.int.cmp gt %size_r, %one
    iree_codegen.smt.assert %reduces, "it reduces along r ({})", %size_r : !smt.bool, !smt.int

    %tile = smt.int.mul %thread, %threads
    %twice = smt.int.mul %size_p, %two
    %short = smt.int.cmp lt %tile, %twice
    %least = smt.eq %tile, %warp : !smt.int
    %fits = smt.or %short, %least
    iree_codegen.smt.assert %fits, "a workgroup's {} outputs cover p ({}) less than twice, or are 32", %tile, %size_p : !smt.bool, !smt.int, !smt.int

    %rest = smt.int.mod %size_r, %step
    %even = smt.eq %rest, %zero : !smt.int
    iree_codegen.smt.assert %even, "step ({}) divides r ({})", %step, %size_r : !smt.bool, !smt.int, !smt.int
    %unrolled = smt.int.mul %thread, %step
    %unrolled_ok = smt.int.cmp le %unrolled, %most_unrolled
    iree_codegen.smt.assert %unrolled_ok, "{} elements of a thread in one step <= 256", %unrolled : !smt.bool, !smt.int
  }

  transform.named_sequence @match_rows(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    %matched = transform.match.structured failures(propagate) %op : (!transform.any_op) -> !transform.any_op {
    ^bb0(%reduction: !transform.any_op):
      "transform.match.structured.input"(%reduction) <{raw_position_list = array<i64>, is_all, projected_permutation}> : (!transform.any_op) -> ()
      "transform.match.structured.dim"(%reduction) <{raw_dim_list = array<i64: -1>, reduction}> : (!transform.any_op) -> ()
      transform.match.structured.yield %reduction : !transform.any_op
    }
    transform.yield %matched : !transform.any_op
  }

  transform.named_sequence @match_columns(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    %matched = transform.match.structured failures(propagate) %op : (!transform.any_op) -> !transform.any_op {
    ^bb0(%reduction: !transform.any_op):
      "transform.match.structured.input"(%reduction) <{raw_position_list = array<i64>, is_all, projected_permutation}> : (!transform.any_op) -> ()
      "transform.match.structured.dim"(%reduction) <{raw_dim_list = array<i64: 0>, reduction}> : (!transform.any_op) -> ()
      transform.match.structured.yield %reduction : !transform.any_op
    }
    transform.yield %matched : !transform.any_op
  }

  transform.named_sequence @schedule(%root: !transform.any_op {transform.readonly}) {
    %config = transform.param.constant #iree_gpu.lowering_config<{
        reduction = [0, 4], thread = [4, 0], workgroup = [128, 0]}>
        {mlsearch.bind = "lowering_config"} -> !transform.any_param
    transform.annotate %root "lowering_config" = %config : !transform.any_op, !transform.any_param
    %function = transform.get_parent_op %root <{op_name = "func.func"}> : (!transform.any_op) -> !transform.any_op
    %translation = transform.param.constant #iree_codegen.translation_info<
        pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [32, 1, 1] subgroup_size = 32>
        {mlsearch.bind = "translation_info"} -> !transform.any_param
    transform.annotate %function "translation_info" = %translation : !transform.any_op, !transform.any_param
    transform.yield
  }

  transform.named_sequence @__kernel_config(%function: !transform.any_op {transform.consumed}) -> !transform.any_op {
    %done = transform.foreach_match in %function
        @match_rows -> @schedule, @match_columns -> @schedule : (!transform.any_op) -> !transform.any_op
    transform.yield %done : !transform.any_op
  }
}
