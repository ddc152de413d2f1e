// An elementwise op on its own.
// RUN: %configure_with=%templates/cuda/elementwise_tile_and_fuse.mlir %s | filecheck %s --check-prefix=DEFAULT
// RUN: %bind %templates/cuda/elementwise_tile_and_fuse.mlir %s vector=2 threads=32 rows=8 rounds=4 'promote=[0]' no_reduce_shared_memory_bank_conflicts=true 'counted=["p", "p1"]' > %t.mlir
// RUN: %configure_with=%t.mlir %s | filecheck %s --check-prefix=BOUND

// DEFAULT-LABEL: func.func @elementwise()
// DEFAULT-SAME:    translation_info = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [64, 1, 1] subgroup_size = 32, {gpu_pipeline_options = #iree_gpu.pipeline_options<no_reduce_shared_memory_bank_conflicts = false>}>
// DEFAULT:         linalg.generic
// DEFAULT-SAME:      lowering_config = #iree_gpu.lowering_config<{thread = [1, 4], workgroup = [1, 256]}>
// DEFAULT-LABEL: func.func @other()
// DEFAULT-NOT:     lowering_config
// DEFAULT-NOT:     translation_info

// BOUND-LABEL: func.func @elementwise()
// BOUND-SAME:    #iree_gpu.pipeline<TileAndFuse> workgroup_size = [32, 8, 1] subgroup_size = 32, {gpu_pipeline_options = #iree_gpu.pipeline_options<no_reduce_shared_memory_bank_conflicts = true>}>
// BOUND:         linalg.generic
// BOUND-SAME:      lowering_config = #iree_gpu.lowering_config<{promote_operands = [0], thread = [4, 2], workgroup = [32, 64]}>
// BOUND-SAME:      mlsearch.entry = "bound"
// BOUND-LABEL: func.func @other()
// BOUND-NOT:     lowering_config

func.func @elementwise() {
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

func.func @other() {
  %c0 = arith.constant 0 : index
  %0 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(0) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<512x512xf32>>
  %1 = iree_tensor_ext.dispatch.tensor.load %0, offsets = [0, 0], sizes = [512, 512], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<512x512xf32>> -> tensor<512x512xf32>
  %2 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(1) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<512x512xf32>>
  %3 = iree_tensor_ext.dispatch.tensor.load %2, offsets = [0, 0], sizes = [512, 512], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<512x512xf32>> -> tensor<512x512xf32>
  %4 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(2) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<512x512xf32>>
  %5 = iree_tensor_ext.dispatch.tensor.load %4, offsets = [0, 0], sizes = [512, 512], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<512x512xf32>> -> tensor<512x512xf32>
  %6 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(3) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<writeonly:tensor<512x512xf32>>
  %7 = linalg.matmul ins(%1, %3 : tensor<512x512xf32>, tensor<512x512xf32>) outs(%5 : tensor<512x512xf32>) -> tensor<512x512xf32>
  iree_tensor_ext.dispatch.tensor.store %7, %6, offsets = [0, 0], sizes = [512, 512], strides = [1, 1] : tensor<512x512xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<512x512xf32>>
  return
}
