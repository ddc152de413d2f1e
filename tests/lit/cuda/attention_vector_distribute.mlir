// Attention of f16, with matrix instructions for both of its matmuls.
// RUN: %configure_with=%templates/cuda/attention_vector_distribute.mlir %s | filecheck %s --check-prefix=DEFAULT
// RUN: %bind %templates/cuda/attention_vector_distribute.mlir %s subgroup_m=2 warps_m=2 subgroup_n=2 warps_n=4 step_s=8 no_reduce_shared_memory_bank_conflicts=true 'reorder_workgroups_strategy=#iree_gpu.reorder_workgroups_strategy<Transpose>' 'mma=#iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_BF16>' > %t.mlir
// RUN: %configure_with=%t.mlir %s | filecheck %s --check-prefix=BOUND

// IREE's own choice.
// DEFAULT-LABEL: func.func @attention()
// DEFAULT-SAME:    #iree_gpu.pipeline<VectorDistribute> workgroup_size = [128, 1, 1] subgroup_size = 32
// DEFAULT:         iree_linalg_ext.online_attention
// DEFAULT-SAME:      subgroup_basis = {{\[}}[1, 4, 1, 1, 1], [0, 1, 2, 4]]
// DEFAULT-SAME:      subgroup_basis = {{\[}}[1, 4, 1, 1, 1], [0, 1, 3, 4]]
// DEFAULT-SAME:      reduction = [0, 0, 0, 0, 64]
// DEFAULT-SAME:      workgroup = [1, 64, 32, 0, 0]
// DEFAULT-LABEL: func.func @other()
// DEFAULT-NOT:     lowering_config
// DEFAULT-NOT:     translation_info

// BOUND-LABEL: func.func @attention()
// BOUND-SAME:    workgroup_size = [256, 1, 1] subgroup_size = 32, {gpu_pipeline_options = #iree_gpu.pipeline_options<no_reduce_shared_memory_bank_conflicts = true, reorder_workgroups_strategy = <Transpose>>, iree_codegen.denormal_fp_math_f32 = #iree_codegen.denormal_fp_math<"preserve-sign">}
// BOUND-NOT:     linalg.fill{{.*}}lowering_config
// BOUND:         iree_linalg_ext.online_attention
// BOUND-SAME:      pv_attrs = {lowering_config = #iree_gpu.lowering_config<{mma_kind = #iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_BF16>, promote_operands = [1]
// BOUND-SAME:      subgroup_basis = {{\[}}[1, 2, 4, 1, 1], [0, 1, 2, 4]]
// BOUND-SAME:      qk_attrs = {lowering_config = #iree_gpu.lowering_config<{mma_kind = #iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_BF16>, promote_operands = [0, 1]
// BOUND-SAME:      subgroup_basis = {{\[}}[1, 2, 4, 1, 1], [0, 1, 3, 4]]
// BOUND-SAME:      promote_operands = [0, 1, 2]
// BOUND-SAME:      reduction = [0, 0, 0, 0, 128]
// BOUND-SAME:      workgroup = [1, 64, 64, 0, 0]
// BOUND-SAME:      mlsearch.entry = "bound"
// BOUND-LABEL: func.func @other()
// BOUND-NOT:     lowering_config

func.func @attention() {
  %c0 = arith.constant 0 : index
  %0 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(0) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<12x128x64xf16>>
  %1 = iree_tensor_ext.dispatch.tensor.load %0, offsets = [0, 0, 0], sizes = [12, 128, 64], strides = [1, 1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<12x128x64xf16>> -> tensor<12x128x64xf16>
  %2 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(1) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<12x128x64xf16>>
  %3 = iree_tensor_ext.dispatch.tensor.load %2, offsets = [0, 0, 0], sizes = [12, 128, 64], strides = [1, 1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<12x128x64xf16>> -> tensor<12x128x64xf16>
  %4 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(2) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<12x128x64xf16>>
  %5 = iree_tensor_ext.dispatch.tensor.load %4, offsets = [0, 0, 0], sizes = [12, 128, 64], strides = [1, 1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<12x128x64xf16>> -> tensor<12x128x64xf16>
  %6 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(3) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<writeonly:tensor<12x128x64xf16>>
  %scale = arith.constant 1.250000e-01 : f16
  %zero = arith.constant 0.000000e+00 : f32
  %lowest = arith.constant -3.40282347E+38 : f32
  %7 = tensor.empty() : tensor<12x128x64xf16>
  %8 = tensor.empty() : tensor<12x128x64xf32>
  %9 = tensor.empty() : tensor<12x128xf32>
  %10 = linalg.fill ins(%zero : f32) outs(%8 : tensor<12x128x64xf32>) -> tensor<12x128x64xf32>
  %11 = linalg.fill ins(%lowest : f32) outs(%9 : tensor<12x128xf32>) -> tensor<12x128xf32>
  %12 = linalg.fill ins(%zero : f32) outs(%9 : tensor<12x128xf32>) -> tensor<12x128xf32>
  %13:3 = iree_linalg_ext.online_attention <indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d4, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d4, d2)>, affine_map<(d0, d1, d2, d3, d4) -> ()>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1)>]> ins(%1, %3, %5, %scale : tensor<12x128x64xf16>, tensor<12x128x64xf16>, tensor<12x128x64xf16>, f16) outs(%10, %11, %12 : tensor<12x128x64xf32>, tensor<12x128xf32>, tensor<12x128xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<12x128x64xf32>, tensor<12x128xf32>, tensor<12x128xf32>
  %14 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%13#2, %13#0 : tensor<12x128xf32>, tensor<12x128x64xf32>) outs(%7 : tensor<12x128x64xf16>) {
  ^bb0(%sum: f32, %in: f32, %out: f16):
    %one = arith.constant 1.000000e+00 : f32
    %15 = arith.divf %one, %sum : f32
    %16 = arith.mulf %15, %in : f32
    %17 = arith.truncf %16 : f32 to f16
    linalg.yield %17 : f16
  } -> tensor<12x128x64xf16>
  iree_tensor_ext.dispatch.tensor.store %14, %6, offsets = [0, 0, 0], sizes = [12, 128, 64], strides = [1, 1, 1] : tensor<12x128x64xf16> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<12x128x64xf16>>
  return
}

func.func @other() {
  %c0 = arith.constant 0 : index
  %0 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(0) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<512x512xf32>>
  %1 = iree_tensor_ext.dispatch.tensor.load %0, offsets = [0, 0], sizes = [512, 512], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<512x512xf32>> -> tensor<512x512xf32>
  %2 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(1) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<512x512xf32>>
  %3 = iree_tensor_ext.dispatch.tensor.load %2, offsets = [0, 0], sizes = [512, 512], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<512x512xf32>> -> tensor<512x512xf32>
  %4 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(2) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<writeonly:tensor<512x512xf32>>
  %cst = arith.constant 0.000000e+00 : f32
  %5 = tensor.empty() : tensor<512x512xf32>
  %6 = linalg.fill ins(%cst : f32) outs(%5 : tensor<512x512xf32>) -> tensor<512x512xf32>
  %7 = linalg.matmul ins(%1, %3 : tensor<512x512xf32>, tensor<512x512xf32>) outs(%6 : tensor<512x512xf32>) -> tensor<512x512xf32>
  iree_tensor_ext.dispatch.tensor.store %7, %4, offsets = [0, 0], sizes = [512, 512], strides = [1, 1] : tensor<512x512xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<512x512xf32>>
  return
}
