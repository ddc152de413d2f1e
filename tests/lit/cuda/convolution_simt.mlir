// A convolution on CUDA cores.
// RUN: %configure_with=%templates/cuda/convolution_simt.mlir %s | filecheck %s --check-prefix=DEFAULT
// RUN: %bind %templates/cuda/convolution_simt.mlir %s thread_o=7 thread_n=2 threads_o=8 threads_n=16 threads_o1=2 step_k=8 step_f=3 step_f1=1 > %t.mlir
// RUN: %configure_with=%t.mlir %s | filecheck %s --check-prefix=BOUND

// DEFAULT-LABEL: func.func @convolution()
// DEFAULT-SAME:    translation_info = #iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [64, 1, 1] subgroup_size = 32>
// DEFAULT:         linalg.conv_2d_nhwc_hwcf
// DEFAULT-SAME:      lowering_config = #iree_gpu.lowering_config<
// DEFAULT-LABEL: func.func @other()
// DEFAULT-NOT:     translation_info

// BOUND-LABEL: func.func @convolution()
// BOUND-SAME:    #iree_gpu.pipeline<TileAndFuse> workgroup_size = [256, 1, 1] subgroup_size = 32>
// BOUND:         linalg.conv_2d_nhwc_hwcf
// BOUND-SAME:      reduction = [0, 0, 0, 0, 1, 3, 8], thread = [1, 1, 7, 2, 0, 0, 0], workgroup = [1, 2, 56, 32, 0, 0, 0]
// BOUND-SAME:      mlsearch.entry = "bound"
// BOUND-LABEL: func.func @other()
// BOUND-NOT:     translation_info

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
