// Attention in one op, of f16 or bf16, with matrix instructions (mma.sync m16n8k16), through IREE's VectorDistribute
// pipeline: warps side by side along the queries, all keys and values through shared memory.
//
// Matches    `iree_linalg_ext.online_attention`, which is what IREE makes of `iree_linalg_ext.attention` before a
//            transform library gets to see it, with or without a mask. IREE's own choice is one of the assignments.
// Leaves     a lowering config and a decomposition config on the attention, a translation info on the function. The
//            other ops get no config: IREE fuses them into the attention's tiles.
// Knobs      subgroup_m   matrix instructions of a warp along the queries.
//            warps_m      warps of a workgroup along the queries.
//            subgroup_n   matrix instructions of a warp along the columns of the output; with subgroup_m its
//                         accumulators. Where a workgroup does not cover all columns, others do the scores again.
//            warps_n      warps along the columns; each of them does all scores.
//            step_s       steps of 16 keys between two corrections of the running maximum.
//            mma          which instruction; the inputs' type decides.
//            no_reduce_shared_memory_bank_conflicts   whether rows in shared memory stay unpadded.
//            reorder_workgroups_strategy   which of the parallel loops the workgroups run along first.
// Known failures, which the constraints keep out: a tile that does not divide its loop; operands of a step that do not
//            fit into a block's shared memory; more values of a thread than registers. Of 36 assignments drawn for
//            32x512x128 in f16 on sm_90, ptxas let all 19 spill that break the last rule, and 3 of the 17 others, by 24
//            bytes at most; of 36 for 12x128x64 on sm_80, 5 of 6 and none of 30.
module attributes {transform.with_named_sequence} {
  %m = arith.constant 128 : index
  %n = arith.constant 64 : index
  %k = arith.constant 64 : index
  %s = arith.constant 128 : index
  %shared = arith.constant 101376 : index
  %f16 = arith.constant 1 : index
  %bf16 = arith.constant 0 : index

  iree_codegen.smt.constraints target = <set = 0>, pipeline = #iree_gpu.pipeline<VectorDistribute>,
    knobs = {
      workgroup = {
        m = [16, #iree_codegen.smt.int_knob<"subgroup_m">, #iree_codegen.smt.int_knob<"warps_m">],
        n = [8, #iree_codegen.smt.int_knob<"subgroup_n">, #iree_codegen.smt.int_knob<"warps_n">]
      },
      reduction = {k = 0, s = [16, #iree_codegen.smt.int_knob<"step_s">]},
      subgroup = {m = #iree_codegen.smt.int_knob<"warps_m">, n = #iree_codegen.smt.int_knob<"warps_n">},
      config = {
        mma_kind = #iree_codegen.smt.one_of_knob<"mma", [#iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_F16>, #iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_BF16>]>
      },
      options = {
        iree_codegen.denormal_fp_math_f32 = #iree_codegen.denormal_fp_math<"preserve-sign">,
        gpu_pipeline_options = {
          no_reduce_shared_memory_bank_conflicts = #iree_codegen.smt.one_of_knob<"no_reduce_shared_memory_bank_conflicts", [false, true]>,
          reorder_workgroups_strategy = #iree_codegen.smt.one_of_knob<"reorder_workgroups_strategy", [#iree_gpu.reorder_workgroups_strategy<None>, #iree_gpu.reorder_workgroups_strategy<Transpose>]>
        }
      }
    }
    dims(%m, %n, %k, %s, %shared, %f16, %bf16) attributes {
      mlsearch.dims = ["m", "n", "k", "s", "l1_bytes", "mma_f16", "mma_bf16"],
      mlsearch.domains = {
        subgroup_m = [1, 2, 4],
        warps_m = [1, 2, 4, 8],
        subgroup_n = [1, 2, 4, 8, 16],
        warps_n = [1, 2, 4],
        step_s = [1, 2, 4, 8]
      },
      mlsearch.defaults = {
        subgroup_m = 1, warps_m = 4, subgroup_n = 4, warps_n = 1, step_s = 4,
        mma = "#iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_F16>", no_reduce_shared_memory_bank_conflicts = false,
        reorder_workgroups_strategy = "#iree_gpu.reorder_workgroups_strategy<None>"
      },
      mlsearch.priors = [
        {subgroup_m = 1, warps_m = 4, subgroup_n = 8, warps_n = 1, step_s = 4, mma = "#iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_F16>"},
        {subgroup_m = 1, warps_m = 4, subgroup_n = 8, warps_n = 1, step_s = 4, mma = "#iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_BF16>"},
        {subgroup_m = 1, warps_m = 4, subgroup_n = 4, warps_n = 1, step_s = 4, mma = "#iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_BF16>"}
      ]
    } {
  ^bb0(%size_m: !smt.int, %size_n: !smt.int, %size_k: !smt.int, %size_s: !smt.int, %shared_bytes: !smt.int,
       %has_f16: !smt.int, %has_bf16: !smt.int):
    %subgroup_m = iree_codegen.smt.knob "subgroup_m" : !smt.int
    %warps_m = iree_codegen.smt.knob "warps_m" : !smt.int
    %subgroup_n = iree_codegen.smt.knob "subgroup_n" : !smt.int
    %warps_n = iree_codegen.smt.knob "warps_n" : !smt.int
    %step_s = iree_codegen.smt.knob "step_s" : !smt.int
    %mma = iree_codegen.smt.knob "mma" : !smt.int
    %zero = smt.int.constant 0
    %one = smt.int.constant 1
    %two = smt.int.constant 2
    %eight = smt.int.constant 8
    %sixteen = smt.int.constant 16
    %four = smt.int.constant 4
    %warp = smt.int.constant 32
    %others = smt.int.constant 64
    %most_held = smt.int.constant 192
    %register_file = smt.int.constant 65536

    // The first choice takes f16, the second bf16.
    %is_f16 = smt.eq %mma, %zero : !smt.int
    %f16_ok = smt.eq %has_f16, %one : !smt.int
    %bf16_ok = smt.eq %has_bf16, %one : !smt.int
    %f16_fits = smt.and %is_f16, %f16_ok
    %is_bf16 = smt.eq %mma, %one : !smt.int
    %bf16_fits = smt.and %is_bf16, %bf16_ok
    %type_ok = smt.or %f16_fits, %bf16_fits
    iree_codegen.smt.assert %type_ok, "mma ({}) takes the type of the inputs", %mma : !smt.bool, !smt.int

    %tile_m = smt.int.mul %sixteen, %subgroup_m, %warps_m
    %tile_n = smt.int.mul %eight, %subgroup_n, %warps_n
    %tile_s = smt.int.mul %sixteen, %step_s
    %rest_m = smt.int.mod %size_m, %tile_m
    %rest_n = smt.int.mod %size_n, %tile_n
    %rest_s = smt.int.mod %size_s, %tile_s
    %rest_k = smt.int.mod %size_k, %sixteen
    %rest = smt.int.add %rest_m, %rest_n, %rest_s, %rest_k
    %even = smt.eq %rest, %zero : !smt.int
    iree_codegen.smt.assert %even, "tiles of {} queries, {} columns, {} keys and 16 of k divide their loops", %tile_m, %tile_n, %tile_s : !smt.bool, !smt.int, !smt.int, !smt.int

    %query = smt.int.mul %tile_m, %size_k, %two
    %key = smt.int.mul %tile_s, %size_k, %two
    %value = smt.int.mul %tile_s, %tile_n, %two
    %copied = smt.int.add %query, %key, %value
    %copies_ok = smt.int.cmp le %copied, %shared_bytes
    iree_codegen.smt.assert %copies_ok, "{} bytes of operands <= {} of shared memory", %copied, %shared_bytes : !smt.bool, !smt.int, !smt.int

    // Of a 16 x 8 tile of output or scores a thread has four values, of 16 x 16 queries four registers; addresses,
    // maxima, sums and what is on its way take some 64 more. A thread has 255 of them, a multiprocessor 65536.
    %columns = smt.int.mul %four, %subgroup_n
    %scores = smt.int.mul %eight, %step_s
    %depth = smt.int.div %size_k, %four
    %row = smt.int.add %columns, %scores, %depth
    %held = smt.int.mul %subgroup_m, %row
    %held_ok = smt.int.cmp le %held, %most_held
    iree_codegen.smt.assert %held_ok, "{} registers of a thread for scores, output and queries <= 192", %held : !smt.bool, !smt.int
    %registers = smt.int.add %held, %others
    %file = smt.int.mul %registers, %warp, %warps_m, %warps_n
    %file_ok = smt.int.cmp le %file, %register_file
    iree_codegen.smt.assert %file_ok, "{} registers of all threads <= 65536", %file : !smt.bool, !smt.int
  }

  transform.named_sequence @match(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    transform.match.operation_name %op ["iree_linalg_ext.online_attention"] : !transform.any_op
    transform.yield %op : !transform.any_op
  }

  transform.named_sequence @schedule(%root: !transform.any_op {transform.readonly}) {
    %config = transform.param.constant #iree_gpu.lowering_config<{
        promote_operands = [0, 1, 2],
        promotion_types = [#iree_gpu.derived_thread_config, #iree_gpu.derived_thread_config, #iree_gpu.derived_thread_config],
        workgroup = [1, 64, 32, 0, 0], reduction = [0, 0, 0, 0, 64]}>
        {mlsearch.bind = "lowering_config"} -> !transform.any_param
    transform.annotate %root "lowering_config" = %config : !transform.any_op, !transform.any_param
    %matmuls = transform.param.constant {
        qk_attrs = {lowering_config = #iree_gpu.lowering_config<{
            mma_kind = #iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_F16>, promote_operands = [0, 1],
            promotion_types = [#iree_gpu.derived_thread_config, #iree_gpu.derived_thread_config],
            subgroup_basis = [[1, 4, 1, 1, 1], [0, 1, 3, 4]]}>},
        pv_attrs = {lowering_config = #iree_gpu.lowering_config<{
            mma_kind = #iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_F16>, promote_operands = [1],
            promotion_types = [#iree_gpu.derived_thread_config], subgroup_basis = [[1, 4, 1, 1, 1], [0, 1, 2, 4]]}>}}
        {mlsearch.bind = "decomposition_config"} -> !transform.any_param
    transform.annotate %root "decomposition_config" = %matmuls : !transform.any_op, !transform.any_param
    %function = transform.get_parent_op %root <{op_name = "func.func"}> : (!transform.any_op) -> !transform.any_op
    %translation = transform.param.constant #iree_codegen.translation_info<
        pipeline = #iree_gpu.pipeline<VectorDistribute> workgroup_size = [128, 1, 1] subgroup_size = 32,
        {iree_codegen.denormal_fp_math_f32 = #iree_codegen.denormal_fp_math<"preserve-sign">,
         gpu_pipeline_options = #iree_gpu.pipeline_options<no_reduce_shared_memory_bank_conflicts = false, reorder_workgroups_strategy = <None>>}>
        {mlsearch.bind = "translation_info"} -> !transform.any_param
    transform.annotate %function "translation_info" = %translation : !transform.any_op, !transform.any_param
    transform.yield
  }

  transform.named_sequence @__kernel_config(%function: !transform.any_op {transform.consumed}) -> !transform.any_op {
    %done = transform.foreach_match in %function @match -> @schedule : (!transform.any_op) -> !transform.any_op
    transform.yield %done : !transform.any_op
  }
}
