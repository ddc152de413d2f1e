// A convolution over time of width 5, channels first, 256 to 512 channels in 8 sequences of 512, without padding.
func.func @conv1d(%x: tensor<8x256x512xf32>, %w: tensor<512x256x5xf32>) -> tensor<8x512x508xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x512x508xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<8x512x508xf32>) -> tensor<8x512x508xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(n, o, t, c, w) -> (n, c, t + w)>, affine_map<(n, o, t, c, w) -> (o, c, w)>, affine_map<(n, o, t, c, w) -> (n, o, t)>],
      iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
      ins(%x, %w : tensor<8x256x512xf32>, tensor<512x256x5xf32>) outs(%f : tensor<8x512x508xf32>) {
  ^bb0(%v: f32, %k: f32, %sum: f32):
    %product = arith.mulf %v, %k : f32
    %next = arith.addf %sum, %product : f32
    linalg.yield %next : f32
  } -> tensor<8x512x508xf32>
  return %r : tensor<8x512x508xf32>
}
