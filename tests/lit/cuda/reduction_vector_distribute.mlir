// A softmax: two reductions and what follows them.
// RUN: %configure_with=%templates/cuda/reduction_vector_distribute.mlir %s | filecheck %s --check-prefix=DEFAULT
// RUN: %bind %templates/cuda/reduction_vector_distribute.mlir %s vector=2 subgroups=4 rounds=2 no_reduce_shared_memory_bank_conflicts=true 'reorder_workgroups_strategy=#iree_gpu.reorder_workgroups_strategy<Transpose>' > %t.mlir
// RUN: %configure_with=%t.mlir %s | filecheck %s --check-prefix=BOUND

// DEFAULT-LABEL: func.func @softmax()
// DEFAULT-SAME:    translation_info = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<VectorDistribute> workgroup_size = [64, 1, 1] subgroup_size = 32, {gpu_pipeline_options = #iree_gpu.pipeline_options<no_reduce_shared_memory_bank_conflicts = false, reorder_workgroups_strategy = <None>>}>
// DEFAULT:         iterator_types = ["parallel", "reduction"]
// DEFAULT-SAME:      lowering_config = #iree_gpu.lowering_config<{{.*}}partial_reduction = [0, 256]
// DEFAULT-LABEL: func.func @other()
// DEFAULT-NOT:     lowering_config
// DEFAULT-NOT:     translation_info

// The reductions and the op along the reduced loop share a row alike: 4 warps, 2 elements of a thread at a time, twice.
// BOUND-LABEL: func.func @softmax()
// BOUND-SAME:    workgroup_size = [128, 1, 1] subgroup_size = 32, {gpu_pipeline_options = #iree_gpu.pipeline_options<no_reduce_shared_memory_bank_conflicts = true, reorder_workgroups_strategy = <Transpose>>}>
// BOUND:         iterator_types = ["parallel", "reduction"]
// BOUND-SAME:      lane_basis = {{\[\[}}1, 32], [0, 1]], partial_reduction = [0, 512], subgroup_basis = {{\[\[}}1, 4], [0, 1]], thread = [0, 2]
// BOUND:         iterator_types = ["parallel", "reduction"]
// BOUND-SAME:      partial_reduction = [0, 512]
// BOUND-SAME:      thread = [0, 2], workgroup = [1, 0]
// BOUND-SAME:      mlsearch.entry = "bound"
// BOUND:         iterator_types = ["parallel", "parallel"]
// BOUND-SAME:      serial = [0, 512]
// BOUND-SAME:      thread = [0, 2]
// BOUND-LABEL: func.func @other()
// BOUND-NOT:     lowering_config

func.func @softmax() {
  %c0 = arith.constant 0 : index
  %0 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(0) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<1024x1024xf32>>
  %1 = iree_tensor_ext.dispatch.tensor.load %0, offsets = [0, 0], sizes = [1024, 1024], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<1024x1024xf32>> -> tensor<1024x1024xf32>
  %2 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(1) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<writeonly:tensor<1024x1024xf32>>
  %cst = arith.constant 0xFF800000 : f32
  %3 = tensor.empty() : tensor<1024xf32>
  %4 = linalg.fill ins(%cst : f32) outs(%3 : tensor<1024xf32>) -> tensor<1024xf32>
  %5 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%1 : tensor<1024x1024xf32>) outs(%4 : tensor<1024xf32>) {
  ^bb0(%in: f32, %out: f32):
    %11 = arith.maxnumf %in, %out : f32
    linalg.yield %11 : f32
  } -> tensor<1024xf32>
  %cst_0 = arith.constant 0.000000e+00 : f32
  %6 = tensor.empty() : tensor<1024xf32>
  %7 = linalg.fill ins(%cst_0 : f32) outs(%6 : tensor<1024xf32>) -> tensor<1024xf32>
  %8 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%1, %5 : tensor<1024x1024xf32>, tensor<1024xf32>) outs(%7 : tensor<1024xf32>) {
  ^bb0(%in: f32, %in_1: f32, %out: f32):
    %11 = arith.subf %in, %in_1 : f32
    %12 = math.exp %11 : f32
    %13 = arith.addf %12, %out : f32
    linalg.yield %13 : f32
  } -> tensor<1024xf32>
  %9 = tensor.empty() : tensor<1024x1024xf32>
  %10 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%1, %5, %8 : tensor<1024x1024xf32>, tensor<1024xf32>, tensor<1024xf32>) outs(%9 : tensor<1024x1024xf32>) {
  ^bb0(%in: f32, %in_1: f32, %in_2: f32, %out: f32):
    %11 = arith.subf %in, %in_1 : f32
    %12 = math.exp %11 : f32
    %13 = arith.divf %12, %in_2 : f32
    linalg.yield %13 : f32
  } -> tensor<1024x1024xf32>
  iree_tensor_ext.dispatch.tensor.store %10, %2, offsets = [0, 0], sizes = [1024, 1024], strides = [1, 1] : tensor<1024x1024xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<1024x1024xf32>>
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
