// A softmax, whose ops a strategy configures and whose reductions it cuts after IREE has prepared it.
// RUN: %configure_with=%templates/cpu/reduction_partial_rows.mlir %s | filecheck %s --check-prefix=DEFAULT
// RUN: %bind %templates/cpu/reduction_partial_rows.mlir %s tile_p=2 tile_r=128 tile_in=64 dist_p=8 stored=0 > %t.mlir
// RUN: %configure_with=%t.mlir %s | filecheck %s --check-prefix=BOUND
// RUN: %bind %templates/cpu/reduction_partial_rows.mlir %s tile_p=2 tile_r=128 tile_in=64 dist_p=8 stored=1 > %t.stored.mlir
// RUN: %configure_with=%t.stored.mlir %s | filecheck %s --check-prefix=BOUND

// DEFAULT-LABEL: func.func @softmax()
// DEFAULT-SAME:    codegen_spec = @strategy
// DEFAULT-LABEL: func.func @other()
// DEFAULT-NOT:     translation_info

// BOUND-LABEL: func.func @softmax()
// BOUND-SAME:    mlsearch.entry = "bound"
// BOUND-SAME:    codegen_spec = @strategy_bound
// BOUND-LABEL: func.func @other()
// BOUND-NOT:     translation_info

// RUN: iree-opt --mlir-print-local-scope %t.mlir | filecheck %s --check-prefix=LIBRARY
// LIBRARY-LABEL: transform.named_sequence @configure_bound
// LIBRARY:         lowering_config<vector_common_parallel = [2]>
// LIBRARY:         lowering_config<vector_common_parallel = [2, 0], vector_reduction = [0, 128]>
// LIBRARY:         lowering_config<distribution = [16, 0], vector_common_parallel = [2, 0], vector_reduction = [0, 128]>
// LIBRARY:         lowering_config<vector_common_parallel = [2, 0], vector_inner_parallel = [0, 64]>
// Both reductions are cut, the maximum and the sum; each is found by its config.
// LIBRARY-LABEL: transform.named_sequence @cut_reductions_bound
// LIBRARY:         lowering_config<vector_common_parallel = [2, 0], vector_reduction = [0, 128]>
// LIBRARY:         tile_reduction_using_for {{.*}} tile_sizes = [0, 128]
// LIBRARY:         lowering_config<distribution = [16, 0]
// LIBRARY:         tile_reduction_using_for {{.*}} tile_sizes = [0, 128]
// LIBRARY-LABEL: transform.named_sequence @strategy_bound
// LIBRARY:         transform.include @configure_bound
// LIBRARY:         param.constant 0 : i64
// LIBRARY:         transform.include @store_bound failures(suppress)
// LIBRARY:         transform.include @cut_reductions_bound
// LIBRARY:         "vector.reduction"
// LIBRARY:         #arith.fastmath<reassoc>
// LIBRARY:         "arith.divf"
// LIBRARY:         #arith.fastmath<arcp>

// A whole row of 1024 is summed up in one step, so that its exponentials are there; then all is cut as usual.
// RUN: iree-opt --mlir-print-local-scope %t.stored.mlir | filecheck %s --check-prefix=STORED
// STORED-LABEL: transform.named_sequence @store_bound
// STORED:         tile_reduction_using_for {{.*}} tile_sizes = [0, 1024]
// STORED-NOT:     mlsearch.sizes
// STORED:         "iree-codegen-decompose-linalg-generic"
// STORED:         "linalg-fuse-elementwise-ops"
// STORED:         tile_using_for {{.*}} tile_sizes [0, 64]
// STORED:         tile_reduction_using_for {{.*}} tile_sizes = [0, 128]
// STORED-LABEL: transform.named_sequence @strategy_bound
// STORED:         param.constant 1 : i64
// STORED:         transform.include @store_bound failures(suppress)

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
