// Contractions of f16 or bf16 with matrix instructions (mma.sync m16n8k16), through IREE's TileAndFuse pipeline.
//
// Matches    any contraction of floats with an `m`, an `n` and a `k` loop whose sizes are multiples of the instruction's
//            16, 8 and 16. The compiler emits a space of its own for these, which is searched instead where it does; it
//            fails to for contractions with a batch loop.
// Leaves     a lowering config on the contraction and a translation info on the function.
// Knobs      subgroup_m, subgroup_n   matrix instructions of a warp along each loop; with them its accumulators.
//            warps_m, warps_n         warps of a workgroup along each loop.
//            step_k                   matrix instructions along k in one step.
//            mma                      which one; the types of inputs and result decide.
//            no_reduce_shared_memory_bank_conflicts   whether rows in shared memory stay unpadded.
// IREE's own choice is one of the assignments.
// Known failures, which the constraints keep out: more than 128 accumulators a thread spill; operands of a step that do
//            not fit into a block's shared memory do not launch.
module attributes {transform.with_named_sequence} {
  %m = arith.constant 512 : index
  %n = arith.constant 512 : index
  %k = arith.constant 512 : index
  %shared = arith.constant 101376 : index
  %f16 = arith.constant 1 : index
  %bf16 = arith.constant 0 : index
  %f16_f16 = arith.constant 0 : index
  %emitted = arith.constant 0 : index

  iree_codegen.smt.constraints target = <set = 0>, pipeline = #iree_gpu.pipeline<TileAndFuse>,
    knobs = {
      workgroup = {
        m = [16, #iree_codegen.smt.int_knob<"subgroup_m">, #iree_codegen.smt.int_knob<"warps_m">],
        n = [8, #iree_codegen.smt.int_knob<"subgroup_n">, #iree_codegen.smt.int_knob<"warps_n">]
      },
      subgroup = {m = #iree_codegen.smt.int_knob<"subgroup_m">, n = #iree_codegen.smt.int_knob<"subgroup_n">},
      warps = {m = #iree_codegen.smt.int_knob<"warps_m">, n = #iree_codegen.smt.int_knob<"warps_n">},
      reduction = {k = #iree_codegen.smt.int_knob<"step_k">},
      config = {
        mma_kind = #iree_codegen.smt.one_of_knob<"mma", [#iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_F16>, #iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_BF16>, #iree_gpu.mma_layout<NV_MMA_SYNC_F16_16x8x16_F16>]>,
        promote_operands = [0, 1],
        convert_acc_gemm = true
      },
      options = {
        gpu_pipeline_options = {
          no_reduce_shared_memory_bank_conflicts = #iree_codegen.smt.one_of_knob<"no_reduce_shared_memory_bank_conflicts", [false, true]>
        }
      }
    }
    dims(%m, %n, %k, %shared, %f16, %bf16, %f16_f16, %emitted) attributes {
      mlsearch.dims = ["m", "n", "k", "l1_bytes", "mma_f16", "mma_bf16", "mma_f16_f16", "emitted"],
      mlsearch.domains = {
        subgroup_m = [1, 2, 4, 8],
        subgroup_n = [1, 2, 4, 8, 16],
        warps_m = [1, 2, 4, 8],
        warps_n = [1, 2, 4, 8],
        step_k = [1, 2, 4, 8]
      },
      mlsearch.defaults = {
        subgroup_m = 2, subgroup_n = 4, warps_m = 2, warps_n = 2, step_k = 2,
        mma = "#iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_F16>", no_reduce_shared_memory_bank_conflicts = false
      },
      mlsearch.priors = [
        {subgroup_m = 4, subgroup_n = 8, warps_m = 2, warps_n = 2, step_k = 2},
        {subgroup_m = 2, subgroup_n = 4, warps_m = 2, warps_n = 2, step_k = 4}
      ]
    } {
  ^bb0(%size_m: !smt.int, %size_n: !smt.int, %size_k: !smt.int, %shared_bytes: !smt.int, %has_f16: !smt.int,
       %has_bf16: !smt.int, %has_f16_f16: !smt.int, %spaces: !smt.int):
    %subgroup_m = iree_codegen.smt.knob "subgroup_m" : !smt.int
    %subgroup_n = iree_codegen.smt.knob "subgroup_n" : !smt.int
    %warps_m = iree_codegen.smt.knob "warps_m" : !smt.int
    %warps_n = iree_codegen.smt.knob "warps_n" : !smt.int
    %step_k = iree_codegen.smt.knob "step_k" : !smt.int
    %mma = iree_codegen.smt.knob "mma" : !smt.int
    %zero = smt.int.constant 0
    %one = smt.int.constant 1
    %two = smt.int.constant 2
    %four = smt.int.constant 4
    %eight = smt.int.constant 8
    %sixteen = smt.int.constant 16
    %most_warps = smt.int.constant 16
    %most_accumulators = smt.int.constant 128

    // The first choice takes f16, the second bf16, the third f16 that are also summed up in f16.
    %is_f16 = smt.eq %mma, %zero : !smt.int
    %f16_ok = smt.eq %has_f16, %one : !smt.int
    %bf16_ok = smt.eq %has_bf16, %one : !smt.int
    %f16_fits = smt.and %is_f16, %f16_ok
    %is_bf16 = smt.eq %mma, %one : !smt.int
    %bf16_fits = smt.and %is_bf16, %bf16_ok
    %is_f16_f16 = smt.eq %mma, %two : !smt.int
    %f16_f16_ok = smt.eq %has_f16_f16, %one : !smt.int
    %f16_f16_fits = smt.and %is_f16_f16, %f16_f16_ok
    %type_ok = smt.or %f16_fits, %bf16_fits, %f16_f16_fits
    iree_codegen.smt.assert %type_ok, "the chip's matrix instruction {} takes the types of inputs and result", %mma : !smt.bool, !smt.int

    %none = smt.eq %spaces, %zero : !smt.int
    iree_codegen.smt.assert %none, "the compiler emits {} spaces of its own", %spaces : !smt.bool, !smt.int

    %tile_m = smt.int.mul %sixteen, %subgroup_m, %warps_m
    %tile_n = smt.int.mul %eight, %subgroup_n, %warps_n
    %tile_k = smt.int.mul %sixteen, %step_k
    %rest_m = smt.int.mod %size_m, %tile_m
    %rest_n = smt.int.mod %size_n, %tile_n
    %rest_k = smt.int.mod %size_k, %tile_k
    %rest = smt.int.add %rest_m, %rest_n, %rest_k
    %even = smt.eq %rest, %zero : !smt.int
    iree_codegen.smt.assert %even, "tiles of {} x {} x {} divide {} x {} x {}", %tile_m, %tile_n, %tile_k, %size_m, %size_n, %size_k : !smt.bool, !smt.int, !smt.int, !smt.int, !smt.int, !smt.int, !smt.int

    %warps = smt.int.mul %warps_m, %warps_n
    %warps_ok = smt.int.cmp le %warps, %most_warps
    iree_codegen.smt.assert %warps_ok, "{} warps <= 16", %warps : !smt.bool, !smt.int
    // A 16 x 8 tile is four values of each of a warp's threads.
    %accumulators = smt.int.mul %subgroup_m, %subgroup_n, %four
    %in_registers = smt.int.cmp le %accumulators, %most_accumulators
    iree_codegen.smt.assert %in_registers, "{} accumulators of a thread <= 128", %accumulators : !smt.bool, !smt.int
    %rows = smt.int.add %tile_m, %tile_n
    %copied = smt.int.mul %rows, %tile_k, %two
    %copies_ok = smt.int.cmp le %copied, %shared_bytes
    iree_codegen.smt.assert %copies_ok, "{} bytes of operands <= {} of shared memory", %copied, %shared_bytes : !smt.bool, !smt.int, !smt.int
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

  transform.named_sequence @schedule(%root: !transform.any_op {transform.readonly}) {
    %config = transform.param.constant #iree_gpu.lowering_config<{
        convert_acc_gemm, mma_kind = #iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_F16>, promote_operands = [0, 1],
        workgroup = [64, 64, 0], subgroup = [2, 4, 0], reduction = [0, 0, 2]}>
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
    %done = transform.foreach_match in %function @match_floats -> @schedule
        : (!transform.any_op) -> !transform.any_op
    transform.yield %done : !transform.any_op
  }
}
