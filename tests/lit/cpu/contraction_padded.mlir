// Contractions of three loops, which a strategy cuts, padding the columns that are left.
// RUN: %configure_with=%templates/cpu/contraction_padded.mlir %s | filecheck %s --check-prefix=DEFAULT
// RUN: %bind %templates/cpu/contraction_padded.mlir %s tile_m=6 tile_n=64 step_k=2 cache_k=64 dist_m=4 panel=1 > %t.mlir
// RUN: %configure_with=%t.mlir %s | filecheck %s --check-prefix=BOUND

// DEFAULT-LABEL: func.func @matmul()
// DEFAULT-SAME:    codegen_spec = @strategy
// DEFAULT-LABEL: func.func @bytes()
// DEFAULT-SAME:    codegen_spec = @strategy
// DEFAULT-LABEL: func.func @batches()
// DEFAULT-NOT:     translation_info
// DEFAULT-LABEL: func.func @other()
// DEFAULT-NOT:     translation_info

// BOUND-LABEL: func.func @matmul()
// BOUND-SAME:    mlsearch.entry = "bound"
// BOUND-SAME:    codegen_spec = @strategy_bound
// BOUND-LABEL: func.func @other()
// BOUND-NOT:     translation_info

// RUN: iree-opt --mlir-print-local-scope %t.mlir | filecheck %s --check-prefix=LIBRARY
// LIBRARY-LABEL: transform.named_sequence @configure_bound
// LIBRARY:         lowering_config<vector_common_parallel = [6, 64]>
// LIBRARY:         cache_parallel = [0, 64, 0]
// LIBRARY-SAME:    cache_reduction = [0, 0, 64]
// LIBRARY-SAME:    distribution = [24, 0, 0]
// LIBRARY-SAME:    vector_common_parallel = [6, 64, 0]
// LIBRARY-SAME:    vector_reduction = [0, 0, 2]
// LIBRARY-LABEL: transform.named_sequence @is_panel_bound
// LIBRARY:         param.constant 64 : i64
// LIBRARY:         param.constant 1 : i64
// LIBRARY-LABEL: transform.named_sequence @is_rest_bound
// LIBRARY:         param.constant 64 : i64
// LIBRARY-LABEL: transform.named_sequence @strategy_bound
// LIBRARY:         transform.include @configure_bound
// LIBRARY:         collect_matching @is_panel_bound
// LIBRARY:         collect_matching @is_rest_bound
// LIBRARY:         param.constant 64 : i64
// LIBRARY:         nofold_flags = [0, 1, 0]
// LIBRARY:         param.constant 64 : i64
// LIBRARY:         nofold_flags = [0, 0, 0]
// LIBRARY:         tile_sizes [0, 0, 2]

func.func @matmul() {
  %c0 = arith.constant 0 : index
  %b0 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(0) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<731x137xf32>>
  %a = iree_tensor_ext.dispatch.tensor.load %b0, offsets = [0, 0], sizes = [731, 137], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<731x137xf32>> -> tensor<731x137xf32>
  %b1 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(1) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<137x1023xf32>>
  %b = iree_tensor_ext.dispatch.tensor.load %b1, offsets = [0, 0], sizes = [137, 1023], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<137x1023xf32>> -> tensor<137x1023xf32>
  %b2 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(2) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<writeonly:tensor<731x1023xf32>>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<731x1023xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<731x1023xf32>) -> tensor<731x1023xf32>
  %r = linalg.matmul ins(%a, %b : tensor<731x137xf32>, tensor<137x1023xf32>) outs(%fill : tensor<731x1023xf32>) -> tensor<731x1023xf32>
  iree_tensor_ext.dispatch.tensor.store %r, %b2, offsets = [0, 0], sizes = [731, 1023], strides = [1, 1] : tensor<731x1023xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<731x1023xf32>>
  return
}

func.func @bytes() {
  %c0 = arith.constant 0 : index
  %b0 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(0) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<64x96xi8>>
  %a = iree_tensor_ext.dispatch.tensor.load %b0, offsets = [0, 0], sizes = [64, 96], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<64x96xi8>> -> tensor<64x96xi8>
  %b1 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(1) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<96x101xi8>>
  %b = iree_tensor_ext.dispatch.tensor.load %b1, offsets = [0, 0], sizes = [96, 101], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<96x101xi8>> -> tensor<96x101xi8>
  %b2 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(2) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<writeonly:tensor<64x101xi32>>
  %zero = arith.constant 0 : i32
  %empty = tensor.empty() : tensor<64x101xi32>
  %fill = linalg.fill ins(%zero : i32) outs(%empty : tensor<64x101xi32>) -> tensor<64x101xi32>
  %r = linalg.matmul ins(%a, %b : tensor<64x96xi8>, tensor<96x101xi8>) outs(%fill : tensor<64x101xi32>) -> tensor<64x101xi32>
  iree_tensor_ext.dispatch.tensor.store %r, %b2, offsets = [0, 0], sizes = [64, 101], strides = [1, 1] : tensor<64x101xi32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<64x101xi32>>
  return
}

func.func @batches() {
  %c0 = arith.constant 0 : index
  %b0 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(0) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<4x64x96xf32>>
  %a = iree_tensor_ext.dispatch.tensor.load %b0, offsets = [0, 0, 0], sizes = [4, 64, 96], strides = [1, 1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<4x64x96xf32>> -> tensor<4x64x96xf32>
  %b1 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(1) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<4x96x101xf32>>
  %b = iree_tensor_ext.dispatch.tensor.load %b1, offsets = [0, 0, 0], sizes = [4, 96, 101], strides = [1, 1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<4x96x101xf32>> -> tensor<4x96x101xf32>
  %b2 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(2) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<writeonly:tensor<4x64x101xf32>>
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x64x101xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x64x101xf32>) -> tensor<4x64x101xf32>
  %r = linalg.batch_matmul ins(%a, %b : tensor<4x64x96xf32>, tensor<4x96x101xf32>) outs(%fill : tensor<4x64x101xf32>) -> tensor<4x64x101xf32>
  iree_tensor_ext.dispatch.tensor.store %r, %b2, offsets = [0, 0, 0], sizes = [4, 64, 101], strides = [1, 1, 1] : tensor<4x64x101xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<4x64x101xf32>>
  return
}

func.func @other() {
  %c0 = arith.constant 0 : index
  %b0 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(0) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<512x1023xf32>>
  %a = iree_tensor_ext.dispatch.tensor.load %b0, offsets = [0, 0], sizes = [512, 1023], strides = [1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<512x1023xf32>> -> tensor<512x1023xf32>
  %b1 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(1) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<writeonly:tensor<512x1023xf32>>
  %empty = tensor.empty() : tensor<512x1023xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%a : tensor<512x1023xf32>) outs(%empty : tensor<512x1023xf32>) {
  ^bb0(%x: f32, %out: f32):
    %y = math.exp %x : f32
    linalg.yield %y : f32
  } -> tensor<512x1023xf32>
  iree_tensor_ext.dispatch.tensor.store %r, %b1, offsets = [0, 0], sizes = [512, 1023], strides = [1, 1] : tensor<512x1023xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<512x1023xf32>>
  return
}
