// A dense layer with ReLU in TOSA, the dialect that TensorFlow Lite models are imported to.
func.func @dense(%x: tensor<1x16x64xf32>, %w: tensor<1x64x32xf32>, %bias: tensor<1x1x32xf32>) -> tensor<1x16x32xf32> {
  %zp = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
  %0 = tosa.matmul %x, %w, %zp, %zp : (tensor<1x16x64xf32>, tensor<1x64x32xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<1x16x32xf32>
  %1 = tosa.add %0, %bias : (tensor<1x16x32xf32>, tensor<1x1x32xf32>) -> tensor<1x16x32xf32>
  %2 = "tosa.clamp"(%1) <{min_val = 0.0 : f32, max_val = 3.40282347E+38 : f32, nan_mode = #tosa.nan_mode<PROPAGATE>}> : (tensor<1x16x32xf32>) -> tensor<1x16x32xf32>
  return %2 : tensor<1x16x32xf32>
}
