// A matmul and what is fused behind it.
// RUN: %configure_with=%templates/cpu/contraction_double_tiling.mlir %s | filecheck %s --check-prefix=DEFAULT
// RUN: %bind %templates/cpu/contraction_double_tiling.mlir %s tile_m=4 tile_n=16 step_k=2 cache_m=2 cache_n=4 cache_k=64 'cache_order=["n", "m"]' after_m=2 dist_m=4 dist_n=0 peel=true > %t.mlir
// RUN: %configure_with=%t.mlir %s | filecheck %s --check-prefix=BOUND

// As it stands, the template takes the contraction of both functions, and no other op.
// DEFAULT-LABEL: func.func @matmul()
// DEFAULT-SAME:    translation_info = #iree_codegen.translation_info<pipeline = #iree_cpu.pipeline<DoubleTilingExpert>
// DEFAULT:         linalg.matmul
// DEFAULT-SAME:      lowering_config = #iree_cpu.lowering_config<{{.*}}vector_common_parallel = [{{[0-9]+, [0-9]+}}, 0]
// DEFAULT-SAME:      vector_reduction = [0, 0, {{[0-9]+}}]
// DEFAULT-LABEL: func.func @plain()
// DEFAULT:         linalg.matmul
// DEFAULT-SAME:      lowering_config
// DEFAULT-LABEL: func.func @other()
// DEFAULT-NOT:     lowering_config
// DEFAULT-NOT:     translation_info

// Bound to the first function, it takes that one only, and hands its tiles on to the other ops, fewer rows at
// a time to those after it.
// BOUND-LABEL: func.func @matmul()
// BOUND-SAME:    translation_info = #iree_codegen.translation_info<pipeline = #iree_cpu.pipeline<DoubleTilingExpert>, {enable_loop_peeling}>
// BOUND:         linalg.fill
// BOUND-SAME:      lowering_config = #iree_cpu.lowering_config<vector_common_parallel = [4, 16]>
// BOUND:         linalg.matmul
// BOUND-SAME:      cache_parallel = {sizes = [8, 64, 0], interchange = [1, 0, 2]}
// BOUND-SAME:      cache_reduction = [0, 0, 64]
// BOUND-SAME:      distribution = [32, 0, 0]
// BOUND-SAME:      vector_common_parallel = [4, 16, 0]
// BOUND-SAME:      vector_reduction = [0, 0, 2]
// BOUND-SAME:      mlsearch.entry = "bound"
// BOUND:         linalg.generic
// BOUND-SAME:      lowering_config = #iree_cpu.lowering_config<vector_common_parallel = [2, 16]>
// BOUND-LABEL: func.func @plain()
// BOUND-NOT:     lowering_config
// BOUND-LABEL: func.func @other()
// BOUND-NOT:     lowering_config

func.func @matmul() {
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
  %8 = tensor.empty() : tensor<512x512xf32>
  %9 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%7 : tensor<512x512xf32>) outs(%8 : tensor<512x512xf32>) {
  ^bb0(%in: f32, %out: f32):
    %10 = math.exp %in : f32
    linalg.yield %10 : f32
  } -> tensor<512x512xf32>
  iree_tensor_ext.dispatch.tensor.store %9, %4, offsets = [0, 0], sizes = [512, 512], strides = [1, 1] : tensor<512x512xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<512x512xf32>>
  return
}

func.func @plain() {
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

func.func @other() {
  %c0 = arith.constant 0 : index
  %0 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(0) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<1024x1024xf32>>
  %1 = iree_tensor_ext.dispatch.tensor.load %0, offsets = [0, 0], sizes = [1024, 1024], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<1024x1024xf32>> -> tensor<1024x1024xf32>
  %2 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(1) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<writeonly:tensor<1024x1024xf32>>
  %3 = tensor.empty() : tensor<1024x1024xf32>
  %4 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%1 : tensor<1024x1024xf32>) outs(%3 : tensor<1024x1024xf32>) {
  ^bb0(%in: f32, %out: f32):
    %5 = math.exp %in : f32
    linalg.yield %5 : f32
  } -> tensor<1024x1024xf32>
  iree_tensor_ext.dispatch.tensor.store %4, %2, offsets = [0, 0], sizes = [1024, 1024], strides = [1, 1] : tensor<1024x1024xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<1024x1024xf32>>
  return
}
