// Attention, whose parts a strategy tiles after IREE has prepared it.
// RUN: %configure_with=%templates/cpu/attention_hybrid.mlir %s | filecheck %s --check-prefix=DEFAULT
// RUN: %bind %templates/cpu/attention_hybrid.mlir %s tile_m=8 tile_s=64 dist_m=2 score_m=4 score_s=32 score_k=2 value_m=2 value_n=64 value_s=16 > %t.mlir
// RUN: %configure_with=%t.mlir %s | filecheck %s --check-prefix=BOUND

// DEFAULT-LABEL: func.func @attention()
// DEFAULT-SAME:    codegen_spec = @strategy
// DEFAULT-LABEL: func.func @other()
// DEFAULT-NOT:     translation_info

// BOUND-LABEL: func.func @attention()
// BOUND-SAME:    mlsearch.entry = "bound"
// BOUND-SAME:    codegen_spec = @strategy_bound
// BOUND-LABEL: func.func @other()
// BOUND-NOT:     translation_info

// Fills and the division move with the queries only.
// RUN: iree-opt --mlir-print-local-scope %t.mlir | filecheck %s --check-prefix=LIBRARY
// LIBRARY-LABEL: transform.named_sequence @configure_bound
// LIBRARY:         ops{["linalg.fill", "iree_linalg_ext.online_attention", "linalg.generic"]}
// LIBRARY:         lowering_config<vector_common_parallel = [1, 8, 0]>
// LIBRARY:         lowering_config<vector_common_parallel = [1, 8]>
// LIBRARY:         lowering_config<vector_common_parallel = [1, 8]>
// LIBRARY:         distribution = [1, 16, 0, 0, 0]
// LIBRARY-SAME:    vector_common_parallel = [1, 8, 0, 0, 0]
// LIBRARY-SAME:    vector_reduction = [0, 0, 0, 0, 64]
// LIBRARY:         lowering_config<vector_common_parallel = [1, 8, 0]>
// LIBRARY-LABEL: transform.named_sequence @strategy_bound
// LIBRARY:         transform.include @configure_bound
// LIBRARY:         pv_attrs = {lowering_config = #iree_cpu.lowering_config<vector_common_parallel = [1, 2, 64, 0], vector_reduction = [0, 0, 0, 16]>}
// LIBRARY-SAME:    qk_attrs = {lowering_config = #iree_cpu.lowering_config<vector_common_parallel = [1, 4, 0, 32], vector_reduction = [0, 0, 2, 0]>}
// LIBRARY:         pipeline = #iree_cpu.pipeline<LinalgExtTileAndVectorize>

func.func @attention() {
  %c0 = arith.constant 0 : index
  %0 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(0) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<12x128x64xf32>>
  %1 = iree_tensor_ext.dispatch.tensor.load %0, offsets = [0, 0, 0], sizes = [12, 128, 64], strides = [1, 1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<12x128x64xf32>> -> tensor<12x128x64xf32>
  %2 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(1) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<12x128x64xf32>>
  %3 = iree_tensor_ext.dispatch.tensor.load %2, offsets = [0, 0, 0], sizes = [12, 128, 64], strides = [1, 1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<12x128x64xf32>> -> tensor<12x128x64xf32>
  %4 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(2) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<12x128x64xf32>>
  %5 = iree_tensor_ext.dispatch.tensor.load %4, offsets = [0, 0, 0], sizes = [12, 128, 64], strides = [1, 1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<12x128x64xf32>> -> tensor<12x128x64xf32>
  %6 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(3) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<writeonly:tensor<12x128x64xf32>>
  %scale = arith.constant 1.250000e-01 : f32
  %zero = arith.constant 0.000000e+00 : f32
  %lowest = arith.constant -3.40282347E+38 : f32
  %7 = tensor.empty() : tensor<12x128x64xf32>
  %8 = tensor.empty() : tensor<12x128x64xf32>
  %9 = tensor.empty() : tensor<12x128xf32>
  %10 = linalg.fill ins(%zero : f32) outs(%8 : tensor<12x128x64xf32>) -> tensor<12x128x64xf32>
  %11 = linalg.fill ins(%lowest : f32) outs(%9 : tensor<12x128xf32>) -> tensor<12x128xf32>
  %12 = linalg.fill ins(%zero : f32) outs(%9 : tensor<12x128xf32>) -> tensor<12x128xf32>
  %13:3 = iree_linalg_ext.online_attention <indexing_maps = [affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d4, d3)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d4, d2)>, affine_map<(d0, d1, d2, d3, d4) -> ()>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1)>, affine_map<(d0, d1, d2, d3, d4) -> (d0, d1)>]> ins(%1, %3, %5, %scale : tensor<12x128x64xf32>, tensor<12x128x64xf32>, tensor<12x128x64xf32>, f32) outs(%10, %11, %12 : tensor<12x128x64xf32>, tensor<12x128xf32>, tensor<12x128xf32>) {
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  } -> tensor<12x128x64xf32>, tensor<12x128xf32>, tensor<12x128xf32>
  %14 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>, affine_map<(d0, d1, d2) -> (d0, d1, d2)>], iterator_types = ["parallel", "parallel", "parallel"]} ins(%13#2, %13#0 : tensor<12x128xf32>, tensor<12x128x64xf32>) outs(%7 : tensor<12x128x64xf32>) {
  ^bb0(%sum: f32, %in: f32, %out: f32):
    %one = arith.constant 1.000000e+00 : f32
    %15 = arith.divf %one, %sum : f32
    %16 = arith.mulf %15, %in : f32
    linalg.yield %16 : f32
  } -> tensor<12x128x64xf32>
  iree_tensor_ext.dispatch.tensor.store %14, %6, offsets = [0, 0, 0], sizes = [12, 128, 64], strides = [1, 1, 1] : tensor<12x128x64xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<12x128x64xf32>>
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
