// A convolution, whose configs a strategy sets after IREE has prepared it.
// RUN: %configure_with=%templates/cpu/convolution_hybrid.mlir %s | filecheck %s --check-prefix=DEFAULT
// RUN: %bind %templates/cpu/convolution_hybrid.mlir %s tile_o=8 tile_n=16 tile_k=2 dist_o1=2 dist_n=0 peel=true > %t.mlir
// RUN: %configure_with=%t.mlir %s | filecheck %s --check-prefix=BOUND

// DEFAULT-LABEL: func.func @convolution()
// DEFAULT-SAME:    codegen_spec = @strategy
// DEFAULT-LABEL: func.func @depthwise()
// DEFAULT-NOT:     translation_info
// DEFAULT-LABEL: func.func @pooling()
// DEFAULT-NOT:     translation_info
// DEFAULT-LABEL: func.func @other()
// DEFAULT-NOT:     translation_info

// BOUND-LABEL: func.func @convolution()
// BOUND-SAME:    mlsearch.entry = "bound"
// BOUND-SAME:    codegen_spec = @strategy_bound
// BOUND-LABEL: func.func @other()
// BOUND-NOT:     translation_info

// RUN: iree-opt --mlir-print-local-scope %t.mlir | filecheck %s --check-prefix=LIBRARY
// LIBRARY-LABEL: transform.named_sequence @configure_bound
// LIBRARY:         lowering_config<vector_common_parallel = [1, 1, 8, 16]>
// LIBRARY:         distribution = [1, 2, 0, 0, 0, 0, 0]
// LIBRARY-SAME:    vector_common_parallel = [1, 1, 8, 16, 0, 0, 0]
// LIBRARY-SAME:    vector_reduction = [0, 0, 0, 0, 1, 1, 2]
// LIBRARY-LABEL: transform.named_sequence @strategy_bound
// LIBRARY:         transform.include @configure_bound
// LIBRARY:         pipeline = #iree_cpu.pipeline<ConvTileAndDecomposeExpert>, {enable_loop_peeling}>

func.func @convolution() {
  %c0 = arith.constant 0 : index
  %0 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(0) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<1x58x58x64xf32>>
  %1 = iree_tensor_ext.dispatch.tensor.load %0, offsets = [0, 0, 0, 0], sizes = [1, 58, 58, 64], strides = [1, 1, 1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<1x58x58x64xf32>> -> tensor<1x58x58x64xf32>
  %2 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(1) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<3x3x64x64xf32>>
  %3 = iree_tensor_ext.dispatch.tensor.load %2, offsets = [0, 0, 0, 0], sizes = [3, 3, 64, 64], strides = [1, 1, 1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<3x3x64x64xf32>> -> tensor<3x3x64x64xf32>
  %4 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(2) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<writeonly:tensor<1x56x56x64xf32>>
  %cst = arith.constant 0.000000e+00 : f32
  %5 = tensor.empty() : tensor<1x56x56x64xf32>
  %6 = linalg.fill ins(%cst : f32) outs(%5 : tensor<1x56x56x64xf32>) -> tensor<1x56x56x64xf32>
  %7 = linalg.conv_2d_nhwc_hwcf ins(%1, %3 : tensor<1x58x58x64xf32>, tensor<3x3x64x64xf32>) outs(%6 : tensor<1x56x56x64xf32>) -> tensor<1x56x56x64xf32>
  iree_tensor_ext.dispatch.tensor.store %7, %4, offsets = [0, 0, 0, 0], sizes = [1, 56, 56, 64], strides = [1, 1, 1, 1] : tensor<1x56x56x64xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<1x56x56x64xf32>>
  return
}

func.func @depthwise() {
  %c0 = arith.constant 0 : index
  %b0 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(0) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<1x58x58x64xf32>>
  %t0 = iree_tensor_ext.dispatch.tensor.load %b0, offsets = [0, 0, 0, 0], sizes = [1, 58, 58, 64], strides = [1, 1, 1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<1x58x58x64xf32>> -> tensor<1x58x58x64xf32>
  %b1 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(1) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<3x3x64xf32>>
  %t1 = iree_tensor_ext.dispatch.tensor.load %b1, offsets = [0, 0, 0], sizes = [3, 3, 64], strides = [1, 1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<3x3x64xf32>> -> tensor<3x3x64xf32>
  %b2 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(2) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<writeonly:tensor<1x56x56x64xf32>>
  %zero = arith.constant 0.000000e+00 : f32
  %empty = tensor.empty() : tensor<1x56x56x64xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<1x56x56x64xf32>) -> tensor<1x56x56x64xf32>
  %window = linalg.depthwise_conv_2d_nhwc_hwc ins(%t0, %t1 : tensor<1x58x58x64xf32>, tensor<3x3x64xf32>) outs(%fill : tensor<1x56x56x64xf32>) -> tensor<1x56x56x64xf32>
  iree_tensor_ext.dispatch.tensor.store %window, %b2, offsets = [0, 0, 0, 0], sizes = [1, 56, 56, 64], strides = [1, 1, 1, 1] : tensor<1x56x56x64xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<1x56x56x64xf32>>
  return
}

func.func @pooling() {
  %c0 = arith.constant 0 : index
  %b0 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(0) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<readonly:tensor<1x58x58x64xf32>>
  %t0 = iree_tensor_ext.dispatch.tensor.load %b0, offsets = [0, 0, 0, 0], sizes = [1, 58, 58, 64], strides = [1, 1, 1, 1] : !iree_tensor_ext.dispatch.tensor<readonly:tensor<1x58x58x64xf32>> -> tensor<1x58x58x64xf32>
  %t1 = tensor.empty() : tensor<3x3xf32>
  %b2 = hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>, #hal.pipeline.binding<storage_buffer>]>) binding(2) alignment(64) offset(%c0) : !iree_tensor_ext.dispatch.tensor<writeonly:tensor<1x56x56x64xf32>>
  %zero = arith.constant 0.000000e+00 : f32
  %empty = tensor.empty() : tensor<1x56x56x64xf32>
  %fill = linalg.fill ins(%zero : f32) outs(%empty : tensor<1x56x56x64xf32>) -> tensor<1x56x56x64xf32>
  %window = linalg.pooling_nhwc_sum ins(%t0, %t1 : tensor<1x58x58x64xf32>, tensor<3x3xf32>) outs(%fill : tensor<1x56x56x64xf32>) -> tensor<1x56x56x64xf32>
  iree_tensor_ext.dispatch.tensor.store %window, %b2, offsets = [0, 0, 0, 0], sizes = [1, 56, 56, 64], strides = [1, 1, 1, 1] : tensor<1x56x56x64xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<1x56x56x64xf32>>
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
